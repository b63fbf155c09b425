"""Run the trainer: `python -m gridprobe_world.training`."""

from gridprobe_world.training.train import main

if __name__ == "__main__":
    main()
