"""Kept frames and clips as files."""

import io
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

import gridprobe as gp
from gridprobe.report.terminal import (
    SHEET,
    check_clip,
    check_folder,
    frame_name,
    save_clip,
    save_frames,
)
from gridprobe.report.view import AnswerView
from gridprobe.video import VideoLimits
from report.answers import by_frame, handmade, without_map
from videos import numbered_video, read_number

FPS = 25


@pytest.mark.parametrize(
    ("time", "name"),
    [
        (160.25, "frame-0h02m40.25s.jpg"),
        (59.999, "frame-0h01m00.00s.jpg"),
        (3725.5, "frame-1h02m05.50s.jpg"),
        (0.0, "frame-0h00m00.00s.jpg"),
    ],
)
def test_names_are_times(time: float, name: str) -> None:
    assert frame_name(time) == name


def test_kept_frames_and_the_sheet_are_saved(tmp_path: Path) -> None:
    orange = np.full((9, 36, 64, 3), (200, 100, 40), np.uint8)
    save_frames(handmade(kept=(1, 4), pixels=orange), tmp_path / "frames")

    files = sorted(file.name for file in (tmp_path / "frames").iterdir())
    assert files == [SHEET, "frame-0h10m00.00s.jpg", "frame-0h40m00.00s.jpg"]
    with Image.open(tmp_path / "frames" / files[1]) as image:
        assert (image.format, image.size) == ("JPEG", (64, 36))
        assert image.getpixel((30, 18)) == pytest.approx((200, 100, 40), abs=3)
    with Image.open(tmp_path / "frames" / SHEET) as image:
        assert image.format == "JPEG" and image.width > 1000


def test_the_stretches_surround_the_main_frames_and_are_joined() -> None:
    answer = by_frame(tuple(1.0 if i in (2, 4, 20) else 0.0 for i in range(36)), kept=(2, 4, 20, 30))
    close = replace(answer, pool=replace(answer.pool, times=tuple(4.0 * i for i in range(36))))
    quick = replace(answer, pool=replace(answer.pool, times=tuple(0.5 * i for i in range(36))))

    assert AnswerView(close).clip_stretches == [(6.0, 10.0), (14.0, 18.0), (78.0, 82.0)]
    assert AnswerView(quick).clip_stretches == [(0.0, 3.0), (9.0, 11.0)]
    assert AnswerView(without_map(handmade(), tuple(range(9)))).clip_stretches == []


def test_a_clip_shows_the_kept_frames(tmp_path: Path) -> None:
    video = numbered_video(tmp_path / "numbered.mp4", 500, fps=FPS, gop=10)
    model = gp.MockModel(lambda request: {"A": 1.0, "B": 1.0 + max(request.frames.times)})
    answer = gp.ask(video, gp.Question("When?", ["early", "late"]), model=model, selector="uniform", k=3, frames=2)

    made = save_clip(answer, video, tmp_path / "clip.mp4", limits=VideoLimits())

    assert made is not None and made.copied
    with av.open(io.BytesIO((tmp_path / "clip.mp4").read_bytes())) as container:
        shown = {read_number(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)}
    assert {round(time * FPS) for time in answer.selection.timestamps} <= shown and len(shown) < 250


def test_an_answer_that_points_nowhere_makes_no_clip(tmp_path: Path) -> None:
    answer = without_map(handmade(), tuple(range(9)))

    assert save_clip(answer, tmp_path / "video.mp4", tmp_path / "clip.mp4", limits=VideoLimits()) is None
    assert not (tmp_path / "clip.mp4").exists()


def test_folders_are_checked(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, words in (("full", "not empty"), ("full/x", "not a folder"), ("missing/new", "does not exist")):
        with pytest.raises(gp.UsageError, match=words):
            check_folder(tmp_path / name)
    check_folder(tmp_path / "empty")
    check_folder(tmp_path / "new")


def test_clips_are_checked(tmp_path: Path) -> None:
    video = tmp_path / "video.mp4"
    for path, source, words in (
        (tmp_path / "clip.gif", video, "must end in"),
        (tmp_path / "missing" / "clip.mp4", video, "does not exist"),
        (tmp_path / "clip.mp4", tmp_path, "folder of pictures"),
        (video, video, "the video itself"),
    ):
        with pytest.raises(gp.UsageError, match=words):
            check_clip(path, source)
    check_clip(tmp_path / "clip.mkv", video)
