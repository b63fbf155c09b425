"""Small files that promise much, files that name other files, and files with several streams (A03, A04, V21)."""

import struct
from collections.abc import Callable
from pathlib import Path

import av
import pytest
from av.video.stream import VideoStream

from gridprobe.errors import VideoError
from gridprobe.video import FrameSize, VideoLimits, probe, sample
from gridprobe.video.files import Deadline
from gridprobe.video.reader import Reader
from mp4 import rebuilt
from videos import bars, numbered_video, read_number

SMALL = FrameSize(max_side=256)


def alias(path: str) -> bytes:
    """A data reference of QuickTime that names a file by its absolute path, as FFmpeg's `mov_read_dref` reads it."""
    name = path.encode()
    fixed = bytes(10) + bytes([0]) + bytes(27) + bytes(12) + bytes([0]) + bytes(63) + bytes(16)
    fixed += struct.pack(">hh", 1, 1) + bytes(16)
    records = struct.pack(">hH", 2, len(name)) + name + bytes(len(name) % 2) + struct.pack(">hH", -1, 0)
    body = bytes(4) + fixed + records
    return struct.pack(">I", len(body) + 8) + b"alis" + body


def test_a03_media_in_another_file_are_not_read(tmp_path: Path) -> None:
    """FFmpeg itself would follow the reference if two options were set, which shows that the file is what it claims."""
    victim = numbered_video(tmp_path / "victim.mp4", 20)
    data = victim.read_bytes()
    media = data.index(b"mdat") + 4
    end = data.index(b"moov") - 4
    reference = alias(str(victim))
    dref = struct.pack(">I4sII", len(reference) + 16, b"dref", 0, 1) + reference
    data = data[:media] + bytes(end - media) + data[end:]
    path = tmp_path / "thief.mov"
    path.write_bytes(rebuilt(data, lambda kind, body: (kind, dref if kind == b"dinf" else body)))

    with av.open(str(path), options={"enable_drefs": "1", "use_absolute_path": "1"}) as container:
        shown = [read_number(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    assert shown == list(range(20)), "the reference works"
    with pytest.raises(VideoError, match=r"thief\.mov: [^\n]+$"):
        sample(path, num_frames=4, size=SMALL)


def declared(source: Path, target: Path, kinds: dict[bytes, tuple[int, str, int]]) -> Path:
    """An MP4 with a number at a place of a box replaced."""

    def change(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if kind in kinds:
            at, form, value = kinds[kind]
            body = body[:at] + struct.pack(form, value) + body[at + struct.calcsize(form) :]
        return kind, body

    target.write_bytes(rebuilt(source.read_bytes(), change))
    return target


@pytest.mark.parametrize(
    "kinds",
    [
        {b"mdhd": (16, ">I", 2**31), b"mvhd": (16, ">I", 2**31), b"tkhd": (20, ">I", 2**31)},
        {b"mdhd": (12, ">I", 1)},
        {b"mdhd": (12, ">I", 2**31 - 1)},
        {b"stsz": (8, ">I", 2**32 - 1)},
        {b"stts": (4, ">I", 2**32 - 1)},
        {b"stco": (8, ">I", 2**32 - 1)},
        {b"stsc": (4, ">I", 2**32 - 1)},
    ],
    ids=["long", "one pts a second", "two billion pts_list", "sizes", "times", "place", "chunks"],
)
def test_a04_numbers_in_a_header_take_neither_memory_nor_time(
    clip: Path, tmp_path: Path, packets: list[int], kinds: dict[bytes, tuple[int, str, int]]
) -> None:
    path = declared(clip, tmp_path / "bomb.mp4", kinds)
    try:
        assert 1 <= len(sample(path, num_frames=9, size=SMALL)) <= 9
    except VideoError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
    assert len(packets) <= 4 * 300, "no more packets are read than the file has"


def test_a04_a_line_of_65535_pixels_is_refused_unread(tmp_path: Path) -> None:
    path = numbered_video(tmp_path / "x.mkv", 2, codec="ffv1", pixel_format="gray")
    data = path.read_bytes()
    size = b"\xb0\x82\x01\x00\xba\x81\x40"  # Matroska's PixelWidth 256 and PixelHeight 64
    assert data.count(size) == 1
    path.write_bytes(data.replace(size, b"\xb0\x82\xff\xff\xba\x81\x01"))
    with pytest.raises(VideoError, match=r"x\.mkv: [^\n]+$"):
        sample(path, num_frames=4, size=SMALL)


def test_a04_thousands_of_streams_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.mkv"
    with av.open(str(path), "w", format="matroska") as output:
        stream = output.add_stream("libx264", rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for _ in range(600):
            output.add_stream("pcm_s16le", rate=8000, layout="mono")
        output.mux([*stream.encode(av.VideoFrame.from_ndarray(bars(1, (64, 64)), "rgb24")), *stream.encode()])
    assert VideoLimits().max_streams < 600
    with pytest.raises(VideoError, match=rf"many\.mkv: more than {VideoLimits().max_streams} streams"):
        probe(path)


def test_a04_a_rate_of_1000_frames_a_second_gives_every_frame_once(tmp_path: Path) -> None:
    path = numbered_video(tmp_path / "fast.mkv", 50, fps=1000)
    pool = sample(path, num_frames=144, size=SMALL)
    assert [read_number(frame) for frame in pool.pixels] == list(range(50))


def gif(path: Path, frames: int) -> Path:
    """A GIF of 16×16 pixels whose frames change one pixel each, ten a second; 23 bytes a frame."""
    head = b"GIF89a" + struct.pack("<HH", 16, 16) + b"\x80\0\0" + b"\0\0\0\xff\xff\xff"
    control = b"\x21\xf9\x04\0" + struct.pack("<H", 10) + b"\0\0"
    frame = control + b"\x2c" + struct.pack("<HHHH", 0, 0, 1, 1) + b"\0" + b"\x02\x02\x44\x01\0"
    path.write_bytes(head + frame * frames + b"\x3b")
    return path


def test_a04_a_gif_of_a_million_frames_ends_with_its_time(
    tmp_path: Path, packets: list[int], readers: list[Reader], deadline_after: Callable[[int], type[Deadline]]
) -> None:
    path = gif(tmp_path / "bomb.gif", 10**6)
    assert probe(path).frames_header == 10**6 and len(packets) < 10, "its header is read without its frames"
    deadline_after(20_000)
    with pytest.raises(VideoError, match=r"bomb\.gif: decoding took longer than 60 s; [^\n]+$"):
        sample(path, num_frames=9, size=SMALL, limits=VideoLimits(seconds=60))
    assert len(packets) <= 20_010 and sum(each.decoded for each in readers) <= 20_000


def test_a04_a_gif_of_a_million_frames_leaves_the_parent_alone(tmp_path: Path, clip: Path) -> None:
    """All frames take 15 s or more; the child is ended long before, and the next video is decoded."""
    path = gif(tmp_path / "bomb.gif", 10**6)
    with pytest.raises(VideoError, match=r"bomb\.gif: [^\n]+$"):
        sample(path, num_frames=9, size=SMALL, limits=VideoLimits(seconds=0.5), decode_in="child")
    assert len(sample(clip, num_frames=4, size=SMALL, decode_in="child")) == 4


def test_a04_many_frames_of_a_gif_are_counted_right(tmp_path: Path) -> None:
    pool = sample(gif(tmp_path / "long.gif", 5000), num_frames=9, size=SMALL)
    assert [round(time, 1) for time in pool.times] == [27.7, 83.3, 138.8, 194.4, 250.0, 305.5, 361.1, 416.6, 472.2]


def with_attachments(path: Path, contents: list[bytes]) -> Path:
    with av.open(str(path), "w", format="matroska") as output:
        stream = output.add_stream("libx264", rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 256, 64, "yuv420p"
        for number, content in enumerate(contents):
            output.add_attachment(f"{number}.mkv", "video/x-matroska", content)
        for number in range(10):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(bars(number, (256, 64)), "rgb24")))
        output.mux(stream.encode())
    return path


def test_a04_attachments_are_neither_opened_nor_shown(tmp_path: Path) -> None:
    """A video with videos attached that have videos attached; and one of 32 MiB of zeros."""
    inner = numbered_video(tmp_path / "inner.mkv", 50, size=(512, 128)).read_bytes()
    for depth in range(3):
        inner = with_attachments(tmp_path / f"{depth}.mkv", [inner] * 3).read_bytes()
    for path in (tmp_path / "2.mkv", with_attachments(tmp_path / "zeros.mkv", [bytes(32 << 20)])):
        pool = sample(path, num_frames=5, decode_in="child")
        assert pool.info is not None and (pool.info.width, pool.info.height) == (256, 64)
        assert [read_number(frame) for frame in pool.pixels] == [1, 3, 5, 7, 9]


def test_a04_attachments_that_are_many_or_claim_gigabytes_are_refused_or_bounded(tmp_path: Path, clip: Path) -> None:
    with pytest.raises(VideoError, match=rf"many\.mkv: more than {VideoLimits().max_streams} streams"):
        probe(with_attachments(tmp_path / "many.mkv", [b"x"] * 100))
    path = with_attachments(tmp_path / "lie.mkv", [b"Q" * 2000])
    size = b"\x46\x5c\x47\xd0"  # Matroska's FileData of 2,000 bytes
    assert path.read_bytes().count(size) == 1
    for claim in (b"\x46\x5c\x01\0\0\0\xff\xff\xff\xff", b"\x46\x5c\x01" + b"\xff" * 7, b"\x46\x5c\x7f\xfe"):
        path.write_bytes(path.read_bytes().replace(size, claim))
        try:
            assert len(sample(path, num_frames=5, decode_in="child", limits=VideoLimits(process=1 << 30))) <= 5
        except VideoError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
        assert len(sample(clip, num_frames=4, size=SMALL, decode_in="child")) == 4, "the next video is decoded"
        path.write_bytes(path.read_bytes().replace(claim, size))
