"""gridworld as a benchmark: questions and videos generated from seeds, the same on every machine."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from gridprobe.benchmarks.base import Benchmark, Item, Metric
from gridprobe.benchmarks.rows import choose
from gridprobe.benchmarks.scores import accuracy, by_bin
from gridprobe.errors import UsageError
from gridprobe.video import FramePool, SampleSpec, VideoInfo

if TYPE_CHECKING:
    from gridprobe.gridworld.dataset import Split

__all__ = ["load", "metrics", "open_video", "video_info"]

SIDE = 224


def load(data: Path, *, count: int = 400, first: int = 0, split: str = "test") -> Benchmark:
    """Items `first` to `first + count`; their videos are written to `data` when they are needed."""
    from gridprobe.gridworld.dataset import items

    choose("split", split, ("test", "train"))
    for name, value, least in (("count", count, 1), ("first", first, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r}")
    found = []
    for made in items(count, first=first, split=cast("Split", split)):
        found.append(
            Item(
                id=made.id,
                question=replace(made.asked.question, id=made.id),
                video=data / f"gridworld-{made.seed}-{SIDE}.mp4",
                group=str(made.seed),
                bins={"family": made.family},
                duration=made.duration,
                extra={"seed": made.seed, "evidence": [list(interval) for interval in made.evidence]},
            )
        )
    version = f"gridworld-{len(found)}-{_fingerprint(found)}"
    return Benchmark("gridworld", version, tuple(found), open=open_video, info=video_info, generated=True)


def _fingerprint(items: Sequence[Item]) -> str:
    """A hash of the questions, as there is no file to hash: a changed generator makes another release."""
    content = [[item.id, item.question.prompt, item.question.answer, item.duration, item.extra] for item in items]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def video_info(item: Item) -> VideoInfo:
    """What the item's video will be like once it is written."""
    from gridprobe.gridworld.video import FPS

    frames = round((item.duration or 0.0) * FPS)
    return VideoInfo(
        path=str(item.video),
        container="mp4",
        codec="h264",
        width=SIDE,
        height=SIDE,
        rotation=0,
        fps=float(FPS),
        duration_header=frames / FPS,
        frames_header=frames,
        duration_found=None,
        frames_found=None,
        start_time=0.0,
        pixel_format="yuv420p",
        hdr=False,
        decoder="",
        fingerprint="",
    )


def open_video(item: Item, spec: SampleSpec) -> Path | FramePool:
    """The item's video, written if it is missing. A partly written file never gets the final name."""
    if item.video.is_file():
        return item.video
    import numpy as np

    from gridprobe.gridworld.video import write_script
    from gridprobe.gridworld.world import generate

    item.video.parent.mkdir(parents=True, exist_ok=True)
    partial = item.video.with_name(f"{item.video.stem}.{uuid4().hex[:8]}.partial.mp4")
    script = generate(np.random.default_rng(item.extra["seed"]), 1)
    try:
        write_script(script, partial, duration=item.duration or 0.0, size=SIDE)
        partial.replace(item.video)
    finally:
        partial.unlink(missing_ok=True)
    return item.video


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy over all questions and by family."""
    return [accuracy(items, right), *by_bin(items, right, "family")]
