"""Videos of plain colours, an encoder that knows colours, and a model that sees them: a library without weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe import MockModel
from gridprobe.models import Request
from gridprobe.models.base import Cost
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.selectors.base import Encoder, Vectors
from gridprobe.video import FramePool, FrameSize, write_video

PAINT = {"red": (200, 20, 20), "green": (20, 160, 20), "blue": (20, 20, 200), "pink": (200, 60, 60)}
FPS = 4


def painted(path: Path, parts: Sequence[tuple[str, float]]) -> Path:
    """A video of these colours, each for that many seconds."""
    names = [name for name, seconds in parts for _ in range(round(seconds * FPS))]
    frames = (np.full((64, 64, 3), PAINT[name], np.uint8) for name in names)
    write_video(path, frames, fps=FPS, size=(64, 64), count=len(names), gop=8)
    return path


class ColourEncoder(Encoder):
    """A frame is its mean colour, a text the colour it names; pink is much like red to it."""

    def __init__(self, name: str = "colours") -> None:
        self._identity = f"encoder:{name}@1:float32"

    identity = property(lambda self: self._identity)
    image_size = FrameSize(max_side=32)
    scale, bias = 10.0, 0.0

    def images(self, frames: FramePool) -> Vectors:
        return _unit(frames.pixels.mean(axis=(1, 2)) - 60)

    def texts(self, texts: Sequence[str]) -> Vectors:
        named = [next((PAINT[word] for word in text.split() if word in PAINT), (60, 60, 61)) for text in texts]
        return _unit(np.array(named, np.float32) - 60)

    def image_cost(self, frames: FramePool) -> Cost:
        return Cost(calls=len(frames))

    def text_cost(self, texts: Sequence[str]) -> Cost:
        return Cost(calls=len(texts))


def _unit(values: Any) -> Vectors:
    wide = np.concatenate([values, np.ones((len(values), 5))], axis=1)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True), np.float32)


def sees_red(request: Request) -> dict[str, float]:
    """Yes if most of what is shown is red, and not pink."""
    colour = request.frames.pixels.mean(axis=(1, 2))
    red = float((np.abs(colour - PAINT["red"]).max(axis=1) < 25).mean())
    yes = 0.9 if red > 0.5 else 0.1
    return {"A": yes, "B": 1 - yes}


def plan_of(model: MockModel) -> Plan:
    return Options(effort="quick").resolve(model=model)
