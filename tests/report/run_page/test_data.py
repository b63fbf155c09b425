"""What the run page knows of questions without options."""

from pathlib import Path

import pytest

from evaluation_runs import item, record, write_run
from gridprobe.errors import DataError
from gridprobe.evaluation.reader import read_runs
from gridprobe.report.run_data import RESULT, pack


def test_texts_stand_in_place_of_options_with_the_right_one_first(tmp_path: Path) -> None:
    asked = [item("v1-a", options=[], answer="red car"), item("v2-b")]
    one = record("v1-a", "The red car.", right=True, confidence=0.75, logprobs={"The red car.": -0.1, "a bus": -2.0})
    other = record("v1-a", "a bus", right=False, confidence=0.5, logprobs={"a bus": -0.7})
    runs = [
        write_run(tmp_path / "one", asked, [one, record("v2-b")]),
        write_run(tmp_path / "other", asked, [other, record("v2-b")]),
    ]

    data = pack(read_runs(runs))

    question, closed = data["questions"]
    assert (list(question[2]), question[3]) == (["red car", "a bus"], 0)
    assert (list(closed[2]), closed[3]) == (["a bird sings", "a car stops", "it rains"], 1)
    choice, shares = RESULT.index("choice"), RESULT.index("shares")
    assert [run[0][choice] for run in data["results"]] == [0, 1]
    assert [run[0][shares] for run in data["results"]] == [[750, 135], [0, 500]]


def test_a_question_without_a_duration_has_the_recorded_one_of_its_video(tmp_path: Path) -> None:
    items = [item("v1-a", duration=None), item("v2-b", duration=None)]
    runs = [
        write_run(tmp_path / "one", items, [record("v1-a", None), record("v2-b")]),
        write_run(tmp_path / "other", items, [record("v1-a", video={"duration": 30.0}), record("v2-b", video=None)]),
    ]

    questions = pack(read_runs(runs))["questions"]

    assert [question[-1] for question in questions] == [30.0, None]


def test_a_recorded_duration_that_is_no_number_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [item("v1-a", duration=None)], [record("v1-a", video={"duration": "long"})])

    with pytest.raises(DataError, match="the video's duration must be a number or null, got 'long'"):
        read_runs([run])
