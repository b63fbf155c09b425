"""Run the trainer: `python -m gridprobe.gridworld.training`."""

from gridprobe.gridworld.training.train import main

if __name__ == "__main__":
    main()
