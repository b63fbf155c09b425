"""Numbers that can be worked out by hand."""

from typing import Any

import numpy as np
import pytest

from gridprobe.statistics import clustered_bootstrap, expected_calibration_error, paired_difference, tables


def record(number: int, way: str, right: bool, **changes: Any) -> dict[str, Any]:
    usual = {
        "id": f"gw-{number}",
        "seed": number // 4,
        "family": "needle",
        "way": way,
        "model": "m",
        "source": "rendered",
        "outcome": "ok",
        "right": right,
        "confidence": 0.8,
        "chance": 0.25,
        "kept": 10,
        "tflops": 1.0,
        "baseline_tflops": 4.0,
        "tflops_paper": 2.0,
        "baseline_tflops_paper": 4.0,
        "seconds": {"probe": 0.5, "focus": 0.25},
        "covered": 1.0,
    }
    return usual | changes


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


def test_a_difference_is_over_items_both_were_asked() -> None:
    records = [record(n, "gridprobe", n < 6) for n in range(8)] + [record(n, "all", n < 2) for n in range(4, 12)]

    found = paired_difference(records, "gridprobe", "all")

    # Shared are 4 to 7: gridprobe has 4 and 5 right, "all" none.
    assert found is not None
    assert (found.mean, found.count, found.clusters) == (0.5, 4, 1)


def test_a_failed_item_is_a_wrong_one() -> None:
    failed = {"id": "gw-0", "seed": 0, "way": "all", "outcome": "failed", "right": False}

    found = paired_difference([record(0, "gridprobe", True), failed], "gridprobe", "all")

    assert found is not None and found.mean == 1.0


def test_ways_that_share_no_item_have_no_difference() -> None:
    assert paired_difference([record(0, "gridprobe", True)], "gridprobe", "all") is None


# Calibration.


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


def test_tables_show_accuracy_cost_and_differences() -> None:
    records = [record(n, "gridprobe", n % 4 != 0) for n in range(8)]
    records += [record(n, "all", n % 2 == 0, tflops=4.0, tflops_paper=4.0, kept=144) for n in range(8)]
    records[0] = {key: records[0][key] for key in ("id", "seed", "family", "way", "model", "source")}
    records[0] |= {"outcome": "failed", "right": False}
    text = tables(records)

    assert text.startswith("## m, rendered frames")
    assert rows(text, "Accuracy")["needle"] == ["8", "0.750", "0.500"]
    assert rows(text, "Accuracy")["all families"] == ["8", "0.750", "0.500"]
    cost = rows(text, "Cost")
    assert cost["gridprobe"][:6] == ["8", "1", "10.0", "10", "1.0000", "0.250"]
    assert cost["all"][:6] == ["8", "0", "144.0", "144", "4.0000", "1.000"]
    assert rows(text, "Frames kept: mean / median / evidence hit")["needle"] == ["10.0 / 10 / 1.000"]
    difference = rows(text, "Paired differences")
    assert difference["gridprobe − all"][0] == "+0.250"
    assert difference["gridprobe − all"][2:] == ["8", "2"]
    assert "cross − all" not in difference


def test_one_video_has_no_interval() -> None:
    text = tables([record(0, "gridprobe", True), record(0, "all", False)])

    assert rows(text, "Paired differences")["gridprobe − all"] == ["+1.000", "–", "1", "1"]


def test_the_same_record_twice_counts_once() -> None:
    once = [record(n, "all", n == 0) for n in range(4)]
    subsets = [record(0, "subset", True, kind="random", kept=size) for size in (1, 2)]

    assert tables(once + subsets) == tables([*once, *subsets, *subsets, *once])
    assert rows(tables(subsets), "Calibration on subsets")["needle"][0] == "2"


def test_models_and_sources_are_kept_apart() -> None:
    text = tables([record(0, "all", True), record(0, "all", False, model="n"), record(0, "all", True, source="mp4")])

    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## m, mp4 frames",
        "## m, rendered frames",
        "## n, rendered frames",
    ]


def test_models_and_sources_can_be_put_together() -> None:
    text = tables([record(0, "all", True), record(1, "all", False, source="mp4")], together=True)

    assert text.startswith("## m, mp4 frames and m, rendered frames\n")
    assert rows(text, "Accuracy")["needle"] == ["2", "0.500"]


def test_calibration_table_keeps_blind_subsets_apart() -> None:
    drawn = [record(n, "subset", n < 3, kind="random", confidence=0.75) for n in range(4)]
    blind = [record(n, "subset", False, kind="blind", confidence=0.35) for n in range(4)]
    text = tables(drawn + blind)

    assert "### Accuracy" not in text
    assert rows(text, "Calibration on subsets")["needle"] == ["4", "0.750", "0.750", "0.000", "4", "0.000", "0.100"]


def test_no_records_make_no_table() -> None:
    assert tables([]) == ""
