"""torchcodec behind the same plan (D03): the same moments and times, nearly the same pixels, and never in silence.

The real one is in .venv/reference, where `make setup` puts it beside torchvision; it needs the system's FFmpeg. A
stand-in with its interface, driven by PyAV, keeps the code around it running where it cannot be loaded.
"""

import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from av.video.stream import VideoStream

from gridprobe.errors import UsageError, VideoError
from gridprobe.progress import Event, listening
from gridprobe.video import Footage, FrameCache, FrameSize, Precision, VideoLimits, sample
from gridprobe.video import torchcodec as second
from gridprobe.video.torchcodec import torchcodec_state
from videos import numbered_video, read_number, remux, turn_by_matrix

SMALL = FrameSize(max_side=256)
MEAN, MOST = 1.5, 32
"""Grey levels by which pixels may differ from PyAV's, on average and anywhere."""


class _Values(list):  # type: ignore[type-arg]
    def tolist(self) -> list[float]:
        return list(self)


class StandIn:
    """torchcodec's VideoDecoder as far as we use it; `late` frames are what it is out by."""

    late = 0

    def __init__(self, path: str, *, stream_index: int, num_ffmpeg_threads: int, dimension_order: str) -> None:
        assert dimension_order == "NHWC" and num_ffmpeg_threads >= 1
        with av.open(path) as container:
            stream = container.streams[stream_index]
            assert isinstance(stream, VideoStream) and stream.time_base
            shown = [
                (float((frame.pts or 0) * stream.time_base), frame.rotation, frame.to_ndarray(format="rgb24"))
                for frame in container.decode(stream)
            ]
        self.frames = [
            (time, np.rot90(data, rotation // 90)) for time, rotation, data in sorted(shown, key=lambda s: s[0])
        ]
        self.ends = [time for time, _ in self.frames[1:]] + [self.frames[-1][0] + 0.04]
        self.metadata = SimpleNamespace(begin_stream_seconds=self.frames[0][0])

    def get_frames_played_at(self, seconds: list[float]) -> SimpleNamespace:
        if max(seconds) >= self.ends[-1]:
            raise RuntimeError("Invalid pts\nin a second line")
        found = [max(i for i, (time, _) in enumerate(self.frames) if time <= moment) + self.late for moment in seconds]
        data = np.stack([self.frames[i][1] for i in found])
        times = _Values(self.frames[i][0] for i in found)
        lengths = _Values(self.ends[i] - self.frames[i][0] for i in found)
        array = SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: data))
        return SimpleNamespace(data=array, pts_seconds=times, duration_seconds=lengths)


@pytest.fixture(params=["real", "stand-in"])
def torchcodec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "real":
        monkeypatch.syspath_prepend(str(Path(sys.prefix) / "reference"))
        version, reason = torchcodec_state()
        if version is None:
            pytest.skip(reason)
        return "real"
    for name in ("torchcodec", "torchcodec.decoders"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["torchcodec.decoders"].VideoDecoder = StandIn  # type: ignore[attr-defined]
    sys.modules["torchcodec"].decoders = sys.modules["torchcodec.decoders"]  # type: ignore[attr-defined]
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.13.0+cpu")
    return "stand-in"


# D03 of docs/reliability.md
@pytest.mark.parametrize("precision", ["exact", "keyframe", "auto"])
@pytest.mark.parametrize("name", ["plain.mp4", "late.mkv", "vfr.mp4", "hevc.mp4", "turned.mp4"])
def test_same_times_and_nearly_the_same_pixels(made: Path, torchcodec: str, name: str, precision: Precision) -> None:
    path = made / f"second_{name}"
    if not path.exists():
        ticks = [*range(60), *range(60, 300, 4)] if name == "vfr.mp4" else None
        codec = "libx265" if name == "hevc.mp4" else "libx264"
        plain = path if name != "late.mkv" else made / "second_early.mp4"
        numbered_video(plain, 120, codec=codec, ticks=ticks, size=(320, 128))
        if name == "late.mkv":
            remux(plain, path, offset=70.0)
        if name == "turned.mp4":
            turn_by_matrix(path, 90)
    ours = sample(path, cells=25, precision=precision, size=SMALL)
    theirs = sample(path, cells=25, precision=precision, size=SMALL, decoder="torchcodec")
    assert theirs.times == ours.times
    assert theirs.pixels.shape == ours.pixels.shape
    apart = np.abs(theirs.pixels.astype(int) - ours.pixels)
    assert apart.mean() < MEAN and apart.max() <= MOST
    if name != "turned.mp4":
        assert [read_number(frame) for frame in theirs.pixels] == [read_number(frame) for frame in ours.pixels]


# D03 of docs/reliability.md
def test_who_decoded_is_recorded(clip: Path, torchcodec: str) -> None:
    ours, theirs = (sample(clip, cells=4, size=SMALL, decoder=name) for name in ("pyav", "torchcodec"))
    assert theirs.info is not None and theirs.info.decoder.startswith("torchcodec 0.")
    assert set(theirs.keys).isdisjoint(ours.keys)  # equal keys promise equal pixels


def test_two_sizes_by_one_plan(clip: Path, torchcodec: str) -> None:
    footage = Footage(clip, cells=20, decoder="torchcodec")
    native = sample(clip, cells=20, decoder="torchcodec")
    assert footage.undecoded(SMALL).times == footage.pool(SMALL).times == native.times
    kept = footage.frames([3, 11])
    assert kept.keys == native.take([3, 11]).keys and np.array_equal(kept.pixels, native.pixels[[3, 11]])
    found, pixels = footage._film.read((256, 64), footage._known()[3:5], whole=True)  # type: ignore[index]
    assert len(found.ticks) == 2 and np.array_equal(pixels, native.pixels[3:5])


def test_the_cache_tells_the_decoders_apart(clip: Path, tmp_path: Path, torchcodec: str) -> None:
    for name in ("pyav", "torchcodec", "pyav", "torchcodec"):
        footage = Footage(clip, cells=9, decoder=name, cache=FrameCache(tmp_path, 10**8))
        fresh = sample(clip, cells=9, size=SMALL, decoder=name)
        cached = footage.pool(SMALL)
        assert cached.keys == fresh.keys and cached.info == fresh.info
        assert np.array_equal(cached.pixels, fresh.pixels)
    assert FrameCache(tmp_path, 10**8).size()[0] == 2 * (9 + 1)


def test_progress_and_deadline(clip: Path, torchcodec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "BATCH", 2)
    seen: list[Event] = []
    with listening(seen.append):
        sample(clip, cells=5, size=SMALL, decoder="torchcodec")
    assert seen == [("decode", done, 5) for done in (0, 2, 4, 5)]
    with pytest.raises(VideoError, match="took longer than"):
        sample(clip, cells=5, limits=VideoLimits(seconds=1e-6), decoder="torchcodec")


# D03 of docs/reliability.md
def test_a_wrong_frame_is_never_passed_off(clip: Path, monkeypatch: pytest.MonkeyPatch, torchcodec: str) -> None:
    if torchcodec == "real":
        clip = remux(clip, clip.with_name("second.ts"))  # where torchcodec is out by a group of pictures
    monkeypatch.setattr(StandIn, "late", 1)
    with pytest.raises(VideoError, match=r'torchcodec returned the frame at .* s instead of .* s; use decoder="pyav"'):
        sample(clip, cells=9, size=SMALL, decoder="torchcodec")


def test_its_failure_is_one_line(clip: Path, monkeypatch: pytest.MonkeyPatch, torchcodec: str) -> None:
    def fails(*_: object) -> Any:
        raise RuntimeError("Could not\n push packet")

    decoder = SimpleNamespace(get_frames_played_at=fails)
    monkeypatch.setattr(second, "_decoder", lambda source: decoder)
    with pytest.raises(VideoError, match=r"clip\.mp4: torchcodec failed \(Could not push packet\)$"):
        sample(clip, cells=9, size=SMALL, decoder="torchcodec")


def test_without_time_stamps(made: Path, torchcodec: str) -> None:
    path = numbered_video(made / "second.h264", 30)
    with pytest.raises(VideoError, match='no timestamps, which torchcodec needs; use decoder="pyav"'):
        sample(path, cells=9, size=SMALL, decoder="torchcodec")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, "torchcodec is not installed"),
        ("0.12.1", "torchcodec 0.12.1 is older than 0.13"),
        ("0.17.0", "torchcodec 0.17.0 is installed but does not load: "),
    ],
)
def test_absence_is_said_and_changes_nothing_else(
    clip: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, reason: str
) -> None:
    def found(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    assert torchcodec_state()[0] is None and torchcodec_state()[1].startswith(reason)
    with pytest.raises(UsageError, match=f'decoder "torchcodec" cannot be used: {reason}.*; use decoder="pyav"'):
        sample(clip, cells=4, decoder="torchcodec")
    assert len(sample(clip, cells=4, size=SMALL)) == 4


def test_an_unknown_decoder_is_refused() -> None:
    with pytest.raises(UsageError, match='decoder must be "pyav" or "torchcodec"'):
        sample("/does/not/exist.mp4", cells=4, decoder="decord")  # type: ignore[arg-type]
