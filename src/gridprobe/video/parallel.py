"""Several readers in parallel, each with a part of the plan, its own demuxer and its own decoder, fill one array.

Decoding releases Python's global lock, so threads use all cores, and better than one decoder's own threads, which wait
for each other after every seek.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING

from gridprobe.cores import usable_cores
from gridprobe.progress import report
from gridprobe.video.decode_plan import DecodePlan
from gridprobe.video.info import VideoInfo
from gridprobe.video.reader import Reader, Shown
from gridprobe.video.rows import Found, Rows
from gridprobe.video.source import HELD, Source
from gridprobe.video.timeline import Clock

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.reformatter import VideoReformatter

__all__ = ["MAX_WORKERS", "Opener", "read_plan"]

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
    clock: Clock,
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


def _read(open_source: Opener, clock: Clock, strip: Strip, *, alone: bool, step: Callable[[], bool]) -> None:
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


def _read_in_threads(open_source: Opener, clock: Clock, strips: list[Strip], total: int) -> None:
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
