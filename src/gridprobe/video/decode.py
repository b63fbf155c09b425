"""FileClip: a video file that was opened and can be read, in passes that each open the file anew.

1. look     the first frame, for the size, the rotation and the clock
2. measure  where the video really ends, without decoding
3. plan     which ticks are wanted, and where to start decoding for each
4. read     forward once, a share of the plan on each core; every frame goes straight from the decoder, at its final
            size, into one array. Once for all frames of the plan, and again for some of them at another size
"""

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gridprobe.errors import VideoError
from gridprobe.video.files import VideoFile, unchanged
from gridprobe.video.frames import Found, Pixels
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline
from gridprobe.video.packets import promised
from gridprobe.video.parallel import Opened, read_plan
from gridprobe.video.plan import Plan, make_plan
from gridprobe.video.sampling import Precision, SampleSpec, linspace_numbers, middle_times
from gridprobe.video.source import decoder_version, describe, first_frame, open_video
from gridprobe.video.timeline import START, Clock, Timeline, end_of_stream, scan
from gridprobe.video.torchcodec import other_decoder, read_plan_with_torchcodec

__all__ = ["FileClip", "open_file_clip"]

WHOLE_FILE = frozenset({"matroska", "flv", "ogg"})
"""Containers whose header gives the end of the longest stream, counted from zero: a longer sound track looks like
missing video."""

MAX_DAMAGED = 0.2
"""A video with more than this share of its wanted frames damaged is refused: answers would rest on other moments."""


@dataclass(frozen=True, eq=False)
class FileClip:
    """A video file that was looked at, measured and planned: its frames can be read at any size, as often as wanted."""

    file: VideoFile
    info: VideoInfo
    clock: Clock
    plan: Plan
    wish: SampleSpec
    used: float = 0.0
    """Seconds of the limit that opening it took; a pass over it has the rest."""

    @property
    def source(self) -> str:
        """What identifies the frames: the file, and a decoder other than PyAV, as equal keys promise equal pixels."""
        fingerprint = self.file.fingerprint
        return fingerprint if self.wish.decoder == "pyav" else f"{fingerprint}+{self.info.decoder}"

    @property
    def decoder(self) -> str:
        """PyAV's version: it also scales what another decoder gives, and other versions may give other pixels."""
        return decoder_version()

    @property
    def cell(self) -> float:
        """The width of a cell in seconds."""
        return (self.info.duration or 0.0) / self.wish.cells

    def seconds(self, tick: int) -> float:
        """When the frame at a tick is shown, from the presentation start."""
        return self.clock.seconds(tick)

    def opener(self) -> Opened:
        """Opens the file anew at each call; all openings together have the time that is left."""
        limits = self.wish.limits
        deadline = Deadline(self.file.name, limits.seconds, time.monotonic() - self.used)
        return partial(open_video, self.file, limits=limits, deadline=deadline)

    def planned(self, precision: Precision) -> "FileClip":
        """An exact reel's moments, planned at another precision."""
        return replace(self, plan=_plan(self.opener(), self.clock, self.plan.targets, precision, self.cell))

    def promised(self) -> list[int] | None:
        """The ticks of the plan's frames as the packets have them, undecoded; None where packets do not tell."""
        with unchanged(self.file), self.opener()() as source:
            return promised(source, self.clock, self.plan)

    def read(
        self, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[Found, Pixels]:
        """Decode the whole plan, or the frames at these rising ticks, to (width, height).

        Ticks are gone to straight; in a damaged file other frames may be found that way. With `whole` the plan is gone
        through as for all frames, which finds the same ones again and takes as long.
        """
        straight = ticks is not None and not whole
        plan = _narrowed(self.plan, ticks or ()) if straight else self.plan
        keep = None if ticks is None or straight else frozenset(ticks)
        pixels = np.empty((len(plan), size[1], size[0], 3), dtype=np.uint8)  # rows that stay unused take no memory
        reach = int(self.cell / 2 / self.clock.tick)
        read = read_plan if self.wish.decoder == "pyav" else read_plan_with_torchcodec
        with unchanged(self.file):
            found = read(self.opener(), self.clock, plan, pixels, rotation=self.info.rotation, reach=reach, keep=keep)
            if ticks is None:
                _check_damage(self.file, found, len(plan))
        taken = pixels[: len(found.ticks)]
        return found, taken if keep is None else taken.copy()

    def warnings(self, found: Found) -> tuple[str, ...]:
        """What a reader of an answer from these of its frames should know."""
        return _warnings(self.info, found, self.wish.cells)


def open_file_clip(file: VideoFile, wish: SampleSpec) -> FileClip:
    """Look, measure and plan."""
    other = other_decoder(wish.decoder)
    deadline = Deadline(file.name, wish.limits.seconds)
    opened = partial(open_video, file, limits=wish.limits, deadline=deadline)
    with unchanged(file):
        info, clock = _look(opened)
        info, timeline = _measure(opened, clock, info, whole=wish.sampling == "linspace")
        targets = _targets(clock, info, timeline, wish)
        plan = _plan(opened, clock, targets, wish.precision, (info.duration or 0.0) / wish.cells)
    info = replace(info, decoder=other) if other else info
    return FileClip(file, info, clock, plan, wish, used=time.monotonic() - deadline.started)


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


def _plan(opened: Opened, clock: Clock, targets: Sequence[int], precision: Precision, cell: float) -> Plan:
    with opened() as source:
        return make_plan(source, clock, targets, precision=precision, cell=cell)


def _targets(clock: Clock, info: VideoInfo, timeline: Timeline | None, wish: SampleSpec) -> list[int]:
    if wish.sampling == "linspace" and timeline is not None:
        return [int(timeline.ticks[number]) for number in linspace_numbers(len(timeline.ticks), wish.cells)]
    return [clock.at(time) for time in middle_times(info.duration or 0.0, wish.cells)]


def _shortfall(info: VideoInfo) -> list[str]:
    """A warning when a good part of what the header promises is not there."""
    header, real = info.duration_header, info.duration_found
    if header is None or real is None:
        return []
    whole_file = not WHOLE_FILE.isdisjoint(info.container.split(","))
    claimed = header - max(0.0, info.start_time) if whole_file else header
    if claimed - real <= max(1.0, 0.02 * header):
        return []
    if whole_file:
        return [f"the video ends at {real:.1f} s although the header says {claimed:.1f} s; the file may be truncated"]
    return [f"the file is truncated: header says {header:.1f} s, {real:.1f} s can be decoded"]


def _check_damage(file: VideoFile, found: Found, wanted: int) -> None:
    if not found.ticks:
        raise VideoError(f"{file.name}: no frame can be decoded; the video is encrypted or damaged")
    if found.damaged > MAX_DAMAGED * wanted:
        raise VideoError(
            f"{file.name}: {found.damaged} of the {wanted} frames wanted are damaged, more than {MAX_DAMAGED:.0%}; "
            "download or record the video again"
        )


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


def _narrowed(plan: Plan, ticks: Sequence[int]) -> Plan:
    """The way to these frames by a plan's own anchors: any keyframe up to a frame will do to start from."""
    starts = sorted((start for start in plan.anchors if start.key is not None), key=lambda start: start.key or 0)
    keys = [start.key or 0 for start in starts]
    places = [bisect_right(keys, tick) for tick in ticks]
    return Plan(tuple(ticks), tuple(starts[place - 1] if place else START for place in places))
