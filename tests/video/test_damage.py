"""Truncated and damaged files: bounded work, honest warnings, and never a smeared frame passed off as a good one."""

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

import av
import av.bitstream
import pytest

from gridprobe.errors import VideoError
from gridprobe.video import FrameSize, probe, sample
from gridprobe.video.reader import Reader
from gridprobe.video.source import Source
from videos import numbered_video, patched, read_number

SMALL = FrameSize(max_side=256)


# V03 of tests/reliability.md
def test_index_at_the_end_and_cut(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    path.write_bytes(clip.read_bytes()[: clip.stat().st_size * 6 // 10])
    with pytest.raises(VideoError, match=r"cut\.mp4: the file is incomplete \(no index\); download it again"):
        probe(path)


# V04 of tests/reliability.md
@pytest.mark.parametrize("sampling", ["middle", "linspace"])
def test_index_in_front_and_cut(faststart: Path, tmp_path: Path, sampling: str) -> None:
    path = tmp_path / "cut.mp4"
    path.write_bytes(faststart.read_bytes()[: faststart.stat().st_size * 6 // 10])
    pool = sample(path, num_frames=64, sampling=sampling, size=SMALL)  # type: ignore[arg-type]
    info = pool.info
    assert info is not None and info.duration_header == 60.0 and info.duration_found is not None
    assert 20 < info.duration_found < 45
    assert pool.warnings[0] == (
        f"the file is truncated: header says 60.0 s, {info.duration_found:.1f} s can be decoded"
    )
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [round(time * 25) for time in pool.times]
    assert len(pool) >= 63
    # Sampled over what is there, not over what is promised: the cells fill the part that decodes, evenly.
    assert pool.times[-1] > info.duration_found * 0.97
    steps = [b - a for a, b in zip(pool.times, pool.times[1:], strict=False)]
    assert max(steps) - min(steps) < 0.13


# V05 of tests/reliability.md
@pytest.mark.parametrize("kind", ["random", "zeros"])
def test_damage_in_the_middle(faststart: Path, tmp_path: Path, kind: str) -> None:
    noise = random.Random(7)
    filler = (noise.randrange(256) for _ in repeat(None)) if kind == "random" else None
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.5, length=0.05, filler=filler)
    pool = sample(path, num_frames=300, size=SMALL)
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [round(time * 25) for time in pool.times]
    # A cell is five frames wide: most of the damage has no good frame within half of that.
    assert pool.warnings[0].endswith("damaged and replaced by neighbours")
    assert pool.warnings[0].split()[0] == str(pool.substituted)
    assert pool.warnings[1].endswith("damaged with no good one within half a cell, and left out")
    assert 5 < pool.substituted + int(pool.warnings[1].split()[0]) < 60
    assert 240 < len(pool) < 300
    # Away from the damage nothing changes.
    whole = sample(faststart, num_frames=300, size=SMALL)
    assert pool.times[:100] == whole.times[:100] and pool.times[-100:] == whole.times[-100:]


# V05 of tests/reliability.md
@pytest.mark.parametrize("cells", [20, 30, 37, 50, 150])
def test_a_damaged_target_takes_its_nearest_good_frame(faststart: Path, tmp_path: Path, cells: int) -> None:
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.5, length=0.05)
    every = sample(path, num_frames=1500, size=SMALL)
    good = {round(time * 25) for time in every.times}
    lost = sorted(set(range(1500)) - good)
    assert 20 < len(lost) < 250
    pool = sample(path, num_frames=cells, size=SMALL)
    taken = [round(time * 25) for time in pool.times]
    assert set(taken) <= good
    for target in (1500 * (2 * i + 1) // (2 * cells) for i in range(cells)):
        nearest = min(abs(target - number) for number in good)
        if nearest <= 1500 / cells / 2:
            assert min(abs(target - number) for number in taken) <= nearest
    assert taken == sorted(set(taken))


# V05, V06 of tests/reliability.md
@pytest.mark.parametrize("cells", [20, 60, 150, 300])
def test_no_frame_stands_in_from_more_than_half_a_cell_away(faststart: Path, tmp_path: Path, cells: int) -> None:
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.5, length=0.05)
    pool = sample(path, num_frames=cells, size=SMALL)
    assert [read_number(frame) for frame in pool.pixels] == [round(time * 25) for time in pool.times]
    targets = [1500 * (2 * i + 1) // (2 * cells) for i in range(cells)]
    away = [min(abs(round(time * 25) - target) for target in targets) for time in pool.times]
    assert max(away) <= 1500 / cells / 2
    # A moment counts as substituted only if a frame of the pool is near enough to be its substitute.
    taken, half = {round(time * 25) for time in pool.times}, 1500 / cells / 2
    moments = [half * (2 * i + 1) for i in range(cells) if targets[i] not in taken]
    assert pool.substituted == sum(any(abs(number - moment) <= half for number in taken) for moment in moments)
    # Every cell has its frame, a substitute that is counted, or is left out and counted; two may share a substitute.
    left_out = [int(text.split()[0]) for text in pool.warnings if "left out" in text]
    exact = sum(gap == 0 for gap in away)
    assert cells - exact == pool.substituted + sum(left_out)
    assert pool.substituted >= len(pool) - exact
    assert pool.substituted + sum(left_out) > 0


# V05, V06 of tests/reliability.md
@pytest.mark.parametrize(("length", "refused"), [(0.1, False), (0.3, True)])
def test_more_than_a_fifth_damaged_is_refused(faststart: Path, tmp_path: Path, length: float, refused: bool) -> None:
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.4, length=length)
    if not refused:
        assert 0 < sample(path, num_frames=50, size=SMALL).substituted <= 10
        return
    with pytest.raises(VideoError) as caught:
        sample(path, num_frames=50, size=SMALL)
    text = str(caught.value).removeprefix(f"{path}: ")
    assert 10 < int(text.split()[0]) <= 20
    assert text.split(" ", 1)[1] == (
        "of the 50 sampled frames are damaged, more than 20%; download or record the video again"
    )


def test_a_frame_the_decoder_calls_corrupt_is_damaged_without_any_error(
    faststart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Reader._take

    def take(reader: Reader, frame: av.VideoFrame) -> None:
        assert frame.pts is not None
        spoilt = SimpleNamespace(pts=frame.pts, duration=frame.duration, is_corrupt=True)
        original(reader, spoilt if frame.pts * reader._clock.time_base == 30 else frame)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "_take", take)
    pool = sample(faststart, num_frames=15, size=SMALL)  # frames 50, 150 … 1450
    assert round(pool.times[7] * 25) in (749, 751) and pool.substituted == 1
    assert pool.warnings == ("1 frame was damaged and replaced by neighbours",)


@pytest.mark.parametrize("kept", [5, 12])
def test_the_nearest_good_frame_may_lie_in_the_group_before(faststart: Path, tmp_path: Path, kept: int) -> None:
    """Frame 750 is a keyframe; with its whole group gone, 749 is nearer than 775.

    The first bytes of each packet stay, so that it still looks like a keyframe; with 12 the decoder raises no error.
    """
    with av.open(str(faststart)) as container:
        stream = container.streams.video[0]
        assert stream.time_base
        frames = {round(p.pts * stream.time_base * 25): p for p in container.demux(stream) if p.pts is not None}
        assert frames[750].is_keyframe
        places = [(packet.pos or 0, packet.size) for number, packet in frames.items() if 750 <= number < 775]
    assert len(places) == 25
    data = bytearray(faststart.read_bytes())
    for position, size in places:
        data[position + kept : position + size] = b"\xff" * (size - kept)
    path = tmp_path / "group.mp4"
    path.write_bytes(bytes(data))
    pool = sample(path, num_frames=15, size=SMALL)  # frames 50, 150 … 1450
    numbers = [read_number(frame) for frame in pool.pixels]
    substitute = numbers.pop(7)
    assert numbers == [*range(50, 750, 100), *range(850, 1500, 100)]
    # Frames the decoder still held back when the error came are not trusted either, hence not always 749 itself.
    assert 744 <= substitute == round(pool.times[7] * 25) <= 749
    assert pool.warnings == ("1 frame was damaged and replaced by neighbours",)


@pytest.mark.parametrize("amount", [200_000, 20_000, 200])
def test_noise_all_through(
    faststart: Path, tmp_path: Path, readers: list[Reader], packets: list[int], amount: int
) -> None:
    """V07: bits wrong all over. Some decode without an error, and nobody can tell that frame from a good one; but these
    are few, the work is bounded, and a file full of it is refused."""
    path = tmp_path / "noise.mp4"
    with av.open(str(faststart)) as original, av.open(str(path), "w") as output:
        template = original.streams.video[0]
        stream = output.add_stream_from_template(template)
        noise = av.bitstream.BitStreamFilterContext(f"noise=amount={amount}", template)
        for packet in original.demux(template):
            for spoilt in noise.filter(packet) if packet.size else ():
                spoilt.stream = stream
                output.mux(spoilt)
    if amount == 200:
        with pytest.raises(VideoError, match=r"\d+ of the 100 sampled frames are damaged, more than 20%"):
            sample(path, num_frames=100, size=SMALL)
    else:
        pool = sample(path, num_frames=100, size=SMALL)
        assert pool.substituted > 0 and pool.warnings[0].endswith("damaged and replaced by neighbours")
        good = [read_number(frame) == round(second * 25) for frame, second in zip(pool.pixels, pool.times, strict=True)]
        assert good.count(False) <= 5
    assert sum(each.decoded for each in readers) <= 2 * 1500 and len(packets) <= 3 * 1500  # of a file of 1,500


@pytest.mark.parametrize("name", ["giant.mp4", "giant.ts"])
def test_one_giant_group_without_its_key_frame(
    made: Path, tmp_path: Path, readers: list[Reader], packets: list[int], name: str
) -> None:
    """V20: nothing is decodable for 24 seconds; that is said, and soon."""
    whole = made / f"damage_{name}"
    if not whole.exists():
        numbered_video(whole, 600, gop=9999, options={"sc_threshold": "0"})
    with av.open(str(whole)) as container:
        key = next(packet for packet in container.demux(video=0) if packet.is_keyframe)
    assert key.pos is not None
    data = bytearray(whole.read_bytes())
    data[key.pos + 100 : key.pos + key.size] = bytes(key.size - 100)
    path = tmp_path / name
    path.write_bytes(bytes(data))
    with pytest.raises(VideoError, match="damaged"):
        sample(path, num_frames=100, size=SMALL)
    assert not readers and len(packets) <= 2 * 600  # of a file of 600: it is gone through once


def test_one_long_group_of_six_without_its_key_frame(tmp_path: Path, readers: list[Reader]) -> None:
    """V20: what is lost with the keyframe is counted, and the other groups are decoded once."""
    path = numbered_video(tmp_path / "six.mp4", 600, gop=100, options={"sc_threshold": "0"})
    with av.open(str(path)) as container:
        keys = [packet for packet in container.demux(video=0) if packet.is_keyframe]
    assert len(keys) == 6 and keys[2].pos is not None
    data = bytearray(path.read_bytes())
    data[keys[2].pos + 5 : keys[2].pos + keys[2].size] = b"\xff" * (keys[2].size - 5)
    path.write_bytes(bytes(data))
    pool = sample(path, num_frames=100, size=SMALL)
    numbers = [read_number(frame) for frame in pool.pixels]
    assert numbers == [round(time * 25) for time in pool.times] and not set(range(200, 290)) & set(numbers)
    left_out = [int(text.split()[0]) for text in pool.warnings if text.endswith("left out")]
    assert 15 <= pool.substituted + sum(left_out) <= 20 and pool.warnings
    assert sum(each.decoded for each in readers) <= 2 * 600


def test_a_packet_that_asks_for_gigabytes(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged index can make FFmpeg say "out of memory": that is one packet that is damaged, and no more."""
    original = Source._demux
    asked: list[object] = []

    def greedy(source: Source) -> Iterator[object]:
        for number, packet in enumerate(original(source)):
            if number == 5 and not asked:
                asked.append(packet)
                raise av.error.MemoryError(12, "Cannot allocate memory")
            yield packet

    monkeypatch.setattr(Source, "_demux", greedy)
    pool = sample(clip, num_frames=20, size=SMALL)
    assert asked and [read_number(frame) for frame in pool.pixels] == [round(time * 25) for time in pool.times]


def test_want_of_memory_is_one_line(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object) -> None:
        raise av.error.MemoryError(12, "Cannot allocate memory")

    monkeypatch.setattr("gridprobe.video.reader.Reader._decode", greedy)
    with pytest.raises(VideoError, match=r"clip\.mp4: not enough memory to decode it"):
        sample(clip, num_frames=20, size=SMALL)


def test_nothing_decodable(clip: Path, tmp_path: Path) -> None:
    data = bytearray(clip.read_bytes())
    start = data.index(b"mdat") + 4
    end = data.index(b"moov") - 4
    data[start:end] = bytes(end - start)
    path = tmp_path / "black.mp4"
    path.write_bytes(bytes(data))
    with pytest.raises(VideoError, match=r"black\.mp4: no frame can be decoded"):
        sample(path, num_frames=9)


# V22 of tests/reliability.md
def test_encrypted(clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "drm.mp4"
    path.write_bytes(clip.read_bytes().replace(b"avc1\0\0", b"encv\0\0"))
    with pytest.raises(VideoError, match=r"drm\.mp4: .*encrypted"):
        sample(path, num_frames=9)


def test_matroska_cut_short(tmp_path: Path) -> None:
    whole = numbered_video(tmp_path / "whole.mkv", 500)
    path = tmp_path / "cut.mkv"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    pool = sample(path, num_frames=25, size=SMALL)
    assert "although the header says 20.0 s; the file may be truncated" in pool.warnings[0]
    assert [read_number(frame) for frame in pool.pixels] == [round(time * 25) for time in pool.times]


def test_damage_does_not_flood_stderr(faststart: Path, tmp_path: Path) -> None:
    """V07: thousands of error messages of FFmpeg reach nobody."""
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.4, length=0.1)
    code = f"from gridprobe.video import sample; print(len(sample({str(path)!r}, num_frames=100)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50
    assert done.stderr == ""
