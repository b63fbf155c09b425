"""Reader: one forward pass over a video that finds the frame shown at each of a series of ascending timestamps.

Packets are inspected before they are decoded, so the wanted one is known: unreferenced pictures before it are skipped,
and decoding ends with it. If that is impossible (no timestamps) or anything goes wrong, the group of pictures is
decoded again, every packet of it.

Decoders hide damage: after an error H.264 gives smeared frames, without a flag, until the next keyframe. So doubt
begins at a packet or frame that is flagged as corrupt, at an error of the decoder or between packets, and lasts to the
next keyframe that decodes without one (or the end of a round of intra refresh). A target in between takes the nearest
trusted frame. A frame is trusted only once those that were decoded before it and are shown after it have come out too:
it may refer to them. Damage that FFmpeg does not notice cannot be noticed here; see docs/architecture.md.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gridprobe.video.sampling import FOLLOWING, START, Anchor, DecodePlan, FrameClock, anchor
from gridprobe.video.source import NalKind, Source, kind_rule

if TYPE_CHECKING:
    from av import VideoFrame
    from av.packet import Packet
    from av.video.stream import VideoStream

# dry_run(): what reading a plan takes, found from packets alone: the true frames, and how many must be decoded.


class Step(NamedTuple):
    """One target of a plan."""

    target: int
    due: int | None
    """The pts of the frame on display at the target; None if no packet has a timestamp."""
    decoded: int
    """Packets decoded for it, beyond those decoded for earlier targets."""


def dry_run(source: Source, clock: FrameClock, plan: DecodePlan) -> Iterator[Step]:
    """A step for every target, in order, as `Reader` takes it if nothing is damaged."""
    if clock.counted:  # a pts is a frame's number, and none can be skipped
        before = -1
        for target in plan.targets:
            yield Step(target, target, target - before)
            before = target
        return
    packets, key = _PacketsAfterSeek(source, START), None
    for target, start, _ in plan.steps():
        if start.key is not None and start.key != key:
            packets, key = _PacketsAfterSeek(source, start), start.key
        yield packets.step_to(target)


def expected_pts(source: Source, clock: FrameClock, plan: DecodePlan) -> list[int] | None:
    """The pts of the frames on display at a plan's targets, ascending and distinct; None without timestamps."""
    pts_list = [step.due for step in dry_run(source, clock, plan)]
    return None if None in pts_list else sorted({pts for pts in pts_list if pts is not None})


class _Packet(NamedTuple):
    pts: int | None
    hidden: bool
    kind: NalKind


class _PacketsAfterSeek:
    """The packets that follow one seek, as far as they were read."""

    def __init__(self, source: Source, start: Anchor) -> None:
        if start.seek is not None:
            source.container.seek(start.seek, stream=source.stream, backward=True)
        context = source.stream.codec_context
        self._rule = kind_rule(context.name, context.extradata) if start != START else None
        self._source = source.packets()
        self._skip_to = start.key
        self._packets: list[_Packet] = []
        self._decoded = 0
        self._beyond = 0

    def step_to(self, target: int) -> Step:
        self._read(target)
        pts_list = {p.pts: place for place, p in enumerate(self._packets) if p.pts is not None and not p.hidden}
        if not pts_list:
            return Step(target, None, 0)
        due = max((pts for pts in pts_list if pts <= target), default=min(pts_list))
        top = max(packet.kind.layer for packet in self._packets)
        needed = [p for p in self._packets[self._decoded : pts_list[due] + 1] if not self._is_skipped(p, due, top)]
        self._decoded = max(self._decoded, pts_list[due] + 1)
        return Step(target, due, len(needed))

    def _is_skipped(self, packet: _Packet, due: int, top: int) -> bool:
        early = packet.pts is not None and packet.pts < due
        return self._rule is not None and early and packet.kind.droppable and packet.kind.layer == top

    def _read(self, target: int) -> None:
        """Read until enough packets in a row are shown after the target that no earlier one can follow."""
        self._beyond = sum(p.pts is not None and p.pts > target for p in self._packets[-FOLLOWING:])
        while self._beyond < FOLLOWING:
            packet = next(self._source, None)
            if packet is None:
                return
            if self._skip_to is not None:
                if not (packet.is_keyframe and packet.pts is not None and packet.pts >= self._skip_to):
                    continue
                self._skip_to = None
            if packet.pts is None or packet.dts is None or packet.pts < packet.dts:
                self._rule = None  # out of order: the reader skips nothing then, either
            kind = self._rule(memoryview(packet)) if self._rule else NalKind()
            self._packets.append(_Packet(packet.pts, bool(packet.is_discard), kind))
            self._beyond = self._beyond + 1 if packet.pts is not None and packet.pts > target else 0


# Lookahead: packets that were read but not yet decoded, to find out which of them a target needs.

BEFORE_ALL = -(1 << 63)
MAX_PACKETS, MAX_BYTES = 1024, 16 << 20
"""Limits on the packets held; a more distant target is reached in steps."""


class Lookahead:
    """Packets in decoding order, since the last seek."""

    def __init__(self, source: Source) -> None:
        self.ordered = True
        """Whether every packet so far had both timestamps, in order."""
        context = source.stream.codec_context
        self._rule = kind_rule(context.name, context.extradata)
        self._packets: deque[tuple[Packet[VideoStream], NalKind]] = deque()
        self._bytes = 0
        self._top_layer = 0
        self._last_dts = BEFORE_ALL
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._packets)

    def pts_list(self) -> list[int]:
        """When the frames of these packets are shown."""
        return [packet.pts for packet, _ in self._packets if packet.pts is not None and not packet.is_discard]

    def passed(self, target: int) -> bool:
        """Whether no later packet can be shown at or before `target`: none is shown before it is decoded."""
        return self._ended or self._last_dts > target

    def fill(self, fetch: "Callable[[], Packet[VideoStream] | None]", target: int, due: int | None) -> int | None:
        """Read up to `target`, within the limits; return the last pts up to it, where `due` is the last one so far."""
        while self.ordered and not self.passed(target) and len(self._packets) < MAX_PACKETS and self._bytes < MAX_BYTES:
            packet = fetch()
            if packet is None:
                self._ended = True
                break
            self._append(packet)
            if self.ordered and packet.pts is not None and packet.pts <= target and not packet.is_discard:
                due = packet.pts if due is None else max(due, packet.pts)
        return due

    def _append(self, packet: "Packet[VideoStream]") -> None:
        kind = self._rule(memoryview(packet)) if self._rule else NalKind()
        self._packets.append((packet, kind))
        self._bytes += packet.size
        self._top_layer = max(self._top_layer, kind.layer)
        if packet.pts is None or packet.dts is None or packet.dts < self._last_dts or packet.pts < packet.dts:
            self.ordered = False
        else:
            self._last_dts = packet.dts

    def pop(self, due: int | None = None) -> "Packet[VideoStream] | None":
        """Take the next packet; None if there is none, or if it is unreferenced and shown before `due`."""
        if not self._packets:
            return None
        packet, kind = self._packets.popleft()
        self._bytes -= packet.size
        is_early = due is not None and packet.pts is not None and packet.pts < due
        return None if is_early and kind.droppable and kind.layer == self._top_layer else packet


MAX_MISSES = 3
"""Expected frames that may fail to come out before every packet of the stream is decoded."""
MAX_GROUPS_BACK = 3
"""Earlier groups of pictures searched for a substitute if a whole group is lost."""
MAX_DELAY = 32
"""Packets after which a frame that has not come out is not waited for: reordering and the decoder's threads."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A decoded frame and the pts it is shown from."""

    frame: "VideoFrame"
    pts: int
    substitute: bool = False
    """Whether it replaces a damaged frame."""


class Reader:
    """Decodes forward, and seeks only to skip groups of pictures it does not need."""

    def __init__(self, source: Source, clock: FrameClock, reach: int) -> None:
        self._reach = reach
        """How far after a damaged target, in pts, a good frame is looked for."""
        self.decoded = 0
        """Frames decoded so far, wanted or not."""
        self._source = source
        self._clock = clock
        self._packets = source.packets()
        self._ended = False
        self._skip_to: int | None = None
        self._next_tick = clock.start
        self._last_out = BEFORE_ALL
        self._highest_sent = BEFORE_ALL
        self._key = BEFORE_ALL
        self._sent: list[int] = []
        self._sent_count = 0
        self._errors = 0
        self._suspect_from: int | None = None
        self._read_errors = 0
        self._anchors: set[int] = set()
        self._refreshed_at: int | None = None
        self._unseen: dict[int, int] = {}
        """By pts: the number of each packet whose frame has not come out."""
        self._unconfirmed: deque[tuple[int, Shown]] = deque()
        """Frames that came out, with the numbers of their packets."""
        self._before: Shown | None = None
        self._waiting: deque[Shown] = deque()
        self._damaged: set[int] = set()
        self._ahead = Lookahead(source)
        self._group: int | None = None
        self._flushed = False
        self._decode_all = clock.counted
        self._misses = 0

    @property
    def undamaged(self) -> bool:
        """Whether everything so far was decoded without error."""
        return not self._errors and not self._damaged

    def shown_at(self, target: int, start: Anchor, *, last: bool = False) -> Shown | None:
        """The frame on display at pts `target`: the last that starts at or before it, else the first of all.

        Targets must rise from call to call. `last` means that the next target starts from another keyframe. None means
        that nothing up to the end of the file could be decoded.
        """
        self._advance(target)
        if start.key is None or start.seek is None:
            self._decode_all = True
        elif start.key > self._highest_sent or (self._flushed and start.key != self._group):
            self._jump(start.seek, start.key)
            self._decode_all = self._misses >= MAX_MISSES
        self._group = start.key
        if not self._decode_all:
            shown = self._read_minimum(target, last=last)
            if shown is not None:
                return shown
            self._decode_all = True
            if start.key is not None and start.seek is not None:
                self._jump(start.seek, start.key)
        tried = bool(self._waiting)  # a good frame after the target is known, so earlier groups were tried already
        self._read_past(target)
        for _ in range(0 if tried else MAX_GROUPS_BACK):
            if not self._is_lost() or not self._read_previous_group(target):
                break
        return self._choose(target)

    def _read_minimum(self, target: int, *, last: bool) -> Shown | None:
        """Decode only what the frame on display at `target` needs; None if anything goes wrong.

        With `last` the decoder is flushed afterwards, which is cheaper than feeding it until the frame comes out; it
        then needs a seek before it can continue.
        """
        ahead, errors_before = self._ahead, (self._errors, len(self._damaged))
        due = max((pts for pts in (*self._sent, *ahead.pts_list()) if pts <= target), default=None)
        while (self._errors, len(self._damaged)) == errors_before and self._suspect_from is None:
            due = ahead.fill(self._fetch, target, due)
            if due is None or not ahead.ordered:
                return None
            if ahead.passed(target):
                if self._before is not None and self._before.pts == due:
                    self._sent = [pts for pts in self._sent if pts >= due]
                    return self._before
                if self._flushed or self._ended:  # the decoder was flushed, and did not have the frame
                    self._misses += 1
                    return None
                if not ahead and any(shown.pts == due for _, shown in self._unconfirmed):
                    self._read()
                    self._advance(target)
                    continue
                if not ahead or (last and due in self._sent):
                    self._flushed, self._ended = last, not ahead
                    self._decode(None)
                    self._advance(target)
                    continue
            packet = ahead.pop(due)
            if packet is not None:
                self._record_sent(packet)
                self._decode(packet)
                self._advance(target)
        return None

    def _read_past(self, target: int) -> None:
        """Decode up to the first good frame after `target`, but not further than a substitute may be away."""
        while not self._waiting and not self._ended:
            if self._suspect_from is not None and self._last_out > target + self._reach:
                return
            self._read()
            self._advance(target)

    def _is_lost(self) -> bool:
        """Whether the group of pictures sought last gave no good frame."""
        return self._key != BEFORE_ALL and (self._before is None or self._before.pts < self._key)

    def _read_previous_group(self, target: int) -> bool:
        """Start again one keyframe earlier: its last frames may be nearer to a damaged target than later ones."""
        self._errors += 1  # a decoder can lose a group without reporting an error
        earlier = anchor(self._source, self._clock, self._key - 1)
        latest = BEFORE_ALL if self._before is None else self._before.pts
        is_new = earlier.seek is not None and earlier.key is not None and earlier.key > latest
        if earlier.seek is not None and earlier.key is not None and is_new:
            self._jump(earlier.seek, earlier.key)
        else:
            self._jump(self._key, self._key)
        self._read_past(target)
        return is_new

    def _advance(self, target: int) -> None:
        """Move frames that start at or before `target` from the waiting queue to `before`."""
        while self._waiting and self._waiting[0].pts <= target:
            self._before = self._waiting.popleft()

    def _jump(self, seek: int, key: int) -> None:
        self._source.container.seek(seek, stream=self._source.stream, backward=True)
        self._packets = self._source.packets()
        self._ended = False
        self._skip_to = self._key = key
        self._last_out = BEFORE_ALL
        self._highest_sent = BEFORE_ALL
        self._flushed = False
        self._sent.clear()
        self._unseen.clear()
        self._unconfirmed.clear()
        self._anchors.clear()
        self._waiting.clear()
        self._ahead = Lookahead(self._source)
        self._suspect_from = None

    def _read(self) -> None:
        """Decode one packet, or flush the decoder at the end of the file."""
        packet = self._ahead.pop() or self._fetch()
        if packet is None:
            self._ended = True
        else:
            self._record_sent(packet)
        self._decode(packet)

    def _fetch(self) -> "Packet[VideoStream] | None":
        """The next packet. After a seek, those before the keyframe are skipped: their references were never read."""
        for packet in self._packets:
            if self._skip_to is None or (packet.is_keyframe and packet.pts is not None and packet.pts >= self._skip_to):
                self._skip_to = None
                return packet
        return None

    def _record_sent(self, packet: "Packet[VideoStream]") -> None:
        pts = self._sent_count if self._clock.counted else packet.pts
        self._sent_count += 1
        if pts is not None:
            self._highest_sent = max(self._highest_sent, pts)
            if not packet.is_discard:
                self._sent.append(pts)
                self._unseen[pts] = self._sent_count
        recovery = self._source.recovery(packet)
        if recovery == 0 and pts is not None:
            self._anchors.add(pts)
        elif recovery and self._suspect_from is not None and self._refreshed_at is None:
            self._refreshed_at = self._sent_count + recovery
        if packet.is_corrupt or len(self._source.read_errors) > self._read_errors:
            self._read_errors = len(self._source.read_errors)
            self._begin_doubt(self._highest_sent)

    def _begin_doubt(self, pts: int) -> None:
        """Trust no frame any more until one after `pts` heals the stream."""
        self._errors += 1
        self._suspect_from = pts if self._suspect_from is None else max(pts, self._suspect_from)
        self._refreshed_at = None

    def _decode(self, packet: "Packet[VideoStream] | None") -> None:
        import av

        try:
            frames = self._source.stream.codec_context.decode(packet)
        except MemoryError:  # not damage; PyAV's MemoryError is also an FFmpegError
            raise
        except av.FFmpegError:
            self._begin_doubt(self._highest_sent)
            return
        finally:
            if packet is None:
                self._unseen.clear()
        for frame in frames:
            self._take(frame)
        self._confirm()

    def _confirm(self) -> None:
        """Trust the frames that came out, up to the first that may refer to one that has not."""
        while self._unconfirmed:
            number, shown = self._unconfirmed[0]
            if any(number - MAX_DELAY < earlier < number for earlier in self._unseen.values()):
                return
            self._unconfirmed.popleft()
            self._waiting.append(shown)

    def _take(self, frame: "VideoFrame") -> None:
        pts = self.decoded if self._clock.counted else frame.pts
        shown = Shown(frame, self._next_tick if pts is None else pts)
        self._next_tick = shown.pts + (frame.duration or 1)
        self._last_out = shown.pts
        self.decoded += 1
        number = 0 if self._clock.counted else self._unseen.pop(shown.pts, 0)
        if not frame.is_corrupt and self._is_healed(shown, number):
            self._suspect_from = None
            self._unconfirmed.append((number, shown))
        elif shown.pts >= self._key:  # leading pictures of an open group refer to frames that were skipped: no damage
            self._damaged.add(shown.pts)
            if frame.is_corrupt:
                self._begin_doubt(shown.pts)
                referring = [each for each in self._unconfirmed if each[0] > number]
                self._damaged.update(each.pts for _, each in referring)
                self._unconfirmed = deque(each for each in self._unconfirmed if each not in referring)

    def _is_healed(self, shown: Shown, number: int) -> bool:
        if self._suspect_from is None:
            return True
        if shown.pts <= self._suspect_from:
            return False
        is_key = shown.frame.key_frame if self._clock.counted else shown.pts in self._anchors
        return bool(is_key) or (self._refreshed_at is not None and number >= self._refreshed_at)

    def _choose(self, target: int) -> Shown | None:
        before, after = self._before, self._waiting[0] if self._waiting else None
        if not self._is_damaged(target):
            return before or after
        near = [shown for shown in (before, after) if shown is not None]
        if not near:
            return None
        best = min(near, key=lambda shown: abs(shown.pts - target))
        return Shown(best.frame, best.pts, substitute=True)

    def _is_damaged(self, target: int) -> bool:
        """Whether the frame that should be on display at `target` was sent to the decoder but did not come out."""
        due = max((pts for pts in self._sent if pts <= target), default=None)
        if due is None:
            return False
        self._sent = [pts for pts in self._sent if pts >= due]
        if self._before is None or self._is_lost():
            return True
        # Without an error a missing frame is not damage: some codecs have packets that show nothing.
        return self._before.pts < due and (self._errors > 0 or due in self._damaged)
