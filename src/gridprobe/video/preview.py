"""preview(): what sampling a video would decode, at each precision, without decoding it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from gridprobe.errors import UsageError
from gridprobe.video.decode import FileClip, open_file_clip
from gridprobe.video.files import check_file
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Limits
from gridprobe.video.packets import walk
from gridprobe.video.sampling import Precision, SampleSpec, Sampling
from gridprobe.video.source import Source

__all__ = ["Preview", "Way", "preview"]


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
class Preview:
    """What sampling a video at `cells` moments would do. Of the video itself only the first frame was decoded."""

    info: VideoInfo
    cells: int
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


def preview(
    path: str | os.PathLike[str],
    *,
    cells: int,
    sampling: Sampling = "middle",
    limits: Limits | None = None,
) -> Preview:
    """Look at a video, measure it and plan, as `sample` does, and count from the packets what reading would take."""
    if os.path.isdir(path):
        raise UsageError("a folder of pictures needs no plan: exactly the pictures wanted are opened")
    reel = open_file_clip(check_file(path), SampleSpec(cells, sampling, limits=limits or Limits()))
    ways = [_way(reel.planned(precision), precision, reel.plan.targets) for precision in get_args(Precision)]
    with reel.opener()() as source:
        return Preview(reel.info, cells, _key_frames(source), tuple(ways))


def _way(reel: FileClip, precision: Precision, moments: Sequence[int]) -> Way:
    with reel.opener()() as source:
        steps = list(walk(source, reel.clock, reel.plan))
    keys = {start.key for start in reel.plan.anchors}
    taken = list(dict.fromkeys(step.target if step.due is None else step.due for step in steps))
    return Way(
        precision,
        tuple(map(reel.seconds, taken)),
        key_frames=sum(tick in keys for tick in taken),
        groups=len(keys),
        decode=sum(step.decoded for step in steps),
        furthest=float(max(min(abs(tick - moment) for tick in taken) for moment in moments) * reel.clock.tick),
    )


def _key_frames(source: Source) -> int | None:
    """Only an MP4 has its whole index in the header; elsewhere FFmpeg knows what it happens to have met."""
    if not {"mov", "mp4"} & set(source.container.format.name.split(",")):
        return None
    entries = getattr(source.stream, "index_entries", None)  # since PyAV 16
    return sum(bool(entry.is_keyframe) for entry in entries) if entries else None
