"""The local engine for Qwen3-VL checkpoints, through transformers.

request -> layout (prompt.py: tokens, time markers, positions) + patches (pixels.py) -> engine.py -> Posterior

Importing this package loads no torch; `loading` and `engine` do.
"""
