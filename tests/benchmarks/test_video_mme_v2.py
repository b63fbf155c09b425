"""Video-MME-v2: both releases, odd options, and the official score to the last case."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark_files import by_id, touch, v2_group, write_parquet
from gridprobe_eval.benchmarks import Benchmark, Metric, load_benchmark, metrics
from gridprobe_eval.benchmarks.video_mme_v2 import non_linear
from gridprobe_eval.statistics import clustered_bootstrap, wilson
from gridprobe_eval.tasks import Choice

CHAIN, FORK_LATE, FORK_EARLY = [[1], [2], [3], [4]], [[1], [2, 3], [4]], [[1, 2], [3], [4]]

TABLE = """
0000: 0|0|0|0; 0001: 6.25|0|0|0; 0010: 6.25|0|0|0; 0011: 25|0|0|0; 0100: 6.25|0|0|10; 0101: 25|0|0|10;
0110: 25|0|0|10; 0111: 56.25|0|0|10; 1000: 6.25|6.25|8.3333|10; 1001: 25|6.25|8.3333|10; 1010: 25|6.25|33.3333|10;
1011: 56.25|6.25|33.3333|10; 1100: 25|25|33.3333|20; 1101: 56.25|25|33.3333|20; 1110: 56.25|56.25|58.3333|50;
1111: 100|100|100|100
"""
"""Outcomes: relevance | [1,2,3,4] | [1,[2,3],4] | [[1,2],3,4], as the official code gives them."""


def load(folder: Path, *rows: dict[str, object]) -> Benchmark:
    write_parquet(folder / "test.parquet", rows)
    return load_benchmark("video-mme-v2", folder)


def outcomes(text: str) -> list[bool]:
    return [digit == "1" for digit in text]


def named(found: list[Metric]) -> dict[str, Metric]:
    return {metric.name: metric for metric in found}


# The score.


# E25 of tests/reliability.md
@pytest.mark.parametrize("line", TABLE.replace("\n", " ").strip().split(";"))
def test_the_whole_truth_table(line: str) -> None:
    case, scores = line.strip().split(": ")

    found = [non_linear(outcomes(case), stages) for stages in (None, CHAIN, FORK_LATE, FORK_EARLY)]

    assert found == pytest.approx([float(score) for score in scores.split("|")], abs=5e-5)


def test_the_table_has_every_case() -> None:
    cases = [line.strip().split(": ")[0] for line in TABLE.replace("\n", " ").strip().split(";")]

    assert sorted(cases) == sorted("".join(bits) for bits in product("01", repeat=4))


WEIGHTS = {"chain": (0, 1, 4, 9, 16), "late": (0, 1, 4, 7, 12), "early": (0, 1, 2, 5, 10)}
STAGES = {"chain": CHAIN, "late": FORK_LATE, "early": FORK_EARLY}


@given(right=st.lists(st.booleans(), min_size=4, max_size=4), shape=st.sampled_from(list(WEIGHTS)))
def test_stages_agree_with_the_rule_of_the_first_error(right: list[bool], shape: str) -> None:
    prefix = next((place for place, each in enumerate(right) if not each), 4)
    if (shape == "late" and prefix == 1 and right[2]) or (shape == "early" and prefix == 0 and right[1]):
        prefix += 1

    assert non_linear(right, STAGES[shape]) == pytest.approx(100 * WEIGHTS[shape][prefix] / WEIGHTS[shape][4])


VECTORS = [
    ("[1,2,3,4]", "FBAH", "FBCH", 25.0),
    ("[1,[2,3],4]", "CFAD", "CAAD", 100 / 3),
    ("[[1,2],3,4]", "CAGB", "BAGB", 10.0),
    ("4", "DAAE", "DBAE", 56.25),
    ("[1, [2, 3], 4]", "DGAE", "DGAB", 700 / 12),
    ("[[1,2],3,4]", "CAGB", "CAGH", 50.0),
]
"""Structure, gold, answers and score; spaces in a structure mean nothing."""


def vectors(folder: Path, count: int) -> tuple[Benchmark, dict[str, bool]]:
    rows: list[dict[str, object]] = []
    right: dict[str, bool] = {}
    for number, (structure, gold, answers, _) in enumerate(VECTORS[:count], start=1):
        rows += v2_group(f"{number:03d}", structure=structure, gold=gold, level=str(1 + number % 3))
        right |= {f"{number:03d}-{i}": a == g for i, (a, g) in enumerate(zip(answers, gold, strict=True), start=1)}
    return load(folder, *rows), right


@pytest.mark.parametrize("place", range(6))
def test_vectors_one_by_one(tmp_path: Path, place: int) -> None:
    benchmark, right = vectors(tmp_path, 6)
    group = [item for item in benchmark.items if item.group == f"{place + 1:03d}"]

    assert metrics("video-mme-v2", group, right)[0].value == pytest.approx(VECTORS[place][3])


# E25 of tests/reliability.md
def test_the_aggregate_of_five(tmp_path: Path) -> None:
    benchmark, right = vectors(tmp_path, 5)

    found = metrics("video-mme-v2", benchmark.items, right)

    assert [metric.name for metric in found[:2]] == ["Non-Lin", "Avg Acc"]
    scores = {name: round(metric.value or 0.0, 4) for name, metric in named(found).items()}
    assert scores["Avg Acc"] == 75.0
    assert (scores["Non-Lin"], scores["relevance"], scores["logic"]) == (36.5833, 56.25, 31.6667)
    assert scores["relevance, linear"] == 75.0
    assert (scores["level 1"], scores["level 2"]) == (10.0, round((25 + 56.25) / 2, 4))
    assert named(found)["level 3"].count == 2 and scores["level 3"] == round((100 / 3 + 700 / 12) / 2, 4)
    assert scores["second head Temporal"] == scores["third head Order"] == 36.5833
    assert [metric.note for metric in found] == [""] * len(found)


def test_every_score_has_an_interval_over_its_groups(tmp_path: Path) -> None:
    benchmark, right = vectors(tmp_path, 5)
    found = named(metrics("video-mme-v2", benchmark.items, right))

    for name, groups in (("Non-Lin", 5), ("logic", 4), ("level 3", 2), ("relevance", 1)):
        interval = found[name].interval
        assert interval is not None and interval.clusters == groups and interval.method == "wilson"
        assert 100 * interval.mean == pytest.approx(found[name].value)
        assert (interval.low, interval.high) == pytest.approx(wilson((found[name].value or 0.0) / 100, groups))
    questions = found["Avg Acc"].interval
    assert questions is not None and (questions.count, questions.clusters) == (20, 5)


def test_a_full_run_is_resampled_by_groups(tmp_path: Path) -> None:
    benchmark = load(tmp_path, *(row for number in range(60) for row in v2_group(f"{number:03d}")))
    right = {item.id: (int(item.group) * 7 + item.extra["position"]) % 5 > 1 for item in benchmark.items}
    (first, *_) = metrics("video-mme-v2", benchmark.items, right)

    scores = [score / 100 for _, score in first.strata[0]]
    assert first.interval == clustered_bootstrap(scores, range(60)) and first.interval.method == "bootstrap"
    assert first.value == pytest.approx(100 * sum(scores) / 60)


def test_no_group_has_no_interval(tmp_path: Path) -> None:
    benchmark, _ = vectors(tmp_path, 5)

    assert metrics("video-mme-v2", benchmark.items, {})[0].interval is None


# E25 of tests/reliability.md
def test_groups_that_are_not_complete_are_left_out_and_said_so(tmp_path: Path) -> None:
    benchmark, right = vectors(tmp_path, 5)
    del right["004-2"]  # not asked yet: 56.25 for the group must not become a guess
    items = [item for item in benchmark.items if item.id != "001-3"]  # a subset that cuts a group apart

    found = named(metrics("video-mme-v2", items, right))

    assert found["Non-Lin"].value == pytest.approx((100 / 3 + 10 + 700 / 12) / 3)
    assert (found["Non-Lin"].count, found["Non-Lin"].note) == (3, "2 of 5 groups are incomplete and not counted")
    assert (found["Avg Acc"].count, found["Avg Acc"].note) == (18, "1 of 19 not asked")
    assert "relevance" not in found and "relevance, linear" not in found


def test_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    benchmark, right = vectors(tmp_path, 5)

    assert metrics("video-mme-v2", benchmark.items[::-1], right)[0].value == pytest.approx(36.5833, abs=5e-5)


def test_all_right_is_100_all_wrong_0_and_nothing_asked_says_so(tmp_path: Path) -> None:
    items = vectors(tmp_path, 6)[0].items

    for right, value in ((True, 100.0), (False, 0.0)):
        assert {m.value for m in metrics("video-mme-v2", items, {i.id: right for i in items})} == {value}
    first = metrics("video-mme-v2", items, {})[0]
    assert (first.value, first.count, first.note) == (None, 0, "6 of 6 groups are incomplete and not counted")


def test_a_limit_of_eight_is_two_whole_groups_with_a_score(tmp_path: Path) -> None:
    benchmark, right = vectors(tmp_path, 6)

    chosen = Choice(limit=8).items(benchmark)

    headline = metrics("video-mme-v2", chosen, right)[0]
    assert (len(chosen), headline.count, headline.note) == (8, 2, "")
    assert len({item.bins["type"] for item in chosen}) == 2  # evenly from the two types


# Loading.


def test_a_row_becomes_an_item(tmp_path: Path) -> None:
    touch(tmp_path, "videos/001.mp4", "subtitle/001.jsonl")

    benchmark = load(tmp_path, *v2_group("001", structure="[1,[2,3],4]", gold="CFAD"))

    item = benchmark.items[1]
    assert (item.id, item.question.id, item.group, item.question.answer) == ("001-2", "001-2", "001", "F")
    assert item.question.options[2] == "Option c."
    assert item.video == tmp_path / "videos" / "001.mp4"
    assert item.subtitles == tmp_path / "subtitle" / "001.jsonl"
    assert item.bins == {"type": "logic", "level": "2", "second_head": "Temporal", "third_head": "Order"}
    assert item.extra == {"type": "logic", "structure": [[1], [2, 3], [4]], "position": 2}
    assert item.question.prompt.startswith("These are the frames of a video.Question: What happens in part 2?\nA. Opt")
    assert benchmark.problems == ()


# E26 of tests/reliability.md
def test_the_prompt_is_the_official_one_to_the_character(tmp_path: Path) -> None:
    rows = v2_group("001")
    rows[0] |= {"question": " What  is it? ", "options": "A. The  red door.\nB. John F. Kennedy"}

    assert by_id(load(tmp_path, *rows))["001-1"].question.prompt == (
        f"These are the frames of a video.Question: {rows[0]['question']}\n{rows[0]['options']}\n"
        "Select the best answer to the following multiple-choice question based on the video. "
        "Respond with only the letter (A, B, C, D, E, F, G, or H) of the correct option."
    )


def test_levels_and_heads_are_those_of_the_fourth_question_in_either_release(tmp_path: Path) -> None:
    early = load(tmp_path / "early", *v2_group("001", level="3", filled=False))
    later = load(tmp_path / "later", *v2_group("001", level="3"))

    assert [item.bins for item in early.items] == [item.bins for item in later.items]
    assert early.items[0].bins["level"] == "3"
    assert early.version != later.version and early.version.startswith("video-mme-v2-4-")


@pytest.mark.parametrize("level", ["3", "3.0"])
def test_a_level_may_be_text_of_a_float(tmp_path: Path, level: str) -> None:
    assert load(tmp_path, *v2_group("001", level=level)).items[0].bins["level"] == "3"


@pytest.mark.parametrize("level", [3, 3.0])
def test_a_level_may_be_a_number(tmp_path: Path, level: float) -> None:
    assert load(tmp_path, *v2_group("001", level=level)).items[0].bins["level"] == "3"  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [None, "None", "nan", ""])
def test_a_group_without_a_level_is_in_no_level_and_said_so(tmp_path: Path, level: str | None) -> None:
    benchmark = load(tmp_path, *v2_group("001", level=level), *v2_group("002", level="1"))

    found = named(metrics("video-mme-v2", benchmark.items, {item.id: True for item in benchmark.items}))

    assert "level" not in benchmark.items[0].bins
    assert (found["level 1"].count, found["level 1"].note) == (1, "1 groups have none")
    assert found["Non-Lin"].count == 2


def test_video_ids_get_their_zeros_back(tmp_path: Path) -> None:
    rows = [row | {"video_id": 7} for row in v2_group("007")]
    touch(tmp_path, "007.mp4")

    assert {(item.video, item.group) for item in load(tmp_path, *rows).items} == {(tmp_path / "007.mp4", "007")}


@pytest.mark.parametrize("folder", ["videos_unzipped", "videos", "video", "data", ".", "videos/part_01"])
@pytest.mark.parametrize("subtitles", ["subtitle", "subtitles"])
def test_every_known_layout(tmp_path: Path, folder: str, subtitles: str) -> None:
    touch(tmp_path, f"{folder}/001.mp4", f"{subtitles}/001.jsonl")

    item = load(tmp_path, *v2_group("001")).items[0]

    assert item.video.samefile(tmp_path / folder / "001.mp4")
    assert item.subtitles == tmp_path / subtitles / "001.jsonl"


def test_a_missing_video_has_the_place_it_should_be_at(tmp_path: Path) -> None:
    touch(tmp_path, "videos/part_01.zip", "videos/002.mp4")

    assert load(tmp_path, *v2_group("001")).items[0].video == tmp_path / "videos" / "001.mp4"


def test_odd_options_stay_whole_and_gold_keeps_its_letter(tmp_path: Path) -> None:
    rows = v2_group("001", gold="CCBA")
    rows[0]["options"] = "A. John F. Kennedy\nB. Franklin D. Roosevelt\nC.Mission accomplished\nD. Vitamin D."
    rows[1]["options"] = "A. A.\nB. D.C. is\nC. Well done!"
    rows[2]["options"] = "A. Yes.\nB. No."
    rows[3]["options"] = "A. Left B. Right"

    items = by_id(load(tmp_path, *rows))

    assert items["001-1"].question.option("C") == "Mission accomplished"
    assert items["001-1"].question.options[::3] == ("John F. Kennedy", "Vitamin D.")
    assert items["001-2"].question.options == ("A.", "D.C. is", "Well done!")
    assert [len(item.question.labels) for item in items.values()] == [4, 3, 2, 2]
    assert items["001-4"].question.option("A") == "Left"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answer": "I"}, "the answer 'I' is not the letter of an option"),
        ({"answer": None}, "the answer None"),
        ({"options": "A. x\nC. y"}, "should start with 'B.'"),
        ({"options": None}, "options is missing"),
        ({"options": "A. alone"}, "2 to 26 options, got 1"),
        ({"question": " "}, "question is missing"),
        ({"question_id": "001-5"}, "should end in -1, -2, -3 or -4"),
        ({"question_id": None}, "question_id is missing"),
        ({"question_id": "001-1"}, "occurs a second time"),
        ({"video_id": None}, "video_id is missing"),
        ({"group_type": "other"}, "must be relevance or logic"),
        ({"group_type": "logic"}, "'4' should name the questions"),
        ({"group_type": "logic", "group_structure": "[1,2,2,4]"}, "should name the questions 1 to 4 once each"),
        ({"group_type": "logic", "group_structure": "[1,2"}, "should name the questions"),
        ({"group_type": "logic", "group_structure": "[1,2,3,4]"}, "not that of the group's fourth question"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_problem_and_the_others_stay(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    rows = v2_group("001")
    rows[1] |= changes

    benchmark = load(tmp_path, *rows)

    assert [item.id for item in benchmark.items] == ["001-1", "001-3", "001-4"]
    assert len(benchmark.problems) == 1
    assert reason in benchmark.problems[0].what
    assert benchmark.problems[0].where.startswith("row 2")
    assert benchmark.version.startswith("video-mme-v2-4-")
