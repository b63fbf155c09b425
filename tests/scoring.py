"""Score requests for tests: one group of frames, every part of its view as a keyword; and engines to score them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gridprobe.models import FrameGroup, Packing, Request, Timestamps, View
from gridprobe.models.local.checkpoint import find_folder
from gridprobe.models.qwen3vl.engine import Qwen3VL, load_engine
from gridprobe.video import FramePool, FrameSize

__all__ = ["like", "load_qwen", "noise_pool", "shown"]


def noise_pool(count: int, *, seed: int = 1, width: int = 96, height: int = 64) -> FramePool:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    return FramePool(pixels, tuple(7.0 * i + 3.5 for i in range(count)), source="noise")


def shown(
    frames: FramePool,
    prompt: str = "Question: ?",
    labels: Sequence[str] = ("A", "B"),
    *,
    pixels: FrameSize = FrameSize(),  # noqa: B008  # frozen
    packing: Packing = "single",
    timestamps: Timestamps = "true",
    **rest: Any,
) -> Request:
    return Request(prompt, tuple(labels), (FrameGroup(frames, View(pixels, packing, timestamps)),), **rest)


def load_qwen(name: str, **options: Any) -> Qwen3VL:
    return load_engine(name, find_folder(name), **options)


def like(engine: Qwen3VL, *, plain: bool) -> Qwen3VL:
    """Another engine around the same weights, with nothing kept."""
    return Qwen3VL(engine._model, engine._tokenizer, spec=engine._spec, identity="again", plain=plain)
