"""FileClip: an opened video file, read in four passes. Opening it again for each costs time: 15 ms for an hour of MP4.

1. inspect  decode the first frame, for the size, the rotation and the clock
2. measure  find where the video really ends, without decoding
3. plan     choose the ticks to decode, and the keyframe to start from for each
4. read     decode forward, a part of the plan on each core; the decoder scales each frame to its final size, straight
            into one array. Once for all frames of the plan, and again for some of them at another size
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING

from gridprobe._util import report, usable_cores
from gridprobe.video.reader import Reader, Shown
from gridprobe.video.sampling import DecodePlan, Found, FrameClock, Rows
from gridprobe.video.source import HELD, Source, VideoInfo

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.reformatter import VideoReformatter
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from gridprobe.errors import VideoError
from gridprobe.video.cache import from_json, to_json
from gridprobe.video.files import Deadline, VideoFile, unchanged
from gridprobe.video.reader import expected_ticks
from gridprobe.video.sampling import (
    START,
    Precision,
    SampleSpec,
    Timeline,
    end_of_stream,
    linspace_numbers,
    make_plan,
    scan,
)
from gridprobe.video.source import decoder_version, describe, first_frame, open_video

if TYPE_CHECKING:
    from gridprobe.video.frames import Pixels

__all__ = ["MAX_WORKERS", "FileClip", "Opener", "open_file_clip", "read_plan"]

# Several readers in parallel, each with a part of the plan, its own demuxer and its own decoder, fill one array.
#
# Decoding releases Python's global lock, so threads use all cores, and better than one decoder's own threads, which
# wait
# for each other after every seek.

MAX_WORKERS = 8
"""Each worker holds a decoder's frames: some 20 MB for 1080p H.264."""
WORKER_COST = 2.4
"""Seconds of video that are worth another worker, or threads of a decoder: 8 keyframes, decoded in 0.1 s. Each opens
the file, which for an hour of MP4 takes 15 ms and 7 MB."""

BILINEAR, BICUBIC, FULL_CHROMA_INT, FULL_CHROMA_INP, ACCURATE_RND = 0x2, 0x4, 0x2000, 0x4000, 0x40000
SWSCALE = BICUBIC | FULL_CHROMA_INT | FULL_CHROMA_INP | ACCURATE_RND
"""swscale's flag bits; its defaults lose colour detail (mean error 3.9 instead of 1.5)."""
SAME_SIZE = BILINEAR | FULL_CHROMA_INT | FULL_CHROMA_INP | ACCURATE_RND
"""For converting colours only: less than half the time (720p: 5.0 ms, not 11.3), 0.1 levels apart."""

UNSPECIFIED, REC_709 = 2, 1
"""FFmpeg's numbers of colour spaces."""
MAX_RESHAPED = 0.02
"""How much a frame's aspect ratio may differ from the first one's before a warning says so."""

Opener = Callable[[], AbstractContextManager[Source]]
"""Opens the video again; all calls share one deadline."""


def read_plan(
    open_source: Opener,
    clock: FrameClock,
    plan: DecodePlan,
    rows: Rows,
    *,
    info: VideoInfo,
    reach: int,
    keep: Collection[int] | None = None,
    memory: int = 1 << 40,
) -> Found:
    """Decode the plan's frames, or only those whose ticks are in `keep`, into the first of the rows.

    Frames are in order and distinct. `reach` is how many ticks a substitute may be away from the damaged frame. There
    are as many readers as cores, but fewer for little work, and for frames so large that their decoders would hold more
    than `memory` bytes.
    """
    most = max(1, min(memory // (HELD * info.width * info.height * 3 // 2), int(plan.cost(clock) / WORKER_COST)))
    parts = plan.parts(min(_cores(), most), clock)
    strips, row = [], 0
    for part in parts:
        strips.append(Strip(part, rows.part(row, len(part)), info, reach, keep))
        row += len(part)
    report("decode", 0, len(plan))
    if len(strips) == 1:
        _read(open_source, clock, strips[0], alone=most > 1, step=_progress_counter(len(plan)))
    else:
        _read_in_threads(open_source, clock, strips, len(plan))
    shapes = [shape for strip in strips for shape in strip.shapes]
    return Found(
        tuple(_join(strips, rows)),
        substituted=sum(strip.substituted for strip in strips),
        lost=sum(strip.lost for strip in strips),
        smooth=all(strip.undamaged for strip in strips),
        reshaped=sum(abs(shape / shapes[0] - 1) > MAX_RESHAPED for shape in shapes),
    )


@dataclass(eq=False)
class Strip:
    """One reader's part of the plan and its part of the rows."""

    plan: DecodePlan
    rows: Rows
    info: VideoInfo
    reach: int
    keep: Collection[int] | None = None
    ticks: list[int] = field(default_factory=list)
    shapes: list[float] = field(default_factory=list)
    """The aspect ratio of each frame as it is stored in the file."""
    substituted: int = 0
    lost: int = 0
    undamaged: bool = True

    def accept(self, target: int, shown: Shown | None) -> Shown | None:
        """The frame found, unless it is a substitute from too far away; counts substitutes and lost targets."""
        if shown is None or (shown.substitute and abs(shown.tick - target) > self.reach):
            self.lost += 1
            return None
        self.substituted += shown.substitute
        return shown

    def wants(self, tick: int) -> bool:
        """Whether to store the frame at this tick: it does not repeat the last one, and is in `keep`."""
        return (not self.ticks or tick > self.ticks[-1]) and (self.keep is None or tick in self.keep)


def _cores() -> int:
    return min(MAX_WORKERS, usable_cores())


def _progress_counter(total: int) -> Callable[[], bool]:
    """A function that reports one more step of progress at each call."""
    done = 0

    def step() -> bool:
        nonlocal done
        done += 1
        report("decode", done, total)
        return True

    return step


def _read(open_source: Opener, clock: FrameClock, strip: Strip, *, alone: bool, step: Callable[[], bool]) -> None:
    """Fill a strip; `step` is called after each target and returns whether to continue.

    Only a reader that is alone lets its decoder use threads, each of which holds frames of its own.
    """
    from av.video.reformatter import VideoReformatter

    scaler = VideoReformatter()
    with open_source() as source:
        if not alone:
            source.stream.thread_type = "NONE"
            source.stream.codec_context.thread_count = 1
        reader = Reader(source, clock, strip.reach)
        for target, start, last in strip.plan.steps():
            shown = strip.accept(target, reader.shown_at(target, start, last=last))
            strip.undamaged = reader.undamaged and not strip.lost
            if shown is not None and strip.wants(shown.tick):
                _store(strip, shown, scaler)
            if not step():
                return


def _store(strip: Strip, shown: Shown, scaler: "VideoReformatter") -> None:
    height, width, frame, turns = strip.rows.height, strip.rows.width, shown.frame, strip.info.rotation // 90
    if turns % 2:
        width, height = height, width
    flags = SAME_SIZE if (frame.width, frame.height) == (width, height) else SWSCALE
    small = scaler.reformat(frame, width, height, "rgb24", interpolation=flags, src_colorspace=_colours(frame))
    strip.rows.put_plane(len(strip.ticks), small.planes[0], turns=turns, mirrored=strip.info.mirrored)
    strip.ticks.append(shown.tick)
    strip.shapes.append(frame.width / frame.height)


def _colours(frame: "VideoFrame") -> int | None:
    """Rec. 709 for HD that does not say which colours it has, as players do; None leaves it to FFmpeg."""
    unsaid = frame.colorspace == UNSPECIFIED and not frame.format.is_rgb
    return REC_709 if unsaid and (frame.width >= 1280 or frame.height > 576) else None


def _read_in_threads(open_source: Opener, clock: FrameClock, strips: list[Strip], total: int) -> None:
    """Read each strip in a thread. The first error stops all; progress is reported from the caller's thread."""
    stop = Event()
    messages: SimpleQueue[bool] = SimpleQueue()  # True: a target is done; False: a thread ended

    def step() -> bool:
        messages.put(True)
        return not stop.is_set()

    def work(strip: Strip) -> None:
        done = False
        try:
            _read(open_source, clock, strip, alone=False, step=step)
            done = True
        finally:
            if not done:
                stop.set()
            messages.put(False)

    count, running = _progress_counter(total), len(strips)
    with ThreadPoolExecutor(len(strips), thread_name_prefix="decode") as executor:
        try:
            threads = [executor.submit(work, strip) for strip in strips]
            while running:
                if messages.get():
                    count()
                else:
                    running -= 1
        finally:
            stop.set()
    for thread in threads:
        thread.result()


def _join(strips: list[Strip], rows: Rows) -> list[int]:
    """Close the gaps between the strips; a frame found by two of them is kept once."""
    ticks: list[int] = []
    before = 0
    for strip in strips:
        for row, tick in enumerate(strip.ticks, start=before):
            if not ticks or tick > ticks[-1]:
                if row != len(ticks):
                    rows.move(row, len(ticks))
                ticks.append(tick)
        before += len(strip.plan)
    return ticks


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
    clock: FrameClock
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
        info, clock = describe(source, frame), FrameClock.of(source, frame)
        info, timeline = _measure(source, clock, info, again=open_source, whole=spec.sampling == "linspace")
        targets, cell = _targets(clock, info, timeline, spec), spec.cell(info.duration or 0.0)
        plan = make_plan(source, clock, targets, precision=spec.precision, cell=cell)
    return FileClip(file, info, clock, plan, spec, used=time.monotonic() - deadline.started)


def _measure(
    source: Source, clock: FrameClock, info: VideoInfo, *, again: Opener, whole: bool
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


def _targets(clock: FrameClock, info: VideoInfo, timeline: Timeline | None, spec: SampleSpec) -> list[int]:
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
