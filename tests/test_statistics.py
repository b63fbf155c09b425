"""Numbers that can be worked out by hand."""

import numpy as np
import pytest

from gridprobe.statistics import (
    clustered_bootstrap,
    difference_interval,
    expected_calibration_error,
    share_interval,
    wilson,
)

# Bootstrap.


def test_equal_values_leave_no_doubt() -> None:
    found = clustered_bootstrap([0.5] * 10, range(10))

    assert (found.mean, found.low, found.high, found.count, found.clusters) == (0.5, 0.5, 0.5, 10, 10)


def test_the_mean_is_over_values_and_not_over_clusters() -> None:
    assert clustered_bootstrap([1, 0, 0, 0], ["a", "b", "b", "b"]).mean == 0.25


def test_two_clusters_have_four_resamples() -> None:
    # aa, ab, ba, bb have means 1, ½, ½, 0 and chances of ¼ each, so the middle 95 % reach from end to end.
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
    """Over shares from 50 to 95 % and 12 videos of independent questions; the bootstrap reaches far less."""
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
