"""When frames are shown, found by reading packets without decoding them.

A tick is one unit of the stream's timestamps. In a format without usable timestamps (raw H.264; AVI with B-frames,
which stores the decoding order only) a tick is one frame, counted from the first, and seeking is impossible.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from gridprobe.errors import VideoError
from gridprobe.video.source import Source

if TYPE_CHECKING:
    from av import VideoFrame
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["START", "Anchor", "Clock", "Timeline", "anchor", "end_of_stream", "frame_ticks", "next_key", "scan"]

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Seconds to step back if a seek does not land on a keyframe at or before the target."""

FOLLOWING = 16
"""Packets read after a keyframe in search of another frame; codecs reorder no more than this."""


@dataclass(frozen=True)
class Clock:
    """Converts between ticks and seconds from the presentation start."""

    tick: Fraction
    start: int
    counted: bool

    @classmethod
    def of(cls, source: Source, frame: "VideoFrame") -> "Clock":
        """The clock of an open video, from its first frame."""
        stream = source.stream
        reordered = bool(stream.codec_context.has_b_frames)
        if frame.pts is None or (source.container.format.name == "avi" and reordered):
            rate = stream.average_rate or stream.guessed_rate or Fraction(25)
            return cls(1 / Fraction(rate), 0, counted=True)
        return cls(source.time_base, frame.pts if stream.start_time is None else stream.start_time, counted=False)

    def seconds(self, tick: int) -> float:
        """Seconds from the presentation start to a tick."""
        return (tick - self.start) * self.tick.numerator / self.tick.denominator  # rounded once, as of a Fraction

    def at(self, seconds: float) -> int:
        """The last tick at or before a time, or up to a millionth of a tick after it, as float seconds are inexact."""
        return self.start + math.floor(seconds / self.tick + 1e-6)


@dataclass(frozen=True, eq=False)
class Timeline:
    """The ticks of all frames in display order, and the tick at which the last one ends."""

    ticks: list[int]
    end: int


@dataclass(frozen=True)
class Anchor:
    """Where to start decoding for a target: seek to tick `seek`, then skip packets up to the keyframe at tick `key`."""

    seek: int | None = None
    key: int | None = None


START = Anchor()
"""The beginning of the file, used if no keyframe is found."""


def scan(source: Source, clock: Clock) -> Timeline:
    """Read every packet of the video."""
    ticks: list[int] = []
    end = clock.start
    for packet in source.packets():
        if packet.is_discard:  # decoded but never shown: cut by an edit list
            continue
        # A truncated file ends in a partial packet, which does not count.
        if packet.is_corrupt and packet.pos is not None and packet.pos + packet.size >= source.file.size:
            continue
        tick = len(ticks) if clock.counted else packet.pts
        if tick is not None:
            ticks.append(tick)
            end = max(end, tick + frame_ticks(source, clock, packet.duration))
    if not ticks:
        raise VideoError(f"{source.file.name}: no frame can be read; the file is damaged or incomplete")
    return Timeline(sorted(set(ticks)), end)


def end_of_stream(source: Source, clock: Clock, near: int) -> int | None:
    """The tick at which the last frame ends, reading only from tick `near` on; None if there is no packet."""
    if not _seek(source, near):
        return None
    ends = [
        packet.pts + frame_ticks(source, clock, packet.duration)
        for packet in source.packets()
        if packet.pts is not None and not packet.is_corrupt and not packet.is_discard
    ]
    return max(ends, default=None)


def anchor(source: Source, clock: Clock, target: int) -> Anchor:
    """The keyframe to decode from for a target.

    A seek can land after the target (open GOP) or between keyframes (MPEG-TS has no index), so its landing point is
    checked and, if unsuitable, the seek is repeated further back.
    """
    if clock.counted:
        return START
    for step in STEPS:
        seek = target - math.floor(step / clock.tick)
        if (step and seek < clock.start) or not _seek(source, seek):
            break
        key = _last_key(source, target)
        if key is not None:
            return Anchor(seek, key)
    return START


def next_key(source: Source, target: int, *, limit: int, until: int | None = None) -> int | None:
    """A keyframe after `target` and at or before `limit`; the first such one if the container has an index.

    With `until`, only a keyframe that is followed by another frame at or before that tick.
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


def _seek(source: Source, tick: int, *, backward: bool = True) -> bool:
    import av

    try:
        source.container.seek(tick, stream=source.stream, backward=backward)
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


def frame_ticks(source: Source, clock: Clock, duration: int | None = None) -> int:
    """Ticks for which a frame is shown; without a duration of its own, one frame at the mean rate."""
    if clock.counted:
        return 1
    rate = source.stream.average_rate or source.stream.guessed_rate
    return duration or (round(1 / (rate * clock.tick)) if rate else 1)
