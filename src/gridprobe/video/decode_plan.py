"""DecodePlan: which ticks of a video to decode, where to start decoding for each, and how to divide the work."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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

KEY_SECONDS = 0.3
"""The cost of a seek, a keyframe and the scaling, in seconds of video decoded; used only to divide the work."""


@dataclass(frozen=True)
class DecodePlan:
    """The wanted ticks, ascending, and where to start decoding for each."""

    targets: tuple[int, ...]
    anchors: tuple[Anchor, ...]

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
    return DecodePlan(tuple(chosen), tuple(chosen.values()))


def _near_key(
    source: Source, clock: Clock, targets: tuple[int, int | None], start: Anchor, *, reach: int | None
) -> Anchor | None:
    """The keyframe nearest to the first of two targets, if one is within reach (None: at any distance)."""
    target, following = targets
    if start.key is None:
        return None
    before = target - start.key
    earlier = start if reach is None or before <= reach else None
    if reach is not None and reach < frame_ticks(source, clock):
        return earlier  # cells this narrow are single frames: a later frame would be the wrong one
    limit = target + (before - 1 if reach is None else min(reach, before - 1))
    # With "auto" the next cell must find a frame of its own, so one must lie in between.
    key = next_key(source, target, limit=limit, until=None if reach is None else following)
    if key is not None:
        later = anchor(source, clock, key)
        if later.key == key:
            return later
    return earlier
