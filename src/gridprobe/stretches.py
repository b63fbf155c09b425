"""Where to look again: the stretches of a video that the map points at."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

__all__ = ["SHARE", "hot_stretches", "runs"]

APART = 3.0
"""Neighbours further apart than this many usual distances belong to two stretches; frames sampled again do."""
SHARE = 4
"""One in so many cells is sampled again, so that frames lie so many times closer there."""


def hot_stretches(scores: Sequence[float], duration: float) -> tuple[tuple[float, float], ...]:
    """The quarter of the cells with the highest scores, neighbours counted in, as intervals of seconds.

    A cell's score is averaged with those of its neighbours, since what matters is rarely over within one cell.

        hot_stretches([0, 0, 9, 1, 0, 0, 0, 0], 80.0)  ->  ((20.0, 40.0),)
    """
    values = np.asarray(scores, dtype=np.float64)
    cells = len(values)
    padded = np.pad(values, 1, mode="edge")
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    hottest = np.lexsort((np.arange(cells), -values, -smooth))[: max(1, cells // SHARE)]
    edges = np.linspace(0.0, duration, cells + 1)
    found: list[tuple[float, float]] = []
    for cell in sorted(hottest.tolist()):
        start, end = float(edges[cell]), float(edges[cell + 1])
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return tuple(found)


def runs(times: Sequence[float], places: Sequence[int]) -> list[tuple[int, ...]]:
    """The places of frames, with neighbours taken together; those that are far apart in time are no neighbours.

    runs([0.5, 1.5, 2.5, 3.5, 9.5], [1, 2, 3, 4])  ->  [(1, 2, 3), (4,)]
    """
    found: list[list[int]] = []
    usual = median([later - earlier for earlier, later in pairwise(times)] or [0.0])
    for place in sorted(places):
        if found and found[-1][-1] == place - 1 and times[place] - times[place - 1] <= APART * usual:
            found[-1].append(place)
        else:
            found.append([place])
    return [tuple(each) for each in found]
