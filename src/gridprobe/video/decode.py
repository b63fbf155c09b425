"""Reel: a video file that was opened and can be read, in passes that each open the file anew.

1. look     the first frame, for the size, the rotation and the clock
2. measure  where the video really ends, without decoding
3. plan     which ticks are wanted, and where to start decoding for each
4. read     forward once, a share of the plan on each core; every frame goes straight from the decoder, at its final
            size, into one array. Once for all frames of the plan, and again for some of them at another size
"""

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Literal

import numpy as np

from gridprobe.errors import VideoError
from gridprobe.video.files import VideoFile, check_file
from gridprobe.video.frames import Taken
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, Limits
from gridprobe.video.plan import Plan, Precision, make_plan
from gridprobe.video.sampling import linspace_numbers, middle_times
from gridprobe.video.source import Source, decoder_version, describe, first_frame, open_video
from gridprobe.video.timeline import START, Anchor, Clock, Timeline, end_of_stream, scan
from gridprobe.video.workers import Opened, read_plan

__all__ = ["Reel", "Sampling", "open_reel"]

Sampling = Literal["middle", "linspace"]

WHOLE_FILE = frozenset({"matroska", "flv", "ogg"})
"""Containers whose header gives the end of the longest stream, counted from zero: a longer sound track looks like
missing video."""


@dataclass(frozen=True, eq=False)
class Reel:
    """A video file that was looked at, measured and planned: its frames can be read at any size, as often as wanted."""

    file: VideoFile
    info: VideoInfo
    clock: Clock
    plan: Plan
    cells: int
    limits: Limits
    used: float = 0.0
    """Seconds of the limit that opening it took; a pass over it has the rest."""

    def seconds(self, tick: int) -> float:
        """When the frame at a tick is shown, from the presentation start."""
        return self.clock.seconds(tick)

    def promised(self) -> list[int] | None:
        """The ticks of the plan's frames as the packets have them, undecoded; None where packets do not tell."""
        if self.clock.counted:
            return list(self.plan.targets)
        with self._opened()() as source:
            return _shown(source, self.plan)

    def read(self, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False) -> Taken:
        """Decode the whole plan, or the frames at these rising ticks, to (width, height).

        Ticks are gone to straight; in a damaged file other frames may be found that way. With `whole` the plan is gone
        through as for all frames, which finds the same ones again and takes as long.
        """
        if not self.unchanged:
            raise VideoError(f"{self.file.name}: the file has changed since it was opened; open it again")
        straight = ticks is not None and not whole
        plan = _narrowed(self.plan, ticks or ()) if straight else self.plan
        keep = None if ticks is None or straight else frozenset(ticks)
        pixels = np.empty((len(plan), size[1], size[0], 3), dtype=np.uint8)  # rows that stay unused take no memory
        found, damaged = read_plan(self._opened(), self.clock, plan, pixels, rotation=self.info.rotation, keep=keep)
        if ticks is None and not found:
            raise VideoError(f"{self.file.name}: no frame can be decoded; the video is encrypted or damaged")
        taken = pixels[: len(found)]
        return Taken(found, taken if keep is None else taken.copy(), damaged)

    @property
    def decoder(self) -> str:
        """What decodes it, to the version: other versions may give other pixels."""
        return decoder_version()

    @property
    def unchanged(self) -> bool:
        """Whether the file is still the one that was opened."""
        try:
            return check_file(self.file.path).fingerprint == self.file.fingerprint
        except VideoError:
            return False

    def warnings(self, *, found: int, damaged: int) -> tuple[str, ...]:
        """What a reader of an answer from `found` of its frames should know."""
        return _warnings(self.info, found=found, cells=self.cells, damaged=damaged)

    def _opened(self) -> Opened:
        deadline = Deadline(self.file.name, self.limits.seconds, time.monotonic() - self.used)
        return partial(open_video, self.file, limits=self.limits, deadline=deadline)


def open_reel(file: VideoFile, *, cells: int, sampling: Sampling, precision: Precision, limits: Limits) -> Reel:
    """Look, measure and plan."""
    deadline = Deadline(file.name, limits.seconds)
    opened = partial(open_video, file, limits=limits, deadline=deadline)
    info, clock = _look(opened)
    info, timeline = _measure(opened, clock, info, whole=sampling == "linspace")
    targets = _targets(clock, info, timeline, cells=cells, sampling=sampling)
    plan = _plan(opened, clock, targets, precision=precision, cell=(info.duration or 0.0) / cells)
    return Reel(file, info, clock, plan, cells, limits, used=time.monotonic() - deadline.started)


def _look(opened: Opened) -> tuple[VideoInfo, Clock]:
    with opened() as source:
        frame = first_frame(source)
        return describe(source, frame), Clock.of(source, frame)


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


def _narrowed(plan: Plan, ticks: Sequence[int]) -> Plan:
    """The way to these frames by a plan's own anchors: any keyframe up to a frame will do to start from."""
    starts = sorted((start for start in plan.anchors if start.key is not None), key=lambda start: start.key or 0)
    keys = [start.key or 0 for start in starts]
    places = [bisect_right(keys, tick) for tick in ticks]
    return Plan(tuple(ticks), tuple(starts[place - 1] if place else START for place in places))


def _shown(source: Source, plan: Plan) -> list[int] | None:
    """The tick of the frame on display at each target, from the packets between it and its keyframe."""
    ticks: dict[int, None] = {}
    for start, group in groupby(zip(plan.anchors, plan.targets, strict=True), key=itemgetter(0)):
        targets = [target for _, target in group]
        known = [start.key] if start.key == targets[-1] else _packets(source, start, targets[-1])
        for target in targets:
            shown = max((tick for tick in known or () if tick <= target), default=None)
            if shown is None:
                return None
            ticks[shown] = None
    return list(ticks)


def _packets(source: Source, start: Anchor, until: int) -> list[int] | None:
    """The ticks of the packets from a keyframe to `until`; None where their time stamps are not in order."""
    if start.key is None or start.seek is None:
        return None
    source.container.seek(start.seek, stream=source.stream, backward=True)
    ticks: list[int] = []
    decoded = None
    for packet in source.packets():
        if decoded is None and packet.pts != start.key:
            continue
        if packet.pts is None or packet.dts is None or packet.pts < packet.dts:
            return None
        if decoded is not None and packet.dts < decoded:
            return None
        decoded = packet.dts
        if decoded > until:
            break
        if not packet.is_discard:
            ticks.append(packet.pts)
    return ticks
