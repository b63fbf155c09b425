"""FileClip: an opened video file, read in four passes. Opening it again for each costs time: 15 ms for an hour of MP4.

1. inspect  decode the first frame, for the size, the rotation and the clock
2. measure  find where the video really ends, without decoding
3. plan     choose the ticks to decode, and the keyframe to start from for each
4. read     decode forward, a part of the plan on each core; the decoder scales each frame to its final size, straight
            into one array. Once for all frames of the plan, and again for some of them at another size
"""

import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gridprobe.errors import VideoError
from gridprobe.video.cache_codec import from_json, to_json
from gridprobe.video.decode_plan import DecodePlan, make_plan
from gridprobe.video.files import VideoFile, unchanged
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline
from gridprobe.video.packets import expected_ticks
from gridprobe.video.parallel import Opener, read_plan
from gridprobe.video.rows import Found, Rows
from gridprobe.video.sampling import Precision, SampleSpec, linspace_numbers
from gridprobe.video.source import Source, decoder_version, describe, first_frame, open_video
from gridprobe.video.timeline import START, Clock, Timeline, end_of_stream, scan

if TYPE_CHECKING:
    from gridprobe.video.frames import Pixels

__all__ = ["FileClip", "open_file_clip"]

WHOLE_FILE = frozenset({"matroska", "flv", "ogg"})
"""Containers whose header gives the end of the longest stream, counted from zero, so that a longer audio track looks
like missing video."""

LATE = 0.5
"""Seconds by which the first frame may follow the start of the file before a warning says so."""

MAX_DAMAGED = 0.2
"""A video with a larger share of damaged frames is refused: the answer would be based on other moments."""


@dataclass(frozen=True, eq=False)
class FileClip:
    """A video file that was inspected, measured and planned; its frames can be read repeatedly, at any size."""

    file: VideoFile
    info: VideoInfo
    clock: Clock
    plan: DecodePlan
    spec: SampleSpec
    used: float = 0.0
    """Seconds of `VideoLimits.seconds` spent on opening; each later pass has the rest."""

    @property
    def source(self) -> str:
        """Identifies the file, and a stream that was chosen."""
        return self.file.fingerprint + ("" if self.spec.stream is None else f"#{self.spec.stream}")

    @property
    def decoder(self) -> str:
        """PyAV's version: another one may give other pixels."""
        return decoder_version()

    @property
    def cell(self) -> float:
        """The width of a cell in seconds."""
        return (self.info.duration or 0.0) / self.spec.cells

    def seconds(self, tick: int) -> float:
        """When the frame at a tick is shown, in seconds from the presentation start."""
        return self.clock.seconds(tick)

    def opener(self) -> Opener:
        """A function that opens the file again at each call; all calls share the remaining time."""
        limits = self.spec.limits
        deadline = Deadline(self.file.name, limits.seconds, time.monotonic() - self.used)
        return partial(open_video, self.file, limits=limits, deadline=deadline, number=self.spec.stream)

    def planned(self, precision: Precision, opener: Opener) -> "FileClip":
        """This clip's exact targets, planned at another precision."""
        with opener() as source:
            plan = make_plan(source, self.clock, self.plan.targets, precision=precision, cell=self.cell)
        return replace(self, plan=plan)

    def expected_ticks(self) -> list[int] | None:
        """The ticks of the plan's frames, read from the packets without decoding; None without timestamps."""
        with unchanged(self.file), self.opener()() as source:
            return expected_ticks(source, self.clock, self.plan)

    def rows(self, ticks: Sequence[int] | None) -> int:
        """How many rows `fill` needs for these ticks, or for all."""
        return len(self.plan) if ticks is None else len(ticks)

    def read(
        self, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False
    ) -> "tuple[Found, Pixels]":
        """Decode the whole plan, or the frames at these rising ticks, to (width, height); see `fill`."""
        import numpy as np

        pixels = np.empty((self.rows(None if whole else ticks), size[1], size[0], 3), np.uint8)
        found = self.fill(Rows.of(pixels), ticks, whole=whole)
        taken = pixels[: len(found.ticks)]
        return found, taken.copy() if whole and ticks is not None else taken

    def fill(self, rows: Rows, ticks: Sequence[int] | None = None, *, whole: bool = False) -> Found:
        """Decode the whole plan, or the frames at these rising ticks, to the first of the rows.

        Given ticks, it seeks directly to them, which in a damaged file may find other frames. With `whole` it decodes
        the whole plan, as for all frames: that finds the same frames again and takes as long.
        """
        direct = ticks is not None and not whole
        plan = _narrowed(self.plan, ticks or ()) if direct else self.plan
        keep = None if ticks is None or direct else frozenset(ticks)
        reach = int(self.cell / 2 / self.clock.tick)
        memory = int(self.spec.limits.memory)
        with unchanged(self.file):
            found = read_plan(
                self.opener(), self.clock, plan, rows, info=self.info, reach=reach, keep=keep, memory=memory
            )
            if ticks is None:
                _check_damage(self.file, found, len(plan))
        return found

    def warnings(self, found: Found) -> tuple[str, ...]:
        """What to warn about in an answer based on these frames."""
        return _warnings(self.info, found, self.spec.cells, self.plan.note)

    def to_json(self, found: Found) -> bytes:
        """The clip and its frames for the cache on disk."""
        return to_json(self.info, self.clock, self.plan, found)

    @classmethod
    def from_json(cls, content: bytes, file: VideoFile, spec: SampleSpec) -> "tuple[FileClip, Found]":
        """The file's clip and frames from the cache; ValueError, TypeError or KeyError for malformed content."""
        info, clock, plan, found = from_json(content)
        return cls(file, replace(info, path=file.name), clock, plan, spec), found


def open_file_clip(file: VideoFile, spec: SampleSpec) -> FileClip:
    """Inspect, measure and plan."""
    deadline = Deadline(file.name, spec.limits.seconds)
    open_source = partial(open_video, file, limits=spec.limits, deadline=deadline, number=spec.stream)
    with unchanged(file), open_source() as source:
        frame = first_frame(source)
        info, clock = describe(source, frame), Clock.of(source, frame)
        info, timeline = _measure(source, clock, info, again=open_source, whole=spec.sampling == "linspace")
        targets, cell = _targets(clock, info, timeline, spec), spec.cell(info.duration or 0.0)
        plan = make_plan(source, clock, targets, precision=spec.precision, cell=cell)
    return FileClip(file, info, clock, plan, spec, used=time.monotonic() - deadline.started)


def _measure(
    source: Source, clock: Clock, info: VideoInfo, *, again: Opener, whole: bool
) -> tuple[VideoInfo, Timeline | None]:
    """Find where the video really ends: from its last second if possible, else by reading every packet.

    Where FFmpeg lists the packets as it reads them, reading the last ones first would slow later seeks down, so the
    file is opened again.
    """
    if info.duration_header and not clock.counted and not whole:
        with nullcontext(source) if source.is_indexed else again() as reading:
            end = end_of_stream(reading, clock, clock.at(max(0.0, info.duration_header - 1.0)))
        if end is not None and end > clock.start:
            return replace(info, duration_found=clock.seconds(end)), None
    with again() as reading:
        timeline = scan(reading, clock)
    found = replace(info, duration_found=clock.seconds(timeline.end), frames_found=len(timeline.ticks))
    return found, timeline


def _targets(clock: Clock, info: VideoInfo, timeline: Timeline | None, spec: SampleSpec) -> list[int]:
    if spec.sampling == "linspace" and timeline is not None:
        return [timeline.ticks[number] for number in linspace_numbers(len(timeline.ticks), spec.cells)]
    return [clock.at(time) for time in spec.moments(info.duration or 0.0)]


def _shortfall(info: VideoInfo) -> list[str]:
    """A warning if the video is much shorter than the header says."""
    header, real = info.duration_header, info.duration_found
    if header is None or real is None:
        return []
    whole_file = not WHOLE_FILE.isdisjoint(info.container.split(","))
    claimed = header - max(0.0, info.start_time) if whole_file else header
    if info.container == "avi" and info.frames_header and info.fps:  # FFmpeg corrects the length, but not the number
        claimed = max(claimed, info.frames_header / info.fps)
    if claimed - real <= max(1.0, 0.02 * claimed):
        return []
    if whole_file:
        return [f"the video ends at {real:.1f} s although the header says {claimed:.1f} s; the file may be truncated"]
    return [f"the file is truncated: header says {claimed:.1f} s, {real:.1f} s can be decoded"]


def _check_damage(file: VideoFile, found: Found, wanted: int) -> None:
    if not found.ticks:
        raise VideoError(f"{file.name}: no frame can be decoded; the video is encrypted or damaged")
    if found.damaged > MAX_DAMAGED * wanted:
        raise VideoError(
            f"{file.name}: {found.damaged} of the {wanted} sampled frames are damaged, more than {MAX_DAMAGED:.0%}; "
            "download or record the video again"
        )


def _warnings(info: VideoInfo, found: Found, cells: int, note: str) -> tuple[str, ...]:
    texts, distinct = [*_shortfall(info), *([note] if note else [])], len(found.ticks)
    if found.substituted:
        texts.append(f"{_frames_were(found.substituted)} damaged and replaced by neighbours")
    if found.lost:
        texts.append(f"{_frames_were(found.lost)} damaged with no good one within half a cell, and left out")
    if distinct < cells:
        texts.append(
            f"the video shows only {distinct} distinct frames at the {cells} sampled times; "
            f"the grid has {distinct} cells"
        )
    if found.reshaped:
        texts.append(
            f"{_frames_were(found.reshaped)} of another aspect ratio than the first and stretched to its shape"
        )
    if info.restarts:
        texts.append("timestamps start again within the file, so a part of it may not be seen; join its parts anew")
    if info.late >= LATE:
        texts.append(
            f"the first frame is shown {info.late:.1f} s after the start of the file; times count from the first "
            f"frame, so those of players and subtitles are {info.late:.1f} s later"
        )
    if info.hdr:
        texts.append("the video is HDR (PQ or HLG) and its tones are not mapped; colours look pale")
    return tuple(texts)


def _frames_were(count: int) -> str:
    return "1 frame was" if count == 1 else f"{count} frames were"


def _narrowed(plan: DecodePlan, ticks: Sequence[int]) -> DecodePlan:
    """A plan for these frames only, with the original anchors: any keyframe at or before a frame can be the start."""
    starts = sorted((start for start in plan.anchors if start.key is not None), key=lambda start: start.key or 0)
    keys = [start.key or 0 for start in starts]
    places = [bisect_right(keys, tick) for tick in ticks]
    return DecodePlan(tuple(ticks), tuple(starts[place - 1] if place else START for place in places))
