"""Figures of a run's page: what they draw is what the numbers say."""

import re

import numpy as np
import pytest

from gridprobe_eval.benchmarks.base import Interval
from gridprobe_eval.report.run_page import (
    RunPoint,
    across,
    frontier,
    pareto_svg,
)


def point(name: str, compute: float, accuracy: float, number: int = 0) -> RunPoint:
    return RunPoint(name, number, compute, Interval(accuracy, accuracy - 0.02, accuracy + 0.02, 100, 25))


def test_the_frontier_holds_what_nothing_beats() -> None:
    cheap, good, dear, equal = point("c", 1, 0.4), point("g", 2, 0.6), point("d", 3, 0.5), point("e", 2, 0.55)

    assert frontier([dear, good, equal, cheap]) == [cheap, good]
    assert frontier([dear]) == [dear]


def test_the_dominated_region_is_the_staircase_right_and_below() -> None:
    svg = pareto_svg([point("c", 1, 0.4), point("g", 2, 0.6), point("d", 3, 0.5)], everything=4.0)
    corners = re.search(r'class="dominated" points="([^"]+)"', svg)
    places = dict(re.findall(r"<title>(\w): .*?c[xy]?x=\"([\d.]+)\"", svg))

    assert corners
    path = [tuple(map(float, pair.split(","))) for pair in corners[1].split()]
    assert [x for x, _ in path] == sorted(x for x, _ in path)
    heights = [y for _, y in path[1:-1]]
    assert heights == sorted(heights, reverse=True)  # upwards is smaller
    assert float(places["c"]) == path[0][0] and float(places["g"]) == path[2][0]
    assert path[0][1] == path[-1][1] == max(y for _, y in path)


def test_the_front_is_a_line_through_its_runs_and_no_other() -> None:
    svg = pareto_svg([point("c", 1, 0.4), point("g", 2, 0.6), point("d", 3, 0.5)], everything=4.0)
    line = re.search(r'class="front" points="([^"]+)"', svg)
    shade = re.search(r'class="dominated" points="([^"]+)"', svg)

    assert line and shade and line[1] in shade[1] and len(line[1].split()) == 4
    assert svg.count('class="mark best"') == 2 and svg.count('class="mark"') == 1


def test_every_mark_has_the_number_and_the_name_of_its_run() -> None:
    rng = np.random.default_rng(0)
    runs = [point(f"run {n}", float(c), float(a), n) for n, (c, a) in enumerate(rng.uniform(0.2, 0.9, (40, 2)))]
    svg = pareto_svg(runs, everything=1.0)

    marks = re.findall(r"<g class=.*?</g>", svg, re.DOTALL)
    pairs = [(re.findall(r">(\d+)</text>", each), re.findall(r"<title>(run \d+): ", each)) for each in marks]
    assert sorted(pairs) == sorted(([str(each.number + 1)], [each.name]) for each in runs)
    last = [name for _, (name,) in pairs[-len(frontier(runs)) :]]
    assert set(last) == {each.name for each in frontier(runs)}, "the front lies over the others"


def test_names_in_a_figure_are_escaped() -> None:
    svg = pareto_svg([point('<b a="', 1, 0.4)], everything=0.0)

    assert "<b" not in svg and "&lt;b" in svg and "all frames" not in svg


def test_the_axis_of_compute_is_logarithmic_where_runs_differ_by_a_large_factor() -> None:
    def places(*compute: float) -> list[float]:
        svg = pareto_svg([point(f"r{c}", c, 0.5 + c / 1000) for c in compute], everything=compute[-1])
        return sorted(float(x) for x in re.findall(r'class="whisker" x1="([\d.]+)"', svg))

    log, even = places(0.1, 1.0, 10.0), places(2.0, 3.0, 4.0)
    assert log[1] - log[0] == pytest.approx(log[2] - log[1], abs=0.3)
    assert even[1] - even[0] == pytest.approx(even[2] - even[1], abs=0.3) and even[0] > 200
    zero = places(0.0, 10.0)
    assert zero[0] < zero[1]


def test_ticks_of_a_logarithmic_axis_are_round() -> None:
    assert across(0.3, 30, log=True).ticks == pytest.approx([0.5, 1, 2, 5, 10, 20])
