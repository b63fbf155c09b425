"""What is left out while decoding changes no pixel, and keyframes stand for moments only where they may."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.stream import VideoStream

from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import UsageError, VideoError
from gridprobe.video import AUTO_FRACTION, FramePool, FrameSize, VideoLimits, decode, reader, sample
from gridprobe.video.files import Deadline
from gridprobe.video.sampling import START, Anchor, DecodePlan, FrameClock
from gridprobe.video.source import NalKind, kind_rule, recovery_rule
from videos import Pixels, numbered_video, patched, read_number, remux

SMALL = FrameSize(max_side=256)
RAW = FrameSize(square=64)


def moving_video(path: Path, frames: int, *, codec: str, gop: int, options: dict[str, str]) -> Path:
    """Noise that moves in all directions at once, so that every picture leans on its references."""
    noise = np.random.default_rng(5).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=25, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        stream.codec_context.gop_size = gop
        for number in range(frames):
            picture = np.roll(noise, (number * 3, -number * 2), axis=(0, 1))[:96, :128] // 2
            picture[:, : number * 5 % 128] += 90
            output.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        output.mux(stream.encode())
    return path


def decoded_in_order(path: Path) -> dict[int, Pixels]:
    """Every frame of the file by its number, from one pass without seeks; scaled as the pool's are."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        scaler = av.video.reformatter.VideoReformatter()
        start = stream.start_time or 0
        frames: dict[int, Pixels] = {}
        for frame in container.decode(stream):
            assert frame.pts is not None and stream.time_base
            small = scaler.reformat(frame, 64, 64, "rgb24", interpolation=decode.SWSCALE)
            frames[round((frame.pts - start) * stream.time_base * 25)] = small.to_ndarray().astype(np.uint8, copy=False)
        return frames


X265 = "log-level=none:keyint=40:min-keyint=40:bframes=4:b-pyramid=1"
CODECS = {
    "pyramid.mp4": ("libx264", {"bf": "3", "x264-params": "b-pyramid=normal:b-adapt=0:ref=4:scenecut=0"}),
    "strict.mkv": ("libx264", {"bf": "4", "x264-params": "b-pyramid=strict:b-adapt=0:weightp=2"}),
    "flat.ts": ("libx264", {"bf": "3", "x264-params": "b-pyramid=none:b-adapt=0:slices=3:aud=1"}),
    "open.mp4": ("libx264", {"bf": "3", "x264-params": "open-gop=1:keyint=40:min-keyint=40:b-adapt=0"}),
    "refresh.mp4": ("libx264", {"x264-params": "intra-refresh=1:keyint=40:bframes=0"}),
    **dict.fromkeys(
        ("gradual.mp4", "gradual.mkv", "gradual.ts"),  # one keyframe only; FFmpeg calls every 40th frame one, too
        ("libx264", {"x264-params": "intra-refresh=1:keyint=40:bframes=0:scenecut=0"}),
    ),
    "interlaced.ts": ("libx264", {"bf": "2", "flags": "+ildct+ilme", "x264-params": "tff=1:b-adapt=0"}),
    "hevc.mp4": ("libx265", {"x265-params": f"{X265}:open-gop=1"}),
    "closed.ts": ("libx265", {"x265-params": f"{X265}:open-gop=0"}),
    "layers.mkv": ("libx265", {"x265-params": f"{X265}:open-gop=0:temporal-layers=3"}),
    "vp9.webm": ("libvpx-vp9", {"deadline": "good", "cpu-used": "5", "auto-alt-ref": "1", "lag-in-frames": "16"}),
    "asp.mp4": ("mpeg4", {"bf": "2", "qscale": "3"}),
    "mpeg2.ts": ("mpeg2video", {"bf": "2"}),
    "av1.mp4": ("libsvtav1", {"preset": "12", "svtav1-params": "lp=1"}),
}


def use_readers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As many readers as on a machine with so many cores, however little there is to decode."""
    monkeypatch.setattr(decode, "_cores", lambda: count)
    monkeypatch.setattr(decode, "WORKER_COST", 1e-9)


# D02 of tests/reliability.md
@pytest.mark.parametrize("cells", [7, 60])
@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("name", CODECS)
def test_bit_for_bit_what_decoding_everything_gives(
    made: Path, monkeypatch: pytest.MonkeyPatch, name: str, readers: int, cells: int
) -> None:
    codec, options = CODECS[name]
    path = made / f"moving_{name}"
    if not path.exists():
        moving_video(path, 200, codec=codec, gop=40, options=options)
    use_readers(monkeypatch, readers)
    pool = sample(path, num_frames=cells, size=RAW)
    truth = decoded_in_order(path)
    numbers = [round(time * 25) for time in pool.times]
    assert numbers == [200 * (2 * i + 1) // (2 * cells) for i in range(cells)]
    for number, pixels in zip(numbers, pool.pixels, strict=True):
        assert np.array_equal(pixels, truth[number]), number
    assert pool.warnings == ()


def counted(path: Path, cells: int, readers: list[reader.Reader]) -> tuple[int, FramePool]:
    """How many frames were decoded for a pool, and the pool."""
    readers.clear()
    pool = sample(path, num_frames=cells, size=RAW)
    return sum(each.decoded for each in readers), pool


@pytest.mark.parametrize(("name", "most"), [("pyramid.mp4", 70), ("flat.ts", 70), ("closed.ts", 100)])
def test_pictures_nobody_refers_to_are_left_out(
    made: Path, monkeypatch: pytest.MonkeyPatch, readers: list[reader.Reader], name: str, most: int
) -> None:
    codec, options = CODECS[name]
    path = made / f"moving_{name}"
    if not path.exists():
        moving_video(path, 200, codec=codec, gop=40, options=options)
    decoded, pool = counted(path, 5, readers)
    numbers = [round(time * 25) for time in pool.times]
    assert numbers == [20, 60, 100, 140, 180]  # 21 frames each from their keyframe, 105 in all
    assert decoded <= most
    with monkeypatch.context() as patch:
        patch.setattr("gridprobe.video.reader.kind_rule", lambda *_: None)
        everything, same = counted(path, 5, readers)
    assert decoded < everything
    assert np.array_equal(pool.pixels, same.pixels)


def test_a_stream_without_order_is_read_whole(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = sample(clip, num_frames=20, size=RAW)
    monkeypatch.setattr("gridprobe.video.reader.MAX_PACKETS", 3)
    assert np.array_equal(sample(clip, num_frames=20, size=RAW).pixels, plain.pixels)
    monkeypatch.setattr("gridprobe.video.reader.MAX_MISSES", 0)
    assert np.array_equal(sample(clip, num_frames=20, size=RAW).pixels, plain.pixels)


def avcc(*units: bytes) -> bytes:
    return b"".join(len(unit).to_bytes(4, "big") + unit for unit in units)


H264 = b"\x01\x64\x00\x1f\xff"
HEVC = b"\x01" + bytes(20) + b"\x03"


@pytest.mark.parametrize(
    ("codec", "extradata", "data", "kind"),
    [
        ("h264", H264, avcc(b"\x01slice"), NalKind(True)),
        ("h264", H264, avcc(b"\x06sei", b"\x01slice", b"\x01slice"), NalKind(True)),
        ("h264", H264, avcc(b"\x41slice"), NalKind()),
        ("h264", H264, avcc(b"\x01slice", b"\x21slice"), NalKind()),
        ("h264", H264, avcc(b"\x65idr"), NalKind()),
        ("h264", H264, avcc(b"\x06sei"), NalKind()),
        ("h264", H264, avcc(b"\x08pps", b"\x01slice"), NalKind()),
        ("h264", H264, avcc(b"\x01slice") + b"\0", NalKind()),
        ("h264", H264, avcc(b"\x01slice")[:-1], NalKind()),
        ("h264", H264, bytes(40), NalKind()),
        ("h264", H264, b"", NalKind()),
        ("h264", None, b"\0\0\0\1\x09\xf0\0\0\1\x01slice", NalKind(True)),
        ("h264", None, b"\0\0\0\1\x09\xf0\0\0\1\x41slice", NalKind()),
        ("h264", None, b"x\0\0\1\x01slice", NalKind()),
        ("h264", b"", b"no start code", NalKind()),
        ("hevc", HEVC, avcc(b"\x00\x01slice"), NalKind(True)),
        ("hevc", HEVC, avcc(b"\x00\x03slice"), NalKind(True, 2)),
        ("hevc", HEVC, avcc(b"\x02\x02slice"), NalKind(False, 1)),
        ("hevc", HEVC, avcc(b"\x00\x09slice"), NalKind()),
        ("hevc", HEVC, avcc(b"\x4e\x01sei", b"\x10\x01slice"), NalKind(True)),
    ],
)
def test_headers_say_what_may_be_dropped(codec: str, extradata: bytes | None, data: bytes, kind: NalKind) -> None:
    rule = kind_rule(codec, extradata)
    assert rule is not None
    assert rule(memoryview(data)) == kind


def test_other_codecs_are_not_looked_into() -> None:
    assert kind_rule("vp9", None) is None and recovery_rule("vp9", None) is None


@pytest.mark.parametrize(
    ("units", "frames"),
    [
        ((b"\x65idr",), 0),
        ((b"\x06\x06\x01\xc4\x80", b"\x65idr"), 0),
        ((b"\x06\x06\x01\xc4\x80", b"\x41slice"), 0),  # a recovery point after 0 frames: an open group
        ((b"\x06\x06\x01\x4c\x80", b"\x41slice"), 1),
        ((b"\x06\x05\x02xx\x06\x03\x01\x24\xe0\x80", b"\x41slice"), 145),
        ((b"\x06\xff\x01\x02xx\x80", b"\x41slice"), 0),
        ((b"\x06\x06", b"\x06", b"", b"\x41slice"), 0),
        ((b"\x06\x06\x09", b"\x41slice"), 0),
    ],
)
def test_rounds_of_intra_refresh_are_counted(units: tuple[bytes, ...], frames: int) -> None:
    for extradata, data in ((H264, avcc(*units)), (None, b"".join(b"\0\0\0\1" + unit for unit in units))):
        rule = recovery_rule("h264", extradata)
        assert rule is not None and rule(memoryview(data)) == frames


# Keyframes.


@pytest.mark.parametrize("name", ["keys.mp4", "keys.mkv"])
def test_keyframe_takes_the_nearest(made: Path, name: str) -> None:
    path = numbered_video(made / name, 600, gop=40, options={"sc_threshold": "0"})
    pool = sample(path, num_frames=20, precision="keyframe", size=SMALL)  # middles at 15, 45, 75 … 585
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [round(time * 25) for time in pool.times]
    assert all(number % 40 == 0 for number in numbers)
    nearest = {min(range(0, 600, 40), key=lambda key: abs(key - target)) for target in range(15, 600, 30)}
    assert numbers == sorted(nearest)
    assert "only 15 distinct frames" in pool.warnings[0]


@pytest.mark.parametrize("name", ["open.mp4", "hevc.mp4"])
def test_keyframes_of_open_groups_are_clean(made: Path, name: str) -> None:
    codec, options = CODECS[name]
    path = made / f"moving_{name}"
    if not path.exists():
        moving_video(path, 200, codec=codec, gop=40, options=options)
    pool = sample(path, num_frames=5, precision="keyframe", size=RAW)
    truth = decoded_in_order(path)
    assert len(pool) >= 4
    for time, pixels in zip(pool.times, pool.pixels, strict=True):
        assert np.array_equal(pixels, truth[round(time * 25)])


@pytest.mark.parametrize("name", ["keys.mp4", "keys.mkv", "keys.ts"])
def test_auto_takes_keyframes_within_reach_and_is_exact_elsewhere(made: Path, name: str) -> None:
    path = made / name
    if not path.exists():
        numbered_video(path, 600, gop=40, options={"sc_threshold": "0"})
    pool = sample(path, num_frames=15, precision="auto", size=SMALL)  # middles at 20, 60, 100 …; a fifth of a cell is 8
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [round(time * 25) for time in pool.times]
    assert numbers == list(range(20, 600, 40))
    pool = sample(path, num_frames=5, precision="auto", size=SMALL)  # middles at 60, 180, 300, 420, 540; a fifth is 24
    assert [read_number(frame) for frame in pool.pixels] == [40, 160, 280, 400, 520]
    pool = sample(path, num_frames=6, precision="auto", size=SMALL)  # middles at 50, 150, 250 …; a fifth is 20
    assert [read_number(frame) for frame in pool.pixels] == [40, 160, 240, 360, 440, 560]
    assert pool.times == pytest.approx([1.6, 6.4, 9.6, 14.4, 17.6, 22.4])
    pool = sample(
        path, num_frames=2, precision="auto", size=SMALL
    )  # middles at 150, 450; a fifth is 60: two are in reach
    assert [read_number(frame) for frame in pool.pixels] == [160, 440]


@pytest.mark.parametrize("cells", [3, 10, 77, 144, 400])
def test_auto_loses_no_cell_and_stays_near(made: Path, cells: int) -> None:
    path = made / "keys.mp4"
    if not path.exists():
        numbered_video(path, 600, gop=40, options={"sc_threshold": "0"})
    exact = sample(path, num_frames=cells, size=SMALL)
    auto = sample(path, num_frames=cells, precision="auto", size=SMALL)
    assert len(auto) == len(exact)
    reach = AUTO_FRACTION * 24 / cells + 0.041
    assert all(abs(a - b) <= reach for a, b in zip(auto.times, exact.times, strict=True))
    assert [read_number(frame) for frame in auto.pixels] == [round(time * 25) for time in auto.times]


@pytest.mark.parametrize("cells", range(1, 15))
def test_auto_takes_the_nearest_keyframe_within_reach(made: Path, cells: int) -> None:
    path = made / "keys.mp4"
    if not path.exists():
        numbered_video(path, 600, gop=40, options={"sc_threshold": "0"})
    pool = sample(path, num_frames=cells, precision="auto", size=SMALL)
    for time, i in zip(pool.times, range(cells), strict=True):
        target = 600 * (2 * i + 1) // (2 * cells)
        nearest = min(range(0, 600, 40), key=lambda key: abs(key - target))
        near_enough = abs(nearest - target) <= AUTO_FRACTION * 600 / cells
        assert round(time * 25) == (nearest if near_enough else target)


@pytest.mark.parametrize("cells", [4, 5, 9, 10, 20])
def test_auto_never_takes_one_long_frame_for_two_cells(made: Path, cells: int) -> None:
    """Slides: one keyframe every second and nothing between."""
    path = made / "slides.mp4"
    if not path.exists():
        numbered_video(path, 20, fps=1, gop=1)
    exact = sample(path, num_frames=cells, size=SMALL)
    assert len(sample(path, num_frames=cells, precision="auto", size=SMALL)) == len(exact) == cells


@pytest.mark.parametrize("precision", ["keyframe", "auto"])
@pytest.mark.parametrize("name", ["raw.h264", "giant.ts"])
def test_without_keyframes_to_seek_to_it_is_exact(made: Path, name: str, precision: str) -> None:
    path = made / f"few_{name}"
    if not path.exists():
        numbered_video(path, 120, gop=999, options={"sc_threshold": "0"})
    pool = sample(path, num_frames=10, precision=precision, size=SMALL)  # type: ignore[arg-type]
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [12 * i + 6 for i in range(10)]


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UsageError, match='precision must be "exact", "keyframe" or "auto"'):
        sample("/does/not/exist.mp4", num_frames=4, precision="roughly")  # type: ignore[arg-type]


# Workers.


def plan(*keys: int | None) -> DecodePlan:
    anchors = tuple(START if key is None else Anchor(key, key) for key in keys)
    return DecodePlan(tuple(range(100, 100 + len(keys))), anchors)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_parts_keep_groups_whole_and_in_order(count: int) -> None:
    from fractions import Fraction

    clock = FrameClock(Fraction(1, 25), 0, counted=False)
    whole = plan(None, 5, None, 10, 10, 10, 20, 20, 30, 40, 50, 60)
    parts = whole.parts(count, clock)
    assert 1 <= len(parts) <= count
    assert tuple(t for part in parts for t in part.targets) == whole.targets
    assert tuple(a for part in parts for a in part.anchors) == whole.anchors
    firsts = [{start.key for start in part.anchors} - {None} for part in parts]
    assert sum(map(len, firsts)) == len(set().union(*firsts))
    assert all(START not in part.anchors for part in parts[1:])


def test_what_cannot_be_seeked_has_one_reader() -> None:
    from fractions import Fraction

    assert len(plan(None, None, None).parts(8, FrameClock(Fraction(1, 25), 0, counted=True))) == 1


@pytest.mark.parametrize("readers", [1, 2, 5, 8])
def test_the_number_of_readers_changes_nothing(
    faststart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    damaged = patched(faststart, tmp_path / "damaged.mp4", start=0.5, length=0.05)
    for path in (faststart, damaged):
        use_readers(monkeypatch, 1)
        one = sample(path, num_frames=50, size=SMALL)
        use_readers(monkeypatch, readers)
        many = sample(path, num_frames=50, size=SMALL)
        assert many.times == one.times and many.warnings == one.warnings
        assert np.array_equal(many.pixels, one.pixels)


def test_little_work_has_one_reader(faststart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader opens the file, which takes longer than a few keyframes."""
    shared: list[int] = []
    original = decode._read_in_threads

    def noted(opener: decode.Opener, clock: FrameClock, shares: list[decode.Share], total: int) -> None:
        shared.append(len(shares))
        original(opener, clock, shares, total)

    monkeypatch.setattr(decode, "_cores", lambda: 4)
    monkeypatch.setattr(decode, "_read_in_threads", noted)
    sample(faststart, num_frames=2, precision="keyframe", size=SMALL)
    assert shared == []
    monkeypatch.setattr(decode, "WORKER_COST", 1e-9)
    sample(faststart, num_frames=2, precision="keyframe", size=SMALL)
    assert shared == [2]


def test_progress_comes_from_the_callers_thread(faststart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import get_ident

    use_readers(monkeypatch, 4)
    seen: list[ProgressEvent] = []
    threads = set()

    def listener(event: ProgressEvent) -> None:
        seen.append(event)
        threads.add(get_ident())

    with listening(listener):
        sample(faststart, num_frames=30, size=SMALL)
    assert seen == [("decode", done, 30) for done in range(31)]
    assert threads == {get_ident()}


def test_the_first_error_stops_all(faststart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event, active_count

    calls, stop = count(1), Event()
    original = reader.Reader.shown_at

    def fails(self: reader.Reader, target: int, start: Anchor, *, last: bool = False) -> object:
        number = next(calls)
        if number == 5:
            raise VideoError("broken")
        if number > 5:
            stop.wait()
        return original(self, target, start, last=last)

    use_readers(monkeypatch, 4)
    monkeypatch.setattr(decode, "Event", lambda: stop)
    monkeypatch.setattr(reader.Reader, "shown_at", fails)
    before = active_count()
    with pytest.raises(VideoError, match="broken"):
        sample(faststart, num_frames=1000, size=SMALL)
    assert next(calls) <= 5 + 3 + 1  # each of the other three was at one frame and took no more
    assert active_count() == before


def test_a_listener_that_raises_stops_all(faststart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import active_count

    def listener(event: ProgressEvent) -> None:
        if event.done == 3:
            raise KeyboardInterrupt

    use_readers(monkeypatch, 4)
    before = active_count()
    with listening(listener), pytest.raises(KeyboardInterrupt):
        sample(faststart, num_frames=1000, size=SMALL)
    assert active_count() == before


def test_one_deadline_for_all(
    faststart: Path,
    monkeypatch: pytest.MonkeyPatch,
    readers: list[reader.Reader],
    deadline_after: Callable[[int], type[Deadline]],
) -> None:
    from threading import Barrier, current_thread

    begun, started = set(), Barrier(4)
    original = reader.Reader.shown_at

    def together(self: reader.Reader, target: int, start: Anchor, *, last: bool = False) -> object:
        """On one core a thread would read its whole part before the next one is there."""
        if current_thread().name.startswith("decode") and self not in begun:
            begun.add(self)
            started.wait()
        return original(self, target, start, last=last)

    use_readers(monkeypatch, 4)
    monkeypatch.setattr(reader.Reader, "shown_at", together)
    deadline_after(2000)  # of 2,700; 1,200 come before the first frame
    with pytest.raises(VideoError, match=r"took longer than 60 s"):
        sample(faststart, num_frames=1000, size=SMALL, limits=VideoLimits(seconds=60))
    assert len(readers) == 4 and 0 < sum(each.decoded for each in readers) < 1000


@pytest.mark.parametrize("precision", ["exact", "keyframe", "auto"])
def test_a_keyframe_hidden_by_an_edit_list_is_never_shown(made: Path, precision: str) -> None:
    """Frames 0 to 29 are cut away, the keyframe 0 among them; the next one is 50."""
    plain = numbered_video(made / f"uncut_{precision}.mp4", 100, gop=50, options={"sc_threshold": "0"})
    cut = remux(plain, made / f"cut_{precision}.mp4", offset=-30 / 25)
    pool = sample(cut, num_frames=7, precision=precision, size=SMALL)  # type: ignore[arg-type]
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [30 + round(time * 25) for time in pool.times]
    assert min(pool.times) >= 0
    assert len(pool) == (2 if precision == "keyframe" else 7)


@pytest.mark.parametrize("precision", ["keyframe", "auto"])
def test_damage_never_shows_and_is_never_silent(faststart: Path, tmp_path: Path, precision: str) -> None:
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.5, length=0.1)
    pool = sample(path, num_frames=40, precision=precision, size=SMALL)  # type: ignore[arg-type]
    assert [read_number(frame) for frame in pool.pixels] == [round(time * 25) for time in pool.times]
    # A keyframe overwritten by zeros is none any more, so "keyframe" takes others and has fewer frames.
    assert ("damaged and replaced" if precision == "auto" else "distinct frames") in pool.warnings[0]
    assert len(pool) >= 32
