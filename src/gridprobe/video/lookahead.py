"""Lookahead: packets that were read but not yet decoded, to find out which of them a target needs."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gridprobe.video.nal import Kind, kind_rule
from gridprobe.video.source import Source

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["BEFORE_ALL", "Lookahead"]

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
        self._packets: deque[tuple[Packet[VideoStream], Kind]] = deque()
        self._bytes = 0
        self._top_layer = 0
        self._last_dts = BEFORE_ALL
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._packets)

    def ticks(self) -> list[int]:
        """The ticks at which the frames of these packets are shown."""
        return [packet.pts for packet, _ in self._packets if packet.pts is not None and not packet.is_discard]

    def passed(self, target: int) -> bool:
        """Whether no later packet can be shown at or before `target`: none is shown before it is decoded."""
        return self._ended or self._last_dts > target

    def fill(self, fetch: "Callable[[], Packet[VideoStream] | None]", target: int, due: int | None) -> int | None:
        """Read up to `target`, within the limits; return the last tick up to it, where `due` is the last one so far."""
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
        kind = self._rule(memoryview(packet)) if self._rule else Kind()
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
