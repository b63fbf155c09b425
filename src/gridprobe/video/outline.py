"""outline(): what sampling a video would decode, at each precision, without decoding it."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from gridprobe.errors import UsageError
from gridprobe.video.decode import NATIVE, Sampling, _fit, _look, _measure, _plan, _targets
from gridprobe.video.files import check_file
from gridprobe.video.frames import FrameSize
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, Limits
from gridprobe.video.plan import Plan, Precision
from gridprobe.video.source import Source, open_video
from gridprobe.video.timeline import Clock
from gridprobe.video.walk import walk

__all__ = ["Outline", "Way", "outline"]


@dataclass(frozen=True)
class Way:
    """What one precision comes to."""

    precision: Precision
    times: tuple[float, ...]
    """Of the frames that would be taken, in seconds."""
    key_frames: int
    """How many of them are key frames."""
    groups: int
    """Groups of pictures that would be looked into, with one seek each."""
    decode: int
    """Frames that must be decoded; those that nothing refers to are left out where the codec allows it."""
    furthest: float
    """Seconds between the start of a frame taken and the moment it stands for, at worst."""


@dataclass(frozen=True)
class Outline:
    """What sampling a video at `cells` moments would do. Of the video itself only the first frame was decoded."""

    info: VideoInfo
    cells: int
    size: tuple[int, int]
    """Width and height of the frames."""
    key_frames: int | None
    """In the whole video, by the container's index; None where the header has none."""
    ways: tuple[Way, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": "gridprobe.plan/1",
            "video": self.info.to_dict(),
            "cells": self.cells,
            "cell_seconds": (self.info.duration or 0.0) / self.cells,
            "size": list(self.size),
            "key_frames": self.key_frames,
            "precisions": {
                way.precision: {
                    "frames": len(way.times),
                    "key_frames": way.key_frames,
                    "groups": way.groups,
                    "decode": way.decode,
                    "furthest": way.furthest,
                    "times": list(way.times),
                }
                for way in self.ways
            },
        }


def outline(
    path: str | os.PathLike[str],
    *,
    cells: int,
    sampling: Sampling = "middle",
    size: FrameSize = NATIVE,
    limits: Limits | None = None,
) -> Outline:
    """Look at a video, measure it and plan, as `sample` does, and count from the packets what reading would take."""
    if os.path.isdir(path):
        raise UsageError("a folder of pictures needs no plan: exactly the pictures wanted are opened")
    file, limits = check_file(path), limits or Limits()
    opened = partial(open_video, file, limits=limits, deadline=Deadline(file.name, limits.seconds))
    info, clock = _look(opened)
    fitted = _fit(file, info, size)
    info, timeline = _measure(opened, clock, info, whole=sampling == "linspace")
    targets = _targets(clock, info, timeline, cells=cells, sampling=sampling)
    ways = []
    for precision in get_args(Precision):
        plan = _plan(opened, clock, targets, precision=precision, cell=(info.duration or 0.0) / cells)
        with opened() as source:
            ways.append(_way(source, clock, plan, targets, precision))
    with opened() as source:
        return Outline(info, cells, fitted, _key_frames(source), tuple(ways))


def _way(source: Source, clock: Clock, plan: Plan, targets: list[int], precision: Precision) -> Way:
    steps = list(walk(source, clock, plan))
    keys = {start.key for start in plan.anchors}
    taken = list(dict.fromkeys(step.target if step.due is None else step.due for step in steps))
    return Way(
        precision,
        tuple(clock.seconds(tick) for tick in taken),
        key_frames=sum(tick in keys for tick in taken),
        groups=len(keys),
        decode=sum(step.decoded for step in steps),
        furthest=float(max(min(abs(tick - target) for tick in taken) for target in targets) * clock.tick),
    )


def _key_frames(source: Source) -> int | None:
    """Only an MP4 has its whole index in the header; elsewhere FFmpeg knows what it happens to have met."""
    if not {"mov", "mp4"} & set(source.container.format.name.split(",")):
        return None
    entries = getattr(source.stream, "index_entries", None)  # since PyAV 16
    return sum(bool(entry.is_keyframe) for entry in entries) if entries else None
