"""WFS-SB (arXiv 2603.00512, CVPR 2026): segments between the peaks of a wavelet's detail band.

Similarities over time are decomposed with the wavelet db4 to the level log2(N) - 3. Peaks of the coarsest detail band
are boundaries of segments. A segment's share of the frames is the softmax of 0.4·length + 0.2·mean + 0.3·maximum +
0.1·variance. Inside a segment frames are chosen by maximal marginal relevance with λ = 0.5.

What is different here: cosines of SigLIP instead of BLIP-2's matching head, at the frames of the pool. The band is
taken back to the length of the signal and its absolute value used; a peak is at least half a standard deviation above
the mean, stands out by 5% of the highest value, and is 5 frames or 2% of the pool from the next. Lengths are
fractions of the pool and scores scaled to 0…1 before weighing. As published, half of the frames are uniform and half
the best where there are no boundaries; that includes pools of less than 16 frames, whose level would be 0.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gridprobe.importance import spread
from gridprobe_selectors.encoded import Encoded, Floats, Similarities, find_peaks, unit_range, with_best

LOW_PASS = (
    -0.010597401784997278,
    0.032883011666982945,
    0.030841381835986965,
    -0.18703481171888114,
    -0.02798376941698385,
    0.6308807679295904,
    0.7148465705525415,
    0.23037781330885523,
)
"""Daubechies' filter with four vanishing moments, for decomposition."""
HEIGHT, PROMINENCE = 0.5, 0.05
LEAST_DISTANCE, DISTANCE = 5, 0.02
WEIGHTS = (0.4, 0.2, 0.3, 0.1)
"""Of a segment's length, mean, maximum and variance."""
RELEVANCE = 0.5
"""λ of the marginal relevance."""


@dataclass(frozen=True)
class Wavelet(Encoded):
    """Diverse frames from every segment between semantic boundaries."""

    name: ClassVar[str] = "wavelet"

    def choose(self, similarities: Similarities, kept: int) -> tuple[int, ...]:
        """Frames of every segment by its share."""
        scores = unit_range(similarities.cosines)
        edges = boundaries(scores)
        if not edges:
            return _half_and_half(scores, kept)
        starts, stops = (0, *edges), (*edges, len(scores))
        segments = [range(start, stop) for start, stop in zip(starts, stops, strict=True)]
        vectors = similarities.frames.astype(np.float64)
        chosen: list[int] = []
        for segment, share in zip(segments, shares(scores, segments, kept), strict=True):
            inside = slice(segment.start, segment.stop)
            chosen += [segment.start + i for i in diverse(2 * scores[inside] - 1, vectors[inside], share)]
        return tuple(sorted(chosen))


def boundaries(scores: Floats) -> tuple[int, ...]:
    """Where a new segment starts."""
    level = math.floor(math.log2(len(scores)) - 3) if len(scores) > 1 else 0
    if level < 1:
        return ()
    band = np.abs(detail_band(scores, level))
    if not band.max() > 1e-9:  # nothing changes
        return ()
    return find_peaks(
        band,
        height=float(band.mean() + HEIGHT * band.std()),
        prominence=PROMINENCE * float(band.max()),
        distance=max(LEAST_DISTANCE, math.ceil(DISTANCE * len(scores))),
    )


def detail_band(signal: Floats, level: int) -> Floats:
    """The detail of a signal at one level of db4 (symmetric at both ends), at the signal's own length."""
    low = np.array(LOW_PASS)
    high = low[::-1] * np.array([-1.0, 1.0] * 4)
    lengths, smooth = [len(signal)], signal
    for _ in range(level - 1):
        smooth = _down(smooth, low)
        lengths.append(len(smooth))
    band = _up(_down(smooth, high), high[::-1])[: lengths[-1]]
    for length in reversed(lengths[:-1]):
        band = _up(band, low[::-1])[:length]
    return band


def _down(signal: Floats, taps: Floats) -> Floats:
    """Filter and drop every other value."""
    padded = np.pad(signal, len(taps) - 1, mode="symmetric")
    filtered: Floats = np.convolve(padded, taps, mode="valid")[1::2]
    return filtered


def _up(coefficients: Floats, taps: Floats) -> Floats:
    """Insert zeros and filter."""
    sparse = np.zeros(2 * len(coefficients) - 1)
    sparse[::2] = coefficients
    cut = len(taps) - 2
    filtered: Floats = np.convolve(sparse, taps)[cut : cut + 2 * len(coefficients) - cut]
    return filtered


def shares(scores: Floats, segments: list[range], kept: int) -> list[int]:
    """How many frames each segment gives: `kept` together, by largest remainder, none more than it has."""
    inside = [scores[segment.start : segment.stop] for segment in segments]
    facts = np.array([[len(each) / len(scores), each.mean(), each.max(), each.var()] for each in inside])
    weights = np.exp(facts @ np.array(WEIGHTS))
    counts = np.zeros(len(segments), dtype=np.int64)
    sizes = np.array([len(segment) for segment in segments])
    while (missing := kept - int(counts.sum())) > 0:
        open_ = counts < sizes
        ideal = np.where(open_, weights, 0.0) / weights[open_].sum() * missing
        more = np.minimum(np.floor(ideal).astype(np.int64), sizes - counts)
        for place in np.argsort(-(ideal - np.floor(ideal)), kind="stable"):
            if more.sum() < missing and open_[place] and counts[place] + more[place] < sizes[place]:
                more[place] += 1
        counts += more
    return [int(each) for each in counts]


def diverse(relevance: Floats, vectors: Floats, kept: int) -> list[int]:
    """This many rows by maximal marginal relevance, in the order they are chosen."""
    chosen: list[int] = []
    nearest = np.full(len(relevance), -np.inf)
    for _ in range(kept):
        redundancy = nearest if chosen else np.zeros(len(relevance))
        gains = RELEVANCE * relevance - (1 - RELEVANCE) * redundancy
        gains[chosen] = -np.inf
        best = int(np.argmax(np.round(gains, 6)))
        chosen.append(best)
        nearest = np.maximum(nearest, vectors @ vectors[best])
    return chosen


def _half_and_half(scores: Floats, kept: int) -> tuple[int, ...]:
    """Half uniform, the other half the best of what is left."""
    return with_best(spread(len(scores), kept // 2) if kept > 1 else (), scores, kept)
