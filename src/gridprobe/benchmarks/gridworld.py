"""gridworld as a benchmark: questions and videos made from seeds, the same on every machine."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from gridprobe.benchmarks.base import Benchmark, Item, Metric
from gridprobe.benchmarks.rows import choose
from gridprobe.benchmarks.scores import accuracy, by_bin
from gridprobe.errors import UsageError

if TYPE_CHECKING:
    from gridprobe.gridworld import dataset as gridworld
    from gridprobe.gridworld.dataset import Split
    from gridprobe.gridworld.parts import Part

__all__ = ["load", "make_video", "metrics"]

SIDE = 224


def load(data: Path, *, count: int = 400, first: int = 0, split: str = "test", part: str = "standard") -> Benchmark:
    """Items `first` to `first + count`; their videos are made in `data` when they are needed.

    Args:
        data: the folder for the videos.
        count: how many questions.
        first: the number of the first one.
        split: "test" or "train".
        part: "standard", "fine", "brief", "crowded", "unanswerable", or "all" for a video of each in turn. Of the
            unanswerable part one question in three has no right option: its answer is None, and accuracy leaves it out.
    """
    from gridprobe.gridworld.dataset import CHOICES, items

    choose("split", split, ("test", "train"))
    choose("part", part, CHOICES)
    for name, value, least in (("count", count, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r}")
    found = []
    for made in items(count, first=first, split=cast("Split", split), part=part):
        found.append(
            Item(
                id=made.id,
                question=replace(made.asked.question, id=made.id),
                video=data / f"gridworld-{made.seed}-{SIDE}{_suffix(made.part)}.mp4",
                group=str(made.seed),
                bins={"family": made.family, "part": made.part},
                duration=made.duration,
                extra=_extra(made),
            )
        )
    return Benchmark("gridworld", f"gridworld-{len(found)}-{_fingerprint(found)}", tuple(found))


def _suffix(part: str) -> str:
    return "" if part == "standard" else f"-{part}"


def _extra(made: "gridworld.Item") -> dict[str, Any]:
    """What else is known about an item; hints only where there are any, so that old releases keep their fingerprint."""
    hint = {"hint": [list(interval) for interval in made.hint]} if made.hint else {}
    return {"seed": made.seed, "evidence": [list(interval) for interval in made.evidence], **hint}


def _fingerprint(items: Sequence[Item]) -> str:
    """There is no file to hash, so it is the questions themselves: a changed generator is another release."""
    content = [[item.id, item.question.prompt, item.question.answer, item.duration, item.extra] for item in items]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def make_video(item: Item) -> None:
    """Write the item's video where it is missing. A torn file never gets the final name."""
    if item.video.is_file():
        return
    from gridprobe.gridworld.dataset import script
    from gridprobe.gridworld.video import write_script

    item.video.parent.mkdir(parents=True, exist_ok=True)
    partial = item.video.with_name(f"{item.video.stem}.{uuid4().hex[:8]}.partial.mp4")
    try:
        write_script(
            script(item.extra["seed"], cast("Part", item.bins["part"])),
            partial,
            duration=item.duration or 0.0,
            size=SIDE,
        )
        partial.replace(item.video)
    finally:
        partial.unlink(missing_ok=True)


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy of all questions, by part and by family."""
    return [accuracy(items, right), *by_bin(items, right, "part"), *by_bin(items, right, "family")]
