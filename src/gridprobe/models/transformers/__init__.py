"""Other vision-language families of transformers, driven through its own modules.

request -> turn.py (the checkpoint's chat turn as tokens) + pictures.py (frames as pictures) -> engine.py -> Posterior

Frames are shown as pictures, each after a text with its time. Importing this package loads no torch.
"""
