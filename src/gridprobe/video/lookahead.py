"""Lookahead: packets read but not yet decoded, so that it is known which of them a target needs."""

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
"""How many packets are held at most; a target further away is approached in steps."""


class Lookahead:
    """A row of packets in decoding order, from one seek on."""

    def __init__(self, source: Source) -> None:
        self.orderly = True
        """Whether every packet so far had both time stamps and they were in order."""
        context = source.stream.codec_context
        self._rule = kind_rule(context.name, context.extradata)
        self._row: deque[tuple[Packet[VideoStream], Kind]] = deque()
        self._bytes = 0
        self._top = 0
        self._decoded_at = BEFORE_ALL
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._row)

    def ticks(self) -> list[int]:
        """When the frames of the packets held will be shown."""
        return [packet.pts for packet, _ in self._row if packet.pts is not None and not packet.is_discard]

    def passed(self, target: int) -> bool:
        """Whether no packet to come can be shown at or before `target`: none is shown before it is decoded."""
        return self._ended or self._decoded_at > target

    def fill(self, fetch: "Callable[[], Packet[VideoStream] | None]", target: int, due: int | None) -> int | None:
        """Read on, as far as `target` if that is not too much; returns the last tick up to it, `due` being known."""
        while self.orderly and not self.passed(target) and len(self._row) < MAX_PACKETS and self._bytes < MAX_BYTES:
            packet = fetch()
            if packet is None:
                self._ended = True
                break
            self._append(packet)
            if self.orderly and packet.pts is not None and packet.pts <= target and not packet.is_discard:
                due = packet.pts if due is None else max(due, packet.pts)
        return due

    def _append(self, packet: "Packet[VideoStream]") -> None:
        kind = self._rule(bytes(packet)) if self._rule else Kind()
        self._row.append((packet, kind))
        self._bytes += packet.size
        self._top = max(self._top, kind.layer)
        if packet.pts is None or packet.dts is None or packet.dts < self._decoded_at or packet.pts < packet.dts:
            self.orderly = False
        else:
            self._decoded_at = packet.dts

    def pop(self, due: int | None = None) -> "Packet[VideoStream] | None":
        """The next packet; None where there is none, or where it is shown before `due` and nothing refers to it."""
        if not self._row:
            return None
        packet, kind = self._row.popleft()
        self._bytes -= packet.size
        is_early = due is not None and packet.pts is not None and packet.pts < due
        return None if is_early and kind.droppable and kind.layer == self._top else packet
