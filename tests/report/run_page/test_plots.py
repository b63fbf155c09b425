"""Figures of a run's page: what they draw is what the numbers say."""

import re

import numpy as np
import pytest

from gridprobe.report.run_page.plots import Point, frontier, histogram_svg, pareto_svg, skew_svg, smoothed
from gridprobe.statistics import Interval


def point(name: str, compute: float, accuracy: float, number: int = 0) -> Point:
    return Point(name, number, compute, Interval(accuracy, accuracy - 0.02, accuracy + 0.02, 100, 25))


def test_the_frontier_holds_what_nothing_beats() -> None:
    cheap, good, dear, equal = point("c", 1, 0.4), point("g", 2, 0.6), point("d", 3, 0.5), point("e", 2, 0.55)

    assert frontier([dear, good, equal, cheap]) == [cheap, good]
    assert frontier([dear]) == [dear]


def test_the_dominated_region_is_the_staircase_right_and_below() -> None:
    svg = pareto_svg([point("c", 1, 0.4), point("g", 2, 0.6), point("d", 3, 0.5)], words="honest", everything=4.0)
    corners = re.search(r'class="dominated" points="([^"]+)"', svg)
    places = dict(re.findall(r"<title>(\w): .*?c[xy]?x=\"([\d.]+)\"", svg))

    assert corners
    path = [tuple(map(float, pair.split(","))) for pair in corners[1].split()]
    assert [x for x, _ in path] == sorted(x for x, _ in path)
    heights = [y for _, y in path[1:-1]]
    assert heights == sorted(heights, reverse=True)  # upwards is smaller
    assert float(places["c"]) == path[0][0] and float(places["g"]) == path[2][0]
    assert path[0][1] == path[-1][1] == max(y for _, y in path)


def test_names_in_a_figure_are_escaped() -> None:
    svg = pareto_svg([point('<b a="', 1, 0.4)], words="honest", everything=0.0)

    assert "<b" not in svg and "&lt;b" in svg and "all frames" not in svg


def test_smoothing_of_a_constant_is_the_constant_and_far_values_do_not_count() -> None:
    places, at = np.array([0.0, 0.0, 10.0]), np.array([0.0, 10.0])

    assert smoothed(places, np.full(3, 7.0), at, 0.5) == pytest.approx([7.0, 7.0])
    assert smoothed(places, np.array([1.0, 3.0, 9.0]), at, 0.5) == pytest.approx([2.0, 9.0])


@pytest.mark.parametrize("skew", [[0.0] * 30, list(np.linspace(-2, 2, 30))])
def test_the_figure_of_skew_stands_any_spread(skew: list[float]) -> None:
    svg = skew_svg(skew, [9] * 30, [1.0, 0.0] * 15, pool=144)

    assert "nan" not in svg and svg.count("<polyline") == 2


@pytest.mark.parametrize("pool", [1, 9, 100, 144])
def test_every_question_is_in_one_bar(pool: int) -> None:
    kept = [1, 1, (pool + 1) // 2, pool]
    svg = histogram_svg(kept, pool=pool, number=0, name="r")

    assert sum(int(n) for n in re.findall(r"frames: (\d+) questions", svg)) == len(kept)


def test_bars_by_hand() -> None:
    svg = histogram_svg([1, 6, 7, 144], pool=144, number=0, name="r")

    assert re.findall(r"<title>([^<]+)</title>", svg) == [
        "1 to 6 frames: 2 questions",
        "7 to 12 frames: 1 questions",
        "139 to 144 frames: 1 questions",
    ]
