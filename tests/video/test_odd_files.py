"""Files that are not damaged but unusual: shown as players show them, or with a warning, or refused in a sentence."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.stream import VideoStream
from PIL import Image

import mp4
from gridprobe.errors import VideoError
from gridprobe.video import FrameSize, VideoLimits, probe, sample, source
from gridprobe.video.files import check_file, timestamps_restart
from gridprobe.video.source import Source
from videos import Pixels, numbered_video, picture_video, read_number, remux

SMALL = FrameSize(max_side=256)


def numbers(pool_pixels: Pixels) -> list[int]:
    return [read_number(frame) for frame in pool_pixels]


def with_edits(source: Path, target: Path, *edits: tuple[int, int]) -> Path:
    """The same MP4 with this edit list: milliseconds, and the media time they begin at (-1: nothing is shown)."""

    def change(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if kind != b"elst":
            return kind, body
        rows = b"".join(struct.pack(">IiI", length, at, 1 << 16) for length, at in edits)
        return kind, body[:4] + struct.pack(">I", len(edits)) + rows

    target.write_bytes(mp4.rebuilt(source.read_bytes(), change))
    return target


# Edit lists and clocks.


@pytest.mark.parametrize("precision", ["exact", "auto"])
def test_an_edit_list_that_cuts_off_the_end(made: Path, tmp_path: Path, precision: str) -> None:
    """20 s of media of which players show 4: frames 0 to 99."""
    whole = numbered_video(made / f"twenty_{precision}.mp4", 500, gop=50, options={"sc_threshold": "0"})
    path = with_edits(whole, tmp_path / "trimmed.mp4", (4000, 1024))
    pool = sample(path, num_frames=10, precision=precision, size=SMALL)  # type: ignore[arg-type]
    assert pool.info is not None and pool.info.duration == pytest.approx(4.0)
    assert numbers(pool.pixels) == [round(time * 25) for time in pool.times] == list(range(5, 100, 10))
    assert pool.warnings == ()
    keys = sample(path, num_frames=10, precision="keyframe", size=SMALL)
    assert numbers(keys.pixels) == [0, 50]  # not the keyframe at 4 s, which is not shown


def test_an_edit_list_that_delays_the_start_is_warned_of(clip: Path, tmp_path: Path) -> None:
    path = with_edits(clip, tmp_path / "delayed.mp4", (2000, -1), (12000, 1024))
    pool = sample(path, num_frames=10, size=SMALL)
    assert numbers(pool.pixels) == [round(time * 25) for time in pool.times]
    assert pool.warnings[0].startswith("the first frame is shown 2.0 s after the start of the file; times count from")


def test_timestamps_that_start_again_are_warned_of(tmp_path: Path) -> None:
    plain = numbered_video(tmp_path / "plain.ts", 200, gop=25)
    twice = tmp_path / "twice.ts"
    twice.write_bytes(plain.read_bytes() * 2)
    assert sample(plain, num_frames=8, size=SMALL).warnings == ()
    assert sample(twice, num_frames=8, size=SMALL).warnings == (
        "timestamps start again within the file, so a part of it may not be seen; join its parts anew",
    )


def clock_packet(clock: int, stream: int = 256) -> bytes:
    return struct.pack(">BHBBB", 0x47, stream, 0x30, 7, 0x10) + (clock << 7).to_bytes(5, "big") + bytes(177)


@pytest.mark.parametrize(
    ("clocks", "restarts"),
    [
        ([0, 9_000_000, 18_000_000], False),
        ([9_000_000, 8_950_000, 9_900_000], False),  # half a second back is jitter
        ([9_000_000, 18_000_000, 1_000], True),
        ([(1 << 33) - 90_000, 90_000], False),  # the clock is full and begins anew, as it must
    ],
)
def test_a_clock_that_is_full_has_not_started_again(tmp_path: Path, clocks: list[int], restarts: bool) -> None:
    path = tmp_path / "x.ts"
    path.write_bytes(b"\x11" * 50 + b"".join(clock_packet(clock) * 800 for clock in clocks))
    assert timestamps_restart(check_file(path)) is restarts


def test_a_stream_that_appears_in_the_middle(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyAV raises IndexError at the first packet of a stream that it did not know when it began."""
    original, calls = Source._demux, []

    def surprised(source: Source) -> Iterator[object]:
        for number, packet in enumerate(original(source)):
            yield packet
            if number % 7 == 6:
                calls.append(number)
                raise IndexError("list index out of range")

    monkeypatch.setattr(Source, "_demux", surprised)
    pool = sample(clip, num_frames=20, size=SMALL)
    assert calls and numbers(pool.pixels) == [round(time * 25) for time in pool.times] and pool.warnings == ()


def test_an_avi_that_was_cut_short(tmp_path: Path) -> None:
    whole = numbered_video(tmp_path / "whole.avi", 500, gop=25, codec="mpeg4")
    path = tmp_path / "cut.avi"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size * 6 // 10])
    assert sample(whole, num_frames=10, size=SMALL).warnings == ()
    assert (
        sample(path, num_frames=10, size=SMALL).warnings[0].startswith("the file is truncated: header says 20.0 s, 1")
    )


# Shapes and colours.

TURNS = {
    "as stored": (1, 0, 0, 1),
    "mirrored": (-1, 0, 0, 1),
    "upside down": (1, 0, 0, -1),
    "half a turn": (-1, 0, 0, -1),
    "a quarter clockwise": (0, 1, -1, 0),
    "a quarter back": (0, -1, 1, 0),
    "transposed": (0, 1, 1, 0),
    "transposed the other way": (0, -1, -1, 0),
}


def with_matrix(path: Path, matrix: tuple[float, float, float, float]) -> Path:
    data = bytearray(path.read_bytes())
    a, b, c, d = (round(value * (1 << 16)) for value in matrix)
    at = data.index(b"tkhd") + 4 + 40
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(bytes(data))
    return path


@pytest.mark.parametrize("name", TURNS)
def test_every_display_matrix_of_quarter_turns_and_mirrors(tmp_path: Path, name: str) -> None:
    """A stored point (x, y) is shown at (ax + cy, bx + dy), with y pointing down."""
    stored = np.zeros((96, 160, 3), np.uint8)
    stored[:48, :80], stored[:48, 80:], stored[48:, :80] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    a, b, c, d = TURNS[name]
    path = with_matrix(picture_video(tmp_path / "turned.mp4", stored), (a, b, c, d))
    shown = sample(path, num_frames=1).pixels[0].astype(int)
    assert shown.shape[:2] == ((96, 160) if a else (160, 96))
    for x, y in ((-1, -1), (1, -1), (-1, 1), (1, 1)):  # the corners, seen from the middle
        there_x, there_y = a * x + c * y, b * x + d * y
        row, column = (0 if there_y < 0 else shown.shape[0] - 1), (0 if there_x < 0 else shown.shape[1] - 1)
        true = stored[0 if y < 0 else 95, 0 if x < 0 else 159]
        assert np.abs(shown[row, column] - true).max() < 40, (x, y)


@pytest.mark.parametrize("matrix", [(0.7071, 0.7071, -0.7071, 0.7071), (1, 0, 1, 1), (0, 0, 0, 0)])
def test_other_display_matrices_are_refused(tmp_path: Path, matrix: tuple[float, float, float, float]) -> None:
    path = with_matrix(numbered_video(tmp_path / "tilted.mp4", 5), matrix)
    with pytest.raises(VideoError, match=r"tilted\.mp4: its display matrix is no quarter turn .*re-encode"):
        sample(path, num_frames=2)


def test_a_shape_that_changes_in_the_middle_is_warned_of(tmp_path: Path) -> None:
    wide = numbered_video(tmp_path / "wide.ts", 100, size=(256, 64), gop=25)
    square = remux(numbered_video(tmp_path / "square.ts", 100, size=(128, 128), gop=25), tmp_path / "b.ts", offset=4.0)
    path = tmp_path / "both.ts"
    path.write_bytes(wide.read_bytes() + square.read_bytes())
    pool = sample(path, num_frames=8, size=SMALL)
    assert (pool.width, pool.height) == (256, 64) and len(pool) == 8
    assert [text for text in pool.warnings if "aspect ratio" in text] == [
        "4 frames were of another aspect ratio than the first and stretched to its shape"
    ]


@pytest.mark.parametrize(("height", "rec709"), [(480, False), (720, True)])
def test_untagged_colours_are_those_that_players_assume(tmp_path: Path, height: int, rec709: bool) -> None:
    """Y 100, U 90, V 200 by the formulas of Rec. 601 and Rec. 709 for limited range."""
    path = tmp_path / "untagged.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "1", "preset": "ultrafast"})
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 640, height, "yuv420p"
        frame = av.VideoFrame(640, height, "yuv420p")
        for plane, value in zip(frame.planes, (100, 90, 200), strict=True):
            plane.update(bytes([value]) * plane.buffer_size)
        output.mux(stream.encode(frame))
        output.mux(stream.encode())
    kr, kb = (0.2126, 0.0722) if rec709 else (0.299, 0.114)
    luma, cb, cr = (100 - 16) / 219, (90 - 128) / 224, (200 - 128) / 224
    red, blue = luma + 2 * (1 - kr) * cr, luma + 2 * (1 - kb) * cb
    green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    true = np.clip([red * 255, green * 255, blue * 255], 0, 255)
    assert np.abs(sample(path, num_frames=1).pixels[0, 10, 10] - true).max() <= 3


@pytest.mark.parametrize(("name", "codec", "pixel_format"), [("a.wmv", "wmv2", "yuv420p"), ("a.apng", "apng", "rgb24")])
def test_formats_with_other_containers(tmp_path: Path, name: str, codec: str, pixel_format: str) -> None:
    path = numbered_video(tmp_path / name, 50, codec=codec, pixel_format=pixel_format)
    pool = sample(path, num_frames=10, size=SMALL)
    assert numbers(pool.pixels) == [round(time * 25) for time in pool.times] == list(range(2, 50, 5))


def test_frames_too_large_for_the_memory_are_refused_unread(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default those of more than 59 megapixels; 8000×8000 took 2.5 GB."""
    assert 7680 * 4320 * 9 < source.DECODER_BYTES < VideoLimits().memory < 8000 * 8000 * 9
    path = numbered_video(made / "wide_large.mp4", 2, size=(4096, 2304), options={"preset": "ultrafast"})
    assert probe(path, limits=VideoLimits(memory=80 << 20)).width == 4096
    monkeypatch.setattr(source, "DECODER_BYTES", 0)
    with pytest.raises(
        VideoError, match=r"decoding frames of 4096×2304 takes at least 81 MiB, more than 80; raise the"
    ):
        probe(path, limits=VideoLimits(memory=80 << 20))


# Folders of pictures.


def folder_of(folder: Path, *pictures: Image.Image) -> Path:
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number}.png")
    return folder


def test_grey_of_16_bits_keeps_its_levels(tmp_path: Path) -> None:
    levels = np.array([[0, 257 * 60, 257 * 128, 65535]], np.uint16).repeat(8, 0).repeat(8, 1)
    pool = sample(folder_of(tmp_path, Image.fromarray(levels)), num_frames=1)
    assert pool.pixels[0, 4, [4, 12, 20, 28], 0].tolist() == [0, 60, 128, 255]


def test_other_aspect_ratios_get_black_bars(tmp_path: Path) -> None:
    grey = [Image.new("RGB", size, (200,) * 3) for size in ((64, 32), (32, 32), (640, 322))]
    pool = sample(folder_of(tmp_path, *grey), num_frames=3)
    assert pool.warnings == ("1 of the pictures have another aspect ratio than the first and got black bars",)
    assert [int((frame[16, :, 0] > 100).sum()) for frame in pool.pixels] == [64, 32, 64]


def test_hidden_files_are_no_pictures(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, *[Image.new("RGB", (8, 8))] * 2)
    (folder / "._0.png").write_bytes(b"Mac OS X")
    assert len(sample(folder, num_frames=2)) == 2


def test_the_clock_is_checked_for_every_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, seconds = folder_of(tmp_path, *[Image.new("RGB", (8, 8))] * 9), iter(range(0, 1000, 10))
    monkeypatch.setattr("gridprobe.video.pictures.time.monotonic", lambda: float(next(seconds)))
    with pytest.raises(VideoError, match="decoding took longer than 40 s"):
        sample(folder, num_frames=9, limits=VideoLimits(seconds=40))
    assert next(seconds) < 100  # and not only when all nine were read


@pytest.mark.parametrize("time", [10**400, -(10**400), 1e13])
def test_times_beyond_all_bounds_are_a_sentence(tmp_path: Path, time: float) -> None:
    folder = folder_of(tmp_path, *[Image.new("RGB", (8, 8))] * 2)
    (folder / "times.json").write_text(json.dumps([0, time]))
    with pytest.raises(VideoError, match="needs one number of seconds for each of the 2 pictures"):
        sample(folder, num_frames=2)


def test_another_format_under_the_name_of_a_picture_is_a_sentence(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "x.avif")
    (tmp_path / "x.avif").rename(tmp_path / "x.png")
    with pytest.raises(VideoError, match=r"x\.png: not a picture that can be read as BMP, JPEG, PNG or WEBP"):
        sample(tmp_path, num_frames=1)


# The host's logging.


def test_a_host_that_logs_ffmpeg_does_not_stop_the_decoder(made: Path, tmp_path: Path) -> None:
    """PyAV's log callback takes Python's lock; a decoder's thread that logs while the decoder is closed waits for ever.

    A child process has no such callback. The file is one group, so that the decoder uses threads, and damaged, so that
    it logs.
    """
    data = bytearray(numbered_video(made / "one_group.h264", 200, gop=999).read_bytes())
    for at in range(len(data) // 2, len(data), 997):
        data[at : at + 8] = b"\xff" * 8
    path = tmp_path / "damaged.h264"
    path.write_bytes(bytes(data))
    code = f"""
import av.logging
from gridprobe.errors import VideoError
from gridprobe.video import sample
av.logging.set_level(av.logging.VERBOSE)
for _ in range(20):
    try:
        sample({str(path)!r}, num_frames=30, decode_in="child")
    except VideoError as error:
        assert "damaged" in str(error)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
