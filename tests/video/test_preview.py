"""What would be decoded, told without decoding."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gridprobe.errors import UsageError, VideoError
from gridprobe.video import VideoLimits, decode, preview, reader
from gridprobe.video.decode import Way
from gridprobe.video.files import Deadline
from gridprobe.video.source import first_frame, open_video
from videos import numbered_video


@pytest.fixture(scope="module")
def video(made: Path) -> Path:
    """24 s, a key frame at 0, 40, 80 … and no B-frame, so every frame up to a target must be decoded."""
    return numbered_video(made / "outline.mp4", 600, gop=40, options={"sc_threshold": "0", "bf": "0"})


def ways(path: Path, **options: object) -> dict[str, Way]:
    return {way.precision: way for way in preview(path, num_frames=10, **options).ways}  # type: ignore[arg-type]


def test_the_sum_can_be_done_by_hand(video: Path) -> None:
    found = ways(video)  # moments at frames 30, 90, 150 …; their key frames at 0, 80, 120, 200, 240, 320 …
    exact = found["exact"]
    assert exact.times == pytest.approx([(30 + 60 * i) / 25 for i in range(10)])
    assert exact.decode == sum(target % 40 + 1 for target in range(30, 600, 60))
    assert (exact.groups, exact.key_frames) == (10, 0)
    assert exact.furthest == 0.0
    near = found["keyframe"]
    assert [round(time * 25) for time in near.times] == [40, 80, 160, 200, 280, 320, 400, 440, 520, 560]
    assert near.decode == near.groups == near.key_frames == 10
    assert near.furthest == pytest.approx(10 / 25)


def test_one_group_is_gone_through_once(made: Path) -> None:
    path = numbered_video(made / "outline_giant.mp4", 300, gop=999, options={"sc_threshold": "0", "bf": "0"})
    found = ways(path)["exact"]
    assert (found.groups, found.decode) == (1, 286)  # up to the last moment, frame 285


def test_facts_of_the_container(video: Path, made: Path) -> None:
    found = preview(video, num_frames=10)
    assert found.key_frames == 15
    assert found.to_dict()["cell_seconds"] == pytest.approx(2.4)
    assert found.to_dict()["precisions"]["exact"]["frames"] == 10
    assert preview(numbered_video(made / "outline.ts", 50), num_frames=4).key_frames is None


def test_nothing_is_decoded_but_the_first_frame(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.Reader, "__init__", lambda *_: pytest.fail("decoding"))
    look = Mock(wraps=first_frame)
    monkeypatch.setattr(decode, "first_frame", look)
    preview(video, num_frames=100)
    look.assert_called_once()


def test_limits_hold(video: Path, tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="took longer than"):
        preview(video, num_frames=10, limits=VideoLimits(seconds=1e-6))
    with pytest.raises(UsageError, match="a folder of pictures needs no plan"):
        preview(tmp_path, num_frames=4)


def test_all_passes_of_a_plan_share_one_limit(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A04: each pass over a GIF of 500,000 frames takes seconds; with a limit of its own each, a plan took several."""
    seen = []

    def watched(*given: Any, deadline: Deadline, **options: Any) -> Any:
        seen.append(deadline)
        return open_video(*given, deadline=deadline, **options)

    monkeypatch.setattr("gridprobe.video.decode.open_video", watched)
    preview(numbered_video(made / "shared.mp4", 50), num_frames=10)

    assert len({id(deadline) for deadline in seen}) == 2  # one to open, and what it left for the rest
