"""Score requests for tests: one group of frames, every part of its view as a keyword; and engines to score them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from plain_transformers import PlainQwen3VL

from gridprobe.models import Choose, FrameGroup, Model, Packing, Request, SamplingParams, Timestamps, View
from gridprobe.models.base import Cost
from gridprobe.models.local.checkpoint import find_folder
from gridprobe.models.qwen3vl.engine import Qwen3VL, load_engine
from gridprobe.video import FramePool, FrameSize

__all__ = ["cost_of_texts", "like", "load_qwen", "noise_pool", "shown"]


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
    return Request(prompt, Choose(tuple(labels)), (FrameGroup(frames, View(pixels, packing, timestamps)),), **rest)


def load_qwen(name: str, **options: Any) -> Qwen3VL:
    engine = load_engine(name, find_folder(name), **options)
    assert isinstance(engine, Qwen3VL)
    return engine


def like(engine: Qwen3VL, *, plain: bool) -> Qwen3VL:
    """Another engine around the same weights, with nothing kept."""
    if plain:
        return PlainQwen3VL.around(engine)
    return Qwen3VL(engine._model, engine._tokenizer, spec=engine._spec, identity="again")


def cost_of_texts(model: Model, request: Request, tokens: Sequence[int]) -> Cost:
    """What a request and texts of these lengths cost: two texts less one are one."""

    def of(count: int, samples: int) -> Cost:
        task = SamplingParams(limit=count, temperature=1.0, samples=samples)
        return model.cost(replace(request, task=task))

    return sum((of(count, 2) - of(count, 1) for count in tokens[1:]), of(tokens[0], 1))
