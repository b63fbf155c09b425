"""Plan: which ticks of a video are decoded, where decoding starts for each, and how the work is shared out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from gridprobe.video.sampling import Precision
from gridprobe.video.source import Source
from gridprobe.video.timeline import START, Anchor, Clock, anchor, next_key, shown_for

__all__ = ["AUTO_FRACTION", "Plan", "make_plan"]

AUTO_FRACTION = 0.2
"""With "auto" a keyframe stands for a moment when it is at most this fraction of a cell's width away from it.

Neighbours then lie 0.6 to 1.4 cells apart. A fifth is the least that pays for the usual keyframe every 250 frames: an
hour in 144 cells has a reach of ±5 s, one such group, so that nearly every cell finds a keyframe. A tenth leaves about
half of the cells to exact decoding, which is six times the work (8.4 CPU seconds against 1.3).
"""

KEY_SECONDS = 0.3
"""What a seek, a keyframe and the scaling cost, in seconds of video decoded; only for sharing out the work."""


@dataclass(frozen=True)
class Plan:
    """The wanted ticks, rising, and where to start decoding for each."""

    targets: tuple[int, ...]
    anchors: tuple[Anchor, ...]

    def __len__(self) -> int:
        return len(self.targets)

    def steps(self) -> Iterator[tuple[int, Anchor, bool]]:
        """Each target, its anchor, and whether nothing more is wanted from the same group of pictures."""
        following = (*self.anchors[1:], None)
        for target, start, then in zip(self.targets, self.anchors, following, strict=True):
            yield target, start, then is None or (then.key is not None and then.key != start.key)

    def parts(self, count: int, clock: Clock) -> list["Plan"]:
        """At most `count` plans of about equal cost, in order; a group of pictures is never shared by two."""
        groups = self._groups()
        costs = [self._cost(end, clock) for _, end in groups]
        total, before = sum(costs), 0.0
        ends: dict[int, int] = {}
        for (_, end), cost in zip(groups, costs, strict=True):
            ends[min(count - 1, int((before + cost / 2) / total * count))] = end
            before += cost
        return [Plan(self.targets[a:b], self.anchors[a:b]) for a, b in pairwise((0, *ends.values()))]

    def _groups(self) -> list[tuple[int, int]]:
        """Where targets with one keyframe begin and end; all up to the last that needs the file's start are one."""
        first = max((i for i, start in enumerate(self.anchors) if start == START), default=0) + 1
        keys = [start.key for start in self.anchors]
        cuts = [i for i in range(first, len(keys)) if keys[i] != keys[i - 1]]
        return list(pairwise((0, *cuts, len(keys))))

    def _cost(self, end: int, clock: Clock) -> float:
        key = self.anchors[end - 1].key
        return KEY_SECONDS + (0.0 if key is None else float((self.targets[end - 1] - key) * clock.tick))


def make_plan(source: Source, clock: Clock, targets: Iterable[int], *, precision: Precision, cell: float) -> Plan:
    """Find the anchor of every target; where the precision allows it, a keyframe nearby becomes the target.

    `cell` is the width of a cell in seconds.
    """
    exact = list(dict.fromkeys(targets))
    reach = int(AUTO_FRACTION * cell / clock.tick) if precision == "auto" else None
    chosen: dict[int, Anchor] = {}
    for target, following in zip(exact, [*exact[1:], None], strict=True):
        start = anchor(source, clock, target)
        taken = next(reversed(chosen), None)
        near = None if precision == "exact" else _near_key(source, clock, (target, following), start, reach=reach)
        if near is not None and near.key is not None and (reach is None or taken is None or near.key > taken):
            target, start = near.key, near
        if taken is None or target > taken:
            chosen[target] = start
    return Plan(tuple(chosen), tuple(chosen.values()))


def _near_key(
    source: Source, clock: Clock, targets: tuple[int, int | None], start: Anchor, *, reach: int | None
) -> Anchor | None:
    """The keyframe nearest to the first of two targets, where one lies within reach (None: any)."""
    target, following = targets
    if start.key is None:
        return None
    before = target - start.key
    earlier = start if reach is None or before <= reach else None
    if reach is not None and reach < shown_for(source, clock):
        return earlier  # cells this narrow are about single frames: no later one will do
    limit = target + (before - 1 if reach is None else min(reach, before - 1))
    # With "auto" the next cell must find another frame than this one's, so there has to be one in between.
    key = next_key(source, target, limit=limit, until=None if reach is None else following)
    if key is not None:
        later = anchor(source, clock, key)
        if later.key == key:
            return later
    return earlier
