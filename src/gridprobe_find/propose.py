"""Segments that may show what is looked for, from the similarity of frames over time and from spoken lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

LEVEL = 0.5
"""A frame counts if its similarity is above this share of the way from the background to the best frame."""
BACKGROUND = 0.05
"""The quantile of all similarities that stands for frames without what is looked for."""
NOISE = 6.0
"""Similarities that spread no further than this many usual steps between neighbours are all the same."""
GAP = 2.5
"""Frames of one shot that are this many sampling steps apart belong together; over a change of shot 1.5 steps."""
RANK = 60
"""The constant of reciprocal rank fusion."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """How similar the frames of one video are to what is looked for."""

    times: Floats
    shots: npt.NDArray[np.int32]
    scores: Floats

    @property
    def step(self) -> float:
        """Seconds from frame to frame."""
        return float(np.median(np.diff(self.times))) if len(self.times) > 1 else 0.0


@dataclass(frozen=True)
class Proposal:
    """A segment of a video, in seconds."""

    key: str
    start: float
    end: float
    score: float
    """The similarity of its best frame."""
    text: str = ""
    """The spoken line that shares words with the query."""


def cut_level(curves: Mapping[str, Curve]) -> float:
    """The similarity from which a frame counts; that of the worst frame where all are the same."""
    scores = np.concatenate([curve.scores for curve in curves.values()] or [np.zeros(0)])
    if not len(scores):
        return 0.0
    low, high = float(np.quantile(scores, BACKGROUND)), float(scores.max())
    steps = np.concatenate([np.abs(np.diff(curve.scores)) for curve in curves.values()])
    if len(steps) and high - low <= NOISE * float(np.median(steps)):
        return float(scores.min())
    return low + LEVEL * (high - low)


def seen_segments(key: str, curve: Curve, cut: float) -> list[Proposal]:
    """Runs of frames at or above the cut; a short gap within a shot is bridged. Borders are half a step outside."""
    rows = np.flatnonzero(curve.scores >= cut)
    if not len(rows):
        return []
    step = curve.step or 1.0
    apart = np.diff(curve.times[rows]) / step
    same = np.diff(curve.shots[rows]) == 0
    breaks = np.flatnonzero(apart > np.where(same, GAP, 1.5)) + 1
    proposals = []
    for run in np.split(rows, breaks):
        start, end = float(curve.times[run[0]]) - step / 2, float(curve.times[run[-1]]) + step / 2
        proposals.append(Proposal(key, max(0.0, start), end, float(curve.scores[run].max())))
    return proposals


def fuse(seen: Sequence[Proposal], said: Sequence[Proposal], *, bridge: float = 1.0) -> list[Proposal]:
    """Both lists as one, best first, by reciprocal ranks; a line within a seen segment of its video joins it."""
    ranked = sorted(seen, key=lambda each: -each.score)
    worth = {place: 1 / (RANK + rank) for rank, place in enumerate(range(len(ranked)))}
    for rank, line in enumerate(said):
        value = 1 / (RANK + rank)
        place = next((i for i, each in enumerate(ranked) if _touch(each, line, bridge)), None)
        if place is None:
            ranked.append(line)
            worth[len(ranked) - 1] = value
        else:
            ranked[place] = replace(ranked[place], text=ranked[place].text or line.text)
            worth[place] += value
    order = sorted(range(len(ranked)), key=lambda i: (-worth[i], -ranked[i].score, ranked[i].key, ranked[i].start))
    return [ranked[i] for i in order]


def _touch(first: Proposal, second: Proposal, bridge: float) -> bool:
    near = first.start <= second.end + bridge and second.start <= first.end + bridge
    return first.key == second.key and near


def crossing(times: Floats, scores: Floats, cut: float, *, rising: bool) -> float | None:
    """Where the scores cross the cut between two frames: for good if rising, and from the other side if not."""
    above = scores >= cut
    if above.all() or not above.any():
        return None
    order = range(len(times) - 1) if rising else range(len(times) - 2, -1, -1)
    for place in order:
        if above[place] != above[place + 1] and above[place + 1] == rising:
            return float((times[place] + times[place + 1]) / 2)
    return None
