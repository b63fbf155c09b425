"""V23: a file that changes while it is read. Frames of two files must never come out under one fingerprint."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridprobe.errors import VideoError
from gridprobe.video import FrameSize, decode, sample
from gridprobe.video.sampling import make_plan
from videos import numbered_video

SMALL = FrameSize(max_side=256)


@pytest.fixture
def video(clip: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(clip, tmp_path / "video.mp4"))


def refused(video: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> str:
    """The message when `change` happens between the plan and the reading."""

    def planned(*args: Any, **options: Any) -> object:
        plan = make_plan(*args, **options)
        change()
        return plan

    monkeypatch.setattr(decode, "make_plan", planned)
    with pytest.raises(VideoError) as caught:
        sample(video, num_frames=4, size=SMALL)
    return str(caught.value)


# V23 of tests/reliability.md
def test_deleted(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(video, monkeypatch, video.unlink)
    assert message == f"{video}: the file was deleted or moved while it was in use"


# V23 of tests/reliability.md
def test_replaced_by_another_video(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = numbered_video(video.with_name("other.mp4"), 300)
    message = refused(video, monkeypatch, lambda: os.replace(other, video))
    assert message == f"{video}: the file changed while it was in use; try again when it is complete"


def test_replaced_by_a_copy_of_the_same_age_and_size(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Path(shutil.copy2(video, video.with_name("other.mp4")))
    assert "changed while it was in use" in refused(video, monkeypatch, lambda: os.replace(other, video))


# V23 of tests/reliability.md
def test_truncated(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = video.stat().st_size // 2
    assert "changed while it was in use" in refused(video, monkeypatch, lambda: os.truncate(video, cut))


def test_appended_to(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grown = video.read_bytes() + bytes(9)
    assert "changed while it was in use" in refused(video, monkeypatch, lambda: video.write_bytes(grown))


def test_read_by_others(video: Path) -> None:
    video.read_bytes()
    os.chmod(video, 0o400)
    assert len(sample(video, num_frames=4, size=SMALL)) == 4
