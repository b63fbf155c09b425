"""Wording and colours shared by the three reports."""

import itertools
import math
from dataclasses import replace

import pytest

from gridprobe.report.format import (
    MARK,
    MIDDLE,
    STOPS,
    aligned,
    amount,
    clock,
    hex_colour,
    levels,
    mix,
    share_words,
    sure_words,
)
from gridprobe.report.html import asset
from gridprobe.report.view import AnswerView
from report.answers import handmade


@pytest.mark.parametrize(
    ("seconds", "whole", "tenths"),
    [
        (0, "0:00", "0:00.0"),
        (59.96, "0:59", "1:00.0"),
        (160.25, "2:40", "2:40.2"),
        (3599.99, "59:59", "1:00:00.0"),
        (3725.64, "1:02:05", "1:02:05.6"),
        (360000, "100:00:00", "100:00:00.0"),
        (-1.5, "-0:01", "-0:01.5"),
    ],
)
def test_clock(seconds: float, whole: str, tenths: str) -> None:
    assert clock(seconds) == whole
    assert clock(seconds, tenths=True) == tenths


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.1666, "17%"), (0.0613, "6.1%"), (0.00084, "0.08%"), (1.04, "104%"), (0.0996, "10%"), (None, "–")],
)
def test_shares_of_compute_have_two_digits(share: float | None, words: str) -> None:
    assert share_words(share) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.75, "75.0%"), (1.0, "100.0%"), (0.99996, "> 99.9%"), (0.9994, "99.9%"), (0.0004, "< 0.1%"), (0, "0.0%")],
)
def test_no_probability_is_rounded_to_certainty(share: float, words: str) -> None:
    assert sure_words(share) == words


def test_amount_keeps_about_three_digits() -> None:
    assert [amount(value) for value in (0, 0.01234, 1.234, 12.34, 999.94, 1234.5)] == [
        "0.00",
        "0.012",
        "1.23",
        "12.3",
        "999.9",
        "1,234",
    ]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.083, 8.21, 15.3], ["0.083", "8.210", "15.300"]),
        ([0.49, 4.8, None], ["0.49", "4.80", "–"]),
        ([12.0, 3456.7], ["12", "3,457"]),
        ([0.5, 250.0], ["0.5", "250.0"]),
        ([0.0, 0.0], ["0.0", "0.0"]),
        ([], []),
    ],
)
def test_numbers_of_a_column_have_the_same_decimals(values: list[float | None], texts: list[str]) -> None:
    assert aligned(values) == texts


def test_two_models_are_both_named() -> None:
    assert AnswerView(handmade()).model == "scripted:a"
    loaded = AnswerView(replace(handmade(), models=((), "Qwen/Qwen3-VL-2B-Instruct@4d8a0c:bfloat16:auto")))
    assert loaded.model == "Qwen/Qwen3-VL-2B-Instruct" and loaded.details["model"].endswith("@4d8a0c:bfloat16:auto")
    assert AnswerView(replace(handmade(), models=(("small",), "large"))).model == "small selects, large answers"


RAMP = [mix(here, after, step / 12) for here, after in itertools.pairwise(STOPS) for step in range(12)]


def test_the_ramp_grows_lighter() -> None:
    light = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in RAMP]
    assert all(later > earlier for earlier, later in itertools.pairwise(light))


def test_mark_is_far_from_every_colour_of_the_ramp() -> None:
    assert min(math.dist(MARK, colour) for colour in RAMP) > 100
    assert f"--accent: {hex_colour(MARK)}" in asset("answer.css")


def test_scale_spans_what_differs_and_keeps_flat_flat() -> None:
    assert levels([0.2, math.nan, 0.4, 0.6]) == pytest.approx([0, 0, 0.5, 1])
    noisy = [0.5, 0.5 + 1e-5, 0.5 - 1e-5]
    assert levels(noisy) == pytest.approx([MIDDLE] * 3, abs=0.01)
    assert levels([]) == [] and levels([math.nan]) == [MIDDLE]
    assert levels([0.0, 0.0]) == [MIDDLE, MIDDLE]
