"""Replaying chosen frames: the same ones where they are there, the nearest ones with a warning where not."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gridprobe as gp
from evaluation_runs import item, record, selection, write_run
from gridprobe.errors import DataError, UsageError
from gridprobe_eval.reader import KEYFRAMES_SCHEMA, export_keyframes, read_run
from gridprobe_selectors.imported import MAX_BYTES, MAX_FRAMES, Chosen, Keyframes
from videos import numbered_video
from videos_of_arrays import gray_pool

QUESTION = gp.Question("Where?", ["here", "there"], id="v1-a")


def file(folder: Path, entry: Any, **changes: Any) -> Path:
    path = folder / "keyframes.json"
    path.write_text(json.dumps({"schema": KEYFRAMES_SCHEMA, "questions": {"v1-a": entry}} | changes))
    return path


def test_what_a_run_kept_is_replayed_to_the_frame(tmp_path: Path) -> None:
    kept = selection(indices=[1, 4, 7], timestamps=[10.0, 40.0, 70.0])
    run = write_run(
        tmp_path / "r", [item("v1-a"), item("v1-b")], [record("v1-a", selection=kept), record("v1-b", None)]
    )

    exported = export_keyframes(read_run(run))

    assert (exported["schema"], exported["left_out"]) == (KEYFRAMES_SCHEMA, 1)
    assert exported["questions"]["v1-a"] == {
        "times": [10.0, 40.0, 70.0],
        "indices": [1, 4, 7],
        "pool": 9,
        "video": "videos/v1-a.mp4",
        "selector": "all",
        "model": "scripted/m",
    }
    path = tmp_path / "keyframes.json"
    path.write_text(json.dumps(exported))
    replayed = Keyframes.read(path).select(gray_pool(9, step=10.0), QUESTION)
    assert (replayed.indices, replayed.timestamps, replayed.warnings) == ((1, 4, 7), (10.0, 40.0, 70.0), ())


def test_nothing_answered_is_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no question that was answered from kept frames"):
        export_keyframes(read_run(write_run(tmp_path / "r", [item("v1-a")], [record("v1-a", None)])))


def test_in_another_pool_the_nearest_frames_stand_in_and_it_says_so() -> None:
    chosen = Keyframes({"v1-a": Chosen((11.0, 14.0, 38.0), (1, 2, 4), 9)})

    found = chosen.select(gray_pool(5, step=10.0), QUESTION)

    assert found.indices == (1, 4)
    (warning,) = found.warnings
    assert "not the one the keyframes were chosen from" in warning and "up to 4.00 s away" in warning
    assert "1 of 3 fall on a frame that is used already" in warning


def test_times_alone_are_enough() -> None:
    found = Keyframes({"v1-a": Chosen((20.0,))}).select(gray_pool(5, step=10.0), QUESTION)

    assert (found.indices, found.warnings) == ((2,), ())


@given(st.lists(st.floats(-50, 200), min_size=1, max_size=20), st.integers(1, 12))
def test_no_frame_is_nearer_than_the_one_taken(times: list[float], size: int) -> None:
    pool = gray_pool(size, step=10.0)
    found = Keyframes({"v1-a": Chosen(tuple(sorted(times)))}).select(pool, QUESTION)

    for time in times:
        assert min(abs(t - time) for t in found.timestamps) == min(abs(t - time) for t in pool.times)


def test_the_pipeline_takes_it_by_name_and_the_answer_carries_the_warning(tmp_path: Path) -> None:
    path = file(tmp_path, {"times": [12.0, 30.0]})
    model = gp.MockModel(lambda request: {"A": 1.0, "B": 0.0})

    answer = gp.ask(gray_pool(9, step=10.0), QUESTION, model=model, selector=f"keyframes:{path}", k=3)

    assert answer.selection.indices == (1, 3)
    assert any("nearest frames are used, up to 2.00 s away" in warning for warning in answer.warnings)
    assert len(model.requests) == 1 and answer.cost.probe.tflops == 0
    with pytest.raises(UsageError, match="keeps the frames its file names; frames=8 does not fit"):
        gp.ask(gray_pool(9), QUESTION, model=model, selector=f"keyframes:{path}", frames=8)


def test_a_question_needs_an_id_that_is_in_the_file() -> None:
    chosen = Keyframes({"v1-a": Chosen((20.0,))}, "k.json")

    with pytest.raises(DataError, match=r"k\.json holds no question with the id 'v9-z'"):
        chosen.select(gray_pool(4), gp.Question("?", ["a", "b"], id="v9-z"))
    with pytest.raises(UsageError, match="this one has none"):
        chosen.select(gray_pool(4), gp.Question("?", ["a", "b"]))


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ([], "must be an object"),
        ({}, "1 to 4096 numbers"),
        ({"times": []}, "1 to 4096 numbers"),
        ({"times": list(range(MAX_FRAMES + 1))}, "1 to 4096 numbers"),
        ({"times": "12"}, "1 to 4096 numbers"),
        ({"times": [1, True]}, "finite numbers that ascend"),
        ({"times": [2, 1]}, "finite numbers that ascend"),
        ({"times": [1e300]}, "finite numbers that ascend"),
        ({"times": [1, 2], "indices": [1]}, "as many as"),
        ({"times": [1], "indices": [-1]}, "at least 0"),
        ({"times": [1], "indices": [1.0]}, "at least 0"),
        ({"times": [1, 2], "indices": [2, 2]}, "must ascend"),
        ({"times": [1], "indices": [9], "pool": 9}, "larger than any index"),
    ],
)
def test_a_bad_entry_is_named(tmp_path: Path, entry: Any, rule: str) -> None:
    with pytest.raises(DataError, match=rf"question 'v1-a': .*{rule}"):
        Keyframes.read(file(tmp_path, entry))


@pytest.mark.parametrize(
    "changes",
    [{"schema": "other/1"}, {"questions": {}}, {"questions": []}, {"questions": {"a": {"times": [float("inf")]}}}],
)
def test_a_bad_file_is_an_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"keyframes\.json"):
        Keyframes.read(file(tmp_path, {"times": [1]}, **changes))


def test_a_file_of_any_size_or_depth_is_refused_and_not_swallowed(tmp_path: Path) -> None:
    deep, large = tmp_path / "deep.json", tmp_path / "large.json"
    deep.write_text("[" * 100_000)
    with large.open("wb") as sparse:
        sparse.truncate(MAX_BYTES + 1)

    with pytest.raises(DataError, match="cannot read"):
        Keyframes.read(deep)
    with pytest.raises(DataError, match="larger than 256 MiB"):
        Keyframes.read(large)
    with pytest.raises(UsageError, match="--keyframes"):
        Keyframes.read(tmp_path / "none.json")


class TestFrameNumbers:
    """Files of AKS and LongVideoBench name frames by number."""

    ROWS: ClassVar = [{"id": "v1-a", "frame_idx": [60, 30, 60], "video": "v1.mp4"}, {"id": "v1-b", "frame_idx": [0]}]

    @pytest.mark.parametrize(
        "text",
        [
            json.dumps(ROWS),
            json.dumps(ROWS, indent=2),
            "\n".join(map(json.dumps, ROWS)),
            json.dumps({"v1-a": [30, 60], "v1-b": [0]}),
            json.dumps(ROWS[0]),
        ],
        ids=["list", "indented", "lines", "object", "one line"],
    )
    def test_numbers_are_seconds_at_one_frame_a_second(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "aks.json"
        path.write_text(text)

        chosen = Keyframes.read(f"{path}#fps=1")

        assert chosen.select(gray_pool(9, step=10.0), QUESTION).indices == (3, 6)
        assert chosen.describe()["fps"] == 1.0 and chosen.describe()["file"] == str(path)

    def test_numbers_count_the_frames_of_the_video(self, tmp_path: Path) -> None:
        path, clip = tmp_path / "aks.json", numbered_video(tmp_path / "clip.mp4", 50)
        path.write_text(json.dumps({"v1-a": [0, 26, 49]}))
        model = gp.MockModel(lambda request: {"A": 1.0, "B": 0.0})

        answer = gp.ask(clip, QUESTION, model=model, selector=f"keyframes:{path}", k=7)

        rate = answer.pool.info.fps if answer.pool.info else None
        assert rate is not None
        assert answer.selection.timestamps == pytest.approx([0.0, 26 / rate, 49 / rate], abs=1.01 / rate)

    def test_without_a_rate_they_mean_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "aks.json"
        path.write_text(json.dumps({"v1-a": [3]}))

        with pytest.raises(UsageError, match=r"the frame rate is not known; give it: .*#fps=30"):
            Keyframes.read(path).select(gray_pool(9), QUESTION)

    @pytest.mark.parametrize(
        ("content", "rule"),
        [
            ([[1, 2], [3]], 'an object with an "id"'),
            ([{"id": "a"}], 'no list "frame_idx"'),
            ([{"id": "a", "frame_idx": [1]}, {"id": "a", "frame_idx": [2]}], "an id occurs twice"),
            ({"a": []}, "1 to 4096 numbers"),
            ({"a": [1.5]}, "whole numbers from 0"),
            ({"a": [-1]}, "whole numbers from 0"),
            ([], 'an object with an "id"'),
        ],
    )
    def test_bad_numbers_are_named(self, content: Any, rule: str, tmp_path: Path) -> None:
        path = tmp_path / "aks.json"
        path.write_text(json.dumps(content))

        with pytest.raises(DataError, match=rf"aks\.json.*{rule}"):
            Keyframes.read(f"{path}#fps=1")

    def test_a_rate_of_nothing_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "aks.json"
        path.write_text(json.dumps({"a": [1]}))

        with pytest.raises(DataError, match="fps must be above 0"):
            Keyframes.read(f"{path}#fps=0")
