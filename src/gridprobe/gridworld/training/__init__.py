"""How the embedded models are trained: `python -m gridprobe.gridworld.training`."""
