"""Wording and colours shared by the three reports."""

import itertools
import math
from dataclasses import replace

import pytest

from gridprobe.report.colours import MARK, MIDDLE, STOPS, Scale, ink_on, ramp
from gridprobe.report.words import amount, clock, compute_saved, kept_times, kept_words, model_words
from report.answers import handmade


@pytest.mark.parametrize(
    ("seconds", "whole", "tenths"),
    [
        (0, "0:00:00", "0:00:00.0"),
        (59.96, "0:00:59", "0:01:00.0"),
        (3599.99, "0:59:59", "1:00:00.0"),
        (3725.64, "1:02:05", "1:02:05.6"),
        (360000, "100:00:00", "100:00:00.0"),
        (-1.5, "-0:00:01", "-0:00:01.5"),
    ],
)
def test_clock(seconds: float, whole: str, tenths: str) -> None:
    assert clock(seconds) == whole
    assert clock(seconds, tenths=True) == tenths


def test_three_neighbours_become_a_range_and_two_do_not() -> None:
    answer = handmade(kept=(0, 1, 3, 4, 5, 8))

    assert kept_times(answer.selection) == [
        "0:00:00.0",
        "0:10:00.0",
        "0:30:00.0–0:50:00.0 (3)",
        "1:20:00.0",
    ]
    assert kept_words(answer.selection) == "6 of 9 frames"


@pytest.mark.parametrize(
    ("spent", "baseline", "words"),
    [(5, 20, "4.0× less"), (20, 5, "4.0× more"), (10, 10.2, "the same"), (0, 5, ""), (5, 0, "")],
)
def test_compute_saved(spent: float, baseline: float, words: str) -> None:
    assert compute_saved(spent, baseline) == words


def test_amount_keeps_about_three_digits() -> None:
    assert [amount(value) for value in (0, 0.01234, 1.234, 12.34, 999.94, 1234.5)] == [
        "0.00",
        "0.012",
        "1.23",
        "12.3",
        "999.9",
        "1,234",
    ]


def test_two_models_are_both_named() -> None:
    assert model_words(handmade()) == "scripted:a"
    assert model_words(replace(handmade(), models=(("small",), "large"))) == "small selects, large answers"


def test_ramp_runs_through_its_stops_and_grows_lighter() -> None:
    assert (ramp(0), ramp(1), ramp(-3), ramp(7)) == (STOPS[0], STOPS[-1], STOPS[0], STOPS[-1])
    light = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in (ramp(i / 100) for i in range(101))]
    assert all(later > earlier for earlier, later in itertools.pairwise(light))


def test_mark_is_far_from_every_colour_of_the_ramp() -> None:
    assert min(math.dist(MARK, ramp(i / 100)) for i in range(101)) > 100


def test_scale_spans_what_differs_and_keeps_flat_flat() -> None:
    scale = Scale.over([0.2, math.nan, 0.6])
    assert (scale.level(0.2), scale.level(0.4), scale.level(0.6)) == pytest.approx((0, 0.5, 1))
    noisy = [0.5, 0.5 + 1e-5, 0.5 - 1e-5]
    assert [Scale.over(noisy).level(value) for value in noisy] == pytest.approx([MIDDLE] * 3, abs=0.01)
    assert Scale.over([]).level(0.0) == MIDDLE
    assert Scale.over([0.0, 0.0]).level(0.0) == MIDDLE


def test_ink_reads_on_both_ends_of_the_ramp() -> None:
    assert ink_on(ramp(0)) == (255, 255, 255)
    assert ink_on(ramp(1)) == (0, 0, 0)
