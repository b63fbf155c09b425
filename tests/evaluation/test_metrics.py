"""Statistics that can be worked out by hand, or the long way round."""

from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation_runs import item, record, selection, staged, write_run
from gridprobe.errors import UsageError
from gridprobe_eval import benchmarks
from gridprobe_eval.benchmarks import Item, Metric
from gridprobe_eval.metrics import AnsweredBy, bins_of, official, score, shared
from gridprobe_eval.reader import Run, read_run
from gridprobe_eval.statistics import ENUMERATE, clustered_bootstrap, mcnemar, sign_flip

NAMES = ("v1-a", "v1-b", "v2-a", "v3-a")


def run(folder: Path, choices: str, **spec: Any) -> Run:
    """One letter a question; "-" failed, "." is missing. The right answer is B, the last question is long."""
    items = [item(name, bins={"duration": "long" if name == "v3-a" else "short"}) for name in NAMES]
    records = [record(n, None if c == "-" else c) for n, c in zip(NAMES, choices, strict=True) if c != "."]
    return read_run(write_run(folder, items, records, **spec))


# McNemar.


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(gained: int, lost: int) -> None:
    total = gained + lost
    tail = sum(comb(total, i) for i in range(min(gained, lost) + 1)) / 2**total

    assert mcnemar(gained, lost) == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


# E27 of tests/reliability.md
def test_mcnemar_by_hand() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(1, 3) == pytest.approx(2 * (1 + 4) / 16)


def test_mcnemar_of_thousands_neither_overflows_nor_vanishes() -> None:
    exact = 2 * sum(comb(3000, i) for i in range(1401)) / 2**3000

    assert mcnemar(1400, 1600) == pytest.approx(exact, rel=1e-9)
    assert 0.0 <= mcnemar(0, 5000) < 1e-300


# Sign flips.


def brute_force(differences: list[int], groups: list[str]) -> float:
    names = sorted(set(groups))
    flips = [dict(zip(names, signs, strict=True)) for signs in product((1, -1), repeat=len(names))]
    sums = [abs(sum(flip[g] * d for g, d in zip(groups, differences, strict=True))) for flip in flips]
    return sum(each >= abs(sum(differences)) for each in sums) / len(sums)


@given(st.lists(st.tuples(st.sampled_from((-1, 0, 1)), st.sampled_from("abcdef")), min_size=1, max_size=14))
def test_few_groups_are_flipped_in_every_way(cells: list[tuple[int, str]]) -> None:
    differences, groups = [d for d, _ in cells], [g for _, g in cells]

    assert sign_flip(differences, groups) == pytest.approx(brute_force(differences, groups))


def test_many_groups_are_drawn_and_come_near_the_exact_value() -> None:
    differences = [1] * 10 + [-1] * 4  # groups of one: the flips are those of a coin
    groups = [f"v{i}" for i in range(14)]
    assert len(groups) > ENUMERATE

    found = sign_flip(differences, groups)

    assert found == pytest.approx(mcnemar(10, 4), abs=0.015)
    assert found == sign_flip(differences, groups) != sign_flip(differences, groups, seed=1)


# E27 of tests/reliability.md
def test_a_whole_group_flips_together() -> None:
    assert sign_flip([1] * 8, list("abcdefgh")) == pytest.approx(2 / 256)
    assert sign_flip([1] * 8, ["a"] * 4 + ["b"] * 4) == pytest.approx(2 / 4)


# The bootstrap, against all resamples there are.


# E27 of tests/reliability.md
def test_the_interval_is_that_of_all_resamples() -> None:
    values, groups = [1, 1, 0, 1, 0, 0, 0], list("aabbbcd")
    by_group = [[v for v, g in zip(values, groups, strict=True) if g == name] for name in "abcd"]
    means = [np.mean(np.concatenate(drawn)) for drawn in product(by_group, repeat=4)]
    low, high = np.quantile(means, (0.025, 0.975))

    found = clustered_bootstrap(values, groups, samples=40_000)

    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03)


# Rows.


def test_what_failed_is_wrong_and_what_is_missing_is_in_no_number(tmp_path: Path) -> None:
    (row,) = score([run(tmp_path / "a", "BC-.")])

    assert (row.asked, row.failed, row.missing) == (3, 1, 1)
    assert row.accuracy is not None and row.accuracy.mean == pytest.approx(1 / 3)
    assert row.answered is not None and row.answered.mean == pytest.approx(1 / 2)
    assert (row.accuracy.count, row.accuracy.clusters) == (3, 2)


def test_cost_by_hand(tmp_path: Path) -> None:
    few = selection(indices=[1, 4], timestamps=[1.0, 4.0])
    records = [record("v1-a", tflops=2.0, selection=few), record("v1-b", tflops=6.0), record("v2-a", tflops=4.0)]
    (row,) = score([read_run(write_run(tmp_path / "a", [item(name) for name in NAMES], records))])
    cost = row.cost

    assert cost is not None
    assert (cost.kept, cost.kept_median) == pytest.approx((20 / 3, 9))
    assert (cost.tflops, cost.tflops_paper, cost.tokens, cost.seconds) == (4.0, 8.0, 1000.0, 2.0)
    assert cost.variation == cost.variation_paper == pytest.approx((8 / 3) ** 0.5 / 4)


def test_how_answers_were_reached_by_hand(tmp_path: Path) -> None:
    records = [
        staged("v1-a", "B", "overview", overview="B"),
        staged("v1-b", "B", "focus", overview="C", focus="B"),
        staged("v2-a", "B", "focus", overview="B", focus="B"),
        staged("v3-a", "B", "refined", overview="B", focus="B"),
    ]
    (row,) = score([read_run(write_run(tmp_path / "a", [item(name) for name in NAMES], records))])

    assert row.reached == AnsweredBy(overview=0.25, refined=0.25, both=3, agree=2 / 3)
    assert row.cost is not None and (row.cost.kept, row.cost.kept_median) == (1.5, 2)


def test_a_run_that_only_exits_has_no_agreement(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [item("v1-a")], [staged("v1-a", "B", "overview", overview="B")])
    (row,) = score([read_run(folder)])

    assert row.reached == AnsweredBy(overview=1.0, refined=0.0, both=0, agree=None)


def test_a_run_without_an_overview_has_no_such_numbers(tmp_path: Path) -> None:
    (row,) = score([run(tmp_path / "a", "BBCB")])

    assert row.reached is None


def test_a_row_for_every_run_and_value_of_a_bin(tmp_path: Path) -> None:
    runs = [run(tmp_path / "a", "BBCB"), run(tmp_path / "b", "BCCC")]
    rows = score(runs, by=["duration"])

    assert [(row.run, row.value, row.asked, row.accuracy and row.accuracy.mean) for row in rows] == [
        ("a", "", 4, 0.75),
        ("b", "", 4, 0.25),
        ("a", "long", 1, 1.0),
        ("b", "long", 1, 0.0),
        ("a", "short", 3, pytest.approx(2 / 3)),
        ("b", "short", 3, pytest.approx(1 / 3)),
    ]
    assert bins_of(runs) == ["duration"]
    with pytest.raises(UsageError, match="no question has a bin 'level'; choose among duration"):
        score(runs, by=["level"])


def test_numbers_among_the_values_of_a_bin_are_in_order_of_size(tmp_path: Path) -> None:
    items = [item(f"v{n}-a", bins={"seconds": value}) for n, value in enumerate(["600", "60", "other", "9"])]

    rows = score([read_run(write_run(tmp_path / "a", items, []))], by=["seconds"])

    assert [row.value for row in rows] == ["", "9", "60", "600", "other"]
    assert all(row.accuracy is None and row.cost is None for row in rows)


# E27 of tests/reliability.md
def test_a_paired_difference_by_hand(tmp_path: Path) -> None:
    rows = score([run(tmp_path / "a", "BCC."), run(tmp_path / "b", "BBB-")])
    versus = rows[1].versus

    assert rows[0].versus is None and versus is not None
    assert (versus.versus, versus.gained, versus.lost, versus.unpaired) == ("a", 2, 0, 1)
    assert versus.difference.mean == pytest.approx(2 / 3) and versus.difference.count == 3
    assert versus.mcnemar == pytest.approx(0.5)
    assert versus.permutation == pytest.approx(0.5)  # videos v1 and v2 gained one each: ++ and -- of four


def test_a_failure_counts_as_wrong_in_a_pair(tmp_path: Path) -> None:
    versus = score([run(tmp_path / "a", "BBBB"), run(tmp_path / "b", "BBB-")])[1].versus

    assert versus is not None and (versus.lost, versus.difference.mean) == (1, -0.25)


def test_runs_without_a_common_question_have_no_difference(tmp_path: Path) -> None:
    assert score([run(tmp_path / "a", "BB.."), run(tmp_path / "b", "..BB")])[1].versus is None


def test_runs_of_different_versions_are_not_compared(tmp_path: Path) -> None:
    runs = [run(tmp_path / "a", "BBBB"), run(tmp_path / "b", "BBBB", benchmark_version="toy-9-xyz")]

    with pytest.raises(UsageError, match=r"b is of toy-9-xyz and a of toy-9-abc: .* cannot be compared"):
        score(runs)


def test_runs_are_cut_to_the_questions_all_were_asked(tmp_path: Path) -> None:
    runs = shared([run(tmp_path / "a", "BBC."), run(tmp_path / "b", "C-BB")])

    assert [[result.id for result in each.results] for each in runs] == [["v1-a", "v1-b", "v2-a"]] * 2


# Official scores.


def test_a_benchmark_without_scoring_gets_plain_accuracy(tmp_path: Path) -> None:
    (found,) = official(run(tmp_path / "a", "BC-."))

    assert (found.name, found.count) == ("accuracy", 3) and found.value == pytest.approx(100 / 3)


def test_the_benchmark_is_asked_with_its_own_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def scoring(name: str, items: list[Item], right: dict[str, bool]) -> list[Metric]:
        asked.update(name=name, ids=[each.question.id for each in items], right=right, video=items[0].video)
        return [Metric("group", 50.0, 2)]

    monkeypatch.setattr(benchmarks, "BENCHMARKS", {"toy": "of this test"}, raising=False)
    monkeypatch.setattr(benchmarks, "metrics", scoring, raising=False)

    assert official(run(tmp_path / "a", "BC-.")) == [Metric("group", 50.0, 2)]
    assert asked["name"] == "toy" and asked["ids"] == list(NAMES)
    assert asked["right"] == {"v1-a": True, "v1-b": False, "v2-a": False}
    assert asked["video"] == Path("videos/v1-a.mp4")
