"""Which stretches of a video are sampled again."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.importance import SHARE, hot_stretches
from gridprobe.video import SampleSpec

maps = st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1), min_size=1, max_size=150)
durations = st.floats(0.5, 1e5)


def smoothed(scores: list[float]) -> list[float]:
    """Every score averaged with its neighbours, written out."""
    padded = [scores[0], *scores, scores[-1]]
    return [sum(padded[i : i + 3]) / 3 for i in range(len(scores))]


def test_neighbours_of_a_hot_cell_come_with_it() -> None:
    # Cells 2, 3 and 4 have an average of 3; cell 3 is hot itself, and of its neighbours the earlier one is taken.
    assert hot_stretches([0, 0, 0, 9, 0, 0, 0, 0], 80.0) == ((20.0, 40.0),)


def test_a_wide_rise_wins_over_a_single_cell() -> None:
    scores = [0.0] * 16
    scores[2], scores[8:12] = 0.9, [0.5] * 4

    assert hot_stretches(scores, 16.0) == ((8.0, 12.0),)


def test_two_hot_places_are_two_stretches() -> None:
    scores = [0.0] * 16
    scores[2:4], scores[10:12] = [0.9, 0.9], [0.9, 0.9]

    assert hot_stretches(scores, 32.0) == ((4.0, 8.0), (20.0, 24.0))


def test_ends_of_the_video_count_as_if_it_went_on() -> None:
    assert hot_stretches([9, 0, 0, 0, 0, 0, 0, 0], 8.0) == ((0.0, 2.0),)
    assert hot_stretches([0, 0, 0, 0, 0, 0, 0, 9], 8.0) == ((6.0, 8.0),)


def test_flat_map_takes_the_first_quarter() -> None:
    assert hot_stretches([0.5] * 16, 16.0) == ((0.0, 4.0),)


@given(maps, durations)
def test_stretches_rise_and_do_not_touch(scores: list[float], duration: float) -> None:
    found = hot_stretches(scores, duration)

    assert all(start < end for start, end in found)
    assert all(end < start for (_, end), (start, _) in pairwise(found))  # those that touch are one
    assert found[0][0] >= 0 and found[-1][1] <= duration


@given(maps, durations)
def test_stretches_are_a_quarter_of_the_cells_long(scores: list[float], duration: float) -> None:
    wanted = max(1, len(scores) // SHARE) * duration / len(scores)

    assert sum(end - start for start, end in hot_stretches(scores, duration)) == pytest.approx(wanted)


@given(maps)
def test_stretches_are_made_of_the_cells_with_the_highest_averages(scores: list[float]) -> None:
    cells = len(scores)
    found = hot_stretches(scores, float(cells))
    inside = np.array([any(start <= cell + 0.5 < end for start, end in found) for cell in range(cells)])

    averages = np.array(smoothed(scores))

    assert averages[inside].max() == pytest.approx(averages.max(), abs=1e-12)
    assert averages[inside].min() >= averages[~inside].max(initial=0.0) - 1e-12


@given(maps, durations)
def test_stretches_can_be_sampled(scores: list[float], duration: float) -> None:
    spec = SampleSpec(16, segments=hot_stretches(scores, duration))

    assert len(spec.moments(duration)) == 16
