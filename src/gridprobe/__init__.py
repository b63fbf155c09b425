"""Ask long videos questions with a vision-language model, and pay only for the frames that matter.

import gridprobe as gp

model = gp.load_model("Qwen/Qwen3-VL-2B-Instruct")
answer = gp.ask("talk.mp4", gp.Question("Which city comes first?", options=["Oslo", "Rome", "Lima"]), model=model)
print(answer.choice, answer.text, answer.confidence)
answer.save_map("map.png")
"""

import importlib
import sys
from types import ModuleType

__version__ = "0.1.0"

TYPE_CHECKING = False
"""As in typing, whose import would be half of the time in which Ctrl-C cannot be handled yet; see `__main__`."""

if TYPE_CHECKING:
    from typing import Any

    from gridprobe.answer import Answer
    from gridprobe.ask import Session, ask, ask_many
    from gridprobe.errors import Cancelled, DataError, GridProbeError, ModelError, RunError, UsageError, VideoError
    from gridprobe.models import load_model
    from gridprobe.models.mock import MockModel
    from gridprobe.question import Question
    from gridprobe.selectors import Selection, Selector
    from gridprobe.video import FramePool, FrameSize, VideoInfo

__all__ = [
    "Answer",
    "Cancelled",
    "DataError",
    "FramePool",
    "FrameSize",
    "GridProbeError",
    "MockModel",
    "ModelError",
    "Question",
    "RunError",
    "Selection",
    "Selector",
    "Session",
    "UsageError",
    "VideoError",
    "VideoInfo",
    "__version__",
    "ask",
    "ask_many",
    "load_model",
]

_MODULES = {
    "gridprobe.answer": "Answer",
    "gridprobe.models": "load_model",
    "gridprobe.models.mock": "MockModel",
    "gridprobe.errors": "Cancelled DataError GridProbeError ModelError RunError UsageError VideoError",
    "gridprobe.ask": "Session ask ask_many",
    "gridprobe.question": "Question",
    "gridprobe.selectors": "Selection Selector",
    "gridprobe.video": "FramePool FrameSize VideoInfo",
}
"""Where the public names are. They are imported when they are first used, so that a command starts at once."""


class _Package(ModuleType):
    """`gridprobe.ask` is the function. Importing the module of that name must not put the module in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "ask" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> "Any":
    for module, names in _MODULES.items():
        if name in names.split():
            globals()[name] = getattr(importlib.import_module(module), name)
            return globals()[name]
    raise AttributeError(f"module 'gridprobe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
