"""Intervals, paired tests and calibration: pure functions of numbers. All draws are seeded."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gridprobe.registry import explain_missing
from gridprobe_eval.benchmarks.base import Interval

FEW_CLUSTERS, FEW_OUTCOMES = 20, 5
"""Resampling needs this many clusters, and this many of them with each outcome; with fewer it is too sure of itself."""
FEW_WHOLE = 10
"""Scores that may be partial must add up to this many full ones, and so must what they lack. Most groups of a hard
benchmark score 0 and few score much, and a sample without the few looks too certain."""
NORMAL_95 = 1.959963984540054

ENUMERATE = 12
"""Up to this many groups all sign flips are tried; beyond, SAMPLES of them are drawn."""
SAMPLES = 10_000
CHUNK = 500
"""Resamples drawn at a time, to keep memory small."""


def wilson(share: float, draws: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share in that many independent draws; it is wider than a point also for 0 and 1."""
    square = NORMAL_95**2 / draws
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
    return (max(0.0, middle - half) if share > 0 else 0.0), (min(1.0, middle + half) if share < 1 else 1.0)


def share_interval(hits: Sequence[float], clusters: npt.ArrayLike) -> Interval:
    """The interval of the share of hits (1.0, else 0.0): of the bootstrap, or Wilson's with every cluster as one draw.

    Questions about one video may all depend on it, and few videos cannot show how much: one draw each is safe.
    If videos have different numbers of questions, there are fewer draws (Kish's effective sample size).
    """
    values = np.asarray(hits, dtype=np.float64)
    total, size = _by_cluster(values, clusters)
    if len(size) >= FEW_CLUSTERS and min(np.count_nonzero(total), np.count_nonzero(total < size)) >= FEW_OUTCOMES:
        return clustered_bootstrap(values, clusters)
    mean = float(values.mean())
    return Interval(mean, *wilson(mean, _draws(size)), len(values), len(size), "wilson")


def score_interval(strata: Sequence[tuple[Sequence[float], Sequence[str]]]) -> Interval:
    """The interval of a mean of scores from 0 to 1, or of the mean of the means of several strata, such as tasks.

    Each stratum is its values and their clusters. If all can be resampled, clusters are drawn within each. Otherwise
    the strata's own intervals are combined by adding the squares of their distances to their bounds (Zou and Donner).
    """
    parts = [_stratum_interval(np.asarray(values, dtype=np.float64), clusters) for values, clusters in strata]
    if len(parts) == 1:
        return parts[0]
    mean, count = float(np.mean([part.mean for part in parts])), sum(part.count for part in parts)
    clusters = sum(part.clusters for part in parts)
    if all(part.method == "bootstrap" for part in parts):
        low, high = _stratified_bootstrap(strata)
        return Interval(mean, low, high, count, clusters)
    below, above = (
        math.hypot(*(part.mean - part.low for part in parts)) / len(parts),
        math.hypot(*(part.high - part.mean for part in parts)) / len(parts),
    )
    return Interval(mean, max(0.0, mean - below), min(1.0, mean + above), count, clusters, "wilson")


def _stratum_interval(values: npt.NDArray[np.float64], clusters: npt.ArrayLike) -> Interval:
    """As of a share; partial scores must also add up to enough full ones, and so must what they lack.

    Wilson's interval is then wider than need be: of all values from 0 to 1 with one mean, hits and misses vary most.
    """
    total, size = _by_cluster(values, clusters)
    whole = bool(np.isin(values, (0.0, 1.0)).all())
    if whole or min((total / size).sum(), (1 - total / size).sum()) >= FEW_WHOLE:
        return share_interval(values.tolist(), clusters)
    mean = float(values.mean())
    return Interval(mean, *wilson(mean, _draws(size)), len(values), len(size), "wilson")


def difference_interval(differences: Sequence[int], clusters: npt.ArrayLike) -> Interval:
    """The interval of a mean of 1 (gained), -1 (lost) and 0: of the bootstrap, or from Wilson's of both shares.

    The two shares are combined by adding the squares of their distances to their bounds (Newcombe).
    """
    values = np.asarray(differences, dtype=np.float64)
    differing, size = _by_cluster(np.abs(values), clusters)
    if len(size) >= FEW_CLUSTERS and np.count_nonzero(differing) >= FEW_OUTCOMES:
        return clustered_bootstrap(values, clusters)
    gained, lost, mean = float(np.mean(values > 0)), float(np.mean(values < 0)), float(values.mean())
    (gained_low, gained_high), (lost_low, lost_high) = (wilson(each, _draws(size)) for each in (gained, lost))
    low = mean - math.hypot(gained - gained_low, lost_high - lost)
    high = mean + math.hypot(gained_high - gained, lost - lost_low)
    return Interval(mean, max(-1.0, low), min(1.0, high), len(values), len(size), "wilson")


def _draws(size: npt.NDArray[np.float64]) -> float:
    return float(size.sum() ** 2 / (size**2).sum())


def _by_cluster(
    values: npt.NDArray[np.float64], clusters: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The sum and the number of values of each cluster."""
    if not len(values):
        raise ValueError("a mean of nothing has no interval")
    _, member = np.unique(np.asarray(clusters), return_inverse=True)
    total: npt.NDArray[np.float64] = np.bincount(member, weights=values).astype(np.float64)
    return total, np.bincount(member).astype(np.float64)


def clustered_bootstrap(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, samples: int = 4000, seed: int = 0
) -> Interval:
    """Percentile bootstrap of the mean that draws whole clusters: questions about one video are not independent."""
    numbers = np.asarray(values, dtype=np.float64)
    low, high = _stratified_bootstrap([(numbers, clusters)], samples=samples, seed=seed)
    return Interval(float(numbers.mean()), low, high, len(numbers), len(np.unique(np.asarray(clusters))))


def _stratified_bootstrap(
    strata: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], *, samples: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of the mean of the strata's means, with clusters drawn within each."""
    rng = np.random.default_rng(seed)
    means = [_resampled_means(values, clusters, samples=samples, rng=rng) for values, clusters in strata]
    low, high = np.quantile(np.mean(means, axis=0), (0.025, 0.975))
    return float(low), float(high)


def _resampled_means(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, samples: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    total, size = _by_cluster(np.asarray(values, dtype=np.float64), clusters)
    means = []
    for start in range(0, samples, CHUNK):
        drawn = rng.integers(0, len(size), (min(CHUNK, samples - start), len(size)))
        means.append(total[drawn].sum(axis=1) / size[drawn].sum(axis=1))
    return np.concatenate(means)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p: how often a fair coin is at least as one-sided as the questions the runs disagree on."""
    with explain_missing("eval"):
        from scipy.stats import binomtest

    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def sign_flip(differences: Sequence[int], groups: Sequence[str], *, samples: int = SAMPLES, seed: int = 0) -> float:
    """Two-sided p of a mean difference if, in each group, the runs could as well change places."""
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(member, weights=np.asarray(differences, dtype=np.float64))
    sums = np.abs(sums[sums != 0])  # a group without a difference is the same flipped
    observed = abs(sum(differences))
    if len(sums) <= ENUMERATE:
        bits = (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ sums) >= observed))
    rng, hits = np.random.default_rng(seed), 0
    for start in range(0, samples, CHUNK):
        signs = rng.integers(0, 2, (min(CHUNK, samples - start), len(sums)), dtype=np.int8) * 2 - 1
        hits += int(np.count_nonzero(np.abs(signs @ sums) >= observed))
    return (hits + 1) / (samples + 1)


def expected_calibration_error(confidence: npt.ArrayLike, right: npt.ArrayLike, *, bins: int = 10) -> float:
    """Mean gap between confidence and accuracy over equal-width bins, weighted by how full they are."""
    sure, hit = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not len(sure):
        raise ValueError("calibration of nothing is not defined")
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gap = np.bincount(place, weights=hit - sure, minlength=bins)
    return float(np.abs(gap).sum() / len(sure))
