import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import UsageError
from gridprobe.video.sampling import linspace_numbers, middle_times


def test_middles_of_equal_intervals() -> None:
    assert middle_times(8.0, 4) == (1.0, 3.0, 5.0, 7.0)
    assert middle_times(10.0, 1) == (5.0,)


@given(st.floats(0.01, 1e6), st.integers(1, 500))
def test_middles_rise_and_stay_inside(duration: float, count: int) -> None:
    times = middle_times(duration, count)
    assert len(times) == count
    assert times[0] > 0 and times[-1] < duration
    assert np.all(np.diff(times) > 0)


@given(st.integers(1, 100_000), st.integers(1, 300))
def test_linspace_is_numpys(frames: int, count: int) -> None:
    assert linspace_numbers(frames, count) == tuple(np.round(np.linspace(0, frames - 1, count)).astype(int))


def test_linspace_rounds_halves_to_even() -> None:
    assert linspace_numbers(2, 3) == (0, 0, 1)
    assert linspace_numbers(4, 3) == (0, 2, 3)


@pytest.mark.parametrize("count", [0, -1, True, 2.0])
def test_bad_counts_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        middle_times(1.0, count)
    with pytest.raises(UsageError, match="at least 1"):
        linspace_numbers(10, count)


def test_a_video_without_frames_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 frame"):
        linspace_numbers(0, 3)
