"""How the embedded models are trained: `python -m gridprobe_world.training`."""
