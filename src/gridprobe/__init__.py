"""Ask long videos questions with a vision-language model, and pay only for the frames that matter.

import gridprobe as gp

model = gp.load_model("Qwen/Qwen3-VL-2B-Instruct")
answer = gp.ask("talk.mp4", gp.Question("Which city comes first?", options=["Oslo", "Rome", "Lima"]), model=model)
print(answer.choice, answer.text, answer.confidence)
answer.save_map("map.png")
"""

from gridprobe._version import __version__
from gridprobe.answer import Answer
from gridprobe.asynchronous import AsyncSession, aask
from gridprobe.backends import Scripted, load_model
from gridprobe.errors import Cancelled, DataError, GridProbeError, ModelError, RunError, UsageError, VideoError
from gridprobe.pipeline import Session, ask
from gridprobe.question import Question
from gridprobe.selectors import Selection, Selector
from gridprobe.video import FramePool, FrameSize, VideoInfo

__all__ = [
    "Answer",
    "AsyncSession",
    "Cancelled",
    "DataError",
    "FramePool",
    "FrameSize",
    "GridProbeError",
    "ModelError",
    "Question",
    "RunError",
    "Scripted",
    "Selection",
    "Selector",
    "Session",
    "UsageError",
    "VideoError",
    "VideoInfo",
    "__version__",
    "aask",
    "ask",
    "load_model",
]
