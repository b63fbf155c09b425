"""Score requests for tests: one group of frames, every part of its view as a keyword."""

from collections.abc import Sequence
from typing import Any

from gridprobe.backends import FrameGroup, Packing, ScoreRequest, Timestamps, View
from gridprobe.backends.local.checkpoint import find_folder
from gridprobe.backends.qwen3vl.engine import Qwen3VL
from gridprobe.backends.qwen3vl.loading import load
from gridprobe.video import FramePool, FrameSize

__all__ = ["load_qwen", "shown"]


def shown(
    frames: FramePool,
    prompt: str = "Question: ?",
    labels: Sequence[str] = ("A", "B"),
    *,
    pixels: FrameSize = FrameSize(),  # noqa: B008  # frozen
    packing: Packing = "single",
    timestamps: Timestamps = "true",
    **rest: Any,
) -> ScoreRequest:
    return ScoreRequest(prompt, tuple(labels), (FrameGroup(frames, View(pixels, packing, timestamps)),), **rest)


def load_qwen(name: str, **options: Any) -> Qwen3VL:
    return load(name, find_folder(name), **options)
