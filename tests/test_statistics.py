"""Numbers that can be worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from gridprobe.early_exit import binomial_upper
from gridprobe_eval.benchmarks.video_mme_v2 import non_linear
from gridprobe_eval.statistics import (
    clustered_bootstrap,
    difference_interval,
    expected_calibration_error,
    mcnemar,
    score_interval,
    share_interval,
    wilson,
)

# Bootstrap.


def test_equal_values_leave_no_doubt() -> None:
    found = clustered_bootstrap([0.5] * 10, range(10))

    assert (found.mean, found.low, found.high, found.count, found.clusters) == (0.5, 0.5, 0.5, 10, 10)


def test_the_mean_is_over_values_and_not_over_clusters() -> None:
    assert clustered_bootstrap([1, 0, 0, 0], ["a", "b", "b", "b"]).mean == 0.25


# E27 of tests/reliability.md
def test_two_clusters_have_four_resamples() -> None:
    # aa, ab, ba, bb have means 1, ½, ½, 0 and chances of ¼ each, so the middle 95% reach from end to end.
    found = clustered_bootstrap([1, 1, 0, 0], [7, 7, 9, 9])

    assert (found.low, found.mean, found.high) == (0.0, 0.5, 1.0)


def test_with_single_values_as_clusters_it_is_the_textbook_interval() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    found = clustered_bootstrap(values, range(400))
    half = 1.96 * values.std() / 20

    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)


def test_copies_within_a_cluster_add_no_certainty() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, 100)
    single = clustered_bootstrap(values, range(100))
    copied = clustered_bootstrap(np.repeat(values, 4), np.repeat(range(100), 4))
    naive = clustered_bootstrap(np.repeat(values, 4), range(400))

    assert (copied.low, copied.high) == pytest.approx((single.low, single.high))
    assert naive.high - naive.low == pytest.approx((copied.high - copied.low) / 2, rel=0.1)


def test_it_is_seeded() -> None:
    values = np.random.default_rng(1).random(30)

    assert clustered_bootstrap(values, range(30)) == clustered_bootstrap(values, range(30))
    assert clustered_bootstrap(values, range(30)) != clustered_bootstrap(values, range(30), seed=1)


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ValueError, match="nothing"):
        clustered_bootstrap([], [])


# Pairs.


@pytest.mark.parametrize(
    ("confidence", "right", "expected"),
    [
        ([0.75] * 4, [1, 1, 1, 0], 0.0),
        ([1.0] * 4, [1, 1, 1, 0], 0.25),
        ([0.55, 0.95], [1, 0], (0.45 + 0.95) / 2),  # two bins: each its own gap
        ([0.52, 0.58], [1, 0], 0.05),  # one bin: mean confidence 0.55, accuracy 0.5
        ([0.9, 0.9, 0.2], [1, 1, 0], (2 * 0.1 + 0.2) / 3),
    ],
)
def test_calibration_error_by_hand(confidence: list[float], right: list[int], expected: float) -> None:
    assert expected_calibration_error(confidence, right) == pytest.approx(expected)


def test_one_bin_compares_the_means() -> None:
    assert expected_calibration_error([0.9, 0.1], [0, 1], bins=1) == pytest.approx(0.0)


def test_calibration_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        expected_calibration_error([], [])


# Tables.


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """The table under a heading: first cell -> the others."""
    part = text.split(f"### {heading}\n\n")[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
    return {first: rest for first, *rest in cells}


# Few clusters.


@pytest.mark.parametrize(
    ("share", "draws", "expected"),
    [(1.0, 8, (0.6756, 1.0)), (0.0, 8, (0.0, 0.3244)), (0.5, 10, (0.2366, 0.7634)), (0.9, 100, (0.8256, 0.9448))],
)
def test_wilson_by_the_textbook(share: float, draws: int, expected: tuple[float, float]) -> None:
    assert wilson(share, draws) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("videos", [2, 8, 100])
def test_all_right_or_all_wrong_is_no_certainty(value: float, videos: int) -> None:
    found = share_interval([value] * videos, range(videos))

    assert found.method == "wilson" and found.low <= value <= found.high
    assert found.high - found.low == pytest.approx(wilson(0.0, videos)[1])
    assert found.high - found.low > 3 / (videos + 3)  # the rule of three


# E27 of tests/reliability.md
def test_eight_questions_about_two_videos_are_two_observations() -> None:
    found = share_interval([1.0] * 8, [1, 1, 1, 1, 2, 2, 2, 2])

    assert (found.low, found.high) == pytest.approx((0.3424, 1.0), abs=5e-5)
    assert (found.count, found.clusters) == (8, 2)


def test_a_video_with_most_of_the_questions_leaves_fewer_observations() -> None:
    # Sizes 2, 1 and 1 are worth 4² ÷ (2² + 1² + 1²) = 2⅔ videos.
    found = share_interval([1.0, 0.0, 1.0, 0.0], ["a", "a", "b", "c"])

    assert (found.low, found.high) == pytest.approx(wilson(0.5, 16 / 6))


def test_many_videos_with_both_outcomes_are_resampled() -> None:
    hits = [float(n % 3 > 0) for n in range(60)]

    assert share_interval(hits, range(60)) == clustered_bootstrap(hits, range(60))
    assert share_interval([1.0] * 56 + [0.0] * 4, range(60)).method == "wilson"
    assert share_interval([1.0] * 55 + [0.0] * 5, range(60)).method == "bootstrap"
    assert share_interval(hits[:19], range(19)).method == "wilson"


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Over shares from 50 to 95% and 12 videos of independent questions; the bootstrap reaches far less."""
    rng = np.random.default_rng(0)
    held = {"ours": 0, "bootstrap": 0}
    truths = rng.uniform(0.5, 0.95, 400)
    for truth in truths:
        hits = (rng.random(12) < truth).astype(float).tolist()
        ours, drawn = share_interval(hits, range(12)), clustered_bootstrap(hits, range(12), samples=500)
        held["ours"] += ours.low <= truth <= ours.high
        held["bootstrap"] += drawn.low <= truth <= drawn.high

    assert held["ours"] >= 0.93 * len(truths) > held["bootstrap"]


def test_runs_that_never_differ_may_still_differ_on_other_videos() -> None:
    same, better = difference_interval([0] * 8, range(8)), difference_interval([1] * 8, range(8))

    assert (same.mean, same.low, same.high) == pytest.approx((0.0, -0.3244, 0.3244), abs=5e-5)
    assert better.mean == better.high == 1.0 and 0.4 < better.low < 0.7
    values = [(-1, 0, 1)[n % 3] for n in range(60)]
    assert difference_interval(values, range(60)) == clustered_bootstrap(values, range(60))


# Official scores: partial ones, and means over tasks.

CHAINS: Sequence[Sequence[Sequence[int]] | None] = (None, None, [[1], [2], [3], [4]], [[1], [2, 3], [4]])


def group_scores(rng: np.random.Generator, count: int, ability: float) -> list[float]:
    """Non-Lin scores from 0 to 1 of groups of four questions, whose videos differ in difficulty."""
    ease = rng.beta(4 * ability, 4 * (1 - ability), count)
    return [
        non_linear([bool(hit) for hit in rng.random(4) < each], CHAINS[int(rng.integers(4))]) / 100 for each in ease
    ]


def exact_bootstrap(values: Sequence[float], unit: float = 1 / 240) -> tuple[float, float]:
    """The percentile interval over all n^n resamples: the sum of n draws, by convolution; scores are whole units."""
    single = np.bincount(np.round(np.asarray(values) / unit).astype(int), minlength=round(1 / unit) + 1) / len(values)
    size = len(values) * (len(single) - 1) + 1
    whole = np.fft.irfft(np.fft.rfft(single, 2 * size) ** len(values), 2 * size)[:size]
    low, high = np.searchsorted(np.cumsum(whole), (0.025, 0.975))
    return float(low * unit / len(values)), float(high * unit / len(values))


@pytest.mark.parametrize(("count", "ability"), [(40, 0.6), (150, 0.3), (800, 0.23)])
def test_the_interval_of_partial_scores_is_that_of_all_resamples(count: int, ability: float) -> None:
    values = group_scores(np.random.default_rng(count), count, ability)
    found = score_interval([(values, [str(n) for n in range(count)])])

    assert found.method == "bootstrap" and found.mean == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx(exact_bootstrap(values), abs=0.06 * (found.high - found.low))


def test_a_mean_over_tasks_draws_videos_within_each_task() -> None:
    rng = np.random.default_rng(3)
    tasks = [(rng.random(size) < share).astype(float) for size, share in ((60, 0.8), (200, 0.5), (30, 0.4))]
    found = score_interval([(task.tolist(), [str(n) for n in range(len(task))]) for task in tasks])
    reference = stats.bootstrap(
        tasks,
        lambda *parts, axis: np.mean([part.mean(axis=axis) for part in parts], axis=0),
        method="percentile",
        n_resamples=9999,
        rng=np.random.default_rng(0),
    ).confidence_interval

    assert found.mean == pytest.approx(np.mean([task.mean() for task in tasks]))  # not the mean of all 290 answers
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=0.005)
    assert (found.count, found.clusters, found.method) == (290, 290, "bootstrap")


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("tasks", [1, 7])
def test_official_scores_of_0_and_100_are_no_point(value: float, tasks: int) -> None:
    found = score_interval([([value] * 3, ["a", "b", "c"])] * tasks)
    wide = wilson(0.0, 3)[1]  # 0.5615

    assert found.method == "wilson" and found.mean == value
    assert found.high - found.low == pytest.approx(wide / tasks**0.5)
    assert value in (found.low, found.high)


def test_one_task_without_enough_videos_makes_the_whole_interval_conservative() -> None:
    many = ([float(n % 2) for n in range(100)], [str(n) for n in range(100)])
    few = ([1.0, 0.0], ["x", "y"])
    both, alone = score_interval([many, few]), score_interval([many])

    low, high = wilson(0.5, 2)
    assert alone.method == "bootstrap" and both.method == "wilson" and both.clusters == 102
    assert both.low == pytest.approx(0.5 - np.hypot(0.5 - alone.low, 0.5 - low) / 2)
    assert both.high == pytest.approx(0.5 + np.hypot(alone.high - 0.5, high - 0.5) / 2)


def test_rare_partial_scores_are_not_resampled() -> None:
    names = [str(n) for n in range(100)]

    assert score_interval([([0.0625] * 50 + [0.0] * 50, names)]).method == "wilson"  # worth 3 full groups
    assert score_interval([([1.0] * 10 + [0.0625] + [0.0] * 89, names)]).method == "bootstrap"
    assert score_interval([([0.9375] * 100, names)]).method == "wilson"  # 6 full groups are lacking
    assert score_interval([([1.0] * 5 + [0.0] * 95, names)]) == share_interval([1.0] * 5 + [0.0] * 95, names)


@pytest.mark.parametrize(("count", "ability"), [(8, 0.23), (20, 0.23), (60, 0.6), (150, 0.23), (200, 0.1)])
def test_the_interval_of_group_scores_holds_the_truth_as_often_as_it_says(count: int, ability: float) -> None:
    rng = np.random.default_rng(count)
    truth = float(np.mean(group_scores(rng, 40_000, ability)))
    names, held, resampled = [str(n) for n in range(count)], 0, 0
    for _ in range(200):
        values = group_scores(rng, count, ability)
        found = score_interval([(values, names)])
        plain = clustered_bootstrap(values, names, samples=500)
        held += found.low <= truth <= found.high
        resampled += plain.low <= truth <= plain.high

    assert held >= 0.92 * 200
    assert count > 20 or resampled < 0.9 * 200  # which is why few or rare scores are not resampled


def test_the_interval_of_a_mean_over_tasks_holds_the_truth_as_often_as_it_says() -> None:
    """Seven tasks of MLVU's kind: videos with one question each, some tasks with few of them."""
    rng = np.random.default_rng(9)
    shares, sizes, held = rng.uniform(0.3, 0.95, 7), (50, 30, 40, 20, 25, 8, 30), 0
    for _ in range(200):
        tasks = [(rng.random(size) < share).astype(float) for size, share in zip(sizes, shares, strict=True)]
        found = score_interval([(task.tolist(), [str(n) for n in range(len(task))]) for task in tasks])
        held += found.low <= float(shares.mean()) <= found.high

    assert held >= 0.93 * 200


# What scipy has: the same to twelve digits as what was summed here before.


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        *((0, 0, 1.0), (1, 0, 1.0), (3, 9, 0.14599609375000028), (9, 3, 0.14599609375000028), (7, 7, 1.0)),
        *((120, 80, 0.0056851559967501025), (1500, 1710, 0.0002241810754553004)),
    ],
)
def test_mcnemar_is_the_exact_binomial_test(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize(
    ("hits", "draws", "delta", "bound"),
    [
        *((0, 149, 0.05, 0.019904816220685087), (1, 150, 0.05, 0.031233816920943465)),
        *((1, 2150, 0.05, 0.002204528464185229), (0, 30, 0.1, 0.07388127187120652)),
        *((17, 40, 0.1, 0.538588211405727), (400, 3000, 0.01, 0.14842370150414272)),
        *((5, 5, 0.1, 1.0), (0, 0, 0.1, 1.0)),
    ],
)
def test_clopper_pearson_is_a_quantile_of_beta(hits: int, draws: int, delta: float, bound: float) -> None:
    assert binomial_upper(hits, draws, delta) == pytest.approx(bound, abs=1e-12)
