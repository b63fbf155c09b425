"""How the embedded models are trained: `python -m training.train`."""
