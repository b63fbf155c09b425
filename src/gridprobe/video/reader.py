"""Reader: one forward pass over a video that finds the frame shown at each of a rising row of ticks.

Packets are looked at before they are decoded, so the wanted one is known: pictures before it that no other refers to
are left out, and decoding ends with it. Where that is impossible (no time stamps) or meets any trouble, the group of
pictures is read once more, every packet of it.

Decoders hide damage: after an error H.264 gives smeared frames, and no flag, until the next keyframe. So frames after
an error are not trusted up to the next keyframe, and a target among them takes the nearest frame that is.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridprobe.video.lookahead import BEFORE_ALL, Lookahead
from gridprobe.video.source import Source
from gridprobe.video.timeline import Anchor, Clock, anchor

if TYPE_CHECKING:
    from av import VideoFrame
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["Reader", "Shown"]

MAX_MISSES = 3
"""Frames that did not come out as their packets promised, before every packet of the stream is decoded."""
MAX_GROUPS_BACK = 3
"""Groups of pictures tried before a lost one for a frame to stand in."""
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
        self._spoilt: set[int] = set()
        self._ahead = Lookahead(source)
        self._group: int | None = None
        self._stale = False
        self._careful = clock.counted
        self._misses = 0

    @property
    def smooth(self) -> bool:
        """Whether everything so far has decoded as it should."""
        return not self._errors and not self._spoilt

    def shown_at(self, target: int, start: Anchor, *, last: bool = False) -> Shown | None:
        """The frame on display at tick `target`: the last that starts at or before it, else the first of all.

        Targets must rise from call to call. `last` says that the next one has another keyframe to start from. None
        means that nothing up to the end of the file could be decoded.
        """
        self._pass(target)
        if start.key is None or start.seek is None:
            self._careful = True
        elif start.key > self._reached or (self._stale and start.key != self._group):
            self._jump(start.seek, start.key)
            self._careful = self._misses >= MAX_MISSES
        self._group = start.key
        if not self._careful:
            shown = self._read_only(target, last=last)
            if shown is not None:
                return shown
            self._careful = True
            if start.key is not None and start.seek is not None:
                self._jump(start.seek, start.key)
        settled = bool(self._waiting)  # a good frame after the target is known, so all before it was tried already
        self._read_past(target)
        for _ in range(0 if settled else MAX_GROUPS_BACK):
            if not self._is_lost() or not self._read_previous_group(target):
                break
        return self._choose(target)

    def _read_only(self, target: int, *, last: bool) -> Shown | None:
        """Decode what the frame on display at `target` needs and no more; None where anything is not as it should be.

        With `last` the decoder is emptied after it, which is cheaper than feeding it until the frame comes out; it can
        then only go on after a seek.
        """
        ahead, trouble = self._ahead, (self._errors, len(self._spoilt))
        due = max((tick for tick in (*self._sent, *ahead.ticks()) if tick <= target), default=None)
        while (self._errors, len(self._spoilt)) == trouble and self._doubted_from is None:
            due = ahead.fill(self._fetch, target, due)
            if due is None or not ahead.orderly:
                return None
            if ahead.passed(target):
                if self._before is not None and self._before.tick == due:
                    self._sent = [tick for tick in self._sent if tick >= due]
                    return self._before
                if self._stale or self._ended:  # the decoder was emptied, and the frame was not in it
                    self._misses += 1
                    return None
                if not ahead or (last and due in self._sent):
                    self._stale, self._ended = last, not ahead
                    self._decode(None)
                    self._pass(target)
                    continue
            packet = ahead.pop(due)
            if packet is not None:
                self._note(packet)
                self._decode(packet)
                self._pass(target)
        return None

    def _read_past(self, target: int) -> None:
        """Decode up to the first good frame after `target`."""
        while not self._waiting and not self._ended:
            self._read()
            self._pass(target)

    def _is_lost(self) -> bool:
        """Whether nothing good came from the group of pictures that was jumped to."""
        return self._key != BEFORE_ALL and (self._before is None or self._before.tick < self._key)

    def _read_previous_group(self, target: int) -> bool:
        """Start again one keyframe earlier: its last frames may be nearer to a damaged target than what follows it."""
        self._errors += 1  # a decoder can lose a group without a word
        earlier = anchor(self._source, self._clock, self._key - 1)
        known = BEFORE_ALL if self._before is None else self._before.tick
        is_news = earlier.seek is not None and earlier.key is not None and earlier.key > known
        if earlier.seek is not None and earlier.key is not None and is_news:
            self._jump(earlier.seek, earlier.key)
        else:
            self._jump(self._key, self._key)
        self._read_past(target)
        return is_news

    def _pass(self, target: int) -> None:
        """Move the frames that start by `target` from the waiting row to `before`."""
        while self._waiting and self._waiting[0].tick <= target:
            self._before = self._waiting.popleft()

    def _jump(self, seek: int, key: int) -> None:
        self._source.container.seek(seek, stream=self._source.stream, backward=True)
        self._packets = self._source.packets()
        self._ended = False
        self._skip_to = self._key = key
        self._reached = BEFORE_ALL
        self._stale = False
        self._sent.clear()
        self._waiting.clear()
        self._ahead = Lookahead(self._source)
        self._doubted_from = None

    def _read(self) -> None:
        """Decode one packet, or empty the decoder at the end of the file."""
        packet = self._ahead.pop() or self._fetch()
        if packet is None:
            self._ended = True
        else:
            self._note(packet)
        self._decode(packet)

    def _fetch(self) -> "Packet[VideoStream] | None":
        """The next packet; between a landing and the keyframe lie some whose references were never read."""
        for packet in self._packets:
            if self._skip_to is None or (packet.is_keyframe and packet.pts is not None and packet.pts >= self._skip_to):
                self._skip_to = None
                return packet
        return None

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
        except MemoryError:  # no damage; PyAV's own is an FFmpegError, too
            raise
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
        if not frame.is_corrupt and self._is_healed(shown):
            self._doubted_from = None
            self._waiting.append(shown)
        elif shown.tick >= self._key:  # what leads an open group leans on frames that were jumped over: no damage
            self._spoilt.add(shown.tick)

    def _is_healed(self, shown: Shown) -> bool:
        if self._doubted_from is None:
            return True
        gone = float((shown.tick - self._doubted_from) * self._clock.tick)
        return gone > DOUBT_SECONDS or (gone > 0 and bool(shown.frame.key_frame))

    def _choose(self, target: int) -> Shown | None:
        before, after = self._before, self._waiting[0] if self._waiting else None
        if not self._is_damaged(target):
            return before or after
        near = [shown for shown in (before, after) if shown is not None]
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
        return self._before.tick < due and (self._errors > 0 or due in self._spoilt)
