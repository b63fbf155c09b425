"""Open questions of benchmarks: options taken away, generation tasks, and rows that never had options."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark_files import lvb_row, reasons, touch, write_json, write_parquet
from gridprobe.errors import DataError, UsageError
from gridprobe.open_ended import kind_of
from gridprobe_eval.benchmarks import load_benchmark, metrics


def test_the_text_of_the_right_option_is_the_answer_to_find(tmp_path: Path) -> None:
    rows = [
        lvb_row("q1", "v1", question="What does the man hold?", candidates=["a cup", "a map"], correct_choice=1),
        lvb_row("q2", "v1", question="Which of these is on the table?", candidates=["a", "b"], correct_choice=0),
        lvb_row("q3", "v1", question="Which statement is not true?", candidates=["a", "b"], correct_choice=0),
    ]
    write_json(tmp_path / "lvb_val.json", rows)

    closed, found = load_benchmark("longvideobench", tmp_path), load_benchmark("longvideobench", tmp_path, open=True)

    (item,) = found.items
    assert (item.id, item.question.open, item.question.answer) == ("q1", True, "a map")
    assert set(reasons(found)) == {"q2", "q3"} and "without its options" in reasons(found)["q2"]
    assert found.version != closed.version and found.options == {"open": True}
    assert [each.question.open for each in closed.items] == [False] * 3


def test_gridworld_without_options(tmp_path: Path) -> None:
    found = load_benchmark("gridworld", tmp_path, open=True, part="all", count=40)

    families = {item.bins["family"] for item in found.items}
    absent = [item for item in found.items if item.bins["family"] == "absent"]
    assert "negation" not in families and len(families) > 8
    assert all(item.question.open and item.question.answer for item in found.items)
    assert absent and all(
        kind_of(item.question.answer or "") == "not said" for item in absent
    )  # also without a right option
    assert any("without its options" in problem.what for problem in found.problems)


@pytest.mark.parametrize("value", ["yes", 1])
def test_open_is_true_or_false(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="open must be one of true, false"):
        load_benchmark("gridworld", tmp_path, open=value)


def test_a_benchmark_in_which_every_question_needs_its_options(tmp_path: Path) -> None:
    write_json(tmp_path / "lvb_val.json", [lvb_row("q1", "v1", question="Which of the following is seen?")])

    with pytest.raises(DataError, match="leave out open=true"):
        load_benchmark("longvideobench", tmp_path, open=True)


def test_ones_own_questions_may_have_no_options(tmp_path: Path) -> None:
    rows = [
        {"video": "a.mp4", "question": "Who enters?", "answer": "the cook"},
        {"video": "a.mp4", "question": "Where?", "options": []},
        {"video": "a.mp4", "question": "Which?", "options": ["x", "y"], "answer": "B"},
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    items = load_benchmark("jsonl", tmp_path).items

    assert [(item.question.open, item.question.answer) for item in items] == [
        (True, "the cook"), (True, None), (False, "B")]  # fmt: skip


def test_mlvus_generation_tasks(tmp_path: Path) -> None:
    touch(tmp_path, "video/8_sub_scene/a.mp4", "video/9_summary/b.mp4")
    row = {"duration": 300.0, "question_type": "x"}
    write_json(tmp_path / "json/8_sub_scene.json", [row | {"video": "a.mp4", "question": "Who?", "answer": "a nun"}])
    write_json(tmp_path / "json/9_summary.json", [row | {"video": "b.mp4", "question": "Sum up", "answer": "A trip."}])
    write_json(tmp_path / "json/1_plotQA.json", [row | {"video": "c.mp4", "question": "?", "candidates": ["x", "y"],
                                                        "answer": "x"}])  # fmt: skip

    found = load_benchmark("mlvu", tmp_path, generation=True)

    assert [(item.id, item.question.answer) for item in found.items] == [
        ("sub_scene-0", "a nun"), ("summary-0", "A trip.")]  # fmt: skip
    assert found.items[0].video == tmp_path / "video/8_sub_scene/a.mp4"
    assert metrics("mlvu", found.items, {"summary-0": True})[0].name == "exact match"
    assert [item.id for item in load_benchmark("mlvu", tmp_path).items] == ["plotQA-0"]


def test_egoschemas_questions_of_its_generation_folder_are_those_of_the_others_without_options(tmp_path: Path) -> None:
    options = [f"{letter}. C does {letter}" for letter in "ABCDE"]
    rows = [{"question": "What?", "video_idx": name, "option": options, "answer": None} for name in ("a-1", "b-2")]
    write_parquet(tmp_path / "Subset" / "test-00000-of-00001.parquet", [rows[1] | {"answer": "4"}])
    write_parquet(tmp_path / "MC" / "test-00000-of-00001.parquet", rows)

    known, every = (load_benchmark("egoschema", tmp_path, open=True, answered=each) for each in (True, False))

    assert [(item.id, item.question.answer) for item in known.items] == [("b-2", "C does E")]
    assert [(item.id, item.question.answer) for item in every.items] == [("a-1", None), ("b-2", "C does E")]
