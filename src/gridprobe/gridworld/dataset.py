"""The test set: numbered questions about numbered videos, made from their seeds and the same on every machine."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count as count_up
from itertools import islice
from typing import Literal

import numpy as np

from gridprobe.errors import UsageError
from gridprobe.gridworld.questions import FAMILIES, Asked, ask_about
from gridprobe.gridworld.render import Renderer, render_frames
from gridprobe.gridworld.world import TEST_SEEDS, TRAINING_SEEDS, Difficulty, Worlds, generate
from gridprobe.video import FramePool

__all__ = ["Item", "Split", "items", "pool_of", "world_of"]

Split = Literal["test", "train"]
SEEDS = {"test": TEST_SEEDS, "train": TRAINING_SEEDS}
SHORTEST, LONGEST = 60.0, 3600.0
"""Seconds a video lasts, log-uniform between these."""


@dataclass(frozen=True)
class Item:
    """A question about a video."""

    id: str
    seed: int
    """Of the video; items with the same seed share one."""
    duration: float
    asked: Asked
    difficulty: Difficulty = field(default_factory=Difficulty)

    @property
    def family(self) -> str:
        """What kind of question it is."""
        return self.asked.family

    @property
    def evidence(self) -> tuple[tuple[float, float], ...]:
        """When the evidence is on screen, in seconds; empty when the whole video is the evidence."""
        return tuple((start * self.duration, end * self.duration) for start, end in self.asked.evidence)


def items(
    count: int,
    *,
    split: Split = "test",
    per_video: int = 4,
    first: int = 0,
    difficulty: Difficulty | None = None,
) -> list[Item]:
    """Items `first` to `first + count`. Item i is the same however many are asked for.

    A video gets questions of different families as long as its script allows it, those asked least often so far before
    the others. Not every script has a ring or a digit to ask about, so prejudice stays rarer than the rest.
    """
    if split not in SEEDS:
        raise UsageError(f"split must be one of {', '.join(SEEDS)}, got {split!r}")
    if count < 0 or first < 0 or per_video < 1:
        raise UsageError(f"count, first and per_video cannot be {count}, {first} and {per_video}")
    return list(islice(_all_items(SEEDS[split], per_video, difficulty or Difficulty()), first, first + count))


def _all_items(seeds: range, per_video: int, difficulty: Difficulty) -> Iterator[Item]:
    asked_so_far: Counter[str] = Counter()
    for video, seed in enumerate(seeds):
        turn = {family: (place - video) % len(FAMILIES) for place, family in enumerate(FAMILIES)}
        order = sorted(FAMILIES, key=lambda family: (asked_so_far[family], turn[family]))
        world = generate(np.random.default_rng(seed), 1, difficulty)
        for place, asked in enumerate(islice(_questions(world, seed, order), per_video)):
            asked_so_far[asked.family] += 1
            name = f"gw-{video * per_video + place:07d}-{asked.family}"
            yield Item(name, seed, _duration(seed), asked, difficulty)


def _questions(world: Worlds, seed: int, order: list[str]) -> Iterator[Asked]:
    """One question of each family that has something to ask, then a second round, and so on."""
    for again in count_up():
        for family in order:
            asked = ask_about(world, 0, family, random.Random(f"{seed}:{family}:{again}"))
            if asked is not None:
                yield asked


def _duration(seed: int) -> float:
    """Whole seconds, so that whole frames fill the video exactly."""
    draw = random.Random(f"{seed}:duration").uniform(math.log(SHORTEST), math.log(LONGEST))
    return float(round(math.exp(draw)))


def world_of(item: Item) -> Worlds:
    """The script of the item's video."""
    return generate(np.random.default_rng(item.seed), 1, item.difficulty)


def pool_of(item: Item, *, cells: int = 144, size: int = 224, device: str = "cpu") -> FramePool:
    """The frames that sampling the item's video in the middle of equal shares would give, without the video."""
    world = world_of(item)
    time = ((np.arange(cells) + 0.5) / cells).astype(np.float32)
    if device == "cpu":  # painting only where objects are beats tensors here
        renderer = Renderer(world, size)
        pixels = np.stack([renderer.frame(float(moment)) for moment in time])
    else:
        picture = render_frames(world, time[None], size, device)[0].permute(0, 2, 3, 1)
        pixels = (picture * 255 + 0.5).byte().cpu().numpy()
    times = tuple((i + 0.5) / cells * item.duration for i in range(cells))
    return FramePool(pixels, times, source=f"gridworld:{item.seed}:{size}{_trait(item.difficulty)}")


def _trait(difficulty: Difficulty) -> str:
    """What sets a script apart from the usual one of its seed, since equal frame keys must mean equal pixels."""
    if difficulty == Difficulty():
        return ""
    return f":{difficulty.shortest!r}-{difficulty.longest!r}-{difficulty.digits!r}-{difficulty.needles}"
