"""Very long, very large, very many: what must not grow does not."""

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gridprobe.video import AUTO_FRACTION, FramePool, FrameSize, Video, reader, sample, sampling
from gridprobe.video.files import check_file, lacks_index
from mp4 import looped, with_hole
from videos import numbered_video, read_number

SMALL = FrameSize(max_side=256)


@pytest.fixture(scope="module")
def minute(made: Path) -> Path:
    """1500 numbered frames of one minute, a keyframe every 25."""
    return numbered_video(made / "minute.mp4", 1500, gop=25, options={"sc_threshold": "0", "preset": "ultrafast"})


@pytest.fixture(scope="module")
def ten_hours(minute: Path, made: Path) -> Path:
    """900,000 frames, in a file of some megabytes."""
    return looped(minute, made / "ten_hours.mp4", 600)


@pytest.mark.parametrize("precision", ["exact", "auto"])
def test_ten_hours_are_not_walked(
    ten_hours: Path, readers: list[reader.Reader], packets: list[int], precision: str
) -> None:
    """V18. Of 900,000 packets some hundreds are read; to go through all of them takes longer than an answer may."""
    pool = sample(ten_hours, num_frames=144, precision=precision, size=SMALL)  # type: ignore[arg-type]
    assert pool.info is not None and pool.info.frames_header == 900_000
    assert pool.info.duration == pytest.approx(36_000, abs=0.1) and pool.info.frames_found is None
    wanted = [900_000 * (2 * i + 1) // 288 for i in range(144)]
    reach = 900_000 / 144 * AUTO_FRACTION if precision == "auto" else 0
    taken = [round(t * 25) for t in pool.times]
    assert all(abs(a - b) <= reach for a, b in zip(taken, wanted, strict=True))
    assert [read_number(frame) for frame in pool.pixels] == [number % 1500 for number in taken]
    assert sum(each.decoded for each in readers) <= 144 * 26
    assert len(packets) <= 144 * 26


def test_ten_hours_need_no_more_memory_than_one_minute(minute: Path, ten_hours: Path) -> None:
    """V18. FFmpeg's index of 900,000 frames is some 75 MB for each of the two readers; nothing else may grow."""
    peaks = {}
    for path in (minute, ten_hours):
        code = f"""
from gridprobe.video import FrameSize, decode, sample
decode._cores = lambda: 2
sample({str(path)!r}, num_frames=144, size=FrameSize(max_side=256))
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        peaks[path] = int(done.stdout) / 1024
    assert peaks[ten_hours] - peaks[minute] < 200


@pytest.mark.parametrize("gigabytes", [3, 5])
def test_media_and_index_beyond_32_bits(minute: Path, made: Path, gigabytes: int) -> None:
    """V25: every offset of the file is above 2 or 4 GB; the file is sparse and takes no room."""
    path = with_hole(minute, made / f"hole{gigabytes}.mp4", gigabytes << 30)
    assert path.stat().st_size > gigabytes << 30
    try:
        assert not lacks_index(check_file(path))
        pool = sample(path, num_frames=16, size=SMALL)
    finally:
        path.unlink()
    assert [read_number(frame) for frame in pool.pixels] == [1500 * (2 * i + 1) // 32 for i in range(16)]


@pytest.fixture(scope="module")
def sparse(made: Path) -> Path:
    """1500 numbered frames of one minute, a keyframe every 250, which is x264's default."""
    options = {"sc_threshold": "0", "preset": "ultrafast"}
    return numbered_video(made / "sparse.mp4", 1500, gop=250, options=options)


def taken(path: Path, readers: list[reader.Reader]) -> tuple[FramePool, int]:
    """The pool that "auto" takes, and how many frames were decoded for it."""
    readers.clear()
    pool = sample(path, num_frames=144, precision="auto", size=SMALL)
    return pool, sum(each.decoded for each in readers)


@pytest.mark.parametrize(
    ("minutes", "frames", "distance"), [(10, 60, "half a group"), (20, 120, "half a group"), (40, 144, "half a cell")]
)
def test_auto_never_costs_more_than_for_an_hour(
    sparse: Path,
    made: Path,
    readers: list[reader.Reader],
    monkeypatch: pytest.MonkeyPatch,
    minutes: int,
    frames: int,
    distance: str,
) -> None:
    """No keyframe is within a fifth of a cell of most moments; to decode up to each of them took 13 times an hour's."""
    monkeypatch.setattr(sampling, "FULL_HD", 256 * 64 * 25)  # as if these frames were large
    hour, most = taken(looped(sparse, made / "hour.mp4", 60), readers)
    assert most == len(hour) == 144 and hour.warnings == ()
    pool, decoded = taken(looped(sparse, made / f"{minutes}.mp4", minutes), readers)
    assert decoded <= most and len(pool) == frames
    assert (
        pool.warnings[0].startswith(f"keyframes up to {distance}") and "precision=exact takes them" in pool.warnings[0]
    )
    assert [read_number(frame) for frame in pool.pixels] == [round(time * 25) % 1500 for time in pool.times]


def test_auto_is_exact_where_frames_are_small(
    sparse: Path, made: Path, readers: list[reader.Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = looped(sparse, made / "ten.mp4", 10)
    pool, decoded = taken(path, readers)
    assert len(pool) == 144 and pool.warnings == () and decoded > 5000
    monkeypatch.setattr(sampling, "FULL_HD", 256 * 64 * 25)  # as if these frames were large
    pool, decoded = taken(path, readers)
    assert 40 < len(pool) < 80 and "keyframes up to" in pool.warnings[0]
    assert decoded < 144 * sampling.KEY_SECONDS * 25  # of each group the first seconds


class _Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e used free f".split()]  # noqa: SIM905


def heap() -> int:
    """Bytes that malloc has given out, in all arenas."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Heap
    return int((facts := libc.mallinfo2()).used + facts.mapped)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_a_video_leaves_nothing_behind(clip: Path) -> None:
    """V28. Bytes in use, not the size of the process, which wanders with the allocator's arenas.

    A demuxing loop of PyAV that is dropped unfinished loses some 160 bytes: 4,000 a video, 10 MB over 500.
    """

    def many(count: int) -> None:
        for _ in range(count):
            video = Video(clip, num_frames=16, precision="auto")
            video.lazy(SMALL)
            video.frames([3, 9])
            video.pool(SMALL)

    many(15)
    gc.collect()
    descriptors, before = len(os.listdir("/proc/self/fd")), heap()
    many(60)
    gc.collect()
    assert (heap() - before) / 60 < 800
    assert len(os.listdir("/proc/self/fd")) <= descriptors
