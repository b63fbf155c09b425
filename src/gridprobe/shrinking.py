"""What is shown of a selection when not all of it fits: fewer frames, and less beside them."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gridprobe.backends.base import FrameGroup, View
from gridprobe.budget import spread, top
from gridprobe.selectors import ExtraFrames, Selection
from gridprobe.setup import Setup
from gridprobe.video import FramePool

__all__ = ["Smaller", "Way", "grid_side", "largest", "resized", "smaller_views", "ways_of"]

HALVINGS = 6
"""How often a side is halved at most: 4,096 pixels become 64."""


@dataclass(frozen=True)
class Way:
    """How other frames are shown beside the kept ones."""

    beside: tuple[ExtraFrames, ...]
    context: float
    gives: str = ""
    """What is less than it was."""

    def of(self, selection: Selection) -> Selection:
        """The selection, shown in this way."""
        return replace(selection, extra_frames=_without(self.beside, selection.indices), context=self.context)


def ways_of(selection: Selection, pool: FramePool, setup: Setup) -> list[Way]:
    """How other frames are shown beside the kept ones: as they are; then with less and less of them."""
    found = [Way(selection.extra_frames, selection.context)]
    if setup.context is not None:
        multiple = setup.answerer.multiple
        views = smaller_views(setup.context, lambda view: max(FrameGroup(pool, view).size(multiple)))
        for _, share, side in views[1:]:
            words = f"other frames shown at {side} px instead of {views[0].side}"
            found.append(Way(selection.extra_frames, share, words))
        found.append(Way(selection.extra_frames, 0.0, "other frames left out"))
    for left in range(len(selection.extra_frames) - 1, -1, -1):
        found.append(Way(selection.extra_frames[:left], 0.0, "smaller frames left out"))
    return found


def _without(beside: Sequence[ExtraFrames], kept: Collection[int]) -> tuple[ExtraFrames, ...]:
    """What is shown beside so many kept frames, each frame once."""
    others = [each._replace(indices=tuple(i for i in each.indices if i not in kept)) for each in beside]
    return tuple(each for each in others if each.indices)


class Smaller(NamedTuple):
    """A view at a share of its side."""

    view: View
    share: float
    side: int
    """The longer side of a frame that is shown so."""


def smaller_views(view: View, side: Callable[[View], int]) -> list[Smaller]:
    """A view, and smaller ones, each of half the side, that make frames smaller."""
    found = [Smaller(view, 1.0, side(view))]
    for share in (0.5**step for step in range(1, HALVINGS + 1)):
        smaller = replace(view, pixels=view.pixels.scaled(share))
        if side(smaller) < found[-1].side:
            found.append(Smaller(smaller, share, side(smaller)))
    return found


def resized(selection: Selection, pool: FramePool, count: int) -> Selection:
    """The selection with so many frames: the best of those it keeps, or the best of the others besides."""
    if count == selection.kept:
        return selection
    kept = list(selection.indices)
    if count < len(kept):
        chosen = _best(kept, selection.scores, count)
    else:
        chosen = [
            *kept,
            *_best([i for i in range(len(pool)) if i not in set(kept)], selection.scores, count - len(kept)),
        ]
    indices = tuple(sorted(chosen))
    return replace(
        selection,
        indices=indices,
        timestamps=tuple(pool.times[i] for i in indices),
        extra_frames=_without(selection.extra_frames, indices),
    )


def _best(places: Sequence[int], scores: Sequence[float] | None, count: int) -> list[int]:
    """The places with the highest scores; evenly spaced ones without scores."""
    if scores is None:
        return [places[i] for i in spread(len(places), count)]
    return [places[i] for i in top(np.array([scores[place] for place in places]), count)]


def largest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """The largest number in this range that fits, found by halving it; 0 if the least one does not."""
    if not fits(least):
        return 0
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least


def grid_side(pool: int) -> int:
    """K of the smallest grid that holds the pool."""
    return math.isqrt(pool - 1) + 1
