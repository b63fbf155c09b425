"""SampleSpec: what is wanted of a video; and which moments of it that means. Nothing here opens a file."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from gridprobe.errors import UsageError, VideoError
from gridprobe.video.files import VideoLimits
from gridprobe.video.source import Source

if TYPE_CHECKING:
    from av import VideoFrame
    from av.packet import Packet
    from av.video.plane import VideoPlane
    from av.video.stream import VideoStream

    from gridprobe.video.frames import Pixels

Sampling = Literal["middle", "linspace"]
Precision = Literal["exact", "keyframe", "auto"]
DecodeIn = Literal["child", "process"]
Window = tuple[float, float | None]
"""A part of a video: where it starts and ends, in seconds; below 0 they count from the video's end, which None is."""
MAX_FRAMES = 64**2
"""Those of the largest grid; its own constant is in a module that imports numpy, which a child does without."""


@dataclass(frozen=True)
class SampleSpec:
    """The frames at `num_frames` moments of a video; `gridprobe.video.sample` says what the words mean."""

    num_frames: int
    sampling: Sampling = "middle"
    precision: Precision = "exact"
    limits: VideoLimits = field(default_factory=VideoLimits)
    segments: tuple[tuple[float, float], ...] = ()
    """Seconds to sample from, as rising intervals that do not overlap; empty is the whole video."""
    decode_in: DecodeIn = "process"
    """Whether a child process decodes, which may crash or hang, or this one."""
    stream: int | None = None
    """The number of the video stream in the file, counted from 0 over all streams; None is the default one."""
    window: Window | None = None
    """The part that is sampled, and that segments are cut to; None is the whole video."""

    def __post_init__(self) -> None:
        count = self.num_frames
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_FRAMES:
            raise UsageError(f"num_frames must be a whole number from 1 to {MAX_FRAMES}, got {count!r}")
        if self.sampling not in ("middle", "linspace"):
            raise UsageError(f'sampling must be "middle" or "linspace", got {self.sampling!r}')
        if self.precision not in ("exact", "keyframe", "auto"):
            raise UsageError(f'precision must be "exact", "keyframe" or "auto", got {self.precision!r}')
        if self.decode_in not in ("child", "process"):
            raise UsageError(f'decode_in must be "child" or "process", got {self.decode_in!r}')
        check_stream(self.stream)
        ends = [moment for segment in self.segments for moment in segment]
        if any(not math.isfinite(moment) or moment < 0 for moment in ends) or ends != sorted(ends):
            raise UsageError(f"segments must be rising intervals of seconds, got {self.segments}")
        if self.segments and self.sampling == "linspace":
            raise UsageError('segments are sampled in time; use sampling="middle"')
        if self.window is not None:
            check_window(self.window)
            if self.sampling == "linspace":
                raise UsageError("a window is sampled in time, which the published presets are not; use preset=default")

    def span(self, duration: float) -> tuple[float, float]:
        """Where the window starts and ends in a video of this length; UsageError if that is outside of it."""
        if self.window is None:
            return 0.0, duration
        first, last = self.window
        start = max(0.0, first + duration if first < 0 else first)
        end = duration if last is None else min(duration, last + duration if last < 0 else last)
        if start < end:
            return start, end
        words = f"from {first:g} s to {'the end' if last is None else f'{last:g} s'}"
        raise UsageError(
            f"the window {words} is outside of the video, which is {duration:.1f} s long; choose one in it"
        )

    def cut_words(self, duration: float) -> tuple[str, ...]:
        """A warning if the window begins before the video or ends after it."""
        if self.window is None or all(abs(each or 0.0) <= duration + self.cell(duration) for each in self.window):
            return ()
        start, end = self.span(duration)
        return (f"the window reaches beyond the video, so {start:.1f} s to {end:.1f} s were sampled",)

    def moments(self, duration: float) -> tuple[float, ...]:
        """The middles of equal shares of the window, or of the segments in it laid end to end."""
        first, last = self.span(duration)
        cut = [(max(start, first), min(end, last)) for start, end in self.segments]
        segments = [(start, end) for start, end in cut if start < end] or [(first, last)]
        before = list(accumulate((end - start for start, end in segments), initial=0.0))
        moments = []
        for place in middle_times(before[-1], self.num_frames):
            segment = min(bisect_right(before, place), len(segments)) - 1
            moments.append(segments[segment][0] + place - before[segment])
        return tuple(moments)

    def cell(self, duration: float) -> float:
        """The width of a share in seconds."""
        first, last = self.span(duration)
        within = sum(max(0.0, min(end, last) - max(start, first)) for start, end in self.segments) or last - first
        return within / self.num_frames


def check_window(window: Window) -> None:
    """Raise UsageError unless there may be a video in which something lies between these times."""
    start, end = window
    if not all(each is None or math.isfinite(each) for each in window):
        raise UsageError(f"a window has a start and an end in seconds, got {start!r} and {end!r}")
    if (end is not None and (start < 0) == (end < 0) and end <= start) or end == 0:
        raise UsageError(
            f"the window from {start:g} s to {end:g} s is empty; its end must be later than its start, or be left out"
        )


def check_stream(stream: int | None) -> None:
    """Raise UsageError unless it can be the number of a stream."""
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int) or stream < 0):
        raise UsageError(f"stream must be the number of a stream, counted from 0, got {stream!r}")


def middle_times(duration: float, count: int) -> tuple[float, ...]:
    """The middle of each of `count` equal intervals: of (8.0, 4) it is (1.0, 3.0, 5.0, 7.0)."""
    _check_count(count)
    return tuple(duration * (2 * i + 1) / (2 * count) for i in range(count))


def linspace_numbers(frames: int, count: int) -> tuple[int, ...]:
    """`count` frame numbers from the first to the last frame, evenly, as numpy rounds them: (5, 3) gives (0, 2, 4).

    With fewer frames than `count` some numbers repeat.
    """
    _check_count(count)
    if frames < 1:
        raise UsageError(f"a video has at least 1 frame, got {frames!r}")
    step = (frames - 1) / max(1, count - 1)
    return (*(round(number * step) for number in range(count - 1)), frames - 1 if count > 1 else 0)


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"the number of frames to sample must be a whole number of at least 1, got {count!r}")


# When frames are shown, found by reading packets without decoding them.
#
# A pts (presentation timestamp) counts units of the stream's time base. In a format without usable timestamps (raw
# H.264; AVI with B-frames, which stores the decoding order only) it counts frames, and seeking is impossible.

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Seconds to step back if a seek does not land on a keyframe at or before the target."""

FOLLOWING = 16
"""Packets read after a keyframe in search of another frame; codecs reorder no more than this."""


@dataclass(frozen=True)
class FrameClock:
    """Converts between pts and seconds from the presentation start."""

    time_base: Fraction
    """Seconds per pts."""
    start: int
    counted: bool

    @classmethod
    def of(cls, source: Source, frame: "VideoFrame") -> "FrameClock":
        """The clock of an open video, from its first frame."""
        stream = source.stream
        reordered = bool(stream.codec_context.has_b_frames)
        if frame.pts is None or (source.container.format.name == "avi" and reordered):
            rate = stream.average_rate or stream.guessed_rate or Fraction(25)
            return cls(1 / Fraction(rate), 0, counted=True)
        return cls(source.time_base, frame.pts if stream.start_time is None else stream.start_time, counted=False)

    def seconds(self, pts: int) -> float:
        """Seconds from the presentation start to a pts."""
        return (
            (pts - self.start) * self.time_base.numerator / self.time_base.denominator
        )  # rounded once, as of a Fraction

    def at(self, seconds: float) -> int:
        """The last pts at or before a time, or up to a millionth of a step after it, as float seconds are inexact."""
        return self.start + math.floor(seconds / self.time_base + 1e-6)


@dataclass(frozen=True)
class Anchor:
    """Where to start decoding for a target: seek to pts `seek`, then skip packets up to the keyframe at pts `key`."""

    seek: int | None = None
    key: int | None = None


START = Anchor()
"""The beginning of the file, used if no keyframe is found."""


def scan(source: Source, clock: FrameClock) -> tuple[list[int], int]:
    """Read every packet: the pts of all frames in display order, and the pts at which the last one ends."""
    pts_list: list[int] = []
    end = clock.start
    for packet in source.packets():
        if packet.is_discard:  # decoded but never shown: cut by an edit list
            continue
        # A truncated file ends in a partial packet, which does not count.
        if packet.is_corrupt and packet.pos is not None and packet.pos + packet.size >= source.file.size:
            continue
        pts = len(pts_list) if clock.counted else packet.pts
        if pts is not None:
            pts_list.append(pts)
            end = max(end, pts + frame_duration(source, clock, packet.duration))
    if not pts_list:
        raise VideoError(f"{source.file.name}: no frame can be read; the file is damaged or incomplete")
    return sorted(set(pts_list)), end


def end_of_stream(source: Source, clock: FrameClock, near: int) -> int | None:
    """The pts at which the last frame ends, reading only from pts `near` on; None if there is no packet."""
    if not _seek(source, near):
        return None
    ends = [
        packet.pts + frame_duration(source, clock, packet.duration)
        for packet in source.packets()
        if packet.pts is not None and not packet.is_corrupt and not packet.is_discard
    ]
    return max(ends, default=None)


def anchor(source: Source, clock: FrameClock, target: int) -> Anchor:
    """The keyframe to decode from for a target.

    A seek can land after the target (open GOP) or between keyframes (MPEG-TS has no index), so its landing point is
    checked and, if unsuitable, the seek is repeated further back.
    """
    if clock.counted:
        return START
    for step in STEPS:
        seek = target - math.floor(step / clock.time_base)
        if (step and seek < clock.start) or not _seek(source, seek):
            break
        key = _last_key(source, target)
        if key is not None:
            return Anchor(seek, key)
    return START


def next_key(source: Source, target: int, *, limit: int, until: int | None = None) -> int | None:
    """A keyframe after `target` and at or before `limit`; the first such one if the container has an index.

    With `until`, only a keyframe that is followed by another frame at or before that pts.
    """
    if limit <= target or not _seek(source, target + 1, backward=False):
        return None
    key, following = None, 0
    for packet in source.packets():
        if key is not None:
            following += 1
            if packet.pts is not None and until is not None and key < packet.pts <= until:
                return key
            if following == FOLLOWING:
                return None
        elif _is_anchor(source, packet) and packet.pts is not None and target < packet.pts:
            if packet.pts > limit or until is None:
                return packet.pts if packet.pts <= limit else None
            key = packet.pts
        elif packet.dts is None or packet.dts > limit:
            return None
    return None


def _seek(source: Source, pts: int, *, backward: bool = True) -> bool:
    import av

    try:
        source.container.seek(pts, stream=source.stream, backward=backward)
    except av.error.ExitError:
        raise source.deadline.error() from None
    except av.FFmpegError:
        return False
    return True


def _is_anchor(source: Source, packet: "Packet[VideoStream]") -> bool:
    """Whether it is a keyframe that is shown: an edit list may cut it off."""
    return not packet.is_discard and source.recovery(packet) == 0


def _last_key(source: Source, target: int) -> int | None:
    """The keyframe the seek landed on, or else the last one up to the target."""
    key = None
    for number, packet in enumerate(source.packets()):
        if packet.pts is not None and packet.pts <= target and source.recovery(packet) == 0:
            key = packet.pts
            if number == 0:
                return key
        decoded = packet.pts if packet.dts is None else packet.dts
        if decoded is not None and decoded > target:
            break
    return key


def frame_duration(source: Source, clock: FrameClock, duration: int | None = None) -> int:
    """How long a frame is shown, in pts; without a duration of its own, one frame at the mean rate."""
    if clock.counted:
        return 1
    rate = source.stream.average_rate or source.stream.guessed_rate
    return duration or (round(1 / (rate * clock.time_base)) if rate else 1)


# DecodePlan: which frames of a video to decode, where to start decoding for each, and how to divide the work.

AUTO_FRACTION = 0.2
"""With "auto", a keyframe is taken for a moment if it is at most this fraction of a cell's width away.

Neighbours are then 0.6 to 1.4 cells apart. A fifth is the least that pays off for the usual keyframe every 250 frames:
an hour in 144 cells has a reach of ±5 s, one such group, so nearly every cell finds a keyframe. A tenth leaves about
half of the cells to exact decoding, which is six times the work (8.4 CPU seconds instead of 1.3).
"""

WIDE_FRACTION = 0.5
"""The same where AUTO_FRACTION would cost too much: any keyframe in the cell."""

KEY_SECONDS = 0.3
"""The cost of a seek, a keyframe and the scaling, in seconds of video decoded."""

FULL_HD = 1920 * 1080 * 25
"""Pixels per second of the video whose cost is the limit: an hour of it, with a keyframe in every cell."""


@dataclass(frozen=True)
class DecodePlan:
    """The pts wanted, ascending, and where to start decoding for each."""

    targets: tuple[int, ...]
    anchors: tuple[Anchor, ...]
    note: str = ""
    """Which tolerance "auto" chose, where it is not the usual one."""

    def cost(self, clock: FrameClock) -> float:
        """What reading it takes, in seconds of video decoded."""
        return sum(self._cost(end, clock) for _, end in self._groups())

    def __len__(self) -> int:
        return len(self.targets)

    def steps(self) -> Iterator[tuple[int, Anchor, bool]]:
        """Each target, its anchor, and whether it is the last one in its group of pictures."""
        following = (*self.anchors[1:], None)
        for target, start, then in zip(self.targets, self.anchors, following, strict=True):
            yield target, start, then is None or (then.key is not None and then.key != start.key)

    def parts(self, count: int, clock: FrameClock) -> list["DecodePlan"]:
        """At most `count` plans of about equal cost, in order; no group of pictures is split between two."""
        groups = self._groups()
        costs = [self._cost(end, clock) for _, end in groups]
        total, before = sum(costs), 0.0
        ends: dict[int, int] = {}
        for (_, end), cost in zip(groups, costs, strict=True):
            ends[min(count - 1, int((before + cost / 2) / total * count))] = end
            before += cost
        return [DecodePlan(self.targets[a:b], self.anchors[a:b]) for a, b in pairwise((0, *ends.values()))]

    def _groups(self) -> list[tuple[int, int]]:
        """Ranges of targets with a common keyframe; all targets up to the last with START form one range."""
        first = max((i for i, start in enumerate(self.anchors) if start == START), default=0) + 1
        keys = [start.key for start in self.anchors]
        cuts = [i for i in range(first, len(keys)) if keys[i] != keys[i - 1]]
        return list(pairwise((0, *cuts, len(keys))))

    def _cost(self, end: int, clock: FrameClock) -> float:
        key = self.anchors[end - 1].key
        return KEY_SECONDS + (0.0 if key is None else float((self.targets[end - 1] - key) * clock.time_base))


def make_plan(
    source: Source, clock: FrameClock, targets: Iterable[int], *, precision: Precision, cell: float
) -> DecodePlan:
    """Find the anchor of every target; if the precision allows it, a nearby keyframe becomes the target.

    `cell` is the width of a cell in seconds. With "auto" the tolerance also depends on what decoding costs: an hour
    of 1080p with a keyframe in every cell costs one keyframe a cell, and no other video may cost more.
    """
    exact = list(dict.fromkeys(targets))
    anchors = {target: anchor(source, clock, target) for target in exact}
    planned = partial(_plan, source, clock, anchors)
    if precision != "auto":
        return planned(reach=0.0 if precision == "exact" else None)
    plan, most = planned(reach=AUTO_FRACTION * cell), _affordable(source, len(exact))
    if plan.cost(clock) <= most or START in anchors.values():
        return plan
    wider = planned(reach=WIDE_FRACTION * cell)
    if wider.cost(clock) <= most:
        return replace(wider, note=_note(plan, wider, clock, f"half a cell ({cell / 2:.1f} s)"))
    depth = most / len({start.key for start in anchors.values()}) - KEY_SECONDS
    only = planned(reach=None, depth=depth if depth >= cell / 2 else 0.0)
    return replace(only, note=_note(plan, only, clock, "half a group of pictures"))


def _affordable(source: Source, num_frames: int) -> float:
    """What "auto" may cost, in seconds of video decoded: a keyframe of 1080p for each cell.

    A second of smaller frames takes less time, so more of them may be decoded.
    """
    stream = source.stream
    rate = stream.average_rate or stream.guessed_rate or 25
    return num_frames * KEY_SECONDS * max(1.0, FULL_HD / max(1.0, stream.width * stream.height * float(rate)))


def _note(nearer: DecodePlan, chosen: DecodePlan, clock: FrameClock, distance: str) -> str:
    ratio = nearer.cost(clock) / chosen.cost(clock)
    return (
        f"keyframes up to {distance} away stand for sampled moments, since nearer frames would take {ratio:.0f} times "
        "the work; precision=exact takes them"
    )


def _plan(
    source: Source, clock: FrameClock, anchors: Mapping[int, Anchor], *, reach: float | None, depth: float = 0.0
) -> DecodePlan:
    """A plan in which a keyframe may be `reach` seconds away from its moment (None: at any distance).

    A moment at most `depth` seconds after a keyframe keeps its own frame. With a reach, every moment has a frame of its
    own; without one, several may share a keyframe. `anchors` are by target, ascending.
    """
    limit = None if reach is None else int(reach / clock.time_base)
    chosen: dict[int, Anchor] = {}
    following = [*list(anchors)[1:], None]
    for (target, start), then in zip(anchors.items(), following, strict=True):
        latest = next(reversed(chosen), None)
        shallow = start.key is not None and (target - start.key) * clock.time_base <= depth
        own = limit == 0 or (depth and shallow)
        near = None if own else _near_key(source, clock, (target, then), start, reach=limit)
        if near is not None and near.key is not None and (limit is None or latest is None or near.key > latest):
            target, start = near.key, near
        if latest is None or target > latest:
            chosen[target] = start
    return DecodePlan(tuple(chosen), tuple(chosen.values()))


def _near_key(
    source: Source, clock: FrameClock, targets: tuple[int, int | None], start: Anchor, *, reach: int | None
) -> Anchor | None:
    """The keyframe nearest to the first of two targets, if one is within reach (None: at any distance)."""
    target, following = targets
    if start.key is None:
        return None
    before = target - start.key
    earlier = start if reach is None or before <= reach else None
    if reach is not None and reach < frame_duration(source, clock):
        return earlier  # cells this narrow are single frames: a later frame would be the wrong one
    limit = target + (before - 1 if reach is None else min(reach, before - 1))
    # With a reach the next cell must find a frame of its own, so one must lie in between.
    key = next_key(source, target, limit=limit, until=None if reach is None else following)
    if key is not None:
        later = anchor(source, clock, key)
        if later.key == key:
            return later
    return earlier


# FrameBuffer: the memory that decoded frames are written to. FrameIndex: which frames these are.
#
# Nothing here imports numpy: for a child process it would be half of the start, and 10 MB.


class FrameIndex(NamedTuple):
    """Which frames of a video there are, and what became of the moments whose own frame is damaged."""

    pts: tuple[int, ...]
    """When each is shown, rising, in the video's own units of time."""
    substituted: int = 0
    """Moments that took a neighbour."""
    lost: int = 0
    """Moments with no good frame near enough; they have none."""
    smooth: bool = True
    """Whether nothing at all was damaged on the way; else only the same way is sure to lead to the same frames."""
    decoded: bool = True
    """Whether all of them were decoded; else they are what the packets promise."""
    reshaped: int = 0
    """Frames whose aspect ratio is not that of the first one."""

    @property
    def damaged(self) -> int:
        """Moments that did not get their own frame."""
        return self.substituted + self.lost


@dataclass(frozen=True, eq=False)
class FrameBuffer:
    """Frames of height × width × 3 bytes, one after the other."""

    data: memoryview
    height: int
    width: int

    @classmethod
    def of(cls, pixels: "Pixels") -> "FrameBuffer":
        """The memory of an array of frames × height × width × 3."""
        return cls(pixels.reshape(-1).data, pixels.shape[1], pixels.shape[2])

    def part(self, start: int, count: int) -> "FrameBuffer":
        """That many rows from `start` on."""
        size = self._size
        return replace(self, data=self.data[start * size : (start + count) * size])

    def put(self, row: int, picture: "bytes | memoryview") -> None:
        """Copy a picture of just this size."""
        self.data[row * self._size : (row + 1) * self._size] = picture

    def put_plane(self, row: int, plane: "VideoPlane", *, turns: int = 0, mirrored: bool = False) -> None:
        """Copy a picture in rgb24, first mirrored left to right, then turned that many quarters counter-clockwise."""
        if turns or mirrored:
            self.put(row, _turned(plane, turns, mirrored))
            return
        line, step, source = 3 * self.width, plane.line_size, memoryview(plane)
        if line == step:
            self.put(row, source)
            return
        target = self.data[row * self._size : (row + 1) * self._size]
        for number in range(self.height):
            target[number * line : (number + 1) * line] = source[number * step : number * step + line]

    def move(self, source: int, target: int) -> None:
        """Copy one row to another."""
        self.put(target, self.part(source, 1).data)

    @property
    def _size(self) -> int:
        return 3 * self.width * self.height


def _turned(plane: "VideoPlane", turns: int, mirrored: bool) -> bytes:
    from PIL import Image

    size, source = (plane.width, plane.height), cast(bytes, memoryview(plane))  # Pillow takes any buffer
    picture = Image.frombuffer("RGB", size, source, "raw", "RGB", plane.line_size, 1)
    if mirrored:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return picture.rotate(90 * turns, expand=True).tobytes()  # counter-clockwise, like the angle of the display matrix
