"""Hostile input: what is not a plain video file is refused in one line, opening nothing else and never hanging."""

import io
import math
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.stream import VideoStream

from gridprobe.errors import VideoError
from gridprobe.video import FrameSize, VideoLimits, files, probe, reader, sample
from gridprobe.video.files import Deadline, check_file, lacks_index
from gridprobe.video.source import open_video
from videos import bars, numbered_video, remux

SMALL = FrameSize(max_side=256)


def refusal(path: str | os.PathLike[str]) -> str:
    """The message both entry points refuse a file with."""
    with pytest.raises(VideoError) as probed:
        probe(path)
    with pytest.raises(VideoError) as sampled:
        sample(path, num_frames=9)
    assert str(probed.value) == str(sampled.value)
    assert "\n" not in str(probed.value)
    assert str(probed.value).startswith(f"{path}: ")
    return str(probed.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("version", ["9.2.0", "15.1.0", "17.0.1"])
def test_a_pyav_that_corrupts_memory_is_refused(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = numbered_video(tmp_path / "a.mp4", 9)
    monkeypatch.setattr(av, "__version__", version)

    message = refusal(path)

    needed = message.split("'")[1]
    assert message.startswith(f"PyAV {version} ") and needed == "av>=17.1"
    assert f'"{needed}"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


@pytest.mark.parametrize("version", ["17.1.0", "18.0.0rc1", "100.2"])
def test_a_newer_pyav_is_used(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = numbered_video(tmp_path / "a.mp4", 9)
    monkeypatch.setattr(av, "__version__", version)

    assert probe(path).decoder.startswith(f"PyAV {version},")


def zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "hello")
    return buffer.getvalue()


def png_bytes() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.zeros((64, 64, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


# V01, V02 of tests/reliability.md
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello, world\n" * 200, "not a video container"),
        (random.Random(0).randbytes(16), "not a video container"),
        (png_bytes(), "not a video container gridprobe accepts (found png)"),
        (b"%PDF-1.7\n" + b"0" * 500, "(found pdf)"),
        (zip_bytes(), "(found zip)"),
        (b"\0\0\0\x20ftypisom" + bytes(20), "the file is incomplete (no index)"),
    ],
)
def test_not_a_video(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.mp4"
    path.write_bytes(content)
    message = refusal(path)
    assert reason in message
    assert "hello" not in message  # what the file says is none of the error's business


class CountedReads(io.FileIO):
    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        CountedReads.count += 1
        return super().read(size) or b""


def test_millions_of_boxes_are_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "boxes.mp4"
    path.write_bytes(b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x08free" * (2 * files.MAX_BOXES))
    file = check_file(path)
    monkeypatch.setattr(files, "open", CountedReads, raising=False)
    assert not lacks_index(file)  # as far as anybody cares to look; FFmpeg's own walk is under the deadline
    assert CountedReads.count == files.MAX_BOXES


# V24 of tests/reliability.md
def test_not_a_regular_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.mp4")
    assert "no picture in this folder" in refusal(tmp_path)
    assert "not a regular file" in refusal("/dev/zero")
    fifo = tmp_path / "fifo.mp4"
    os.mkfifo(fifo)
    assert "not a regular file" in refusal(fifo)  # opening it would wait for a writer for ever
    loop = tmp_path / "loop.mp4"
    loop.symlink_to(loop)
    assert "form a loop" in refusal(loop)
    assert "too long" in refusal(tmp_path / ("x" * 300))


# V24 of tests/reliability.md
@pytest.mark.parametrize("kind", [stat.S_IFSOCK, stat.S_IFBLK, stat.S_IFCHR])
def test_a_device_is_never_opened(clip: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """Opening one can have effects of its own (a tape rewinds), so looking at its kind must be enough."""
    status = list(os.stat(clip))
    status[0] = kind | 0o600
    monkeypatch.setattr(os, "stat", lambda *_, **__: os.stat_result(status))
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("opened"))
    assert "not a regular file" in refusal(clip)


# V24 of tests/reliability.md
@pytest.mark.parametrize(
    "name", ["é" * 120 + ".mp4", "e\u0301.mp4", "x" * 251 + ".mp4", "-i", "file:x.mp4", "a\nb.mp4"]
)
def test_long_and_composed_names(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shutil.copy(clip, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert len(sample(name, num_frames=4, size=SMALL)) == 4
    assert "\n" not in probe(name).path


def test_unreadable(clip: Path) -> None:
    """V24. Root can read every file, so this process becomes another user, whose folder every user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        path = Path(shutil.copy(clip, Path(name, "secret.mp4")))
        path.chmod(0)
        before = os.geteuid()
        try:
            os.seteuid(65534 if before == 0 else before)
            reason = refusal(path)
        finally:
            os.seteuid(before)
    assert "permission denied" in reason


def test_refused_by_the_system(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root, for whom no permission bits count: the system call itself says no."""

    def no(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", no)
    assert "permission denied" in refusal(clip)


def test_nul_and_broken_text_in_names() -> None:
    for name in ("a\0b.mp4", "a\udcffb.mp4"):
        with pytest.raises(VideoError, match="not valid text"):
            probe(name)


# V24, A02, A23 of tests/reliability.md
@pytest.mark.parametrize(
    "name",
    [
        "-y.mp4",
        "http:x.mp4",
        "concat:a|b.mp4",
        "subfile,,x.mp4",
        "pipe:0",
        "data:video,x",
        "tcp:x",
        "lavfi",
        "two words é 視頻 🎬.mp4",
        "%d%03d.mp4",
    ],
)
def test_odd_names_are_only_names(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shutil.copy(clip, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert len(sample(name, num_frames=4, size=SMALL)) == 4
    assert probe(name).path == name
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "concat:clip.mp4|clip.mp4", "subfile,,start,0,end,0,,:clip.mp4", "data:video/mp4;base64,AAAA", "pipe:0",
        "http://127.0.0.1/x.mp4", "tcp://127.0.0.1:1", "lavfi", "testsrc", "file:clip.mp4", "async:clip.mp4",
    ],
)  # fmt: skip
def test_a02_a_name_that_no_file_has_is_not_taken_for_an_address(
    clip: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(clip.parent)
    monkeypatch.setattr(av, "open", lambda *_, **__: pytest.fail("FFmpeg was asked"))
    for read in (probe, lambda name: sample(name, num_frames=4)):
        with pytest.raises(VideoError, match=r"no such file|is an address, and gridprobe reads files"):
            read(name)


def test_symbolic_link_to_a_video(clip: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.mp4"
    link.symlink_to(clip)
    assert probe(link).fingerprint == probe(clip).fingerprint


SCRIPTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{victim}\n#EXT-X-ENDLIST\n",
    "ffconcat": "ffconcat version 1.0\nfile {victim}\n",
    "indented concat": "\n  ffconcat version 1.0\nfile victim.ts\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
    "a=rtpmap:96 H264/90000\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet>'
    '<Representation id="v" mimeType="video/mp4"><BaseURL>{victim}</BaseURL></Representation></AdaptationSet></Period>'
    "</MPD>",
    "ffmetadata": ";FFMETADATA1\ntitle=x\n",
}


# A01 of tests/reliability.md
@pytest.mark.parametrize("sniffing", [True, False], ids=["as shipped", "whitelist alone"])
def test_scripts_open_no_other_file(clip: Path, tmp_path: Path, sniffing: bool) -> None:
    """Every open() of a child process is in strace's log: the script is there (so the log works), the victim is not.

    FFmpeg opens files by system call, unseen by Python's audit hooks. Without strace the victim is a FIFO with no
    writer: opening it would block, and the time limit of the child fails the test. The second run switches off our own
    look at the first bytes, which shows that FFmpeg's format list alone would hold.
    """
    victim = tmp_path / "victim.ts"
    if shutil.which("strace"):
        remux(clip, victim)
    else:
        os.mkfifo(victim)
    paths = []
    for name, text in SCRIPTS.items():
        path = tmp_path / f"{name.replace(' ', '_')}.mp4"
        path.write_text(text.format(victim=victim))
        paths.append(str(path))
    code = f"""
from gridprobe.video import probe, source
from gridprobe.errors import VideoError
if not {sniffing}:
    source.looks_like = lambda head: None
for path in {paths!r}:
    try:
        probe(path)
        print("opened")
    except VideoError as error:
        print("refused" if "not a video container" in str(error) else error)
"""
    log = tmp_path / "trace"
    trace = ["strace", "-f", "-e", "trace=open,openat,socket", "-o", str(log)] if shutil.which("strace") else []
    child = [*trace, sys.executable, "-c", code]
    done = subprocess.run(child, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split("\n")[:-1] == ["refused"] * len(SCRIPTS)
    if trace:
        opened = log.read_text(errors="replace")
        assert all(path in opened for path in paths)
        assert "victim" not in opened and "socket(" not in opened


def test_external_data_reference_is_not_followed(clip: Path, tmp_path: Path) -> None:
    """An MP4 whose media lie "in another file" (the flag of its url box cleared) gives an error or its own bytes."""
    data = clip.read_bytes()
    assert data.count(b"url \0\0\0\1") == 1
    path = tmp_path / "dref.mp4"
    path.write_bytes(data.replace(b"url \0\0\0\1", b"alis\0\0\0\0"))
    try:
        assert len(sample(path, num_frames=4, size=SMALL)) == 4
    except VideoError as error:
        assert "dref.mp4" in str(error)


def add_sound(output: av.container.OutputContainer) -> None:
    stream = output.add_stream("aac", rate=44100)
    sound = av.AudioFrame.from_ndarray(np.zeros((1, 44100), dtype=np.float32), format="fltp", layout="mono")
    sound.sample_rate = 44100
    output.mux(stream.encode(sound))
    output.mux(stream.encode())


# V08 of tests/reliability.md
def test_sound_only(tmp_path: Path) -> None:
    path = tmp_path / "sound.m4a"
    with av.open(str(path), "w", format="mp4") as output:
        add_sound(output)
    assert "no video stream" in refusal(path)


# V15 of tests/reliability.md
def test_an_unknown_codec_is_named_as_such(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "future.mp4"
    path.write_bytes(clip.read_bytes().replace(b"avc1\0\0", b"zzzz\0\0"))
    assert "its codec is not part of this PyAV build" in refusal(path)


# V08 of tests/reliability.md
def test_cover_art_is_not_a_video(tmp_path: Path) -> None:
    path = tmp_path / "cover.mp4"
    with av.open(str(path), "w") as output:
        cover = output.add_stream("mjpeg", rate=1)
        assert isinstance(cover, VideoStream)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        packets = [*cover.encode(av.VideoFrame.from_ndarray(bars(3, (64, 64)), "rgb24")), *cover.encode()]
        add_sound(output)
        output.mux(packets)
    with av.open(str(path)) as container:
        assert container.streams.video[0].disposition & av.stream.Disposition.attached_pic
    assert "no video stream" in refusal(path)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (VideoLimits(max_pixels=256 * 64 - 1), "frames of 256×64 have more than 16383 pixels"),
        (VideoLimits(max_duration=11.9), "12 s is longer than 12 s"),
        (VideoLimits(seconds=1e-9), "took longer than 1e-09 s; raise the limit"),
    ],
)
def test_limits(clip: Path, limits: VideoLimits, reason: str) -> None:
    with pytest.raises(VideoError, match=r"clip\.mp4: ") as caught:
        sample(clip, num_frames=4, limits=limits)
    assert reason in str(caught.value)


def test_number_of_streams(tmp_path: Path) -> None:
    path = numbered_video(tmp_path / "one.mp4", 3)
    two = tmp_path / "two.mp4"
    with av.open(str(path)) as original, av.open(str(two), "w") as output:
        template = original.streams.video[0]
        stream = output.add_stream_from_template(template)
        add_sound(output)
        for packet in original.demux(template):
            if packet.size:
                packet.stream = stream
                output.mux(packet)
    assert len(sample(two, num_frames=3, limits=VideoLimits(max_streams=2))) == 3
    with pytest.raises(VideoError, match="more than 1 streams"):
        sample(two, num_frames=3, limits=VideoLimits(max_streams=1))


def test_header_claiming_a_giant_frame(tmp_path: Path) -> None:
    """A04, V17. A few hundred bytes that claim a giant frame are refused before decoding; 8K is within the default."""
    path = numbered_video(tmp_path / "x.mkv", 2, codec="ffv1", pixel_format="gray")
    width_and_height = b"\xb0\x82\x01\x00\xba\x81\x40"  # Matroska's PixelWidth 256 and PixelHeight 64
    data = path.read_bytes()
    assert data.count(width_and_height) == 1
    path.write_bytes(data.replace(width_and_height, b"\xb0\x82\xff\xff\xba\x81\xff"))
    with pytest.raises(VideoError, match=r"x\.mkv: .*frames have more than 16711424 pixels; raise the limit"):
        probe(path, limits=VideoLimits(max_pixels=65535 * 255 - 1))
    assert 7680 * 4320 <= VideoLimits().max_pixels < 16384 * 16384


def test_the_clock_stops_a_long_decode(
    faststart: Path, readers: list[reader.Reader], deadline_after: Callable[[int], type[Deadline]]
) -> None:
    """A file stops to be decoded when its time is over, not when it is done: that would take 2,700 looks at the clock,
    of which 1,200 come before the first frame, and 1,520 frames."""
    deadline_after(1600)
    with pytest.raises(VideoError, match=r"took longer than 60 s"):
        sample(faststart, num_frames=1000, size=SMALL, limits=VideoLimits(seconds=60))
    assert 0 < sum(each.decoded for each in readers) < 600


def test_every_packet_loop_looks_at_the_clock(clip: Path, deadline_after: Callable[[int], type[Deadline]]) -> None:
    file = check_file(clip)
    with open_video(file, limits=VideoLimits(), deadline=Deadline(file.name, 60)) as source:
        packets = replace(source, deadline=deadline_after(3)(file.name, 7)).packets()
        next(packets)
        next(packets)
        with pytest.raises(VideoError, match=r"clip\.mp4: decoding took longer than 7 s"):
            next(packets)


# A02 of tests/reliability.md
def test_ffmpeg_gets_an_absolute_path_behind_file(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clip.parent)
    assert check_file("clip.mp4").url == f"file:{os.path.realpath(clip)}"


def test_no_file_stays_open(clip: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(clip.read_bytes()[:3000])
    sample(clip, num_frames=1, size=SMALL)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(25):
        sample(clip, num_frames=1, size=SMALL)
        with pytest.raises(VideoError):
            probe(broken)
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_is_bounded(made: Path) -> None:
    """144 frames of a long 1080p file: full-size frames must not pile up (they alone would take 900 MB)."""
    short = numbered_video(made / "hd.mp4", 25, size=(1920, 1080), gop=5, options={"preset": "ultrafast"})
    path = remux(short, made / "hd_long.mp4", loops=200)
    code = f"""
from gridprobe.video import sample
pool = sample({str(path)!r}, num_frames=144)
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(len(pool), pool.pixels.nbytes // 2**20, int(peak) // 1024)
"""
    # VmHWM and not getrusage: ru_maxrss lives on over exec and would start from pytest's own size.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frames, result, peak = map(int, done.stdout.split())
    assert frames == 144
    assert peak < result + 350
    assert peak < 1000


def test_8k_is_decoded_straight_to_its_final_size(made: Path) -> None:
    """V17."""
    path = made / "8k.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 7680, 4320, "yuv420p"
        frame = av.VideoFrame(7680, 4320, "yuv420p")
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        for number in range(12):
            frame.pts = number
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    code = f"""
from gridprobe.video import sample
print(len(sample({str(path)!r}, num_frames=12)))
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frames, peak = map(int, done.stdout.split())
    assert frames == 12
    assert peak / 1024 < 1000  # twelve frames in full size would be 1200 MB as RGB alone


def test_importing_the_package_does_not_import_pyav() -> None:
    code = "import sys, gridprobe.video; print('av' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_progress_is_reported(clip: Path) -> None:
    from gridprobe._util import ProgressEvent, listening

    seen: list[ProgressEvent] = []
    with listening(seen.append):
        sample(clip, num_frames=5, size=SMALL)
    assert seen == [("decode", done, 5) for done in range(6)]


# A05 of tests/reliability.md
@pytest.mark.parametrize("cells", [0, -1, True, 1.5, math.nan, math.inf, 10**6, 10**12])
def test_bad_cells_are_refused_before_the_file_is_read(cells: int) -> None:
    from gridprobe.errors import UsageError

    with pytest.raises(UsageError, match="num_frames must be a whole number from 1 to 4096"):
        sample("/does/not/exist.mp4", num_frames=cells)
    with pytest.raises(UsageError, match="sampling must be"):
        sample("/does/not/exist.mp4", num_frames=4, sampling="random")  # type: ignore[arg-type]
