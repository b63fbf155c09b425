"""LongVideoBench: both forms of its rows, TikTok names, clips out of longer sources."""

from pathlib import Path
from typing import Any

import pytest

from benchmark_files import as_hub_row, by_id, lvb_row, tiktok_row, touch, write_json, write_parquet
from gridprobe.errors import DataError, UsageError
from gridprobe_eval.benchmarks import Benchmark, load_benchmark, metrics

ROWS = [
    lvb_row("2edlqFUTDVc_0", "2edlqFUTDVc", candidates=["red", "red", "blue", "green"], correct_choice=3),
    lvb_row("kj3Po7zUeyw_0", "kj3Po7zUeyw", candidates=["one", "two", "three"], correct_choice=2, duration_group=3600),
    lvb_row("a_b_c_1", "a_b_c", correct_choice=4, duration_group=60, starting_timestamp_for_subtitles=233),
    tiktok_row(),
]


def load(folder: Path, rows: list[dict[str, Any]], **options: Any) -> Benchmark:
    write_json(folder / "lvb_val.json", rows)
    return load_benchmark("longvideobench", folder, **options)


def test_a_row_becomes_an_item(tmp_path: Path) -> None:
    touch(tmp_path, "videos/a_b_c.mp4", "subtitles/a_b_c_en.json")

    item = by_id(load(tmp_path, ROWS))["a_b_c_1"]

    assert (item.group, item.question.answer, item.question.text) == ("a_b_c", "E", "What does the man in red do?")
    assert (item.video, item.subtitles) == (tmp_path / "videos/a_b_c.mp4", tmp_path / "subtitles/a_b_c_en.json")
    assert (item.offset, item.duration) == (233.0, 300.5)
    assert item.bins == {"duration": "60", "category": "S2E", "level": "L1-Perception", "topic": "NP-News-Programs"}
    assert item.extra == {"position": [100, 220], "type": "local"}
    assert item.question.prompt == (
        "Question: What does the man in red do?\nA. He runs\nB. He sits\nC. He waves\nD. He sleeps\nE. He eats\n"
        "Answer with the option's letter from the given choices directly."
    )


# E26 of tests/reliability.md
def test_white_space_is_kept_as_in_the_official_loader(tmp_path: Path) -> None:
    row = lvb_row("x_0", "x", question="What  is\tit? ", candidates=["a  red\u00a0door", "two\nlines ", "x"])

    assert load(tmp_path, [row]).items[0].question.prompt == (
        "Question: What  is\tit? \nA. a  red\u00a0door\nB. two\nlines \nC. x\n"
        "Answer with the option's letter from the given choices directly."
    )


def test_tiktok_videos_are_found_by_their_path_and_not_by_their_id(tmp_path: Path) -> None:
    touch(tmp_path, "videos/7141686631676808454.mp4")

    item = load(tmp_path, ROWS).items[3]

    assert item.video.is_file() and item.video.name == "7141686631676808454.mp4"
    assert item.group == "@user-7141686631676808454"
    assert item.subtitles == tmp_path / "subtitles" / "7141686631676808454_en.json"


def test_labels_are_those_of_each_questions_own_candidates(tmp_path: Path) -> None:
    items = load(tmp_path, ROWS).items

    assert [len(item.question.labels) for item in items] == [4, 3, 5, 5]
    assert [item.question.answer for item in items] == ["D", "C", "E", "B"]
    assert len(items[0].question.warnings) == 1  # a text that occurs twice is kept twice


def test_both_forms_give_the_same_items(tmp_path: Path) -> None:
    write_parquet(tmp_path / "validation-00000-of-00001.parquet", [as_hub_row(row) for row in ROWS])

    hub = load_benchmark("longvideobench", tmp_path)

    assert hub.problems == ()
    assert hub.items == load(tmp_path, ROWS).items


def test_an_option_that_is_not_at_the_end_keeps_its_place_even_if_it_says_none(tmp_path: Path) -> None:
    row = as_hub_row(lvb_row("x_0", "x", candidates=["yes", "N/A", "no"], correct_choice=2))
    write_parquet(tmp_path / "validation-00000-of-00001.parquet", [row])

    question = load_benchmark("longvideobench", tmp_path).items[0].question

    assert (question.options, question.option(question.answer or "")) == (("yes", "N/A", "no"), "no")


def test_the_papers_subset_leaves_out_what_its_code_cannot_find(tmp_path: Path) -> None:
    whole, subset = load(tmp_path, ROWS), load(tmp_path, ROWS, paper_subset=True)

    assert [item.id for item in subset.items] == ["2edlqFUTDVc_0", "kj3Po7zUeyw_0", "a_b_c_1"]
    assert len(whole.items) == 4
    assert subset.version.startswith("longvideobench-3-") and whole.version.startswith("longvideobench-4-")


def test_the_test_split_has_questions_without_answers(tmp_path: Path) -> None:
    rows = [lvb_row("a_0", "a", correct_choice=-1), lvb_row("b_0", "b")]
    del rows[1]["correct_choice"]
    write_json(tmp_path / "lvb_test_wo_gt.json", rows)

    benchmark = load_benchmark("longvideobench", tmp_path, split="test")

    assert [item.question.answer for item in benchmark.items] == [None, None]
    found = metrics("longvideobench", benchmark.items, {item.id: False for item in benchmark.items})
    assert [(metric.value, metric.count, metric.note) for metric in found] == [(None, 0, "2 with a withheld answer")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"correct_choice": 5}, "the answer 5 is not the number of an option, 0 to 4"),
        ({"correct_choice": -1}, "the answer -1"),
        ({"correct_choice": "B"}, "correct_choice must be a number"),
        ({"candidates": []}, "must be a list of texts"),
        ({"candidates": ["one"]}, "2 to 26 options"),
        ({"candidates": ["one", None]}, "option B must be text"),
        ({"candidates": None}, "must be a list of texts"),
        ({"question": None}, "question is missing"),
        ({"video_path": None}, "video_path is missing"),
        ({"id": "a_b_c_1"}, "occurs a second time"),
        ({"duration": "long"}, "duration must be a number"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_problem(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    for options in ({}, {"paper_subset": True}):
        benchmark = load(tmp_path, [ROWS[2], lvb_row("x_0", "x", correct_choice=0) | changes], **options)

        assert [item.id for item in benchmark.items] == ["a_b_c_1"]
        assert [reason in problem.what for problem in benchmark.problems] == [True], benchmark.problems


def test_things_that_are_no_rows_are_problems(tmp_path: Path) -> None:
    write_json(tmp_path / "lvb_val.json", [ROWS[0], "text", None, 7])

    benchmark = load_benchmark("longvideobench", tmp_path)

    assert len(benchmark.items) == 1
    assert [problem.where for problem in benchmark.problems] == ["row 2", "row 3", "row 4"]


# E25 of tests/reliability.md
def test_accuracy_overall_by_duration_and_by_category(tmp_path: Path) -> None:
    items = load(tmp_path, ROWS).items
    right = {item.id: place > 0 for place, item in enumerate(items)}

    found = metrics("longvideobench", items, right)

    assert [(metric.name, metric.value, metric.count) for metric in found] == [
        ("accuracy", 75.0, 4),
        ("duration 15", 100.0, 1),
        ("duration 60", 100.0, 1),
        ("duration 600", 0.0, 1),
        ("duration 3600", 100.0, 1),
        ("category S2E", 75.0, 4),
    ]


def test_what_was_not_asked_is_no_wrong_answer(tmp_path: Path) -> None:
    items = load(tmp_path, ROWS).items

    found = metrics("longvideobench", items, {"a_b_c_1": True, "kj3Po7zUeyw_0": False})

    assert (found[0].value, found[0].count, found[0].note) == (50.0, 2, "2 of 4 not asked")
    assert [metric.name for metric in found] == ["accuracy", "duration 60", "duration 3600", "category S2E"]


@pytest.mark.parametrize("duration", [-3, 0, -0.5])
def test_a_duration_must_be_positive(tmp_path: Path, duration: float) -> None:
    benchmark = load(tmp_path, [lvb_row("x_0", "x", duration=duration)])

    assert benchmark.problems[0].what == f"duration must be a positive number of seconds, got {duration!r}"


def test_a_final_not_available_is_no_option_in_either_form(tmp_path: Path) -> None:
    rows = [lvb_row("x_0", "x", candidates=["yes", "no", "N/A", "N/A"]), lvb_row("y_0", "y", correct_choice=2)]
    rows[1]["candidates"] = ["yes", "no", "N/A"]

    benchmark = load(tmp_path, rows)

    assert [item.question.options for item in benchmark.items] == [("yes", "no")]
    assert "the answer 2 is not the number of an option, 0 to 1" in benchmark.problems[0].what


def test_files_of_the_other_split_are_named(tmp_path: Path) -> None:
    write_json(tmp_path / "lvb_test_wo_gt.json", ROWS)

    with pytest.raises(DataError, match=r"no files of split=val .* but lvb_test_wo_gt\.json of split=test; ask for"):
        load_benchmark("longvideobench", tmp_path)


def test_options_are_checked(tmp_path: Path) -> None:
    for options, reason in (
        ({"split": "train"}, "split must be one of val, test; got 'train'"),
        ({"paper_subset": 1}, "paper_subset must be one of true, false; got 1"),
        ({"paper_subset": True, "split": "test"}, "leave out split=test"),
        ({"papersubset": True}, "unknown option 'papersubset' of longvideobench; did you mean 'paper_subset'?"),
    ):
        with pytest.raises(UsageError, match=reason.replace("?", r"\?")):
            load(tmp_path, ROWS, **options)


def test_files_that_are_not_there_or_not_json_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no lvb_val\.json or .* in .*; see docs/evaluation\.md"):
        load_benchmark("longvideobench", tmp_path)
    with pytest.raises(DataError, match="nowhere does not exist"):
        load_benchmark("longvideobench", tmp_path / "nowhere")
    (tmp_path / "lvb_val.json").write_text("[{")
    with pytest.raises(DataError, match=r"lvb_val\.json is not valid JSON"):
        load_benchmark("longvideobench", tmp_path)
    write_json(tmp_path / "lvb_val.json", {"rows": []})
    with pytest.raises(DataError, match="must hold a JSON array"):
        load_benchmark("longvideobench", tmp_path)
    write_json(tmp_path / "lvb_val.json", [])
    with pytest.raises(DataError, match="no question in it"):
        load_benchmark("longvideobench", tmp_path)
    (tmp_path / "lvb_val.json").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DataError, match=r"cannot read .*lvb_val\.json"):
        load_benchmark("longvideobench", tmp_path)
    (tmp_path / "lvb_val.json").unlink()
    (tmp_path / "validation-0.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="not a readable parquet file"):
        load_benchmark("longvideobench", tmp_path)
