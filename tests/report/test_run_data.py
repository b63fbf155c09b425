"""The data of a run page: questions without options, lengths of videos, thumbnails of the very frames a run kept."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from evaluation_runs import item, record, selection, spec_of, write_run
from gridprobe.errors import DataError
from gridprobe.video import Video
from gridprobe_eval.reader import Run, read_run, read_runs
from gridprobe_eval.report.run_data import MOST, RESULT, make_thumbnails, pack
from videos import numbered_video


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


# Thumbnails.


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("clips") / "clip.mp4"
    numbered_video(file, 90)
    return file


def run(folder: Path, video: Path, *, k: int = 3, indices: tuple[int, ...] = (1, 4), shift: float = 0.0) -> Run:
    times = Video(video, num_frames=k * k).lazy().times if video.exists() else [0.0] * k * k
    kept: dict[str, Any] = selection(indices=list(indices), timestamps=[times[i] + shift for i in indices], pool=k * k)
    records = [record("v1-a", selection=kept)]
    return read_run(write_run(folder, [item("v1-a", video=str(video))], records, spec=spec_of(k=k)))


def test_the_kept_frames_are_shown_with_their_times(tmp_path: Path, clip: Path) -> None:
    mine = run(tmp_path / "r", clip)
    found, notes = make_thumbnails([mine])
    answered = mine.results[0].answered

    assert notes == [] and answered is not None
    assert [time for time, _ in found["r"]["v1-a"]] == answered.selection["timestamps"]
    for _, jpeg in found["r"]["v1-a"]:
        assert max(Image.open(io.BytesIO(base64.b64decode(jpeg))).size) <= 160


def test_many_are_thinned_out(tmp_path: Path, clip: Path) -> None:
    found, _ = make_thumbnails([run(tmp_path / "r", clip, k=5, indices=tuple(range(25)))])

    assert len(found["r"]["v1-a"]) == MOST


def test_frames_of_a_file_that_has_changed_are_not_shown(tmp_path: Path, clip: Path) -> None:
    found, notes = make_thumbnails([run(tmp_path / "r", clip, shift=0.2)])

    assert found == {"r": {}} and "different frames" in notes[0]


def test_a_video_that_is_gone_is_a_note(tmp_path: Path) -> None:
    found, notes = make_thumbnails([run(tmp_path / "r", tmp_path / "gone.mp4")])

    assert found == {"r": {}} and "1 videos have no thumbnails" in notes[0] and "gone.mp4" in notes[0]


def test_they_stay_within_their_bytes(tmp_path: Path, clip: Path) -> None:
    found, notes = make_thumbnails([run(tmp_path / "r", clip)], most_bytes=100)

    assert found == {"r": {}} and "thumbnails stop at 0.0001 MB" in notes[0]
