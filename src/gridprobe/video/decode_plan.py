"""DecodePlan: which ticks of a video to decode, where to start decoding for each, and how to divide the work."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from gridprobe.video.sampling import Precision
from gridprobe.video.source import Source
from gridprobe.video.timeline import START, Anchor, Clock, anchor, frame_ticks, next_key

__all__ = ["AUTO_FRACTION", "DecodePlan", "make_plan"]

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
    """The wanted ticks, ascending, and where to start decoding for each."""

    targets: tuple[int, ...]
    anchors: tuple[Anchor, ...]
    note: str = ""
    """Which tolerance "auto" chose, where it is not the usual one."""

    def cost(self, clock: Clock) -> float:
        """What reading it takes, in seconds of video decoded."""
        return sum(self._cost(end, clock) for _, end in self._groups())

    def __len__(self) -> int:
        return len(self.targets)

    def steps(self) -> Iterator[tuple[int, Anchor, bool]]:
        """Each target, its anchor, and whether it is the last one in its group of pictures."""
        following = (*self.anchors[1:], None)
        for target, start, then in zip(self.targets, self.anchors, following, strict=True):
            yield target, start, then is None or (then.key is not None and then.key != start.key)

    def parts(self, count: int, clock: Clock) -> list["DecodePlan"]:
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

    def _cost(self, end: int, clock: Clock) -> float:
        key = self.anchors[end - 1].key
        return KEY_SECONDS + (0.0 if key is None else float((self.targets[end - 1] - key) * clock.tick))


def make_plan(source: Source, clock: Clock, targets: Iterable[int], *, precision: Precision, cell: float) -> DecodePlan:
    """Find the anchor of every target; if the precision allows it, a nearby keyframe becomes the target.

    `cell` is the width of a cell in seconds. With "auto" the tolerance also depends on what decoding costs: an hour
    of 1080p with a keyframe in every cell costs one keyframe a cell, and no other video may cost more.
    """
    exact = list(dict.fromkeys(targets))
    anchors = {target: anchor(source, clock, target) for target in exact}
    planner = _Planner(source, clock, anchors, cell)
    if precision != "auto":
        return planner.plan(reach=0 if precision == "exact" else None)
    plan, most = planner.plan(reach=AUTO_FRACTION), _affordable(source, len(exact))
    if plan.cost(clock) <= most or START in anchors.values():
        return plan
    wider = planner.plan(reach=WIDE_FRACTION)
    if wider.cost(clock) <= most:
        return replace(wider, note=_note(plan, wider, clock, f"half a cell ({cell / 2:.1f} s)"))
    depth = most / len({start.key for start in anchors.values()}) - KEY_SECONDS
    only = planner.plan(reach=None, depth=depth if depth >= cell / 2 else 0.0)
    return replace(only, note=_note(plan, only, clock, "half a group of pictures"))


def _affordable(source: Source, cells: int) -> float:
    """What "auto" may cost, in seconds of video decoded: a keyframe of 1080p for each cell.

    A second of smaller frames takes less time, so more of them may be decoded.
    """
    stream = source.stream
    rate = stream.average_rate or stream.guessed_rate or 25
    return cells * KEY_SECONDS * max(1.0, FULL_HD / max(1.0, stream.width * stream.height * float(rate)))


def _note(wanted: DecodePlan, chosen: DecodePlan, clock: Clock, distance: str) -> str:
    ratio = wanted.cost(clock) / chosen.cost(clock)
    return (
        f"keyframes up to {distance} away stand for sampled moments, since nearer frames would take {ratio:.0f} times "
        "the work; precision=exact takes them"
    )


@dataclass(frozen=True)
class _Planner:
    """What all plans for the same targets have in common."""

    source: Source
    clock: Clock
    anchors: dict[int, Anchor]
    """By target, ascending."""
    cell: float

    def plan(self, *, reach: float | None, depth: float = 0.0) -> DecodePlan:
        """A plan in which a keyframe may be `reach` cells away from its moment (None: at any distance).

        A moment at most `depth` seconds after a keyframe keeps its own frame. With a reach, every moment has a frame of
        its own; without one, several may share a keyframe.
        """
        ticks = None if reach is None else int(reach * self.cell / self.clock.tick)
        chosen: dict[int, Anchor] = {}
        following = [*list(self.anchors)[1:], None]
        for (target, start), then in zip(self.anchors.items(), following, strict=True):
            taken = next(reversed(chosen), None)
            shallow = start.key is not None and (target - start.key) * self.clock.tick <= depth
            near = None if ticks == 0 or (depth and shallow) else self._near_key((target, then), start, reach=ticks)
            if near is not None and near.key is not None and (ticks is None or taken is None or near.key > taken):
                target, start = near.key, near
            if taken is None or target > taken:
                chosen[target] = start
        return DecodePlan(tuple(chosen), tuple(chosen.values()))

    def _near_key(self, targets: tuple[int, int | None], start: Anchor, *, reach: int | None) -> Anchor | None:
        """The keyframe nearest to the first of two targets, if one is within reach (None: at any distance)."""
        target, following = targets
        if start.key is None:
            return None
        source, before = self.source, target - start.key
        earlier = start if reach is None or before <= reach else None
        if reach is not None and reach < frame_ticks(source, self.clock):
            return earlier  # cells this narrow are single frames: a later frame would be the wrong one
        limit = target + (before - 1 if reach is None else min(reach, before - 1))
        # With a reach the next cell must find a frame of its own, so one must lie in between.
        key = next_key(source, target, limit=limit, until=None if reach is None else following)
        if key is not None:
            later = anchor(source, self.clock, key)
            if later.key == key:
                return later
        return earlier
