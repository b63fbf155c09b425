"""Other vision-language families of transformers, driven through its own modules.

request -> turn.py (the checkpoint's chat turn as tokens) + pictures.py (frames as pictures) -> engine.py -> Posterior

Frames are shown as pictures, each after a text with its time. Importing this package loads no torch.
"""

from pathlib import Path
from typing import Any

from gridprobe.errors import ModelError
from gridprobe.models.base import CostModel, Model

KNOWN: tuple[str, ...] = ()
"""The cost of no model of these families is known by its name alone."""


NEEDED = (5, 22)
"""The version of transformers they were tried with; 5.20 fails for two of them, 5.17 for all."""


def load(name: str, folder: Path, **options: Any) -> Model:
    """Load a checkpoint; see `gridprobe.models.transformers.engine.load`."""
    check_version()
    from gridprobe.models.transformers.engine import load_engine as load_checkpoint

    return load_checkpoint(name, folder, **options)


def cost_model(name: str, folder: Path | None) -> CostModel | None:
    """The cost model of a checkpoint on this machine."""
    if folder is None:
        return None
    check_version()
    from gridprobe.models.transformers.engine import cost_model as cost_model_of_checkpoint

    return cost_model_of_checkpoint(name, folder)


def check_version() -> None:
    """Refuse a transformers that these families were not tried with."""
    import transformers

    version = str(transformers.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ModelError(
            f"families other than Qwen3-VL need transformers {needed} or later, and this is {version}; "
            "run: pip install -U transformers (with Python 3.11 or later)"
        )
