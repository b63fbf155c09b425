"""Reader: one forward pass over a video that finds the frame shown at each of a rising row of ticks.

Decoders hide damage: after an error H.264 gives smeared frames, and no flag, until the next keyframe. So frames after
an error are not trusted up to the next keyframe, and a target among them takes the nearest frame that is.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridprobe.video.source import Source
from gridprobe.video.timeline import Anchor, Clock, anchor

if TYPE_CHECKING:
    from av import VideoFrame
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["Reader", "Shown"]

BEFORE_ALL = -(1 << 63)
DOUBT_SECONDS = 10.0
"""Longest distrust after an error: streams without further keyframes heal by degrees."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A decoded frame and the tick it is shown from."""

    frame: "VideoFrame"
    tick: int
    substitute: bool = False
    """Whether it stands in for a damaged frame."""


class Reader:
    """Decodes forward, seeking only over keyframes it need not decode."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self.decoded = 0
        """Frames decoded so far, wanted or not."""
        self._source = source
        self._clock = clock
        self._packets = source.packets()
        self._ended = False
        self._skip_to: int | None = None
        self._next = clock.start
        self._reached = BEFORE_ALL
        self._key = BEFORE_ALL
        self._sent: list[int] = []
        self._sent_count = 0
        self._errors = 0
        self._doubted_from: int | None = None
        self._before: Shown | None = None
        self._waiting: deque[Shown] = deque()
        self._doubtful: Shown | None = None

    def shown_at(self, target: int, start: Anchor) -> Shown | None:
        """The frame on display at tick `target`: the last that starts at or before it, else the first of all.

        Targets must rise from call to call. None means that nothing up to the end of the file could be decoded.
        """
        self._pass(target)
        if start.key is not None and start.seek is not None and start.key > self._reached:
            self._jump(start.seek, start.key)
        self._read_past(target)
        if self._is_lost():
            self._read_previous_group(target)
        return self._choose(target)

    def _read_past(self, target: int) -> None:
        """Decode up to the first good frame after `target`."""
        while not self._waiting and not self._ended:
            self._read()
            self._pass(target)

    def _is_lost(self) -> bool:
        """Whether nothing good came from the group of pictures that was jumped to."""
        return self._key != BEFORE_ALL and (self._before is None or self._before.tick < self._key)

    def _read_previous_group(self, target: int) -> None:
        """Start again one keyframe earlier: its last frames may be nearer to a damaged target than what follows it."""
        self._errors += 1  # a decoder can lose a group without a word
        earlier = anchor(self._source, self._clock, self._key - 1)
        known = BEFORE_ALL if self._before is None else self._before.tick
        if earlier.seek is not None and earlier.key is not None and earlier.key > known:
            self._jump(earlier.seek, earlier.key)
        else:
            self._jump(self._key, self._key)
        self._read_past(target)

    def _pass(self, target: int) -> None:
        """Move the frames that start by `target` from the waiting row to `before`."""
        while self._waiting and self._waiting[0].tick <= target:
            self._before = self._waiting.popleft()

    def _jump(self, seek: int, key: int) -> None:
        self._source.container.seek(seek, stream=self._source.stream, backward=True)
        self._packets = self._source.packets()
        self._ended = False
        self._skip_to = self._key = key
        self._sent.clear()
        self._waiting.clear()
        self._doubted_from = None

    def _read(self) -> None:
        """Decode one packet, or empty the decoder at the end of the file."""
        packet = next(self._packets, None)
        if packet is None:
            self._ended = True
        elif self._skip_to is not None:
            # Between the landing and the keyframe lie frames whose references were never read.
            if not packet.is_keyframe or packet.pts is None or packet.pts < self._skip_to:
                return
            self._skip_to = None
        if packet is not None:
            self._note(packet)
        self._decode(packet)

    def _note(self, packet: "Packet[VideoStream]") -> None:
        tick = self._sent_count if self._clock.counted else packet.pts
        self._sent_count += 1
        if tick is not None:
            self._reached = max(self._reached, tick)
            if not packet.is_discard:
                self._sent.append(tick)

    def _decode(self, packet: "Packet[VideoStream] | None") -> None:
        import av

        try:
            frames = self._source.stream.codec_context.decode(packet)
        except av.FFmpegError:
            self._errors += 1
            self._doubted_from = self._reached
            return
        for frame in frames:
            self._take(frame)

    def _take(self, frame: "VideoFrame") -> None:
        tick = self.decoded if self._clock.counted else frame.pts
        shown = Shown(frame, self._next if tick is None else tick)
        self._next = shown.tick + (frame.duration or 1)
        self.decoded += 1
        if frame.is_corrupt or not self._is_healed(shown):
            self._doubtful = shown
        else:
            self._doubted_from = None
            self._waiting.append(shown)

    def _is_healed(self, shown: Shown) -> bool:
        if self._doubted_from is None:
            return True
        gone = float((shown.tick - self._doubted_from) * self._clock.tick)
        return gone > DOUBT_SECONDS or (gone > 0 and bool(shown.frame.key_frame))

    def _choose(self, target: int) -> Shown | None:
        before, after = self._before, self._waiting[0] if self._waiting else None
        if not self._is_damaged(target):
            return before or after
        near = [shown for shown in (before, after) if shown is not None] or [s for s in (self._doubtful,) if s]
        if not near:
            return None
        best = min(near, key=lambda shown: abs(shown.tick - target))
        return Shown(best.frame, best.tick, substitute=True)

    def _is_damaged(self, target: int) -> bool:
        """Whether a packet was read whose frame should be on display at `target` and is not there."""
        due = max((tick for tick in self._sent if tick <= target), default=None)
        if due is None:
            return False
        self._sent = [tick for tick in self._sent if tick >= due]
        if self._before is None or self._is_lost():
            return True
        # Without an error a missing frame is no damage: some codecs have packets that show nothing.
        return self._errors > 0 and self._before.tick < due
