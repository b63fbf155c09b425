"""walk(): what reading a plan will come to, found from packets alone: the true frames, and how many must be decoded."""

from collections.abc import Iterator
from typing import NamedTuple

from gridprobe.video.nal import Kind, kind_rule
from gridprobe.video.plan import Plan
from gridprobe.video.source import Source
from gridprobe.video.timeline import FOLLOWING, START, Anchor, Clock

__all__ = ["Step", "promised", "walk"]


class Step(NamedTuple):
    """One target of a plan."""

    target: int
    due: int | None
    """The tick of the frame on display at the target; None where no packet has a time stamp."""
    decoded: int
    """Packets decoded for it, over those decoded for the targets before it."""


def walk(source: Source, clock: Clock, plan: Plan) -> Iterator[Step]:
    """A step for every target, in order, as `Reader` will take it where nothing is damaged."""
    if clock.counted:  # a tick is a frame, and nothing can be left out
        before = -1
        for target in plan.targets:
            yield Step(target, target, target - before)
            before = target
        return
    way, key = _Way(source, START), None
    for target, start, _ in plan.steps():
        if start.key is not None and start.key != key:
            way, key = _Way(source, start), start.key
        yield way.go(target)


def promised(source: Source, clock: Clock, plan: Plan) -> list[int] | None:
    """The ticks of the frames on display at a plan's targets, rising and each once; None where packets do not tell."""
    ticks = [step.due for step in walk(source, clock, plan)]
    return None if None in ticks else sorted({tick for tick in ticks if tick is not None})


class _Packet(NamedTuple):
    tick: int | None
    hidden: bool
    kind: Kind


class _Way:
    """The packets behind one seek, as far as they were looked at."""

    def __init__(self, source: Source, start: Anchor) -> None:
        if start.seek is not None:
            source.container.seek(start.seek, stream=source.stream, backward=True)
        context = source.stream.codec_context
        self._rule = kind_rule(context.name, context.extradata) if start != START else None
        self._packets = source.packets()
        self._skip_to = start.key
        self._row: list[_Packet] = []
        self._fed = 0
        self._beyond = 0

    def go(self, target: int) -> Step:
        self._read(target)
        ticks = {p.tick: place for place, p in enumerate(self._row) if p.tick is not None and not p.hidden}
        if not ticks:
            return Step(target, None, 0)
        due = max((tick for tick in ticks if tick <= target), default=min(ticks))
        top = max(packet.kind.layer for packet in self._row)
        needed = [p for p in self._row[self._fed : ticks[due] + 1] if not self._is_left_out(p, due, top)]
        self._fed = max(self._fed, ticks[due] + 1)
        return Step(target, due, len(needed))

    def _is_left_out(self, packet: _Packet, due: int, top: int) -> bool:
        early = packet.tick is not None and packet.tick < due
        return self._rule is not None and early and packet.kind.droppable and packet.kind.layer == top

    def _read(self, target: int) -> None:
        """Read on until so many packets are shown after the target that none before it can still come."""
        self._beyond = sum(p.tick is not None and p.tick > target for p in self._row[-FOLLOWING:])
        while self._beyond < FOLLOWING:
            packet = next(self._packets, None)
            if packet is None:
                return
            if self._skip_to is not None:
                if not (packet.is_keyframe and packet.pts is not None and packet.pts >= self._skip_to):
                    continue
                self._skip_to = None
            if packet.pts is None or packet.dts is None or packet.pts < packet.dts:
                self._rule = None  # out of order: then the reader leaves nothing out either
            kind = self._rule(bytes(packet)) if self._rule else Kind()
            self._row.append(_Packet(packet.pts, bool(packet.is_discard), kind))
            self._beyond = self._beyond + 1 if packet.pts is not None and packet.pts > target else 0
