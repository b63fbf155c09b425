"""A folder of pictures is a video too."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, features

from gridprobe.errors import VideoError
from gridprobe.video import FramePool, FrameSize, VideoInfo, VideoLimits
from gridprobe.video import sample as sample_folder
from gridprobe.video.pictures import SUFFIXES, describe_folder
from gridprobe.video.sampling import Sampling


def folder_of(tmp_path: Path, count: int, *, suffix: str = ".png", size: tuple[int, int] = (64, 32)) -> Path:
    """Pictures named 1, 2, … 10, …; picture n is gray of level 2n."""
    for number in range(1, count + 1):
        Image.new("RGB", size, (2 * number,) * 3).save(tmp_path / f"frame{number}{suffix}")
    return tmp_path


def sample(folder: Path, cells: int, sampling: Sampling = "middle", limits: VideoLimits | None = None) -> FramePool:
    return sample_folder(folder, num_frames=cells, sampling=sampling, limits=limits)


def levels(pool: FramePool) -> list[int]:
    return [int(frame[0, 0, 0]) // 2 for frame in pool.pixels]


def test_pictures_come_in_the_order_of_their_numbers_one_second_each(tmp_path: Path) -> None:
    pool = sample(folder_of(tmp_path, 12), 12)

    assert levels(pool) == list(range(1, 13))
    assert pool.times == tuple(float(i) for i in range(12))
    assert pool.info is not None and pool.info.duration == 12.0 and pool.info.fps == 1.0 and pool.warnings == ()


def test_only_as_many_as_asked_for_are_taken(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 100)

    assert levels(sample(folder, 4)) == [13, 38, 63, 88]
    assert levels(sample(folder, 4, "linspace")) == [1, 34, 67, 100]


def test_given_times_decide_what_is_on_display(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 4)
    (folder / "times.json").write_text(json.dumps([10.0, 11.0, 12.0, 109.0]))  # the third stays for 97 of 196 s

    pool = sample(folder, 4)

    assert levels(pool) == [3, 4]
    assert pool.times == (2.0, 99.0)
    assert "2 distinct pictures at the 4 sampled times" in pool.warnings[0]


def test_times_may_be_given_by_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 2)
    (folder / "times.json").write_text(json.dumps({"frame2.png": 7.5, "frame1.png": 5.0}))

    assert sample(folder, 4).times == (0.0, 2.5)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ("[1, 2", "not valid JSON"),
        ("[1]", "one number of seconds for each of the 2"),
        ("[1, true]", "one number of seconds"),
        ("[1, NaN]", "one number of seconds"),
        ("[2, 1]", "must rise"),
        ('{"frame1.png": 1}', "one number of seconds"),
    ],
)
def test_bad_times_are_one_sentence(tmp_path: Path, times: str, message: str) -> None:
    folder = folder_of(tmp_path, 2)
    (folder / "times.json").write_text(times)

    with pytest.raises(VideoError, match=message):
        sample(folder, 2)


def test_pictures_stand_upright_and_have_one_size(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise by a quarter
    picture = Image.new("RGB", (64, 32), "black")
    picture.paste("white", (0, 0, 32, 32))
    picture.save(tmp_path / "1.jpg", exif=exif)
    Image.new("L", (500, 20), 99).save(tmp_path / "2.png")

    pool = sample(tmp_path, 2)

    assert (pool.width, pool.height) == (32, 64)
    assert pool.pixels[0, 5].mean() > 200 > 50 > pool.pixels[0, -5].mean()  # the left half is now above
    assert abs(int(pool.pixels[1, 31, 5, 0]) - 99) <= 1
    assert pool.pixels[1, 5].max() == pool.pixels[1, -5].max() == 0  # it is wide, and not stretched
    assert pool.warnings == ("1 of the pictures have another aspect ratio than the first and got black bars",)


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 50])
def test_a_broken_picture_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "1.png").write_bytes(content)

    with pytest.raises(VideoError, match=r"1\.png: not a picture"):
        sample(tmp_path, 1)


POSTSCRIPT = """%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 64 32
(MARKER) (w) file closefile
showpage
%%EOF
"""


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_postscript_under_a_pictures_name_never_reaches_ghostscript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    started = tmp_path / "started"
    programs, folder = tmp_path / "bin", tmp_path / "pictures"
    programs.mkdir()
    folder.mkdir()
    (programs / "gs").write_text(f'#!/bin/sh\n: > "{started}"\n')
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow looks for it once per process
    (folder / f"x{suffix}").write_text(POSTSCRIPT.replace("MARKER", str(tmp_path / "marker")))

    with pytest.raises(VideoError, match=rf"x\{suffix}: not a picture that can be read as BMP, JPEG, PNG or WEBP \(Un"):
        sample(folder, 1)

    assert not started.exists() and not (tmp_path / "marker").exists()


def saved(kind: str) -> bytes:
    """A picture that Pillow writes in this format."""
    file = io.BytesIO()
    Image.new("1" if kind == "XBM" else "RGB", (64, 32)).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["AVIF", "EPS", "GIF", "ICO", "JPEG2000", "PCX", "PDF", "PPM", "TGA", "TIFF", "XBM"])
def test_a_picture_of_another_format_is_refused_whatever_its_name(tmp_path: Path, kind: str) -> None:
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow writes no AVIF")
    (tmp_path / "1.png").write_bytes(saved(kind))

    with pytest.raises(VideoError, match=r"^[^\n]*1\.png: not a picture that can be read as [^\n]*$"):
        sample(tmp_path, 1)


def test_a_drawing_in_svg_is_refused_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')

    with pytest.raises(VideoError, match=r"^[^\n]*1\.png: not a picture that can be read as [^\n]*$"):
        sample(tmp_path, 1)


@pytest.mark.parametrize("kind", ["BMP", "JPEG", "MPO", "PNG", "WEBP"])
def test_the_content_decides_not_the_suffix(tmp_path: Path, kind: str) -> None:
    """Many cameras write several JPEGs into one file (MPO) and call it .jpg."""
    (tmp_path / "1.jpg").write_bytes(saved(kind))

    assert sample(tmp_path, 1).pixels.shape == (1, 32, 64, 3)


def test_a_damaged_exif_block_is_one_sentence(tmp_path: Path) -> None:
    """Turning a picture writes its Exif block anew, which fails with an error of `struct` where a type is wrong."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "maker", 6
    Image.new("RGB", (64, 32)).save(tmp_path / "1.jpg", exif=exif)
    whole = (tmp_path / "1.jpg").read_bytes()
    (tmp_path / "1.jpg").write_bytes(whole.replace(b"\x01\x0f\x00\x02", b"\x01\x00\x00\x02"))  # a width in letters

    with pytest.raises(VideoError, match=r"1\.jpg: not a picture that can be read as [^\n]*$"):
        sample(tmp_path, 1)


def test_a_folder_without_pictures_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(VideoError, match="no picture in this folder"):
        sample(tmp_path, 1)


def test_limits_hold(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 3)

    with pytest.raises(VideoError, match="has more than 100 pixels"):
        sample(folder, 1, limits=VideoLimits(max_pixels=100))
    with pytest.raises(VideoError, match="longer than 2 s"):
        sample(folder, 1, limits=VideoLimits(max_duration=2.0))


def test_a_changed_picture_is_another_source(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 2)
    before: VideoInfo = describe_folder(folder, VideoLimits())
    Image.fromarray(np.zeros((32, 64, 3), np.uint8)).save(folder / "frame1.png", compress_level=0)

    assert describe_folder(folder, VideoLimits()).fingerprint != before.fingerprint


def test_a_folder_goes_wherever_a_video_goes(tmp_path: Path) -> None:
    import gridprobe as gp
    from gridprobe.video import probe

    folder = folder_of(tmp_path, 9)
    model = gp.MockModel(
        lambda request: {"A": 9.0 if any(10 in group.frames.pixels for group in request.groups) else 1.0, "B": 1.0}
    )

    answer = gp.ask(folder, gp.Question("Is picture 5 among them?", ["yes", "no"]), model=model, k=3)

    assert probe(folder).frames == 9 and answer.choice == "A"
    assert 4.0 in answer.selection.timestamps


def test_pictures_are_scaled_to_the_size_asked_for(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 2, size=(640, 360), suffix=".jpg")

    pool = sample_folder(
        folder, num_frames=2, sampling="middle", size=FrameSize(max_side=224, multiple=32), limits=VideoLimits()
    )

    assert (pool.width, pool.height) == (224, 128)
