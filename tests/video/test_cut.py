"""Segments of a video as a file: the right frames, no gaps, copied where that is possible."""

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from gridprobe.errors import UsageError, VideoError
from gridprobe.video import Cut, cut
from videos import numbered_video, read_number

SEGMENTS = [(2.0, 3.0), (3.3, 3.6), (6.0, 7.0)]
"""Frames 50 to 75, 82 to 90 and 150 to 175 at 25 frames per second."""
WANTED = {*range(50, 76), *range(83, 91), *range(150, 176)}
SIZED: dict[str, dict[str, Any]] = {
    "h264.mp4": {},
    "h264.mkv": {},
    "h264.ts": {},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "mpeg4.avi": {"codec": "mpeg4"},
}
ENCODED: dict[str, dict[str, Any]] = {
    "raw.h264": {"container": "h264"},
    "reordered.avi": {},
    "sorenson.flv": {"codec": "flv"},
}


def frames_of(made: Cut) -> list[tuple[float, int]]:
    """The time and the number of every frame."""
    with av.open(io.BytesIO(made.content)) as container:
        return [
            (frame.time or 0.0, read_number(frame.to_ndarray(format="rgb24"))) for frame in container.decode(video=0)
        ]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("name", SIZED)
def test_packets_are_copied_from_the_keyframe_before(tmp_path: Path, name: str, suffix: str) -> None:
    video = numbered_video(tmp_path / name, 250, gop=12, **SIZED[name])

    made = cut(video, SEGMENTS, suffix=suffix)
    times, numbers = zip(*frames_of(made), strict=True)

    assert made.copied
    assert set(numbers) >= WANTED and list(numbers) == sorted(set(numbers))
    for start in (50, 150):  # keyframes are at most 12 frames apart
        assert start - 12 < min(number for number in numbers if number > start - 20) <= start
    assert len(numbers) <= len(WANTED) + 3 * (12 + 4)  # from the keyframe on, and a reordered group at each end
    assert all(later - earlier == pytest.approx(0.04, abs=0.002) for earlier, later in pairwise(times))


@pytest.mark.parametrize("name", ENCODED)
def test_what_cannot_be_copied_is_encoded_exactly(tmp_path: Path, name: str) -> None:
    video = numbered_video(tmp_path / name, 250, **ENCODED[name])

    made = cut(video, SEGMENTS, suffix=".mp4")
    times, numbers = zip(*frames_of(made), strict=True)

    assert not made.copied
    assert len(set(numbers) ^ WANTED) <= 3  # a time between two frames may fall on either
    assert all(later - earlier == pytest.approx(0.04, abs=0.002) for earlier, later in pairwise(times))


def test_two_stretches_in_one_group_of_pictures_repeat_nothing(tmp_path: Path) -> None:
    video = numbered_video(tmp_path / "long.mp4", 250, gop=250)

    numbers = [number for _, number in frames_of(cut(video, [(1.0, 2.0), (3.0, 4.0)], suffix=".mp4"))]

    assert (
        numbers == sorted(set(numbers)) and numbers[0] == 0 and set(range(25, 51)) | set(range(75, 101)) <= set(numbers)
    )


def test_a_stretch_beyond_the_end_stops_there(tmp_path: Path) -> None:
    video = numbered_video(tmp_path / "short.mp4", 50)

    assert frames_of(cut(video, [(1.5, 99.0)], suffix=".mp4"))[-1][1] == 49


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    video = numbered_video(tmp_path / "short.mp4", 50)
    with pytest.raises(UsageError, match=r"must end in \.mp4, \.mov, \.mkv, got '\.gif'"):
        cut(video, SEGMENTS, suffix=".gif")
    with pytest.raises(UsageError, match="folder of pictures"):
        cut(tmp_path, SEGMENTS, suffix=".mp4")
    with pytest.raises(VideoError, match="no frame between 80 s and 90 s"):
        cut(numbered_video(tmp_path / "raw.h264", 50, container="h264"), [(80.0, 90.0)], suffix=".mp4")
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(VideoError, match=r"text\.mp4"):
        cut(tmp_path / "text.mp4", SEGMENTS, suffix=".mp4")


def test_sizes_survive(tmp_path: Path) -> None:
    video = numbered_video(tmp_path / "odd.avi", 60, size=(250, 62))

    with av.open(io.BytesIO(cut(video, [(0.5, 1.0)], suffix=".mp4").content)) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert frame.shape == (62, 250, 3) and frame.dtype == np.uint8
