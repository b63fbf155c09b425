"""FileStream: an opened video file, read in four passes. Opening it again for each costs 15 ms for an hour of MP4.

1. inspect  decode the first frame, for the size, the rotation and the clock
2. measure  find where the video really ends, without decoding
3. plan     choose the frames to decode, and the keyframe to start from for each
4. read     decode forward, a part of the plan on each core; the decoder scales each frame to its final size, straight
            into one array. Once for all frames of the plan, and again for some of them at another size
"""

import json
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

from gridprobe._util import report, usable_cores
from gridprobe.errors import UsageError, VideoError
from gridprobe.video.files import Deadline, VideoFile, VideoLimits, check_file, unchanged
from gridprobe.video.sampling import (
    START,
    Anchor,
    DecodePlan,
    FrameBuffer,
    FrameClock,
    FrameIndex,
    Precision,
    SampleSpec,
    Sampling,
    Window,
    end_of_stream,
    linspace_numbers,
    make_plan,
    scan,
)
from gridprobe.video.source import DECODER_FRAMES, Source, VideoInfo, describe, first_frame, open_video
from gridprobe.video.subtitles import MAX_BYTES, MAX_LINES

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.reformatter import VideoReformatter

    from gridprobe.video.frames import Pixels
    from gridprobe.video.reader import Shown

# Several readers in parallel, each with its share of the plan, its own demuxer and its own decoder, fill one array.
#
# Decoding releases Python's global lock, so threads use all cores, and better than one decoder's own threads, which
# wait for each other after every seek.

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
    buffer: FrameBuffer,
    *,
    info: VideoInfo,
    reach: int,
    keep: Collection[int] | None = None,
    memory: int = 1 << 40,
) -> FrameIndex:
    """Decode the plan's frames, or only those whose pts is in `keep`, to the beginning of the buffer.

    Frames are in order and distinct. `reach` is how far a substitute's pts may be from that of the damaged frame. There
    are as many readers as cores, but fewer for little work, and for frames so large that their decoders would hold more
    than `memory` bytes.
    """
    most = max(
        1, min(memory // (DECODER_FRAMES * info.width * info.height * 3 // 2), int(plan.cost(clock) / WORKER_COST))
    )
    parts = plan.parts(min(_cores(), most), clock)
    shares, row = [], 0
    for part in parts:
        shares.append(Share(part, buffer.part(row, len(part)), info, reach, keep))
        row += len(part)
    report("decode", 0, len(plan))
    if len(shares) == 1:
        _read(open_source, clock, shares[0], alone=most > 1, step=_progress_counter(len(plan)))
    else:
        _read_in_threads(open_source, clock, shares, len(plan))
    shapes = [shape for share in shares for shape in share.shapes]
    return FrameIndex(
        tuple(_join(shares, buffer)),
        substituted=sum(share.substituted for share in shares),
        lost=sum(share.lost for share in shares),
        smooth=all(share.undamaged for share in shares),
        reshaped=sum(abs(shape / shapes[0] - 1) > MAX_RESHAPED for shape in shapes),
    )


@dataclass(eq=False)
class Share:
    """One reader's share of the plan and of the buffer."""

    plan: DecodePlan
    buffer: FrameBuffer
    info: VideoInfo
    reach: int
    keep: Collection[int] | None = None
    pts: list[int] = field(default_factory=list)
    shapes: list[float] = field(default_factory=list)
    """The aspect ratio of each frame as it is stored in the file."""
    substituted: int = 0
    lost: int = 0
    undamaged: bool = True

    def accept(self, target: int, shown: "Shown | None") -> "Shown | None":
        """The frame found, unless it is a substitute from too far away; counts substitutes and lost targets."""
        if shown is None or (shown.substitute and abs(shown.pts - target) > self.reach):
            self.lost += 1
            return None
        self.substituted += shown.substitute
        return shown

    def wants(self, pts: int) -> bool:
        """Whether to store the frame at this pts: it does not repeat the last one, and is in `keep`."""
        return (not self.pts or pts > self.pts[-1]) and (self.keep is None or pts in self.keep)


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


def _read(open_source: Opener, clock: FrameClock, share: Share, *, alone: bool, step: Callable[[], bool]) -> None:
    """Fill a share; `step` is called after each target and returns whether to continue.

    Only a reader that is alone lets its decoder use threads, each of which holds frames of its own.
    """
    from av.video.reformatter import VideoReformatter

    scaler = VideoReformatter()
    with open_source() as source:
        if not alone:
            source.stream.thread_type = "NONE"
            source.stream.codec_context.thread_count = 1
        from gridprobe.video.reader import Reader  # most processes let a child decode

        reader = Reader(source, clock, share.reach)
        for target, start, last in share.plan.steps():
            shown = share.accept(target, reader.shown_at(target, start, last=last))
            share.undamaged = reader.undamaged and not share.lost
            if shown is not None and share.wants(shown.pts):
                _store(share, shown, scaler)
            if not step():
                return


def _store(share: Share, shown: "Shown", scaler: "VideoReformatter") -> None:
    height, width, frame, turns = share.buffer.height, share.buffer.width, shown.frame, share.info.rotation // 90
    if turns % 2:
        width, height = height, width
    flags = SAME_SIZE if (frame.width, frame.height) == (width, height) else SWSCALE
    small = scaler.reformat(frame, width, height, "rgb24", interpolation=flags, src_colorspace=_colours(frame))
    share.buffer.put_plane(len(share.pts), small.planes[0], turns=turns, mirrored=share.info.mirrored)
    share.pts.append(shown.pts)
    share.shapes.append(frame.width / frame.height)


def _colours(frame: "VideoFrame") -> int | None:
    """Rec. 709 for HD that does not say which colours it has, as players do; None leaves it to FFmpeg."""
    unsaid = frame.colorspace == UNSPECIFIED and not frame.format.is_rgb
    return REC_709 if unsaid and (frame.width >= 1280 or frame.height > 576) else None


def _read_in_threads(open_source: Opener, clock: FrameClock, shares: list[Share], total: int) -> None:
    """Read each share in a thread. The first error stops all; progress is reported from the caller's thread."""
    stop = Event()
    messages: SimpleQueue[bool] = SimpleQueue()  # True: a target is done; False: a thread ended

    def step() -> bool:
        messages.put(True)
        return not stop.is_set()

    def work(share: Share) -> None:
        done = False
        try:
            _read(open_source, clock, share, alone=False, step=step)
            done = True
        finally:
            if not done:
                stop.set()
            messages.put(False)

    count, running = _progress_counter(total), len(shares)
    with ThreadPoolExecutor(len(shares), thread_name_prefix="decode") as executor:
        try:
            threads = [executor.submit(work, share) for share in shares]
            while running:
                if messages.get():
                    count()
                else:
                    running -= 1
        finally:
            stop.set()
    for thread in threads:
        thread.result()


def _join(shares: list[Share], buffer: FrameBuffer) -> list[int]:
    """Close the gaps between the shares; a frame found by two of them is kept once."""
    pts_list: list[int] = []
    before = 0
    for share in shares:
        for row, pts in enumerate(share.pts, start=before):
            if not pts_list or pts > pts_list[-1]:
                if row != len(pts_list):
                    buffer.move(row, len(pts_list))
                pts_list.append(pts)
        before += len(share.plan)
    return pts_list


WHOLE_FILE = frozenset({"matroska", "flv", "ogg"})
"""Containers whose header gives the end of the longest stream, counted from zero, so that a longer audio track looks
like missing video."""

LATE = 0.5
"""Seconds by which the first frame may follow the start of the file before a warning says so."""

MAX_DAMAGED = 0.2
"""A video with a larger share of damaged frames is refused: the answer would be based on other moments."""


@dataclass(frozen=True, eq=False)
class FileStream:
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
    def most_frames(self) -> int:
        """How many frames the plan may give."""
        return len(self.plan)

    @property
    def cell(self) -> float:
        """The width of a cell in seconds."""
        start, end = self.spec.span(self.info.duration or 0.0)
        return (end - start) / self.spec.num_frames

    def seconds(self, pts: int) -> float:
        """When a frame is shown, in seconds from the presentation start."""
        return self.clock.seconds(pts)

    def opener(self) -> Opener:
        """A function that opens the file again at each call; all calls share the remaining time."""
        limits = self.spec.limits
        deadline = Deadline(self.file.name, limits.seconds, time.monotonic() - self.used)
        return partial(open_video, self.file, limits=limits, deadline=deadline, number=self.spec.stream)

    def expected_pts(self) -> list[int] | None:
        """When the frames of the plan are shown, read from the packets without decoding; None without timestamps."""
        with unchanged(self.file), self.opener()() as source:
            from gridprobe.video.reader import expected_pts

            return expected_pts(source, self.clock, self.plan)

    def read(
        self, size: tuple[int, int], pts_list: Sequence[int] | None = None, *, whole: bool = False
    ) -> "tuple[FrameIndex, Pixels]":
        """Decode the whole plan, or the frames at these rising pts, to (width, height); see `fill`."""
        import numpy as np

        rows = self.most_frames if whole or pts_list is None else len(pts_list)
        pixels = np.empty((rows, size[1], size[0], 3), np.uint8)
        index = self.fill(FrameBuffer.of(pixels), pts_list, whole=whole)
        decoded = pixels[: len(index.pts)]
        return index, decoded.copy() if whole and pts_list is not None else decoded

    def fill(self, buffer: FrameBuffer, pts_list: Sequence[int] | None = None, *, whole: bool = False) -> FrameIndex:
        """Decode the whole plan, or the frames at these rising pts, to the beginning of the buffer.

        With `pts_list` it seeks directly to them, which in a damaged file may find other frames. With `whole` it
        decodes the whole plan, as for all frames: that finds the same frames again and takes as long.
        """
        direct = pts_list is not None and not whole
        plan = _narrowed(self.plan, pts_list or ()) if direct else self.plan
        keep = None if pts_list is None or direct else frozenset(pts_list)
        reach = int(self.cell / 2 / self.clock.time_base)
        memory = int(self.spec.limits.memory)
        with unchanged(self.file):
            index = read_plan(
                self.opener(), self.clock, plan, buffer, info=self.info, reach=reach, keep=keep, memory=memory
            )
            if pts_list is None:
                _check_damage(self.file, index, len(plan))
        return index

    def warnings(self, index: FrameIndex) -> tuple[str, ...]:
        """What to warn about in an answer based on these frames."""
        cut = self.spec.cut_words(self.info.duration or 0.0)
        return (*cut, *_warnings(self.info, index, self.spec.num_frames, self.plan.note))

    def to_json(self, index: FrameIndex) -> bytes:
        """The stream and its frames for the cache on disk, so that the file need not be opened again.

        Without the file name, because a copy under another name is the same video.
        """
        clock, plan = self.clock, self.plan
        steps = [[target, start.seek, start.key] for target, start in zip(plan.targets, plan.anchors, strict=True)]
        values = {
            "info": asdict(self.info) | {"path": ""},
            "clock": [clock.time_base.numerator, clock.time_base.denominator, clock.start, clock.counted],
            "note": plan.note,
            "plan": steps,
            "index": index._asdict(),
        }
        return json.dumps(values).encode()

    @classmethod
    def from_json(cls, content: bytes, file: VideoFile, spec: SampleSpec) -> "tuple[FileStream, FrameIndex]":
        """Undo `to_json`; ValueError, TypeError or KeyError for malformed content."""
        values = json.loads(content)
        info = checked_info(VideoInfo(**values["info"]))
        numerator, denominator, start, counted = values["clock"]
        steps, index = [list(step) for step in values["plan"]], FrameIndex(**values["index"])
        targets = [step[0] for step in steps]
        numbers = [numerator, denominator, start, *targets, *index.pts]
        numbers += [number for step in steps for number in step if number is not None]
        if not all(isinstance(number, int) for number in numbers):
            raise TypeError("timestamps are whole numbers")
        if numerator <= 0 or denominator <= 0 or targets != sorted(set(targets)):
            raise ValueError("a plan rises in time")
        clock = FrameClock(Fraction(numerator, denominator), start, bool(counted))
        plan = DecodePlan(tuple(targets), tuple(Anchor(*step[1:]) for step in steps), str(values["note"]))
        return cls(file, replace(info, path=file.name), clock, plan, spec), index._replace(pts=tuple(index.pts))


def checked_info(info: VideoInfo) -> VideoInfo:
    """The same; TypeError if a field is of another type than it should be."""
    for name, kind in get_type_hints(VideoInfo).items():
        if not isinstance(getattr(info, name), kind):
            raise TypeError(name)
    return info


def open_file(file: VideoFile, spec: SampleSpec) -> FileStream:
    """Inspect, measure and plan."""
    deadline = Deadline(file.name, spec.limits.seconds)
    open_source = partial(open_video, file, limits=spec.limits, deadline=deadline, number=spec.stream)
    with unchanged(file), open_source() as source:
        frame = first_frame(source)
        info, clock = describe(source, frame), FrameClock.of(source, frame)
        info, pts_list = _measure(source, clock, info, again=open_source, whole=spec.sampling == "linspace")
        targets, cell = _targets(clock, info, pts_list, spec), spec.cell(info.duration or 0.0)
        plan = make_plan(source, clock, targets, precision=spec.precision, cell=cell)
    return FileStream(file, info, clock, plan, spec, used=time.monotonic() - deadline.started)


def _measure(
    source: Source, clock: FrameClock, info: VideoInfo, *, again: Opener, whole: bool
) -> tuple[VideoInfo, list[int] | None]:
    """Find where the video really ends: from its last second if possible, else by reading every packet.

    Reading every packet also gives the pts of all frames. Where FFmpeg lists the packets as it reads them, reading the
    last ones first would slow later seeks down, so the file is opened again.
    """
    if info.duration_header and not clock.counted and not whole:
        with nullcontext(source) if source.is_indexed else again() as reading:
            end = end_of_stream(reading, clock, clock.at(max(0.0, info.duration_header - 1.0)))
        if end is not None and end > clock.start:
            return replace(info, duration_found=clock.seconds(end)), None
    with again() as reading:
        pts_list, end = scan(reading, clock)
    return replace(info, duration_found=clock.seconds(end), frames_found=len(pts_list)), pts_list


def _targets(clock: FrameClock, info: VideoInfo, pts_list: list[int] | None, spec: SampleSpec) -> list[int]:
    if spec.sampling == "linspace" and pts_list is not None:
        return [pts_list[number] for number in linspace_numbers(len(pts_list), spec.num_frames)]
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


def _check_damage(file: VideoFile, index: FrameIndex, planned: int) -> None:
    if not index.pts:
        raise VideoError(f"{file.name}: no frame can be decoded; the video is encrypted or damaged")
    if index.damaged > MAX_DAMAGED * planned:
        raise VideoError(
            f"{file.name}: {index.damaged} of the {planned} sampled frames are damaged, more than {MAX_DAMAGED:.0%}; "
            "download or record the video again"
        )


def _warnings(info: VideoInfo, index: FrameIndex, num_frames: int, note: str) -> tuple[str, ...]:
    texts, distinct = [*_shortfall(info), *([note] if note else [])], len(index.pts)
    if index.substituted:
        texts.append(f"{_frames_were(index.substituted)} damaged and replaced by neighbours")
    if index.lost:
        texts.append(f"{_frames_were(index.lost)} damaged with no good one within half a cell, and left out")
    if distinct < num_frames:
        texts.append(
            f"the video shows only {distinct} distinct frames at the {num_frames} sampled times; "
            f"the grid has {distinct} cells"
        )
    if index.reshaped:
        texts.append(
            f"{_frames_were(index.reshaped)} of another aspect ratio than the first and stretched to its shape"
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


def _narrowed(plan: DecodePlan, pts_list: Sequence[int]) -> DecodePlan:
    """A plan for these frames only, with the original anchors: any keyframe at or before a frame can be the start."""
    starts = sorted((start for start in plan.anchors if start.key is not None), key=lambda start: start.key or 0)
    keys = [start.key or 0 for start in starts]
    places = [bisect_right(keys, pts) for pts in pts_list]
    return DecodePlan(tuple(pts_list), tuple(starts[place - 1] if place else START for place in places))


# preview(): what sampling a video would decode at each precision, found without decoding.


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
    """What sampling a video at `num_frames` moments would take. Only the video's first frame was decoded."""

    info: VideoInfo
    num_frames: int
    cell: float
    """Seconds from one sampled moment to the next."""
    key_frames: int | None
    """Keyframes in the whole video, from the container's index; None if the header has no index."""
    ways: tuple[Way, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "schema": "gridprobe.plan/1",
            "video": self.info.to_dict(),
            "cells": self.num_frames,
            "cell_seconds": self.cell,
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
    num_frames: int,
    sampling: Sampling = "middle",
    limits: VideoLimits | None = None,
    stream: int | None = None,
    window: Window | None = None,
) -> Preview:
    """Inspect, measure and plan a video as `sample` does, and count from its packets what reading would take."""
    if os.path.isdir(path):
        raise UsageError("a folder of pictures needs no plan: exactly the pictures wanted are opened")
    spec = SampleSpec(num_frames, sampling, limits=limits or VideoLimits(), stream=stream, window=window)
    video = open_file(check_file(path), spec)
    opener = video.opener()  # one for all passes, so that all of them together keep to the limit
    ways = [_way(video, each, opener) for each in get_args(Precision)]
    with opener() as source:
        return Preview(video.info, num_frames, video.cell, _key_frames(source), tuple(ways))


def _way(stream: FileStream, precision: Precision, opener: Opener) -> Way:
    clock, moments = stream.clock, stream.plan.targets
    with opener() as source:
        plan = make_plan(source, clock, moments, precision=precision, cell=stream.cell)
    with opener() as source:
        from gridprobe.video.reader import dry_run

        steps = list(dry_run(source, clock, plan))
    keys = {start.key for start in plan.anchors}
    shown = list(dict.fromkeys(step.target if step.due is None else step.due for step in steps))
    return Way(
        precision,
        tuple(map(clock.seconds, shown)),
        key_frames=sum(pts in keys for pts in shown),
        groups=len(keys),
        decode=sum(step.decoded for step in steps),
        furthest=float(max(min(abs(pts - moment) for pts in shown) for moment in moments) * clock.time_base),
    )


def _key_frames(source: Source) -> int | None:
    """Only MP4 has the whole index in its header; for other containers FFmpeg knows only the packets it has read."""
    if not {"mov", "mp4"} & set(source.container.format.name.split(",")):
        return None
    entries = getattr(source.stream, "index_entries", None)  # since PyAV 16
    return sum(bool(entry.is_keyframe) for entry in entries) if entries else None


# What else a file holds: its text tracks and its sound.

SOUND_RATE = 16_000
"""Samples a second, as recognisers of speech take them."""
GAP = SOUND_RATE // 10
"""A longer gap between the times of sound stays one; a shorter one is rounding."""
DRAWN = re.compile(r"\{[^{}]*\\p[1-9][^{}]*\}")
"""What starts a drawing in an ASS line."""


def text_tracks(file: VideoFile, limits: VideoLimits) -> list[dict[str, Any]]:
    """The subtitle tracks, as the header describes them, also those that are pictures."""
    from av.stream import Disposition

    with _sources(file, limits) as source:
        return [
            {
                "number": stream.index,
                "codec": stream.codec_context.name if stream.codec_context else "",
                "language": stream.language or "",
                "default": bool(stream.disposition & Disposition.default),
                "forced": bool(stream.disposition & Disposition.forced),
            }
            for stream in source.container.streams.subtitles
        ]


def read_text(
    file: VideoFile, limits: VideoLimits, *, number: int, start: float
) -> list[tuple[float, float | None, str]]:
    """The lines of a text track: start, end and text. `start` is when the video starts, by the file's clock."""
    lines: list[tuple[float, float | None, str]] = []
    left = MAX_BYTES
    with _sources(file, limits) as source:
        stream = _only(source, number)
        for packet in replace(source, stream=stream).packets():
            left -= packet.size
            if left < 0 or len(lines) >= MAX_LINES:
                raise VideoError(f"{file.name}: stream {number} holds more text than subtitles do")
            if packet.pts is None or packet.time_base is None:
                continue
            first = float(packet.pts * packet.time_base) - start
            last = first + float(packet.duration * packet.time_base) if packet.duration else None
            if text := _line_of(bytes(packet), stream.codec_context.name):
                lines.append((first, last, text))
    return lines


def _line_of(content: bytes, codec: str) -> str:
    """The text in a packet: MP4 puts its length before it and its style after it, ASS fields before it."""
    if codec == "mov_text":
        content = content[2 : 2 + int.from_bytes(content[:2], "big")]
    text = content.decode("utf-16" if content[:2] in (b"\xfe\xff", b"\xff\xfe") else "utf-8", "replace")
    if codec in ("ass", "ssa"):
        text = text.split(",", 8)[-1]
        text = "" if DRAWN.search(text) else re.sub(r"\\[Nnh]", " ", text)
    return text.strip()


def read_sound(file: VideoFile, limits: VideoLimits, buffer: memoryview, *, start: float) -> tuple[int, float]:
    """Decode the sound to one channel of 16 bits at `SOUND_RATE`; how many samples, and when the first is heard.

    Samples stand where their time stamps say, with silence in gaps. `start` is when the video starts, by the file's
    clock.
    """
    with _sources(file, limits) as source:
        stream = source.container.streams.best("audio")
        if stream is None:
            return 0, 0.0
        only = replace(source, stream=_only(source, stream.index))
        count, begins = 0, None
        for time, chunk in _sound_chunks(only):
            begins = time if begins is None else begins
            place = round((time - begins) * SOUND_RATE)
            count = place if place - count > GAP else count
            end = count + len(chunk) // 2
            if 2 * end > len(buffer):
                hours = len(buffer) / 2 / SOUND_RATE / 3600
                raise VideoError(
                    f"{file.name}: its sound is longer than {hours:.1f} hours; raise the limit (VideoLimits.memory)"
                )
            buffer[2 * count : 2 * end] = chunk
            count = end
        return count, (begins or 0.0) - start


def _sound_chunks(source: Source) -> Iterator[tuple[float, bytes]]:
    """Decoded sound with its time; damaged packets are left out. A child process has no numpy."""
    import av

    resampler = None
    for packet in chain(source.packets(), [None]):
        try:
            frames = source.stream.codec_context.decode(packet)
        except MemoryError:
            raise
        except av.FFmpegError:
            continue
        for frame in cast("list[Any]", frames):
            kind = (frame.format.name, frame.layout.name, frame.sample_rate)
            if resampler is None or resampler[0] != kind:
                resampler = kind, av.AudioResampler("s16", "mono", SOUND_RATE)
            if frame.pts is None:
                continue
            time = float(frame.pts * frame.time_base)
            for chunk in resampler[1].resample(frame):
                yield time, bytes(chunk.planes[0])[: 2 * chunk.samples]
                time += chunk.samples / SOUND_RATE


def _only(source: Source, number: int) -> Any:
    """The stream of that number; the packets of all others are skipped where the container allows it."""
    stream = next((each for each in source.container.streams if each.index == number), None)
    if stream is None or stream.codec_context is None:
        raise VideoError(f"{source.file.name}: stream {number} cannot be read")
    others = [each for each in source.container.streams if each is not stream and hasattr(each, "discard")]
    for each in others:  # since PyAV 18
        each.discard = type(each.discard)["all"]
    return stream


def _sources(file: VideoFile, limits: VideoLimits) -> AbstractContextManager[Source]:
    return open_video(file, limits=limits, deadline=Deadline(file.name, limits.seconds))
