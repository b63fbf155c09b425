"""The test set: numbered questions about numbered videos, generated from seeds, the same on every machine."""

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as count_up
from itertools import islice
from typing import Literal

import numpy as np

from gridprobe.errors import UsageError
from gridprobe.gridworld.part_questions import PART_FAMILIES, ask_part
from gridprobe.gridworld.parts import PARTS, Part, generate_part
from gridprobe.gridworld.questions import FAMILIES, Asked, ask_about
from gridprobe.gridworld.render import Renderer, render_frames
from gridprobe.gridworld.words import ORDINALS, SHAPES
from gridprobe.gridworld.world import TEST_SEEDS, TRAINING_SEEDS, Difficulty, Worlds, generate
from gridprobe.video import FramePool

__all__ = ["CHOICES", "Item", "Split", "items", "pool_of", "rendered", "script", "world_of"]

Split = Literal["test", "train"]
SEEDS = {"test": TEST_SEEDS, "train": TRAINING_SEEDS}
CHOICES = (*PARTS, "all")
NAMES = frozenset((*SHAPES, *ORDINALS))
"""The words of a question that distinguish it from others with the same wording."""
SHORTEST, LONGEST = 60.0, 3600.0
"""Durations of videos in seconds, log-uniform between these."""
SHORTEST_BRIEF = 300.0
"""With this, a quarter of one of 144 cells is two frames of a video file at four frames per second."""


@dataclass(frozen=True)
class Item:
    """A question about a video."""

    id: str
    seed: int
    """Of the video; items with the same seed share one."""
    duration: float
    asked: Asked
    difficulty: Difficulty = field(default_factory=Difficulty)
    part: Part = "standard"

    @property
    def family(self) -> str:
        """What kind of question it is."""
        return self.asked.family

    @property
    def evidence(self) -> tuple[tuple[float, float], ...]:
        """When the evidence is on screen, in seconds; empty when the whole video is the evidence."""
        return self._seconds(self.asked.evidence)

    @property
    def hint(self) -> tuple[tuple[float, float], ...]:
        """When the marker that the question names is on screen, in seconds; empty for most questions."""
        return self._seconds(self.asked.hint)

    def _seconds(self, intervals: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        return tuple((start * self.duration, end * self.duration) for start, end in intervals)


def items(
    count: int,
    *,
    split: Split = "test",
    per_video: int = 4,
    first: int = 0,
    difficulty: Difficulty | None = None,
    part: str = "standard",
) -> list[Item]:
    """Items `first` to `first + count`. Item i is the same for any count.

    A video gets questions of different families if its script allows it, least frequent families first. Not every
    script has a ring or a digit to ask about, so prejudice is rarer than the rest.

    Args:
        count: how many items.
        split: videos made from test seeds or from training seeds.
        per_video: questions about each video.
        first: the number of the first item.
        difficulty: of the standard part's scripts.
        part: one of the test set's parts (`parts.PARTS`), or "all": a video of each in turn.
    """
    if split not in SEEDS:
        raise UsageError(f"split must be one of {', '.join(SEEDS)}, got {split!r}")
    if count < 0 or first < 0 or per_video < 1:
        raise UsageError(f"count, first and per_video cannot be {count}, {first} and {per_video}")
    if part not in CHOICES:
        raise UsageError(f"part must be one of {', '.join(CHOICES)}, got {part!r}")
    if difficulty is not None and part != "standard":
        raise UsageError(f"difficulty belongs to the standard part, not to {part}; leave it out")
    chosen = PARTS if part == "all" else tuple(name for name in PARTS if name == part)
    streams = [_part_items(SEEDS[split], per_video, name, difficulty or Difficulty()) for name in chosen]
    return list(islice(_in_turn(streams, per_video), first, first + count))


def _part_items(seeds: range, per_video: int, part: Part, difficulty: Difficulty) -> Iterator[Item]:
    if part == "standard":
        yield from _standard_items(seeds, per_video, difficulty)
        return
    families = list(PART_FAMILIES[part])
    for video, seed in enumerate(seeds):
        world = script(seed, part)
        asked: set[tuple[str, ...]] = set()
        for place in range(per_video):
            number = video * per_video + place
            question = _new_question(world, f"{seed}:{part}", families[number % len(families)], asked)
            yield Item(f"gw-{part}-{number:07d}-{question.family}", seed, _duration(seed, part), question, part=part)


def _new_question(world: Worlds, name: str, family: str, asked: set[tuple[str, ...]]) -> Asked:
    """A question that was not asked about this video yet, if the script has one."""
    for again in range(20):
        question = ask_part(world, 0, family, random.Random(f"{name}:{family}:{len(asked)}:{again}"))
        words = (word.strip("?.,") for word in question.question.text.split())
        key = (question.wording, *(word for word in words if word in NAMES))
        if key not in asked:
            break
    asked.add(key)
    return question


def _in_turn(streams: Sequence[Iterator[Item]], per_video: int) -> Iterator[Item]:
    """The items of one video from each stream in turn."""
    while True:
        for stream in streams:
            yield from islice(stream, per_video)


def _standard_items(seeds: range, per_video: int, difficulty: Difficulty) -> Iterator[Item]:
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
    """One question of each family that suits the script, then a second round, and so on."""
    for again in count_up():
        for family in order:
            asked = ask_about(world, 0, family, random.Random(f"{seed}:{family}:{again}"))
            if asked is not None:
                yield asked


def _duration(seed: int, part: Part = "standard") -> float:
    """Whole seconds, so that whole frames fill the video exactly."""
    shortest = SHORTEST_BRIEF if part == "brief" else SHORTEST
    draw = random.Random(f"{seed}:duration").uniform(math.log(shortest), math.log(LONGEST))
    return float(round(math.exp(draw)))


def world_of(item: Item) -> Worlds:
    """The script of the item's video."""
    if item.part == "standard":
        return generate(np.random.default_rng(item.seed), 1, item.difficulty)
    return script(item.seed, item.part)


def script(seed: int, part: Part) -> Worlds:
    """The script made from a seed."""
    if part == "standard":
        return generate(np.random.default_rng(seed), 1)
    return generate_part(np.random.default_rng([seed, PARTS.index(part)]), 1, part)


def pool_of(item: Item, *, cells: int = 144, size: int = 224, device: str = "cpu") -> FramePool:
    """The frames that sampling the middles of equal shares of the item's video would give, without the video."""
    source = f"gridworld:{item.seed}:{size}{_trait(item)}"
    return rendered(world_of(item), item.duration, source=source, cells=cells, size=size, device=device)


def rendered(world: Worlds, duration: float, *, source: str, cells: int, size: int, device: str) -> FramePool:
    """Frames of a script at the middles of equal shares of its time."""
    time = ((np.arange(cells) + 0.5) / cells).astype(np.float32)
    if device == "cpu":  # painting only where objects are is faster than tensors here
        renderer = Renderer(world, size)
        pixels = np.stack([renderer.frame(float(moment)) for moment in time])
    else:
        picture = render_frames(world, time[None], size, device)[0].permute(0, 2, 3, 1)
        pixels = (picture * 255 + 0.5).byte().cpu().numpy()
    return FramePool(pixels, tuple((i + 0.5) / cells * duration for i in range(cells)), source=source)


def _trait(item: Item) -> str:
    """How a script differs from the usual one of its seed, since equal frame keys must mean equal pixels."""
    difficulty = item.difficulty
    if item.part != "standard":
        return f":{item.part}"
    if difficulty == Difficulty():
        return ""
    return f":{difficulty.shortest!r}-{difficulty.longest!r}-{difficulty.digits!r}-{difficulty.needles}"
