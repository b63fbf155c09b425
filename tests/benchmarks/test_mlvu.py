"""MLVU: every row of its seven tasks is asked and counted, as its authors do."""

from pathlib import Path
from typing import Any

import pytest

from benchmark_files import reasons, touch, write_json
from evaluation_runs import item, record, write_run
from gridprobe.errors import DataError
from gridprobe_eval.benchmarks import load_benchmark, metrics
from gridprobe_eval.metrics import official
from gridprobe_eval.reader import read_run
from gridprobe_eval.statistics import wilson


def row(**changes: Any) -> dict[str, Any]:
    return {
        "video": "movie101_66.mp4",
        "duration": 480.0,
        "question": "What colour is the car?",
        "candidates": ["Yellow", "Red", "Blue", "Green"],
        "answer": "Blue",
        "question_type": "plotQA",
        **changes,
    }


def test_tasks_folders_and_the_answer_by_its_text(tmp_path: Path) -> None:
    touch(tmp_path, "video/1_plotQA/movie101_66.mp4", "video/2_needle/movie101_66.mp4")
    write_json(tmp_path / "json" / "1_plotQA.json", [row()])
    write_json(tmp_path / "json" / "2_needle.json", [row(question_type="findNeedle", answer="Yellow")])
    write_json(tmp_path / "json" / "9_summary.json", [{"video": "x.mp4", "question": "Sum up", "answer": "..."}])

    benchmark = load_benchmark("mlvu", tmp_path)

    assert benchmark.problems == ()
    plot, needle = benchmark.items
    assert (plot.id, plot.question.answer, plot.bins) == ("plotQA-0", "C", {"task": "plotQA"})
    assert (needle.id, needle.question.answer, needle.bins) == ("needle-0", "A", {"task": "needle"})
    assert plot.video == tmp_path / "video/1_plotQA/movie101_66.mp4"
    assert needle.video == tmp_path / "video/2_needle/movie101_66.mp4"
    assert plot.group != needle.group
    assert (plot.duration, plot.subtitles) == (480.0, None)
    assert plot.question.prompt.endswith("(D) Green\nOnly give the best option.\nBest Option: (")


def test_the_video_of_another_task_does_not_stand_in(tmp_path: Path) -> None:
    touch(tmp_path, "video/2_needle/movie101_66.mp4")
    write_json(tmp_path / "json" / "1_plotQA.json", [row()])

    assert load_benchmark("mlvu", tmp_path).items[0].video == tmp_path / "video/1_plotQA/movie101_66.mp4"


def test_files_without_numbers_and_videos_in_one_folder(tmp_path: Path) -> None:
    touch(tmp_path, "videos/movie101_66.mp4")
    write_json(tmp_path / "plotQA.json", [row()])

    assert load_benchmark("mlvu", tmp_path).items[0].video == tmp_path / "videos/movie101_66.mp4"


def test_every_row_is_asked_and_counts_even_if_no_answer_can_be_right(tmp_path: Path) -> None:
    rows = [row(), row(answer="Purple"), row(candidates=["Red", "", "Blue", ""]), row()]
    del rows[3]["question"]
    write_json(tmp_path / "json" / "2_needle.json", rows)

    benchmark = load_benchmark("mlvu", tmp_path)
    found = metrics("mlvu", benchmark.items, {item.id: item.id != "needle-1" for item in benchmark.items})

    assert benchmark.problems == ()
    assert [item.question.answer for item in benchmark.items] == ["C", None, "C", "C"]
    assert [item.withheld for item in benchmark.items] == [False] * 4
    assert [(metric.name, metric.value, metric.count, metric.note) for metric in found[1:]] == [
        ("accuracy", 75.0, 4, ""),
        ("task needle", 75.0, 4, ""),
    ]
    assert benchmark.items[2].question.option("B") == "(no text)"
    assert "\n(A) Red\n(B) \n(C) Blue\n(D)\nOnly give" in benchmark.items[2].question.prompt
    assert "Question: \nOptions:\n" in benchmark.items[3].question.prompt


def test_a_run_counts_a_question_without_a_right_option_as_wrong(tmp_path: Path) -> None:
    write_json(tmp_path / "json" / "2_needle.json", [row(answer="Purple")])
    (asked,) = load_benchmark("mlvu", tmp_path).items
    line = item(asked.id, answer=None, extra=dict(asked.extra), bins=dict(asked.bins))

    folder = write_run(tmp_path / "run", [line], [record(asked.id, "A", right=None)], benchmark="mlvu")

    run = read_run(folder)
    assert (run.results[0].right, run.notes) == (False, ())
    assert [(metric.name, metric.value) for metric in official(run)][:2] == [("M-Avg", 0.0), ("accuracy", 0.0)]


def test_of_two_equal_candidates_the_last_is_right(tmp_path: Path) -> None:
    write_json(tmp_path / "json" / "4_count.json", [row(candidates=["2", "3", "2", "4"], answer="2")])

    assert load_benchmark("mlvu", tmp_path).items[0].question.answer == "C"


def test_an_empty_answer_is_that_of_an_empty_candidate(tmp_path: Path) -> None:
    write_json(tmp_path / "json" / "4_count.json", [row(candidates=["2", "", "3"], answer=""), row(answer="")])

    assert [item.question.answer for item in load_benchmark("mlvu", tmp_path).items] == ["B", None]


def test_rows_that_cannot_be_asked_are_problems(tmp_path: Path) -> None:
    rows = [row(), row(candidates=None), row(answer=None), row(candidates=["a", 2]), 7]
    write_json(tmp_path / "json" / "2_needle.json", rows)

    benchmark = load_benchmark("mlvu", tmp_path)

    assert [item.id for item in benchmark.items] == ["needle-0"]
    found = reasons(benchmark)
    assert found["row 4 (needle-3)"] == "candidate 1 must be text, got 2"
    assert len(found) == 4 and benchmark.version.startswith("mlvu-5-")


def test_m_avg_is_the_mean_over_tasks(tmp_path: Path) -> None:
    write_json(tmp_path / "json" / "1_plotQA.json", [row(), row(), row()])
    write_json(tmp_path / "json" / "4_count.json", [row()])
    benchmark = load_benchmark("mlvu", tmp_path)

    found = metrics("mlvu", benchmark.items, {item.id: item.id != "count-0" for item in benchmark.items})

    assert [(metric.name, metric.value) for metric in found[:2]] == [("M-Avg", 50.0), ("accuracy", 75.0)]
    assert found[0].note == "5 of 7 tasks were not asked"


def test_the_interval_of_m_avg_is_over_the_videos_of_each_task(tmp_path: Path) -> None:
    write_json(tmp_path / "json" / "1_plotQA.json", [row(video=f"{n}.mp4") for n in range(8)])
    write_json(tmp_path / "json" / "4_count.json", [row(video=f"{n}.mp4") for n in (1, 1, 2, 3)])
    benchmark = load_benchmark("mlvu", tmp_path)

    m_avg, *_ = metrics("mlvu", benchmark.items, {item.id: True for item in benchmark.items})

    found = m_avg.interval
    plot, count = wilson(1.0, 8)[0], wilson(1.0, 16 / 6)[0]  # of four answers two are about one video
    assert found is not None and (found.mean, found.high, found.count, found.clusters) == (1.0, 1.0, 12, 11)
    assert found.low == pytest.approx(1 - ((1 - plot) ** 2 + (1 - count) ** 2) ** 0.5 / 2)


def test_other_files_are_not_mlvu(tmp_path: Path) -> None:
    write_json(tmp_path / "json" / "other.json", [])

    with pytest.raises(DataError, match=r"none of MLVU's task files, such as 1_plotQA\.json"):
        load_benchmark("mlvu", tmp_path)
