"""Scores from a file: by id, matched to the pool by time, and refused if they are not numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

import gridprobe as gp
from gridprobe.errors import DataError, UsageError
from gridprobe.importance import Budget, Fixed, NoiseAware, ShapeRule
from gridprobe.options import Options
from gridprobe.selectors import Parts
from gridprobe_selectors.imported import SCORES_SCHEMA, Scores, imported_scores
from small_selectors import model
from videos_of_arrays import gray_pool

QUESTION = gp.Question("Where?", ["here", "there"], id="v1-a")
LINES: list[dict[str, Any]] = [{"id": "v1-a", "scores": [0.1, 0.9, 0.2, 0.8]}, {"id": "v1-b", "scores": [1, 0, 0, 0]}]


def read(content: Any, folder: Path, budget: Budget | None = None) -> Scores:
    path = folder / "scores.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return imported_scores(str(path), Parts(model(), budget or Fixed(2), Options().small_view))


@pytest.mark.parametrize(
    "content",
    [
        "\n".join(map(json.dumps, LINES)),
        LINES,
        LINES[0],
        {"schema": SCORES_SCHEMA, "questions": {row["id"]: {"scores": row["scores"]} for row in LINES}},
    ],
    ids=["lines", "list", "one", "object"],
)
def test_the_best_frames_are_kept(content: Any, tmp_path: Path) -> None:
    found = read(content, tmp_path).select(gray_pool(4), QUESTION)

    assert found.indices == (1, 3) and found.cost.calls == 0
    assert found.evidence is not None and found.evidence.kind == "scores"
    assert found.scores == pytest.approx((0.1, 0.9, 0.2, 0.8))


def test_times_match_scores_to_frames(tmp_path: Path) -> None:
    content = {"id": "v1-a", "scores": [0.5, 0.9, 0.1], "times": [0.0, 21.0, 90.0]}

    found = read(content, tmp_path).select(gray_pool(6, step=10.0), QUESTION)

    assert found.scores == pytest.approx((0.5, 0.5, 0.9, 0.9, 0.9, 0.9))


def test_any_scale_will_do_and_any_budget(tmp_path: Path) -> None:
    content = {"id": "v1-a", "scores": [-7.0] * 50 + [12.0] + [-7.0] * 93}

    assert read(content, tmp_path, ShapeRule()).select(gray_pool(144), QUESTION).indices == (50,)
    assert 50 in read(content, tmp_path, NoiseAware()).select(gray_pool(144), QUESTION).indices


def test_scores_of_another_pool_need_times(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="4 scores for a pool of 9 frames"):
        read(LINES, tmp_path).select(gray_pool(9), QUESTION)


def test_a_question_needs_an_id_that_is_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no question with the id 'z'"):
        read(LINES, tmp_path).select(gray_pool(4), gp.Question("?", ["a", "b"], id="z"))
    with pytest.raises(UsageError, match="this one has none"):
        read(LINES, tmp_path).select(gray_pool(4), gp.Question("?", ["a", "b"]))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ('{"id": "a", "scores": [NaN]}', "NaN is not JSON"),
        ({"id": "a", "scores": [1e300]}, "must be numbers"),
        ({"id": "a", "scores": [True]}, "must be numbers"),
        ({"id": "a", "scores": []}, "must be numbers"),
        ({"id": "a", "scores": [1], "times": [1, 2]}, "as many as"),
        ({"id": "a", "scores": [1, 2], "times": [2, 1]}, "ascend"),
        ([{"scores": [1]}], 'has no "id"'),
        ([{"id": "a", "scores": [1]}] * 2, "occurs twice"),
        ({"schema": "other/1", "questions": {}}, "not of schema"),
        ({"schema": SCORES_SCHEMA, "questions": {}}, '"questions" must be'),
    ],
)
def test_a_bad_file_is_refused(content: Any, rule: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rule):
        read(content, tmp_path)


def test_another_content_is_another_selector(tmp_path: Path) -> None:
    one = read(LINES, tmp_path).describe()
    other = read([{**LINES[0], "scores": [0, 0, 0, 1]}], tmp_path).describe()

    assert one["file"] == other["file"] and one["content"] != other["content"]


def test_no_frame_is_decoded_but_those_kept(tmp_path: Path) -> None:
    assert read(LINES, tmp_path).input_size is None
