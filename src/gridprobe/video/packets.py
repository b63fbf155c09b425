"""dry_run(): what reading a plan takes, found from packets alone: the true frames, and how many must be decoded."""

from collections.abc import Iterator
from typing import NamedTuple

from gridprobe.video.decode_plan import DecodePlan
from gridprobe.video.nal import Kind, kind_rule
from gridprobe.video.source import Source
from gridprobe.video.timeline import FOLLOWING, START, Anchor, Clock

__all__ = ["Step", "dry_run", "expected_ticks"]


class Step(NamedTuple):
    """One target of a plan."""

    target: int
    due: int | None
    """The tick of the frame on display at the target; None if no packet has a timestamp."""
    decoded: int
    """Packets decoded for it, beyond those decoded for earlier targets."""


def dry_run(source: Source, clock: Clock, plan: DecodePlan) -> Iterator[Step]:
    """A step for every target, in order, as `Reader` takes it if nothing is damaged."""
    if clock.counted:  # a tick is a frame, and none can be skipped
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


def expected_ticks(source: Source, clock: Clock, plan: DecodePlan) -> list[int] | None:
    """The ticks of the frames on display at a plan's targets, ascending and distinct; None without timestamps."""
    ticks = [step.due for step in dry_run(source, clock, plan)]
    return None if None in ticks else sorted({tick for tick in ticks if tick is not None})


class _Packet(NamedTuple):
    tick: int | None
    hidden: bool
    kind: Kind


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
        ticks = {p.tick: place for place, p in enumerate(self._packets) if p.tick is not None and not p.hidden}
        if not ticks:
            return Step(target, None, 0)
        due = max((tick for tick in ticks if tick <= target), default=min(ticks))
        top = max(packet.kind.layer for packet in self._packets)
        needed = [p for p in self._packets[self._decoded : ticks[due] + 1] if not self._is_skipped(p, due, top)]
        self._decoded = max(self._decoded, ticks[due] + 1)
        return Step(target, due, len(needed))

    def _is_skipped(self, packet: _Packet, due: int, top: int) -> bool:
        early = packet.tick is not None and packet.tick < due
        return self._rule is not None and early and packet.kind.droppable and packet.kind.layer == top

    def _read(self, target: int) -> None:
        """Read until enough packets in a row are shown after the target that no earlier one can follow."""
        self._beyond = sum(p.tick is not None and p.tick > target for p in self._packets[-FOLLOWING:])
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
            kind = self._rule(memoryview(packet)) if self._rule else Kind()
            self._packets.append(_Packet(packet.pts, bool(packet.is_discard), kind))
            self._beyond = self._beyond + 1 if packet.pts is not None and packet.pts > target else 0
