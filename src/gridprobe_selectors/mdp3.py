"""MDP3 (Sun et al., arXiv 2501.02885): a dynamic programme over segments, each chosen by a conditional DPP.

Kernel   Of unit vectors, a sum of five Gaussians: k(x, y) = Σ exp(-|x-y|²/2α) for α = 1/8, 1/4, 1/2, 1, 2.
Score    F(S) = 2/λ · Σ log k(frame, query) + log det k(S, S), with λ = 0.2: relevance and diversity of a set.
Segments 32 frames, or 128 for more than 32 frames to keep. For every segment and every number of frames used before
         it, frames are added greedily to the last frame used before (the condition). The programme keeps the best
         total for every number of frames.

As in the released code, the terms of the condition are not subtracted from F, so every further segment that is used
earns the condition's score once more, which favours spreading. The query is question and options.

What is different here: a pool may have any size (the released code needs a multiple of the segment); the pivots of the
determinant are at least 1e-6, so that equal frames can be chosen where there are no others; of values that differ by
less than 1e-7 the first counts, so that rounding decides nothing; a long query is cut into equal pieces. The published
number of frames is 8 (frames=8).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gridprobe_selectors.encoded import Encoded, Floats, Query, Similarities

LAMBDA = 0.2
SEGMENT, LARGE_SEGMENT = 32, 128
"""Frames of a segment; the large one serves more than `SEGMENT` frames to keep."""
PIVOT = 1e-6
"""The least pivot of a determinant; frames whose cosine differs from 1 by less than 3e-8 count as equal."""
EQUAL = 1e-7
"""Of scores that differ by less than this the first counts."""


@dataclass(frozen=True)
class MDP3(Encoded):
    """Relevant, diverse frames in sequence."""

    name: ClassVar[str] = "mdp3"
    query: ClassVar[Query] = "question and options"

    def choose(self, similarities: Similarities, kept: int) -> tuple[int, ...]:
        """The best set of this many frames."""
        return choose_frames(similarities.frames.astype(np.float64), similarities.text[0].astype(np.float64), kept)

    def describe(self) -> dict[str, Any]:
        """With its weight."""
        return {**super().describe(), "lambda": LAMBDA}


def kernel(cosines: Floats) -> Floats:
    """Σ exp(-d/2α) over the five widths, for squared distances d = 2 - 2·cosine of unit vectors."""
    power: Floats = np.exp((np.minimum(cosines, 1.0) - 1.0) / 2.0)  # the widest, α = 2; each next one is its square
    total: Floats = power.copy()
    for _ in range(4):
        power = power * power
        total += power
    return total


def choose_frames(frames: Floats, text: Floats, kept: int) -> tuple[int, ...]:
    """Positions of `kept` of the frames (rows of length 1) for a text (of length 1), ascending."""
    count = len(frames)
    size = SEGMENT if kept <= SEGMENT else LARGE_SEGMENT
    relevance = 2.0 / LAMBDA * np.log(kernel(frames @ text))
    best = np.full(kept + 1, -np.inf)
    best[0] = 0.0
    traces: list[tuple[int, ...]] = [()] * (kept + 1)
    for start in range(0, count, size):
        stop = min(start + size, count)
        best, traces = _extend(best, traces, range(start, stop), frames=frames, relevance=relevance)
    return traces[kept]


def _extend(
    best: Floats, traces: list[tuple[int, ...]], segment: range, *, frames: Floats, relevance: Floats
) -> tuple[Floats, list[tuple[int, ...]]]:
    """The programme after one more segment."""
    kept = len(best) - 1
    reached = [used for used in range(kept + 1) if np.isfinite(best[used])]
    lasts = sorted({trace[-1] for used in reached if (trace := traces[used])})
    steps = min(len(segment), kept - reached[0])
    scores, chosen = _greedy(lasts, segment, steps, frames=frames, relevance=relevance)
    places = {last: row for row, last in enumerate(lasts, start=1)}
    after, new_traces = np.full(kept + 1, -np.inf), list(traces)
    for used in reached:
        row = places[traces[used][-1]] if traces[used] else 0
        for more in range(min(steps, kept - used) + 1):
            value = best[used] + (scores[row, more - 1] if more else 0.0)
            if value > after[used + more] + EQUAL:
                after[used + more] = value
                new_traces[used + more] = traces[used] + tuple(sorted(chosen[row, :more].tolist()))
    return after, new_traces


def _greedy(
    lasts: list[int], segment: range, steps: int, *, frames: Floats, relevance: Floats
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """F after each of this many steps, and the frames added; the first row is without a condition, then one for each.

    All conditions advance together. `rows` holds what the Cholesky factor of each chosen set has for every candidate.
    """
    own = frames[segment.start : segment.stop]
    runs, width = len(lasts) + 1, len(segment)
    similar = kernel(own @ own.T)
    rows = np.zeros((runs, steps + 1, width))
    pivots = np.full((runs, width), similar.diagonal())
    total = np.zeros(runs)
    if lasts:
        first = np.sqrt(5.0)  # k(x, x) = 5
        rows[1:, 0] = kernel(frames[lasts] @ own.T) / first
        pivots[1:] -= rows[1:, 0] ** 2
        total[1:] = relevance[lasts] + np.log(5.0)
    weight = relevance[segment.start : segment.stop]
    used = np.zeros((runs, width), dtype=bool)
    scores, chosen = np.empty((runs, steps)), np.empty((runs, steps), dtype=np.int64)
    every = np.arange(runs)
    for step in range(steps):
        gains = np.where(used, -np.inf, weight + np.log(np.maximum(pivots, PIVOT)))
        picked = np.argmax(gains >= gains.max(axis=1, keepdims=True) - EQUAL, axis=1)
        total = total + gains[every, picked]
        scores[:, step], chosen[:, step] = total, picked + segment.start
        used[every, picked] = True
        before = rows[:, : step + 1]
        overlap = np.matmul(before[every, :, picked][:, None, :], before)[:, 0]
        root = np.sqrt(np.maximum(pivots[every, picked], PIVOT))
        rows[:, step + 1] = (similar[picked] - overlap) / root[:, None]
        pivots = pivots - rows[:, step + 1] ** 2
    return scores, chosen
