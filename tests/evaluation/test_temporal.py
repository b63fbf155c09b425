"""Kept frames against gold intervals, by hand."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from evaluation_runs import item, record, selection, staged, write_run
from gridprobe.errors import DataError
from gridprobe.report.terminal import Terminal
from gridprobe_eval.metrics import match, official, score
from gridprobe_eval.reader import Run, read_run
from gridprobe_eval.report.tables import FORMATS, RunScores, all_tables

WIDE = Terminal(250, color=False, unicode=True)
GOLD = [(10.0, 20.0), (40.0, 50.0)]


@pytest.mark.parametrize(
    ("times", "precision", "recall", "f1", "distance"),
    [
        ([12.0, 45.0], 1.0, 1.0, 1.0, 0.0),
        ([12.0, 15.0], 1.0, 0.5, 2 / 3, 0.0),
        ([10.0], 1.0, 0.5, 2 / 3, 0.0),  # an interval holds its start
        ([20.0], 0.0, 0.0, 0.0, 0.0),  # and not its end, which is no distance away
        ([0.0, 12.0, 30.0, 56.0], 0.25, 0.5, 1 / 3, (10 + 0 + 10 + 6) / 4),
        ([5.0], 0.0, 0.0, 0.0, 5.0),
    ],
)
def test_by_hand(times: list[float], precision: float, recall: float, f1: float, distance: float) -> None:
    found = match(times, GOLD)

    assert (found.precision, found.recall, found.f1, found.distance) == pytest.approx((precision, recall, f1, distance))


def test_nothing_to_compare_is_an_error() -> None:
    for times, gold in (([], GOLD), ([1.0], [])):
        with pytest.raises(ValueError, match="kept frames and gold intervals"):
            match(times, gold)


def run(folder: Path, evidence: Any = None) -> Run:
    """Three questions with evidence: two frames inside, none inside, from the overview; and one without."""
    gold = [[10.0, 45.0]] if evidence is None else evidence
    items = [item(name, extra={"evidence": gold}) for name in ("v1-a", "v2-a", "v3-a")]
    items.append(item("v4-a", extra={"evidence": []}))
    near = selection(indices=[1, 4], timestamps=[10.0, 40.0])
    far = selection(indices=[0, 6], timestamps=[0.0, 60.0])
    records = [
        record("v1-a", selection=near),
        record("v2-a", selection=far),
        staged("v3-a", "B", "overview", overview="B"),
        record("v4-a"),
    ]
    return read_run(write_run(folder, items, records))


def test_means_over_questions_with_evidence_and_kept_frames(tmp_path: Path) -> None:
    (row,) = score([run(tmp_path / "a")])
    found = row.temporal

    assert found is not None
    assert (found.precision.mean, found.recall.mean, found.f1.mean) == (0.5, 0.5, 0.5)
    assert found.distance.mean == pytest.approx((0 + (10 + 15) / 2) / 2)
    assert (found.distance.count, found.distance.clusters) == (2, 2)
    assert found.precision.method == "wilson" and 0 < found.precision.low < 0.5 < found.precision.high < 1


def test_a_benchmark_without_evidence_has_no_such_table(tmp_path: Path) -> None:
    plain = read_run(write_run(tmp_path / "a", [item("v1-a")], [record("v1-a")]))
    scores = RunScores([plain], score([plain]), {plain.name: official(plain)})

    assert scores.rows[0].temporal is None and "evidence" not in all_tables(scores, WIDE)


def test_the_table_and_the_columns(tmp_path: Path) -> None:
    made = run(tmp_path / "a")
    scores = RunScores([made], score([made]), {made.name: official(made)})

    text = all_tables(scores, WIDE)
    (flat,) = csv.DictReader(io.StringIO(FORMATS["csv"](scores)))

    line = text.partition("Kept frames against the evidence")[2].splitlines()[3].split()
    assert "evidence covered %" in text and line[4] == "50.0" and line[-2:] == ["6.2", "–"]  # too few videos
    assert float(flat["temporal_recall"]) == 0.5 and float(flat["temporal_distance"]) == 6.25


@pytest.mark.parametrize("evidence", ["often", [[1]], [[1, "x"]], [[True, 2]], {"a": 1}])
def test_evidence_of_another_form_is_named(tmp_path: Path, evidence: Any) -> None:
    with pytest.raises(DataError, match=r"'v1-a' of the run: evidence must be a list"):
        score([run(tmp_path / "a", evidence)])
