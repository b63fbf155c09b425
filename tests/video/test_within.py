"""Sampling only some segments of a video: which moments that means, and which frames come out."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import UsageError
from gridprobe.video import FrameSize, SampleSpec, Video
from gridprobe.video.cache import FrameCache, plan_key
from gridprobe.video.files import check_file
from gridprobe.video.sampling import middle_times
from toy_runs import make_video
from videos import read_number

FPS = 25
SMALL = FrameSize(max_side=128)
SEGMENTS = ((2.0, 3.0), (6.0, 9.0))

Segments = tuple[tuple[float, float], ...]


@st.composite
def stretches_of_a_minute(draw: st.DrawFn) -> Segments:
    """Up to five intervals of whole seconds of a minute that do not overlap."""
    ends = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=10)))
    return tuple((float(start), float(end)) for start, end in zip(ends[::2], ends[1::2], strict=False))


# Moments.


def test_moments_by_hand() -> None:
    # Four seconds laid end to end, eight moments: at 0.25, 0.75, … of them; the first second lies at 2, the rest at 6.
    moments = SampleSpec(8, segments=SEGMENTS).moments(12.0)

    assert moments == pytest.approx((2.25, 2.75, 6.25, 6.75, 7.25, 7.75, 8.25, 8.75))


def test_without_stretches_the_whole_video_is_sampled() -> None:
    assert SampleSpec(8).moments(12.0) == middle_times(12.0, 8) == SampleSpec(8, segments=((0.0, 12.0),)).moments(12.0)


def test_a_stretch_ends_with_the_video_and_one_behind_it_is_left_out() -> None:
    assert SampleSpec(2, segments=((8.0, 20.0),)).moments(12.0) == (9.0, 11.0)
    assert SampleSpec(2, segments=((8.0, 10.0), (15.0, 20.0))).moments(12.0) == (8.5, 9.5)
    assert SampleSpec(2, segments=((15.0, 20.0),)).moments(12.0) == middle_times(12.0, 2)


@given(stretches_of_a_minute(), st.integers(1, 200))
def test_moments_rise_and_lie_in_the_stretches(segments: Segments, cells: int) -> None:
    moments = SampleSpec(cells, segments=segments).moments(60.0)

    assert len(moments) == cells and all(a < b for a, b in pairwise(moments))
    assert all(any(start - 1e-9 <= moment <= end + 1e-9 for start, end in segments) for moment in moments)


@given(stretches_of_a_minute(), st.integers(1, 200))
def test_every_stretch_has_its_share_of_the_moments(segments: Segments, cells: int) -> None:
    moments = np.array(SampleSpec(cells, segments=segments).moments(60.0))
    total = sum(end - start for start, end in segments)

    for start, end in segments:
        inside = np.count_nonzero((moments >= start - 1e-9) & (moments <= end + 1e-9))
        assert abs(inside - cells * (end - start) / total) <= 1 + 1e-6


@given(stretches_of_a_minute(), st.integers(1, 200))
def test_cell_is_the_distance_between_moments_of_one_stretch(segments: Segments, cells: int) -> None:
    spec = SampleSpec(cells, segments=segments)
    moments = spec.moments(60.0)

    near = [(a, b) for a, b in pairwise(moments) if any(start <= a and b <= end for start, end in segments)]

    assert all(b - a == pytest.approx(spec.cell(60.0)) for a, b in near)
    assert spec.cell(60.0) == pytest.approx(sum(end - start for start, end in segments) / cells)


@pytest.mark.parametrize(
    "segments",
    [((3.0, 2.0),), ((0.0, 2.0), (1.0, 3.0)), ((-1.0, 2.0),), ((0.0, float("inf")),), ((float("nan"), 1.0),)],
)
def test_stretches_that_do_not_rise_are_refused(segments: Segments) -> None:
    with pytest.raises(UsageError, match="segments must be rising intervals of seconds"):
        SampleSpec(4, segments=segments)


def test_frame_numbers_cannot_be_counted_in_stretches() -> None:
    with pytest.raises(UsageError, match='use sampling="middle"'):
        SampleSpec(4, "linspace", segments=SEGMENTS)


# Frames of a real file.


def test_frames_are_those_on_display_at_the_moments(clip: Path) -> None:
    whole = Video(clip, num_frames=16)

    pool = whole.within(SEGMENTS).pool(SMALL)

    expected = [int(moment * FPS) for moment in SampleSpec(16, segments=SEGMENTS).moments(12.0)]
    assert [read_number(frame) for frame in pool.pixels] == expected
    assert pool.times == pytest.approx([number / FPS for number in expected])


def test_frames_lie_in_the_stretches_in_equal_shares_and_closer(clip: Path) -> None:
    whole, closer = Video(clip, num_frames=16), Video(clip, num_frames=16).within(SEGMENTS)

    times = closer.pool(SMALL).times

    inside = [sum(start - 1 / FPS < time < end for time in times) for start, end in SEGMENTS]
    assert inside == [4, 12]
    assert np.median(np.diff(times)) < np.median(np.diff(whole.pool(SMALL).times)) / 2


@pytest.mark.parametrize("precision", ["exact", "auto", "keyframe"])
def test_rest_of_the_spec_stays(clip: Path, precision: str) -> None:
    whole = Video(clip, num_frames=9, precision=precision)  # type: ignore[arg-type]

    closer = whole.within(SEGMENTS)

    assert closer.spec == SampleSpec(9, "middle", precision, segments=SEGMENTS)  # type: ignore[arg-type]
    assert whole.spec.segments == () and closer.info.duration == whole.info.duration


def test_second_size_shows_the_same_frames(clip: Path) -> None:
    closer = Video(clip, num_frames=16).within(SEGMENTS)
    small = closer.pool(SMALL)

    large = closer.frames([0, 5, 15], FrameSize(max_side=256))

    assert [read_number(frame) for frame in large.pixels] == [read_number(small.pixels[i]) for i in (0, 5, 15)]


def test_more_moments_than_frames_give_every_frame_once(clip: Path) -> None:
    pool = Video(clip, num_frames=100).within(((4.0, 5.0),)).pool(SMALL)

    assert [read_number(frame) for frame in pool.pixels] == list(range(100, 125))


def test_folder_of_pictures_has_stretches_too(tmp_path: Path) -> None:
    video = Video(make_video(tmp_path / "v"), num_frames=4)
    duration = video.info.duration
    assert duration is not None

    closer = video.within(((duration / 2, duration),))

    assert len(video.pool()) == 4 and closer.pool().times == video.pool().times[2:]


# The cache.


def test_plans_for_other_stretches_have_other_keys(clip: Path) -> None:
    file = check_file(clip)
    specs = [SampleSpec(16, segments=each) for each in ((), SEGMENTS, SEGMENTS[:1], ((2.0, 3.5), (6.0, 9.0)))]

    assert len({plan_key(file, spec, "PyAV") for spec in specs}) == len(specs)


def test_cache_never_mixes_the_whole_video_with_its_stretches(clip: Path, tmp_path: Path) -> None:
    def pools() -> list[list[int]]:
        whole = Video(clip, num_frames=16, cache=FrameCache(tmp_path / "cache", 10**8))
        parts = [whole, whole.within(SEGMENTS), whole.within(SEGMENTS[:1])]
        return [[read_number(frame) for frame in part.pool(SMALL).pixels] for part in parts]

    first, again = pools(), pools()

    plain = Video(clip, num_frames=16)
    fresh = [plain, plain.within(SEGMENTS), plain.within(SEGMENTS[:1])]
    assert first == again == [[read_number(frame) for frame in part.pool(SMALL).pixels] for part in fresh]
    assert len({tuple(each) for each in first}) == 3
