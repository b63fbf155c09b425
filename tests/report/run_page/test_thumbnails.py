"""Thumbnails: of the very frames the run kept, within their bytes, and never of a file that has changed."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from evaluation_runs import item, record, selection, spec_of, write_run
from gridprobe.evaluation.reader import Run, read_run
from gridprobe.report.run_data import MOST, make_thumbnails
from gridprobe.video import Footage
from videos import numbered_video


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("clips") / "clip.mp4"
    numbered_video(file, 90)
    return file


def run(folder: Path, video: Path, *, k: int = 3, indices: tuple[int, ...] = (1, 4), shift: float = 0.0) -> Run:
    times = Footage(video, cells=k * k).undecoded().times if video.exists() else [0.0] * k * k
    kept: dict[str, Any] = selection(indices=list(indices), timestamps=[times[i] + shift for i in indices], pool=k * k)
    records = [record("v1-a", selection=kept)]
    return read_run(write_run(folder, [item("v1-a", video=str(video))], records, spec=spec_of(k=k)))


def test_the_kept_frames_are_shown_with_their_times(tmp_path: Path, clip: Path) -> None:
    mine = run(tmp_path / "r", clip)
    found, notes = make_thumbnails([mine])
    answered = mine.results[0].answered

    assert notes == [] and answered is not None
    assert [time for time, _ in found["r"]["v1-a"]] == list(answered.times)
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
