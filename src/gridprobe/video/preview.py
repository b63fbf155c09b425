"""preview(): what sampling a video would decode at each precision, found without decoding."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from gridprobe.errors import UsageError
from gridprobe.video.decode import FileClip, Opener, open_file_clip
from gridprobe.video.files import VideoLimits, check_file
from gridprobe.video.reader import dry_run
from gridprobe.video.sampling import Precision, SampleSpec, Sampling
from gridprobe.video.source import Source, VideoInfo

__all__ = ["Preview", "Way", "preview"]


@dataclass(frozen=True)
class Way:
    """What sampling at one precision takes."""

    precision: Precision
    times: tuple[float, ...]
    """Times of the frames that would be taken, in seconds."""
    key_frames: int
    """How many of them are keyframes."""
    groups: int
    """Groups of pictures that would be decoded from, with one seek each."""
    decode: int
    """Frames that must be decoded; unreferenced frames are skipped if the codec allows it."""
    furthest: float
    """The longest time, in seconds, between a sampled moment and the start of the frame taken for it."""


@dataclass(frozen=True)
class Preview:
    """What sampling a video at `cells` moments would take. Only the video's first frame was decoded."""

    info: VideoInfo
    cells: int
    key_frames: int | None
    """Keyframes in the whole video, from the container's index; None if the header has no index."""
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
    limits: VideoLimits | None = None,
    stream: int | None = None,
) -> Preview:
    """Inspect, measure and plan a video as `sample` does, and count from its packets what reading would take."""
    if os.path.isdir(path):
        raise UsageError("a folder of pictures needs no plan: exactly the pictures wanted are opened")
    clip = open_file_clip(check_file(path), SampleSpec(cells, sampling, limits=limits or VideoLimits(), stream=stream))
    opener = clip.opener()  # one for all passes, so that all of them together keep to the limit
    ways = [_way(clip.planned(each, opener), each, clip.plan.targets, opener) for each in get_args(Precision)]
    with opener() as source:
        return Preview(clip.info, cells, _key_frames(source), tuple(ways))


def _way(clip: FileClip, precision: Precision, moments: Sequence[int], opener: Opener) -> Way:
    with opener() as source:
        steps = list(dry_run(source, clip.clock, clip.plan))
    keys = {start.key for start in clip.plan.anchors}
    taken = list(dict.fromkeys(step.target if step.due is None else step.due for step in steps))
    return Way(
        precision,
        tuple(map(clip.seconds, taken)),
        key_frames=sum(tick in keys for tick in taken),
        groups=len(keys),
        decode=sum(step.decoded for step in steps),
        furthest=float(max(min(abs(tick - moment) for tick in taken) for moment in moments) * clip.clock.tick),
    )


def _key_frames(source: Source) -> int | None:
    """Only MP4 has the whole index in its header; for other containers FFmpeg knows only the packets it has read."""
    if not {"mov", "mp4"} & set(source.container.format.name.split(",")):
        return None
    entries = getattr(source.stream, "index_entries", None)  # since PyAV 16
    return sum(bool(entry.is_keyframe) for entry in entries) if entries else None
