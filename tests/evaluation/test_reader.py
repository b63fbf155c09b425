"""Reading a run folder: every question is accounted for, and a folder that lies is an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation_runs import item, record, selection, staged, write_run
from gridprobe.errors import DataError, UsageError
from gridprobe.record import Record
from gridprobe_eval.reader import read_run, read_runs


def outcomes(folder: Path) -> dict[str, str]:
    return {result.id: result.outcome for result in read_run(folder).results}


def test_every_question_is_there_in_order_with_what_became_of_it(tmp_path: Path) -> None:
    items = [item(name) for name in ("v1-a", "v1-b", "v2-a", "v3-a")]
    run = read_run(write_run(tmp_path / "r", items, [record("v2-a", "C"), record("v1-a"), record("v1-b", None)]))

    assert [(result.id, result.outcome, result.right) for result in run.results] == [
        ("v1-a", "answered", True),
        ("v1-b", "failed", False),
        ("v2-a", "answered", False),
        ("v3-a", "missing", None),
    ]
    assert run.results[1].error == "VideoError: the file ends early"
    assert run.notes == ("1 of 4 questions have no record yet and are in no number",)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([record("v1-a"), record("v1-a", None, attempt=2)], "answered"),
        ([record("v1-a", None, attempt=2), record("v1-a")], "answered"),
        ([record("v1-a", None, attempt=2), record("v1-a", None, attempt=1, outcome="skipped")], "failed"),
        ([record("v1-a", None, attempt=1), record("v1-a", None, attempt=2, outcome="skipped")], "skipped"),
    ],
)
def test_of_several_records_an_answered_one_wins_else_the_last_attempt(
    tmp_path: Path, records: list[dict[str, Any]], expected: str
) -> None:
    assert outcomes(write_run(tmp_path / "r", [item("v1-a")], records)) == {"v1-a": expected}


def test_records_of_several_writers_are_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", [item("v1-a"), item("v1-b")], [record("v1-a")])
    (folder / "records-w1.jsonl").write_text(json.dumps(record("v1-b")) + "\n")

    assert outcomes(folder) == {"v1-a": "answered", "v1-b": "answered"}


def test_a_torn_line_and_a_stray_record_are_left_out_and_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", [item("v1-a"), item("v1-b")], [record("v1-a"), record("other-a")])
    with (folder / "records-w0.jsonl").open("a") as file:
        file.write("not a record\n" + json.dumps(record("v1-b"))[:50])

    run = read_run(folder)

    assert outcomes(folder) == {"v1-a": "answered", "v1-b": "missing"}
    assert any("1 lines of the record files are no records" in note for note in run.notes)
    assert any("1 records are of questions that are not in items.jsonl" in note for note in run.notes)


def test_without_a_known_answer_nothing_is_right_or_wrong(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "r", [item("v1-a", answer=None)], [record("v1-a", right=False)]))

    assert run.results[0].right is None
    assert run.notes == ("the answers to 1 of 1 questions are withheld; these are in no accuracy",)


def answered(folder: Path, found: dict[str, Any]) -> Record:
    (result,) = read_run(write_run(folder, [item("v1-a")], [found])).results
    assert result.answered is not None
    return result.answered


def test_how_an_answer_was_reached_is_read(tmp_path: Path) -> None:
    exit = answered(tmp_path / "a", staged("v1-a", "B", "overview", overview="B"))
    other = answered(tmp_path / "b", staged("v1-a", "B", "focus", overview="C", focus="B"))

    assert (exit.shown_native, exit.selection["kept"], exit.selection["map"], exit.by_frame) == (0, 9, None, ())
    assert (exit.reached["by"], exit.stage("overview"), exit.stage("focus")) == ("overview", ("B", 0.6), None)
    assert (other.shown_native, other.selection["map"], len(other.by_frame)) == (2, "attention", 9)
    assert (other.reached["by"], other.stage("overview"), other.stage("focus")) == ("focus", ("C", 0.6), ("B", 0.8))
    assert exit.threshold == other.threshold == 0.99


def test_a_record_from_before_the_overview_is_read(tmp_path: Path) -> None:
    old = answered(tmp_path / "a", record("v1-a", selection=selection((0.5, 0.9, 0.5), (0.4, 0.5, 0.8))))

    assert old.reached == {"by": "focus", "stages": {}, "exit": None} and old.selection["map"] == "probes"
    assert old.by_frame == () and old.shown_native == len(old.selection["indices"]) > 0


def test_a_record_with_names_that_are_gone_is_read(tmp_path: Path) -> None:
    beside = [{"share": 0.5, "indices": [1]}]
    chosen = selection(by_frame=[0.5] * 9, map="leave-out", beside=beside)

    assert answered(tmp_path / "a", record("v1-a", selection=chosen)).selection["map"] == "leave-out"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"right": False}, "says right=False"),
        ({"choice": 5}, "choice must be"),
        ({"confidence": True}, "'confidence' must be a number"),
        ({"cost": {}}, "'tflops' must be a number"),
        ({"seconds": None}, "'decode' must be a number"),
        ({"selection": None}, "selection must be"),
        ({"selection": selection(indices=[0, 9], timestamps=[0.0, 1.0])}, "indices must be below 9"),
        ({"selection": selection(indices=[0.5], timestamps=[0.0])}, "indices must be below 9"),
        ({"selection": selection(indices=[], timestamps=[])}, "kept frames"),
        ({"selection": selection(timestamps=[0.0])}, "kept frames"),
        ({"selection": selection((0.5, 0.5), (0.5, 0.5), pool=9)}, "bad map"),
        ({"selection": selection(probe_choices=["A"])}, "one answer for each probe"),
        ({"selection": selection(probe_choices=[1])}, "probes must be letters"),
        ({"selection": selection(by_frame=[0.5])}, "by_frame must have 9 numbers"),
        ({"selection": selection(by_frame=[0.5] * 9, probe_choices=["A"])}, "one answer for each probe"),
        ({"shown_native": "all"}, "'shown_native' must be a number"),
        ({"reached": {"by": "luck"}}, "by must be one of"),
        ({"reached": {"by": "focus", "overview": {}}}, "a stage must have a choice"),
        ({"reached": {"by": "focus", "overview": {"choice": "A"}}}, "'confidence' must be a number"),
        ({"reached": {"by": "focus", "threshold": "high"}}, "'threshold' must be a number"),
    ],
)
def test_a_record_that_is_not_as_it_should_be_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = write_run(tmp_path / "r", [item("v1-a")], [record("v1-a", **changes)])

    with pytest.raises(DataError, match=rf"r, the record of 'v1-a': .*{words}"):
        read_run(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": ""}, "'id' must be text"),
        ({"options": "ABC"}, "options must be texts"),
        ({"bins": {"a": 1}}, "bins must be texts"),
        ({"answer": 1}, "answer must be"),
        ({"duration": "long"}, "duration must be"),
        ({"extra": []}, "extra must be"),
    ],
)
def test_an_item_that_is_not_as_it_should_be_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=rf"items\.jsonl, line 1: .*{words}"):
        read_run(write_run(tmp_path / "r", [item("v1-a", **changes)], []))


def test_a_question_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'v1-a' is there twice"):
        read_run(write_run(tmp_path / "r", [item("v1-a"), item("v1-a")], []))


@pytest.mark.parametrize(
    "changes",
    [{"confidence": float("nan")}, {"schema": "gridprobe.record/9"}, {"outcome": "perhaps"}, {"attempt": "1"}],
)
def test_a_line_that_is_no_record_leaves_its_question_missing(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = write_run(tmp_path / "r", [item("v1-a")], [record("v1-a", **changes)])

    assert outcomes(folder) == {"v1-a": "missing"}
    assert "1 lines of the record files are no records; they were left out" in read_run(folder).notes


def test_a_folder_without_a_run_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a run: it holds no spec\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "x"}', '{"schema": "gridprobe.spec/2"}', "[" * 100_000])
def test_a_spec_that_cannot_be_used_is_an_error(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "r", [item("v1-a")], [])
    (folder / "spec.json").write_text(text)

    with pytest.raises(DataError):
        read_run(folder)


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    first, second = (write_run(tmp_path / each / "run", [item("v1-a")], []) for each in "ab")

    assert [run.name for run in read_runs([first, second])] == [str(first), str(second)]
    assert read_runs([first])[0].name == "run"
    with pytest.raises(UsageError, match="named twice"):
        read_runs([first, first])
