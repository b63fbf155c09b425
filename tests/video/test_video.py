"""One plan, two sizes: the frames of a second pass are those of the first, and what packets promise is what decodes."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from gridprobe.errors import VideoError
from gridprobe.video import NATIVE, FramePool, FrameSize, Moved, Video, VideoLimits, sample
from gridprobe.video.cache import MemoryCache
from gridprobe.video.decode import FileStream
from gridprobe.video.frames import Pending
from gridprobe.video.reader import Reader
from gridprobe.video.sampling import FrameIndex
from videos import Pixels, numbered_video, patched, picture_video, read_number, remux, turn_by_matrix

SMALL = FrameSize(max_side=128)
KINDS = {
    "plain.mp4": {},
    "late.ts": {"gop": 25},
    "open.mkv": {"options": {"x264-params": "open-gop=1:keyint=25:b-adapt=0"}},
    "one.mp4": {"gop": 999},
    "hevc.mkv": {"codec": "libx265", "gop": 25},
    "vp9.webm": {"codec": "libvpx-vp9", "gop": 25},
    "asp.avi": {"codec": "mpeg4", "gop": 25},
    "raw.h264": {"gop": 25},
    "edited.mp4": {"gop": 50},
    "rate.mp4": {"ticks": [*range(0, 150, 3), *range(150, 250)]},
}


def made_video(made: Path, name: str) -> Path:
    path = made / f"footage_{name}"
    if not path.exists():
        numbered_video(path, 150, **KINDS[name])  # type: ignore[arg-type]
        if name == "plain.mp4":
            turn_by_matrix(path, 90)
        if name == "edited.mp4":  # an edit list hides the first 30 frames
            path = remux(path.rename(made / "unedited.mp4"), path, offset=-30 / 25)
    return path


def same(one: FramePool, other: FramePool) -> bool:
    return one.keys == other.keys and np.array_equal(one.pixels, other.pixels)


# D02 of tests/reliability.md
@pytest.mark.parametrize("memory", [1, 512 << 20], ids=["each time decoded", "kept in memory"])
@pytest.mark.parametrize("name", ["plain.mp4", "open.mkv", "hevc.mkv", "asp.avi"])
def test_any_order_twice_gives_the_pixels_of_decoding_in_order(made: Path, name: str, memory: int) -> None:
    path = made_video(made, name)
    in_order = sample(path, num_frames=30)
    video = Video(path, num_frames=30, limits=VideoLimits(memory=memory))
    orders = [[17], [29, 0, 15], [3, 4, 2], [15, 28, 1, 17], list(range(29, -1, -1))]

    for indices in [*orders, *orders]:
        assert same(video.frames(indices), in_order.take(indices)), indices


@pytest.mark.parametrize("size", [NATIVE, SMALL], ids=["native", "scaled"])
def test_a_detailed_frame_has_the_same_bytes_alone_and_among_all(tmp_path: Path, size: FrameSize) -> None:
    """D06: bars look the same however they are scaled; noise does not."""
    noise = np.random.default_rng(3).integers(0, 256, (96, 160, 3), dtype=np.uint8)
    path = picture_video(tmp_path / "noise.mp4", noise, frames=20)
    among_all = sample(path, num_frames=20, size=size)

    for index in (0, 7, 19):
        assert same(Video(path, num_frames=20).frames([index], size), among_all.take([index]))


# D06 of tests/reliability.md
@pytest.mark.parametrize("precision", ["exact", "auto", "keyframe"])
@pytest.mark.parametrize("name", KINDS)
def test_a_second_pass_gives_the_frames_of_the_first_bit_for_bit(made: Path, name: str, precision: str) -> None:
    path = made_video(made, name)
    video = Video(path, num_frames=20, precision=precision)  # type: ignore[arg-type]
    native = sample(path, num_frames=20, precision=precision)  # type: ignore[arg-type]

    small = video.pool(SMALL)
    chosen = list(range(0, len(small), 3))

    assert small.times == native.times and max(small.width, small.height) == 128
    assert same(video.frames(chosen), native.take(chosen))
    assert same(video.frames(chosen[::-1]), native.take(chosen[::-1]))
    assert same(video.pool(), native)


@pytest.mark.parametrize("precision", ["exact", "auto"])
@pytest.mark.parametrize("cells", [7, 149, 400])
@pytest.mark.parametrize("name", KINDS)
def test_packets_promise_what_decodes(made: Path, name: str, cells: int, precision: str) -> None:
    path = made_video(made, name)
    video = Video(path, num_frames=cells, precision=precision)  # type: ignore[arg-type]

    outline = video.lazy(SMALL)

    decoded = sample(path, num_frames=cells, precision=precision, size=SMALL)  # type: ignore[arg-type]
    assert outline.times == decoded.times and outline.warnings == decoded.warnings
    assert same(outline, decoded)


def test_a_second_pass_decodes_no_more_than_its_groups_of_pictures(faststart: Path, readers: list[Reader]) -> None:
    video = Video(faststart, num_frames=30)  # middles at 25, 75, 125 …: keyframes all, and one every 25 frames
    video.pool(SMALL)
    readers.clear()
    assert [read_number(frame) for frame in video.frames([3, 20]).pixels] == [175, 1025]
    assert 0 < sum(reader.decoded for reader in readers) <= 8


def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, int], bool]]:
    """Every pass over a file: its size, and whether it went through the whole plan."""
    passes: list[tuple[tuple[int, int], bool]] = []
    original = FileStream.read

    def spy(
        clip: FileStream, size: tuple[int, int], pts_list: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[FrameIndex, Pixels]:
        passes.append((size, whole or pts_list is None))
        return original(clip, size, pts_list, whole=whole)

    monkeypatch.setattr(FileStream, "read", spy)
    return passes


def test_an_undecoded_pool_knows_everything_but_pixels(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = reads(monkeypatch)
    outline = Video(clip, num_frames=20).lazy(SMALL)
    part = outline.take([3, 5])
    assert (len(outline), outline.width, outline.height, len(part), part.width) == (20, 128, 32, 2, 128)
    assert part.times == (outline.times[3], outline.times[5]) and part.keys == outline.take([3, 5]).keys
    assert "20 frames of 128×32" in repr(outline)
    assert passes == []
    assert [read_number(frame) for frame in part.pixels] == [round(time * 25) for time in part.times]
    assert isinstance(outline.data, Pending) and outline.pixels is outline.pixels
    assert passes == [((128, 32), False)]
    renamed = replace(outline, source="other")
    assert (renamed.width, renamed.source) == (128, "other") and np.array_equal(renamed.pixels, outline.pixels)


def test_of_a_pool_too_large_to_keep_only_what_is_looked_at_is_decoded(clip: Path) -> None:
    whole = sample(clip, num_frames=20, size=SMALL)
    video = Video(clip, num_frames=20, limits=VideoLimits(memory=whole.pixels.nbytes // 4))
    pool = video.pool(SMALL)
    assert isinstance(pool.data, Pending) and pool.times == whole.times
    for start in range(0, 20, 4):
        window = pool.cut(range(start, start + 4))
        assert np.array_equal(window.pixels, whole.pixels[start : start + 4])
        assert window.pixels is window.pixels, "the video keeps what was decoded last"
        assert video.memory_used <= whole.pixels.nbytes // 4
    assert not pool.data.decoded


def test_frames_that_were_cut_out_are_not_copied_and_cannot_be_changed(clip: Path) -> None:
    pool = sample(clip, num_frames=20, size=SMALL)
    part = pool.cut(range(5, 9))
    assert part.times == pool.times[5:9] and part.keys == pool.keys[5:9]
    assert np.shares_memory(part.pixels, pool.pixels) and not part.pixels.flags.writeable


def test_a_pool_too_large_to_keep_is_decoded_once(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = reads(monkeypatch)
    video = Video(clip, num_frames=20, limits=VideoLimits(memory=1000))
    assert same(video.pool(SMALL), sample(clip, num_frames=20, size=SMALL))
    assert len(passes) == 2  # one of them by sample()


@pytest.mark.parametrize(("start", "length"), [(0.3, 0.01), (0.5, 0.05), (0.7, 0.1)])
@pytest.mark.parametrize("name", ["hevc.mkv", "late.ts", "open.mkv", "asp.avi"])
def test_substitutes_are_the_same_frames_in_both_passes(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, start: float, length: float
) -> None:
    path = patched(made_video(made, name), tmp_path / name, start=start, length=length)
    video = Video(path, num_frames=50)
    try:
        native = sample(path, num_frames=50)
    except VideoError as refusal:  # more than a fifth is damaged, whatever the size
        with pytest.raises(VideoError, match=re.escape(str(refusal))):
            video.pool(SMALL)
        return
    passes = reads(monkeypatch)

    small = video.pool(SMALL)

    assert small.times == native.times and small.warnings == native.warnings
    assert small.substituted == native.substituted
    chosen = list(range(0, len(small), 2))
    assert same(video.frames(chosen), native.take(chosen))
    damaged = any("damaged" in warning for warning in small.warnings)
    assert passes[1:] == [((256, 64), damaged)]  # with damage only the way of the first pass is sure to find them


def loses(monkeypatch: pytest.MonkeyPatch, *, whole_too: bool) -> None:
    """Frames that are gone to straight come out one too few, as damage can have it."""
    original = FileStream.read

    def read(
        clip: FileStream, size: tuple[int, int], pts_list: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[FrameIndex, Pixels]:
        found, pixels = original(clip, size, pts_list, whole=whole)
        lost = pts_list is not None and (whole_too or not whole)
        return (found._replace(pts=found.pts[1:]), pixels[1:]) if lost else (found, pixels)

    monkeypatch.setattr(FileStream, "read", read)


def test_a_frame_that_is_not_found_straight_is_found_by_the_whole_plan(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = Video(clip, num_frames=20)
    video.pool(SMALL)
    loses(monkeypatch, whole_too=False)
    assert same(video.frames([2, 3]), sample(clip, num_frames=20).take([2, 3]))


def test_frames_that_cannot_be_found_again_are_an_error_and_then_looked_for_anew(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = Video(clip, num_frames=20)
    video.pool(SMALL)
    with monkeypatch.context() as patch:
        loses(patch, whole_too=True)
        with pytest.raises(Moved, match=r"clip\.mp4: .*not found again"):
            video.frames([2, 3])
    assert same(video.frames([2, 3]), sample(clip, num_frames=20).take([2, 3]))


def test_a_broken_promise_is_an_error_but_a_black_thumbnail(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loses(monkeypatch, whole_too=True)
    outline = Video(clip, num_frames=5).lazy(SMALL)
    assert not outline.pixels[0].any() and outline.pixels[1].any()
    video = Video(clip, num_frames=5)
    with pytest.raises(Moved):
        video.frames([0, 1])
    # Packets are not believed a second time: now everything is decoded, and that says what there is.
    assert same(video.frames([0, 1]), sample(clip, num_frames=5).take([0, 1]))


def meets_trouble(monkeypatch: pytest.MonkeyPatch, *, at_first: bool) -> None:
    """Something is damaged on the way to the frames of the first pass, or of all others; the frames are there."""
    original = FileStream.read

    def read(
        clip: FileStream, size: tuple[int, int], pts_list: Sequence[int] | None = None, *, whole: bool = False
    ) -> tuple[FrameIndex, Pixels]:
        found, pixels = original(clip, size, pts_list, whole=whole)
        return found._replace(smooth=(pts_list is None) != at_first), pixels

    monkeypatch.setattr(FileStream, "read", read)


@pytest.mark.parametrize("at_first", [True, False])
def test_after_any_trouble_the_second_pass_goes_the_way_of_the_first(
    clip: Path, monkeypatch: pytest.MonkeyPatch, at_first: bool
) -> None:
    meets_trouble(monkeypatch, at_first=at_first)
    passes = reads(monkeypatch)
    video = Video(clip, num_frames=20)
    video.pool(SMALL)
    assert same(video.frames([2, 3]), sample(clip, num_frames=20).take([2, 3]))
    straight = [] if at_first else [False]
    assert [whole for _, whole in passes] == [True, *straight, True, True]  # the last one by sample()


def test_a_promise_kept_with_trouble_is_not_trusted(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meets_trouble(monkeypatch, at_first=False)
    video = Video(clip, num_frames=20)
    video.lazy(SMALL)
    with pytest.raises(Moved):
        video.frames([2, 3])


def test_frames_that_met_trouble_are_shown_but_not_kept(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meets_trouble(monkeypatch, at_first=False)
    video = Video(clip, num_frames=20)
    assert video.lazy(SMALL).pixels.any() and video.memory_used == 0


@pytest.mark.parametrize("how", ["replaced", "removed", "touched"])
def test_another_file_under_the_name_is_noticed(clip: Path, tmp_path: Path, how: str) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(clip.read_bytes())
    video = Video(path, num_frames=20)
    video.pool(SMALL)
    if how == "replaced":
        path.write_bytes(numbered_video(tmp_path / "other.mp4", 300, fps=24).read_bytes())
    elif how == "removed":
        path.unlink()
    else:
        os.utime(path, ns=(0, 0))
    assert video.pool(SMALL).width == 128  # what is in memory stays good
    with pytest.raises(VideoError, match=r"video\.mp4: the file (changed|was deleted or moved) while it was in use"):
        video.frames([1])


def test_a_folder_has_two_sizes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        Image.new("RGB", (640, 320), (number, 0, 0)).save(tmp_path / f"{number}.png")
    opener = Mock(wraps=Image.open)
    video = Video(tmp_path, num_frames=9)
    monkeypatch.setattr(Image, "open", opener)

    assert video.lazy(SMALL).times == tuple(map(float, range(9))) and not opener.called
    assert video.frames([7, 2], NATIVE).pixels[:, 0, 0, 0].tolist() == [7, 2]
    assert [Path(call.args[0]).name for call in opener.call_args_list] == ["2.png", "7.png"]
    assert video.frames([7]).width == 640
    assert video.pool(SMALL).width == 128
    (tmp_path / "3.png").write_bytes(b"")
    with pytest.raises(VideoError, match="not a picture"):
        video.frames([3])


# The shelf.


def frames(count: int, value: int = 0) -> Pixels:
    return np.full((count, 10, 10, 1), value, np.uint8)


def test_the_shelf_forgets_what_was_used_longest_ago() -> None:
    shelf, size = MemoryCache(500), (10, 10)
    first, second = frames(2, 1), frames(2, 2)
    shelf.put(size, [10, 20], first)
    shelf.put(size, [30, 40], second)
    assert shelf.batch(size, [10, 20]) is first and shelf.batch(size, [10]) is None
    shelf.put(size, [50, 60], frames(2, 3))
    assert shelf.bytes == 400
    assert shelf.get(size, 30) is None and shelf.batch(size, [30, 40]) is None
    row = shelf.get(size, 20)
    assert row is not None and np.shares_memory(row, first)
    assert shelf.get((5, 5), 20) is None
    shelf.put(size, range(6), frames(6))
    assert shelf.bytes == 400  # too large by itself: nothing is driven out for it


def test_a_frame_that_came_twice_stays_with_the_younger_array() -> None:
    shelf, size = MemoryCache(400), (10, 10)
    shelf.put(size, [1, 2], frames(2, 1))
    shelf.put(size, [2, 3], frames(2, 2))
    shelf.put(size, [4], frames(1, 3))
    assert shelf.get(size, 1) is None
    assert int(shelf.get(size, 2)[0, 0, 0]) == 2  # type: ignore[index]
