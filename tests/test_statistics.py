"""Numbers that can be worked out by hand."""

import numpy as np
import pytest

from gridprobe.statistics import clustered_bootstrap, expected_calibration_error

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
