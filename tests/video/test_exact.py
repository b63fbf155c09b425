"""The right frame with the right time, for every container and codec: frames carry their number, so pixels prove it."""

from fractions import Fraction
from math import floor
from pathlib import Path

import av
import numpy as np
import pytest

from gridprobe.video import FrameSize, reader, sample
from gridprobe.video.frames import FramePool
from videos import numbered_video, read_number, remux

SMALL = FrameSize(max_side=256)
OPEN_GOP = {"x265-params": "log-level=none:open-gop=1:keyint=20:min-keyint=20:bframes=4"}


def numbers(pool: FramePool) -> list[int]:
    return [read_number(frame) for frame in pool.pixels]


def assert_exact(
    path: Path, *, frames: int, fps: int = 25, num_frames: int = 16, warnings: tuple[str, ...] = ()
) -> None:
    """Both samplings give the frames that arithmetic says, at the times that arithmetic says."""
    middle = sample(path, num_frames=num_frames, size=SMALL)
    expected = [floor(Fraction(frames * (2 * i + 1), 2 * num_frames)) for i in range(num_frames)]
    assert numbers(middle) == expected
    assert middle.times == pytest.approx([n / fps for n in expected], abs=0.0011)
    linspace = sample(path, num_frames=num_frames, sampling="linspace", size=SMALL)
    expected = np.linspace(0, frames - 1, num_frames).round().astype(int).tolist()
    assert numbers(linspace) == expected
    assert linspace.times == pytest.approx([n / fps for n in expected], abs=0.0011)
    assert middle.warnings == linspace.warnings == warnings
    assert middle.info is not None and middle.info.duration == pytest.approx(frames / fps, abs=0.0011)
    assert linspace.info is not None and linspace.info.frames == frames


@pytest.mark.parametrize("cells", [1, 2, 9, 25, 144, 300])
def test_mp4_with_b_frames(clip: Path, cells: int) -> None:
    assert_exact(clip, frames=300, num_frames=cells)


@pytest.mark.parametrize("k", range(1, 17))
def test_every_grid_gets_the_frames_that_arithmetic_says(faststart: Path, k: int) -> None:
    """D01; rows and columns of these are `tests/test_grid.py`."""
    assert_exact(faststart, frames=1500, num_frames=k * k)


def test_the_first_decoding_stamp_may_be_negative(clip: Path) -> None:
    """V12: with B-frames the first packet is decoded before the presentation starts."""
    with av.open(str(clip)) as container:
        stamp = next(container.demux(video=0)).dts
        assert stamp is not None and stamp < 0
    assert sample(clip, num_frames=300, size=SMALL).times[0] == 0.0


# V15 of tests/reliability.md
@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mkv", "libx264", {}),
        ("open.mp4", "libx264", {"x264-params": "open-gop=1:keyint=20:min-keyint=20"}),
        ("a.webm", "libvpx-vp9", {}),
        ("vp8.webm", "libvpx", {"deadline": "realtime", "b": "4M"}),
        ("prores.mov", "prores_ks", {}),
        ("a.ts", "libx264", {}),
        ("hevc.mp4", "libx265", OPEN_GOP),
        ("hevc.ts", "libx265", OPEN_GOP),
        ("a.flv", "libx264", {}),
        ("bframes.avi", "libx264", {}),
        ("plain.avi", "mpeg4", {}),
        ("asp.avi", "mpeg4", {"bf": "2"}),
        ("a.mov", "mjpeg", {}),
        ("raw.h264", "libx264", {}),
        ("raw.hevc", "libx265", {}),
    ],
)
def test_containers_and_codecs(made: Path, name: str, codec: str, options: dict[str, str]) -> None:
    pixel_format = {"mjpeg": "yuvj420p", "prores_ks": "yuv422p10le"}.get(codec, "yuv420p")
    path = numbered_video(made / name, 130, codec=codec, options=options, pixel_format=pixel_format)
    assert_exact(path, frames=130)


# V15 of tests/reliability.md
def test_gif(made: Path) -> None:
    assert_exact(numbered_video(made / "a.gif", 60, codec="gif", pixel_format="rgb8"), frames=60)


# V15 of tests/reliability.md
def test_av1(made: Path) -> None:
    path = numbered_video(made / "av1.mp4", 40, codec="libsvtav1", options={"preset": "12"}, size=(256, 64))
    assert_exact(path, frames=40)


# V11 of tests/reliability.md
def test_live_webm_without_a_duration(made: Path) -> None:
    path = numbered_video(made / "live.webm", 100, codec="libvpx-vp9", container_options={"live": "1"})
    with av.open(str(path)) as container:
        assert container.duration is None
    assert_exact(path, frames=100)
    info = sample(path, num_frames=1, size=SMALL).info
    assert info is not None and info.duration_header is None and info.duration_found == pytest.approx(4.0)


# V12 of tests/reliability.md
@pytest.mark.parametrize("name", ["late.ts", "late.mkv", "late.mp4", "late.flv"])
def test_times_count_from_the_presentation_start(made: Path, name: str) -> None:
    plain = numbered_video(made / "plain.mp4", 200)
    path = remux(plain, made / name, offset=700.0)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.start_time is not None and stream.time_base
        assert float(stream.start_time * stream.time_base) > 600
    late = (
        "the first frame is shown 700.0 s after the start of the file; times count from the first frame, so those of "
        "players and subtitles are 700.0 s later"
    )
    assert_exact(path, frames=200, warnings=(late,) if name == "late.mp4" else ())


def test_edit_list_hides_the_frames_it_cuts(made: Path) -> None:
    """V12: a stream copy that starts between keyframes: the player shows frames from 30 on, and so do we."""
    plain = numbered_video(made / "uncut.mp4", 100, gop=50)
    cut = remux(plain, made / "cut.mp4", offset=-30 / 25)
    pool = sample(cut, num_frames=7, sampling="linspace", size=SMALL)
    assert numbers(pool) == np.linspace(30, 99, 7).round().astype(int).tolist()
    assert pool.info is not None and pool.info.frames == 70
    assert pool.times == pytest.approx([(n - 30) / 25 for n in numbers(pool)], abs=0.001)
    assert pool.times[0] == 0.0


# V10 of tests/reliability.md
@pytest.mark.parametrize("name", ["vfr.mp4", "vfr.mkv"])
def test_variable_rate_is_sampled_evenly_in_time(made: Path, name: str) -> None:
    pts_list = [25 * i for i in range(10)] + [250 + i for i in range(250)]  # 10 s at 1 fps, then 10 s at 25 fps
    path = numbered_video(made / name, 260, ticks=pts_list)
    pool = sample(path, num_frames=20, size=SMALL)
    shown = [max(n for n, pts in enumerate(pts_list) if pts <= 25 * (i + 0.5)) for i in range(20)]
    assert numbers(pool) == list(dict.fromkeys(shown))
    assert pool.times == pytest.approx([pts_list[n] / 25 for n in dict.fromkeys(shown)], abs=0.001)


def test_a_frame_starting_exactly_at_the_target_is_shown(made: Path) -> None:
    path = numbered_video(made / "boundary.mp4", 30, fps=10)
    assert numbers(sample(path, num_frames=15, size=SMALL)) == list(range(1, 30, 2))


# V09 of tests/reliability.md
@pytest.mark.parametrize("frames", [1, 3])
def test_short_videos_give_each_frame_once(made: Path, frames: int) -> None:
    path = numbered_video(made / f"short{frames}.mp4", frames)
    for sampling in ("middle", "linspace"):
        pool = sample(path, num_frames=144, sampling=sampling, size=SMALL)
        assert numbers(pool) == list(range(frames))
        assert pool.times == pytest.approx([n / 25 for n in range(frames)])
        assert pool.warnings == (
            f"the video shows only {frames} distinct frames at the 144 sampled times; the grid has {frames} cells",
        )


def count_decoded(path: Path, cells: int, readers: list[reader.Reader]) -> tuple[int, FramePool]:
    pool = sample(path, num_frames=cells, size=SMALL)
    return sum(each.decoded for each in readers), pool


# V19 of tests/reliability.md
@pytest.mark.parametrize("name", ["giant.mp4", "giant.ts"])
def test_one_giant_gop_is_decoded_once(made: Path, readers: list[reader.Reader], name: str) -> None:
    path = numbered_video(made / name, 600, gop=9999, options={"sc_threshold": "0"})
    decoded, pool = count_decoded(path, 100, readers)
    assert numbers(pool) == [6 * i + 3 for i in range(100)]
    assert decoded <= 600


@pytest.mark.parametrize("name", ["long.mp4", "long.ts", "long.mkv"])
def test_a_long_file_is_not_walked(made: Path, readers: list[reader.Reader], name: str) -> None:
    """12,000 frames with a keyframe every 12: nine targets need some hundred frames, not thousands."""
    short = numbered_video(made / "loop.mp4", 1200)
    path = remux(short, made / name, loops=10)
    decoded, pool = count_decoded(path, 9, readers)
    expected = [floor(Fraction(12000 * (2 * i + 1), 18)) for i in range(9)]
    assert numbers(pool) == [n % 1200 for n in expected]
    assert pool.times == pytest.approx([n / 25 for n in expected], abs=0.0011)
    assert decoded < 9 * 40


def test_sampling_twice_gives_the_same_bytes(clip: Path) -> None:
    first, second = (sample(clip, num_frames=16) for _ in range(2))
    assert first.keys == second.keys
    assert np.array_equal(first.pixels, second.pixels)
    assert len(first.source) == 64
