"""The local engine: Qwen3-VL checkpoints run in this process through transformers.

request -> layout (prompt.py: tokens, markers, positions) + patches (pixels.py) -> engine.py -> letters.py -> Posterior
"""

from gridprobe.backends.qwen3vl.engine import Qwen3VL
from gridprobe.backends.qwen3vl.loading import load

__all__ = ["Qwen3VL", "load"]
