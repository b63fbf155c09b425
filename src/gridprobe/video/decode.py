"""sample(): a video file becomes a FramePool, in passes that each open the file anew.

1. look     the first frame, for the size, the rotation and the clock
2. measure  where the video really ends, without decoding
3. plan     which ticks are wanted, and where to start decoding for each
4. read     forward once; every frame goes straight from the decoder, at its final size, into one array
"""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError, VideoError
from gridprobe.grid import MAX_K
from gridprobe.progress import report
from gridprobe.video.files import VideoFile, check_file
from gridprobe.video.frames import FramePool, FrameSize
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, Limits
from gridprobe.video.reader import Reader, Shown
from gridprobe.video.sampling import linspace_numbers, middle_times
from gridprobe.video.source import Source, describe, first_frame, open_video
from gridprobe.video.timeline import Anchor, Clock, Timeline, anchor, end_of_stream, scan

__all__ = ["NATIVE", "Sampling", "sample"]

Sampling = Literal["middle", "linspace"]

Opened = Callable[[], AbstractContextManager[Source]]
"""Opens the video anew; all openings share one deadline."""

NATIVE = FrameSize(max_pixels=786_432)
"""The size frames are decoded at unless asked otherwise."""

WHOLE_FILE = frozenset({"matroska", "flv", "ogg"})
"""Containers whose header gives the end of the longest stream, counted from zero: a longer sound track looks like
missing video."""

BICUBIC, FULL_CHROMA_INT, FULL_CHROMA_INP, ACCURATE_RND = 0x4, 0x2000, 0x4000, 0x40000
SWSCALE = BICUBIC | FULL_CHROMA_INT | FULL_CHROMA_INP | ACCURATE_RND
"""swscale's flag bits; its defaults lose colour detail (mean error 3.9 against 1.5)."""


@dataclass(frozen=True)
class Plan:
    """The wanted ticks, rising, and where to start decoding for each."""

    targets: tuple[int, ...]
    anchors: tuple[Anchor, ...]


def sample(
    path: str | os.PathLike[str],
    *,
    cells: int,
    sampling: Sampling = "middle",
    size: FrameSize = NATIVE,
    limits: Limits | None = None,
) -> FramePool:
    """The frames on display at `cells` moments of a video.

    "middle" takes the middle of `cells` intervals equal in time; "linspace" takes the frames numbered
    round(linspace(0, n - 1, cells)), as the paper does. A frame on display at several of these moments appears once, so
    the pool can be smaller.
    """
    limits = limits or Limits()
    _check_arguments(cells, sampling)
    file = check_file(path)
    deadline = Deadline(file.name, limits.seconds)
    opened = partial(open_video, file, limits=limits, deadline=deadline)
    info, clock = _look(opened)
    width, height = _fit(file, info, size)
    info, timeline = _measure(opened, clock, info, whole=sampling == "linspace")
    plan = _plan(opened, clock, _targets(clock, info, timeline, cells=cells, sampling=sampling))
    canvas = Canvas(len(plan.targets), width=width, height=height, rotation=info.rotation)
    damaged = _read(opened, clock, plan, canvas=canvas)
    found = len(canvas.ticks)
    return FramePool(
        canvas.pixels[:found],
        tuple(clock.seconds(tick) for tick in canvas.ticks),
        source=file.fingerprint,
        info=info,
        warnings=_warnings(info, found=found, cells=cells, damaged=damaged),
    )


def _look(opened: Opened) -> tuple[VideoInfo, Clock]:
    with opened() as source:
        frame = first_frame(source)
        return describe(source, frame), Clock.of(source, frame)


def _check_arguments(cells: int, sampling: str) -> None:
    if isinstance(cells, bool) or not isinstance(cells, int) or not 1 <= cells <= MAX_K**2:
        raise UsageError(f"cells must be a whole number from 1 to {MAX_K**2}, got {cells!r}")
    if sampling not in ("middle", "linspace"):
        raise UsageError(f'sampling must be "middle" or "linspace", got {sampling!r}')


def _fit(file: VideoFile, info: VideoInfo, size: FrameSize) -> tuple[int, int]:
    try:
        return size.fit(info.width, info.height)
    except VideoError as error:
        raise VideoError(f"{file.name}: {error}") from None


def _measure(opened: Opened, clock: Clock, info: VideoInfo, *, whole: bool) -> tuple[VideoInfo, Timeline | None]:
    """Find where the video really ends: from its last second if that is enough, else by reading every packet."""
    if info.duration_header and not clock.counted and not whole:
        with opened() as source:
            end = end_of_stream(source, clock, clock.at(max(0.0, info.duration_header - 1.0)))
        if end is not None and end > clock.start:
            return replace(info, duration_found=clock.seconds(end)), None
    with opened() as source:
        timeline = scan(source, clock)
    found = replace(info, duration_found=clock.seconds(timeline.end), frames_found=len(timeline.ticks))
    return found, timeline


def _plan(opened: Opened, clock: Clock, targets: Iterable[int]) -> Plan:
    wanted = tuple(dict.fromkeys(targets))
    with opened() as source:
        return Plan(wanted, tuple(anchor(source, clock, target) for target in wanted))


def _targets(clock: Clock, info: VideoInfo, timeline: Timeline | None, *, cells: int, sampling: Sampling) -> list[int]:
    if sampling == "linspace" and timeline is not None:
        return [int(timeline.ticks[number]) for number in linspace_numbers(len(timeline.ticks), cells)]
    return [clock.at(time) for time in middle_times(info.duration or 0.0, cells)]


def _read(opened: Opened, clock: Clock, plan: Plan, *, canvas: "Canvas") -> int:
    """Put the plan's frames on the canvas; returns how many had to be replaced by a neighbour."""
    damaged = 0
    with opened() as source:
        reader = Reader(source, clock)
        for done, (target, start) in enumerate(zip(plan.targets, plan.anchors, strict=True)):
            report("decode", done, len(plan.targets))
            shown = reader.shown_at(target, start)
            damaged += shown is None or shown.substitute
            if shown is not None:
                canvas.add(shown)
    report("decode", len(plan.targets), len(plan.targets))
    if not canvas.ticks:
        raise VideoError(f"{source.file.name}: no frame can be decoded; the video is encrypted or damaged")
    return damaged


class Canvas:
    """One array for all frames, filled in order; frames are scaled and turned on their way in."""

    def __init__(self, cells: int, *, width: int, height: int, rotation: int) -> None:
        from av.video.reformatter import VideoReformatter

        self.pixels: npt.NDArray[np.uint8] = np.empty((cells, height, width, 3), dtype=np.uint8)
        self.ticks: list[int] = []
        self._turns = rotation // 90
        self._scaler = VideoReformatter()

    def add(self, shown: Shown) -> None:
        """Append a frame, unless it is there already."""
        if self.ticks and shown.tick <= self.ticks[-1]:
            return
        height, width = self.pixels.shape[1:3]
        if self._turns % 2:
            width, height = height, width
        small = self._scaler.reformat(shown.frame, width, height, "rgb24", interpolation=SWSCALE)
        # rot90 turns counter-clockwise, as the display matrix's angle does.
        self.pixels[len(self.ticks)] = np.rot90(small.to_ndarray(), self._turns)
        self.ticks.append(shown.tick)


def _shortfall(info: VideoInfo) -> list[str]:
    """A warning when a good part of what the header promises is not there."""
    header, real = info.duration_header, info.duration_found
    if header is None or real is None:
        return []
    whole_file = not WHOLE_FILE.isdisjoint(info.container.split(","))
    promised = header - max(0.0, info.start_time) if whole_file else header
    if promised - real <= max(1.0, 0.02 * header):
        return []
    if whole_file:
        return [f"the video ends at {real:.1f} s although the header says {promised:.1f} s; the file may be truncated"]
    return [f"the file is truncated: header says {header:.1f} s, {real:.1f} s can be decoded"]


def _warnings(info: VideoInfo, *, found: int, cells: int, damaged: int) -> tuple[str, ...]:
    texts = _shortfall(info)
    if damaged:
        texts.append(f"{damaged} {'frame was' if damaged == 1 else 'frames were'} damaged and replaced by neighbours")
    if found < cells:
        texts.append(
            f"the video shows only {found} distinct frames at the {cells} sampled times; the grid has {found} cells"
        )
    if info.hdr:
        texts.append("the video is HDR (PQ or HLG) and its tones are not mapped; colours look pale")
    return tuple(texts)
