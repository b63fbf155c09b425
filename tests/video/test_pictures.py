"""Frames come out upright, in square pixels, in 8-bit RGB of the right colours."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from gridprobe.video import NATIVE, FrameCache, FrameSize, Video, probe, sample
from videos import Pixels, numbered_video, picture_video, read_number, turn_by_matrix

CORNERS = {"top left": (255, 0, 0), "top right": (0, 255, 0), "bottom left": (0, 0, 255), "bottom right": (255, 255, 0)}


def corners(width: int, height: int) -> Pixels:
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    for name, colour in CORNERS.items():
        rows = slice(0, height // 2) if "top" in name else slice(height // 2, None)
        columns = slice(0, width // 2) if "left" in name else slice(width // 2, None)
        picture[rows, columns] = colour
    return picture


def colour_at(frame: Pixels, corner: str) -> str:
    """Which of the four colours a corner of the frame shows."""
    height, width = frame.shape[:2]
    y = height // 8 if "top" in corner else height - height // 8
    x = width // 8 if "left" in corner else width - width // 8
    pixel = frame[y, x].astype(int)
    return min(CORNERS, key=lambda name: np.abs(pixel - CORNERS[name]).sum())


# V13 of tests/reliability.md
@pytest.mark.parametrize(
    ("degrees", "goes_to_top_left"), [(0, "top left"), (90, "bottom left"), (180, "bottom right"), (270, "top right")]
)
def test_rotation_by_the_display_matrix(tmp_path: Path, degrees: int, goes_to_top_left: str) -> None:
    """Turned clockwise by 90°, what was stored bottom left is shown top left."""
    path = picture_video(tmp_path / "turned.mp4", corners(320, 192))
    if degrees:
        turn_by_matrix(path, degrees)
    pool = sample(path, num_frames=1)
    upright = (192, 320) if degrees in (90, 270) else (320, 192)
    assert (pool.width, pool.height) == upright
    info = probe(path)
    assert (info.width, info.height) == upright
    assert info.rotation == -degrees % 360
    assert colour_at(pool.pixels[0], "top left") == goes_to_top_left
    stored = np.rot90(corners(320, 192), -degrees // 90)
    for corner in CORNERS:
        assert colour_at(pool.pixels[0], corner) == colour_at(stored, corner)
    for _ in range(2):  # decoded, and then from the cache on disk
        kept = Video(path, num_frames=1, cache=FrameCache(tmp_path / "cache", 10**8)).pool()
        assert kept.info is not None and (kept.info.width, kept.info.height) == upright
        assert np.array_equal(kept.pixels, pool.pixels)


# V14 of tests/reliability.md
@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("odd.mkv", (321, 181), {"pixel_format": "yuv444p"}),
        ("ten.mp4", (256, 64), {"pixel_format": "yuv420p10le"}),
        ("full.mp4", (256, 64), {"pixel_format": "yuvj420p"}),
        ("hevc10.mp4", (256, 64), {"pixel_format": "yuv420p10le", "codec": "libx265"}),
        ("rgb.mkv", (256, 64), {"pixel_format": "bgr0", "codec": "ffv1"}),
        ("422.mp4", (256, 64), {"pixel_format": "yuv422p"}),
    ],
)
def test_pixel_formats(tmp_path: Path, name: str, size: tuple[int, int], options: dict[str, str]) -> None:
    path = numbered_video(tmp_path / name, 20, size=size, **options)  # type: ignore[arg-type]
    pool = sample(path, num_frames=20)
    assert pool.pixels.dtype == np.uint8
    assert (pool.width, pool.height) == NATIVE.fit(*size)
    assert [read_number(frame) for frame in pool.pixels] == list(range(20))
    assert pool.pixels.min() < 12 and pool.pixels.max() > 243
    assert pool.info is not None and (pool.info.width, pool.info.height) == size


# V14 of tests/reliability.md
@pytest.mark.parametrize(
    ("pixel_format", "codec"),
    [
        ("yuv420p", "libx264"),
        ("yuvj420p", "libx264"),
        ("yuv422p", "libx264"),
        ("yuv444p", "libx264"),
        ("yuv420p10le", "libx264"),
        ("yuv420p10le", "libx265"),
    ],
)
def test_grey_levels_are_those_of_the_picture(tmp_path: Path, pixel_format: str, codec: str) -> None:
    """A range that is misread moves dark and bright levels by up to 16, ten bits read as eight by far more."""
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (64, 256, 3)).copy()
    options = {"crf": "1"} if codec == "libx264" else {"x265-params": "crf=1:log-level=none"}
    path = tmp_path / "ramp.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 256, 64, pixel_format
        for number in range(5):
            frame = av.VideoFrame.from_ndarray(ramp, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    apart = np.abs(sample(path, num_frames=1).pixels[0].astype(int) - ramp)
    assert apart.max() <= 6 and apart.mean() < 2


# V16 of tests/reliability.md
@pytest.mark.parametrize(("name", "codec"), [("two.mkv", "ffv1"), ("two.mp4", "libx264")])
def test_two_by_two_pixels(tmp_path: Path, name: str, codec: str) -> None:
    path = numbered_video(tmp_path / name, 4, size=(2, 2), codec=codec, pixel_format="yuv420p")
    assert sample(path, num_frames=4).pixels.shape == (4, 2, 2, 3)


@pytest.mark.parametrize("space", [1, 6])  # BT.709 and BT.601
def test_colours_follow_the_tagged_matrix(tmp_path: Path, space: int) -> None:
    path = tmp_path / "colours.mkv"
    picture = corners(128, 128)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "1"})
        stream.width, stream.height, stream.pix_fmt = 128, 128, "yuv444p"
        stream.codec_context.colorspace = space
        frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv444p", dst_colorspace=space)
        output.mux(stream.encode(frame))
        output.mux(stream.encode())
    shown = sample(path, num_frames=1).pixels[0].astype(int)
    inside = np.abs(shown - picture)[[16, 16, 112, 112], [16, 112, 16, 112]]
    assert inside.max() < 12


def test_sample_aspect_ratio_gives_square_pixels(tmp_path: Path) -> None:
    path = numbered_video(tmp_path / "sar.mp4", 5, size=(256, 192), aspect=Fraction(3, 2))
    info = probe(path)
    assert (info.width, info.height) == (384, 192)
    pool = sample(path, num_frames=2)
    assert (pool.width, pool.height) == (384, 192)
    assert [read_number(frame) for frame in pool.pixels] == [1, 3]


def test_size_is_the_callers(clip: Path) -> None:
    assert sample(clip, num_frames=2, size=FrameSize(square=96)).pixels.shape == (2, 96, 96, 3)
    pool = sample(clip, num_frames=4, size=FrameSize(max_side=128))
    assert (pool.width, pool.height) == (128, 32)
    assert [read_number(frame) for frame in pool.pixels] == [37, 112, 187, 262]


def test_size_changing_in_mid_stream(tmp_path: Path) -> None:
    """Two raw streams one after the other: the pool keeps the first one's size."""
    first = numbered_video(tmp_path / "first.h264", 20, size=(256, 64))
    second = numbered_video(tmp_path / "second.h264", 20, size=(512, 128))
    path = tmp_path / "both.h264"
    path.write_bytes(first.read_bytes() + second.read_bytes())
    pool = sample(path, num_frames=40)
    assert (pool.width, pool.height) == (256, 64)
    assert [read_number(frame) for frame in pool.pixels] == [*range(20), *range(20)]


# V14 of tests/reliability.md
@pytest.mark.parametrize(("transfer", "hdr"), [("16", True), ("18", True), ("1", False)])
def test_hdr_is_said_not_hidden(tmp_path: Path, transfer: str, hdr: bool) -> None:
    path = numbered_video(
        tmp_path / "hdr.mkv", 3, pixel_format="yuv420p10le", options={"color_trc": transfer, "colorspace": "9"}
    )
    pool = sample(path, num_frames=3)
    assert pool.info is not None and pool.info.hdr is hdr
    assert any("tones are not mapped" in text for text in pool.warnings) is hdr


def test_info_of_a_plain_clip(clip: Path) -> None:
    info = probe(clip)
    assert (info.container, info.codec, info.pixel_format) == ("mov,mp4,m4a,3gp,3g2,mj2", "h264", "yuv420p")
    assert (info.duration, info.frames, info.fps, info.start_time) == (12.0, 300, 25.0, 0.0)
    assert info.duration_found is None and info.frames_found is None
    assert info.decoder == f"PyAV {av.__version__}, h264"
    answer = info.to_dict()
    assert answer["path"] == str(clip)
    assert {"path", "duration", "fps", "frames", "width", "height", "decoder"} <= answer.keys()


def test_what_was_found_goes_before_the_header(clip: Path) -> None:
    from dataclasses import replace

    info = replace(probe(clip), duration_found=5.0, frames_found=125)
    assert (info.duration, info.frames) == (5.0, 125)
