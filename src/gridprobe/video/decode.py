"""sample(): a video file becomes a FramePool, in passes that each open the file anew.

1. look     the first frame, for the size, the rotation and the clock
2. measure  where the video really ends, without decoding
3. plan     which ticks are wanted, and where to start decoding for each
4. read     forward once, a share of the plan on each core; every frame goes straight from the decoder, at its final
            size, into one array
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from gridprobe.errors import UsageError, VideoError
from gridprobe.grid import MAX_K
from gridprobe.video.files import VideoFile, check_file, unchanged
from gridprobe.video.frames import FramePool, FrameSize
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, Limits
from gridprobe.video.pictures import sample_folder
from gridprobe.video.plan import Plan, Precision, make_plan
from gridprobe.video.sampling import linspace_numbers, middle_times
from gridprobe.video.second import load_torchcodec, read_plan_with_torchcodec
from gridprobe.video.source import describe, first_frame, open_video
from gridprobe.video.timeline import Clock, Timeline, end_of_stream, scan
from gridprobe.video.workers import Found, Opened, read_plan

__all__ = ["NATIVE", "Decoder", "Sampling", "sample"]

Sampling = Literal["middle", "linspace"]
Decoder = Literal["pyav", "torchcodec"]

NATIVE = FrameSize(max_pixels=786_432)
"""The size frames are decoded at unless asked otherwise."""

WHOLE_FILE = frozenset({"matroska", "flv", "ogg"})
"""Containers whose header gives the end of the longest stream, counted from zero: a longer sound track looks like
missing video."""

MAX_DAMAGED = 0.2
"""A video with more than this share of its wanted frames damaged is refused: answers would rest on other moments."""


def sample(
    path: str | os.PathLike[str],
    *,
    cells: int,
    sampling: Sampling = "middle",
    precision: Precision = "exact",
    size: FrameSize = NATIVE,
    limits: Limits | None = None,
    decoder: Decoder = "pyav",
) -> FramePool:
    """The frames on display at `cells` moments of a video.

    "middle" takes the middle of `cells` intervals equal in time; "linspace" takes the frames numbered
    round(linspace(0, n - 1, cells)), as the paper does. A frame on display at several of these moments appears once, so
    the pool can be smaller.

    "exact" takes the frame on display at each moment. "keyframe" takes the nearest keyframe instead, which is much
    faster and off by up to half a group of pictures. "auto" takes a keyframe where one lies within AUTO_FRACTION of a
    cell's width, and is exact elsewhere. The pool's times are those of the frames taken, whatever was asked for.

    `decoder` is who turns packets into pixels; see `gridprobe.video.second` for what "torchcodec" cannot do.
    """
    limits = limits or Limits()
    _check_arguments(cells, sampling, precision)
    other = load_torchcodec() if _is_torchcodec(decoder) else None
    if os.path.isdir(path):
        return sample_folder(Path(path), cells=cells, sampling=sampling, size=size, limits=limits)
    file = check_file(path)
    deadline = Deadline(file.name, limits.seconds)
    opened = partial(open_video, file, limits=limits, deadline=deadline)
    with unchanged(file):
        info, clock = _look(opened)
        width, height = _fit(file, info, size)
        info, timeline = _measure(opened, clock, info, whole=sampling == "linspace")
        targets = _targets(clock, info, timeline, cells=cells, sampling=sampling)
        cell = (info.duration or 0.0) / cells
        plan = _plan(opened, clock, targets, precision=precision, cell=cell)
        pixels = np.empty((len(plan), height, width, 3), dtype=np.uint8)
        reach = int(cell / 2 / clock.tick)
        read = read_plan_with_torchcodec if other else read_plan
        found = read(opened, clock, plan, pixels, rotation=info.rotation, reach=reach)
        _check_damage(file, found, len(plan))
    return FramePool(
        pixels[: len(found.ticks)],
        tuple(clock.seconds(tick) for tick in found.ticks),
        # Equal keys promise equal pixels, so another decoder's frames have another source.
        source=f"{file.fingerprint}+{other}" if other else file.fingerprint,
        info=replace(info, decoder=other) if other else info,
        warnings=_warnings(info, found, cells),
        substituted=found.substituted,
    )


def _check_damage(file: VideoFile, found: Found, wanted: int) -> None:
    if not found.ticks:
        raise VideoError(f"{file.name}: no frame can be decoded; the video is encrypted or damaged")
    damaged = found.substituted + found.lost
    if damaged > MAX_DAMAGED * wanted:
        raise VideoError(
            f"{file.name}: {damaged} of the {wanted} frames wanted are damaged, more than {MAX_DAMAGED:.0%}; "
            "download or record the video again"
        )


def _look(opened: Opened) -> tuple[VideoInfo, Clock]:
    with opened() as source:
        frame = first_frame(source)
        return describe(source, frame), Clock.of(source, frame)


def _check_arguments(cells: int, sampling: str, precision: str) -> None:
    if isinstance(cells, bool) or not isinstance(cells, int) or not 1 <= cells <= MAX_K**2:
        raise UsageError(f"cells must be a whole number from 1 to {MAX_K**2}, got {cells!r}")
    if sampling not in ("middle", "linspace"):
        raise UsageError(f'sampling must be "middle" or "linspace", got {sampling!r}')
    if precision not in ("exact", "keyframe", "auto"):
        raise UsageError(f'precision must be "exact", "keyframe" or "auto", got {precision!r}')


def _is_torchcodec(decoder: str) -> bool:
    if decoder not in ("pyav", "torchcodec"):
        raise UsageError(f'decoder must be "pyav" or "torchcodec", got {decoder!r}')
    return decoder == "torchcodec"


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


def _plan(opened: Opened, clock: Clock, targets: Iterable[int], *, precision: Precision, cell: float) -> Plan:
    with opened() as source:
        return make_plan(source, clock, targets, precision=precision, cell=cell)


def _targets(clock: Clock, info: VideoInfo, timeline: Timeline | None, *, cells: int, sampling: Sampling) -> list[int]:
    if sampling == "linspace" and timeline is not None:
        return [int(timeline.ticks[number]) for number in linspace_numbers(len(timeline.ticks), cells)]
    return [clock.at(time) for time in middle_times(info.duration or 0.0, cells)]


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


def _warnings(info: VideoInfo, found: Found, cells: int) -> tuple[str, ...]:
    texts, distinct = _shortfall(info), len(found.ticks)
    if found.substituted:
        texts.append(f"{_frames_were(found.substituted)} damaged and replaced by neighbours")
    if found.lost:
        texts.append(f"{_frames_were(found.lost)} damaged with no good one within half a cell, and left out")
    if distinct < cells:
        texts.append(
            f"the video shows only {distinct} distinct frames at the {cells} sampled times; "
            f"the grid has {distinct} cells"
        )
    if info.hdr:
        texts.append("the video is HDR (PQ or HLG) and its tones are not mapped; colours look pale")
    return tuple(texts)


def _frames_were(count: int) -> str:
    return "1 frame was" if count == 1 else f"{count} frames were"
