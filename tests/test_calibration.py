"""The bound, the threshold, and the promise of a calibration by simulation."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gridprobe import early_exit
from gridprobe.early_exit import CAUTIOUS, THRESHOLDS, Calibration, binomial_upper, choose_threshold, needed
from gridprobe.errors import UsageError

EPSILON, DELTA = 0.02, 0.05


# The bound.


def chance_of_at_most(hits: int, draws: int, share: Fraction) -> Fraction:
    """The binomial distribution in exact fractions."""
    terms = (math.comb(draws, i) * share**i * (1 - share) ** (draws - i) for i in range(hits + 1))
    return sum(terms, Fraction())


@pytest.mark.parametrize(("hits", "draws"), [(0, 1), (0, 149), (1, 10), (3, 50), (5, 400), (39, 40)])
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2])
def test_bound_is_where_so_few_hits_have_the_chance_delta(hits: int, draws: int, delta: float) -> None:
    bound, step = Fraction(binomial_upper(hits, draws, delta)), Fraction(1, 10**9)

    assert chance_of_at_most(hits, draws, bound + step) < delta < chance_of_at_most(hits, draws, bound - step)


@pytest.mark.parametrize(
    ("hits", "draws", "delta", "bound"),
    [
        (0, 149, 0.05, 0.019905),  # 1 - 0.05^(1/149)
        (0, 10, 0.05, 0.258866),  # 1 - 0.05^(1/10)
        (1, 10, 0.025, 0.445016),  # the upper end of the two-sided 95% interval for 1 of 10 in tables
        (5, 10, 0.025, 0.812914),  # the same for 5 of 10
        (10, 100, 0.025, 0.176223),  # the same for 10 of 100
    ],
)
def test_bound_has_the_values_of_the_tables(hits: int, draws: int, delta: float, bound: float) -> None:
    assert binomial_upper(hits, draws, delta) == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("draws", [100, 1000, 10_000])
def test_rule_of_three(draws: int) -> None:
    assert binomial_upper(0, draws, 0.05) == pytest.approx(3 / draws, rel=0.02)


@pytest.mark.parametrize(("epsilon", "delta", "fewest"), [(0.02, 0.05, 149), (0.05, 0.05, 59), (0.01, 0.01, 459)])
def test_fewest_exits_are_the_first_that_can_pass(epsilon: float, delta: float, fewest: int) -> None:
    assert needed(epsilon, delta) == fewest
    assert (1 - Fraction(epsilon)) ** fewest <= delta < (1 - Fraction(epsilon)) ** (fewest - 1)


def test_fewest_exits_can_pass_where_rounding_decides() -> None:
    # (1 - 1/2)^2 is exactly 1/4, so 2 or, after rounding, 3.
    assert needed(0.5, 0.25) in (2, 3) and binomial_upper(0, needed(0.5, 0.25), 0.25) <= 0.5


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_epsilon_and_delta_are_shares(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be between 0 and 1, got {value}"):
        choose_threshold([], [], **{"epsilon": 0.02, "delta": 0.05, name: value})


# The threshold.


def test_thresholds_fall_and_are_shares() -> None:
    assert list(THRESHOLDS) == sorted(set(THRESHOLDS), reverse=True)
    assert THRESHOLDS[-1] > 0 and THRESHOLDS[0] < 1 and CAUTIOUS in THRESHOLDS


def test_everything_exits_where_nothing_differs() -> None:
    found = choose_threshold([0.95] * 149, [False] * 149, epsilon=EPSILON, delta=DELTA)

    assert found == Calibration(THRESHOLDS[-1], EPSILON, DELTA, 149, 149, 0, binomial_upper(0, 149, DELTA))


def test_lowest_threshold_before_the_first_failure_is_taken() -> None:
    # 200 agree at 0.95; at 0.8 all 20 differ: 20 of 220 fail at 0.80, the last that passes is 0.81.
    found = choose_threshold([0.95] * 200 + [0.8] * 20, [False] * 200 + [True] * 20, epsilon=EPSILON, delta=DELTA)

    assert found == Calibration(0.81, EPSILON, DELTA, 220, 200, 0, binomial_upper(0, 200, DELTA))


def test_a_threshold_below_the_first_failure_is_not_taken_even_if_it_keeps_the_bound() -> None:
    # 1 of 150 fails at 0.95; with 2,000 more that agree 1 of 2,150 would pass at 0.5, but testing has stopped.
    confidences, differs = [0.95] * 150 + [0.5] * 2000, [True] + [False] * 2149

    found = choose_threshold(confidences, differs, epsilon=EPSILON, delta=DELTA)

    assert binomial_upper(1, 2150, DELTA) < EPSILON
    assert found == Calibration(None, EPSILON, DELTA, 2150, 150, 1, binomial_upper(1, 150, DELTA))
    assert not found.too_few


def test_thresholds_with_too_few_exits_are_skipped_whatever_their_answers() -> None:
    # 1 of 100 differs at 0.999, which no test may look at; together with 400 that agree 1 of 500 passes.
    found = choose_threshold([1.0] * 100 + [0.95] * 400, [True] + [False] * 499, epsilon=EPSILON, delta=DELTA)

    assert (found.threshold, found.exits, found.differing) == (THRESHOLDS[-1], 500, 1)


def test_a_confidence_equal_to_the_threshold_exits_as_it_does_in_a_session() -> None:
    below = math.nextafter(0.9, 0)
    confidences, differs = [0.9] * 149 + [below] * 50, [False] * 149 + [True] * 50

    assert choose_threshold(confidences, differs, epsilon=EPSILON, delta=DELTA).threshold == 0.9


@pytest.mark.parametrize("count", [0, 1, 148])
def test_too_few_questions_give_no_threshold(count: int) -> None:
    found = choose_threshold([1.0] * count, [False] * count, epsilon=EPSILON, delta=DELTA)

    assert found.threshold is None and found.too_few and found.exits == found.questions == count


def test_order_of_the_questions_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    sure = rng.choice([0.5, 0.9, 0.95, 1.0], 400)
    differs, order = rng.random(400) < 0.02 * (sure < 1), rng.permutation(400)

    one = choose_threshold(sure.tolist(), differs.tolist(), epsilon=0.05, delta=DELTA)
    other = choose_threshold(sure[order].tolist(), differs[order].tolist(), epsilon=0.05, delta=DELTA)

    assert one == other and one.threshold is not None


@pytest.mark.parametrize(("confidences", "differs"), [([0.9], []), ([math.nan], [False])])
def test_unusable_observations_are_refused(confidences: list[float], differs: list[bool]) -> None:
    with pytest.raises(ValueError, match=r"1 confidences for [01] answers"):
        choose_threshold(confidences, differs, epsilon=EPSILON, delta=DELTA)


# The promise: in at most a share δ of all calibrations is the true share of mistaken exits above ε.

TRIALS, QUESTIONS = 2000, 400
LEVELS = np.linspace(0.3, 1.0, 1401)
SPREAD = LEVELS**6
JUST_ABOVE = EPSILON * (1 + 1e-6)

World = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Confidences, how often each comes, and how often the full path differs there."""


def tail_share(world: World, threshold: float) -> float:
    """The true share of mistaken exits at a threshold."""
    levels, weights, differs = world
    exits = weights * (levels >= threshold)
    return float((exits * differs).sum() / exits.sum()) if exits.any() else 0.0


SATURATED = np.array([0.4, 0.9, 0.99, 0.999, 1.0])
WORLDS: dict[str, World] = {
    "well separated": (LEVELS, np.where(LEVELS > 0.95, 10.0, SPREAD), np.where(LEVELS > 0.95, 0.002, 0.3)),
    "slowly rising": (LEVELS, SPREAD, 0.25 * (1 - LEVELS) ** 1.2),
    "at epsilon": (LEVELS, SPREAD, np.full(len(LEVELS), EPSILON)),
    "just above epsilon": (LEVELS, SPREAD, np.full(len(LEVELS), JUST_ABOVE)),
    "just above epsilon, few exits": (LEVELS, np.where(LEVELS > 0.99, 50.0, SPREAD), np.full(len(LEVELS), JUST_ABOVE)),
    # No differences at 0.95; at 0.85 so many that the share is just above ε from there on.
    "crossing": (np.array([0.6, 0.85, 0.95]), np.array([0.2, 0.2, 0.6]), JUST_ABOVE * np.array([1.0, 4.0, 0.0])),
    "saturated": (SATURATED, np.array([0.3, 0.1, 0.1, 0.1, 0.4]), np.array([0.2, 0.2, 0.0201, 0.0201, 0.0201])),
    "saturated, nearly all": (SATURATED, np.array([0.1, 0.0, 0.0, 0.0, 0.9]), np.array([0.9, 0.9, 0.9, 0.9, 0.0201])),
}

Rule = Callable[..., Calibration]


def mistaken(world: World, rule: Rule) -> tuple[float, float]:
    """The share of calibrations whose true share is ε or more, and the share that finds a threshold."""
    levels, weights, differs = world
    rng = np.random.default_rng(20)
    above = {each: tail_share(world, each) >= EPSILON * (1 - 1e-9) for each in THRESHOLDS}
    places = rng.choice(len(levels), (TRIALS, QUESTIONS), p=weights / weights.sum())
    drawn = rng.random((TRIALS, QUESTIONS)) < differs[places]
    chosen = [
        rule(levels[place], bad, epsilon=EPSILON, delta=DELTA).threshold
        for place, bad in zip(places, drawn, strict=True)
    ]
    found = [each for each in chosen if each is not None]
    return sum(above[each] for each in found) / TRIALS, len(found) / TRIALS


ALLOWED = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / TRIALS)
"""The promised level and three standard errors of the simulation."""


known_bound = cache(binomial_upper)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same few bounds are needed thousands of times."""
    monkeypatch.setattr(early_exit, "binomial_upper", known_bound)


@pytest.mark.parametrize("name", WORLDS)
def test_promise_holds(name: str, quick: None) -> None:
    share, _ = mistaken(WORLDS[name], choose_threshold)

    assert share <= ALLOWED


def test_every_world_obeys_the_assumption() -> None:
    for name, world in WORLDS.items():
        shares = [tail_share(world, each) for each in THRESHOLDS]
        assert np.all(np.diff(shares) >= -1e-12), name


@pytest.mark.parametrize("name", ["well separated", "slowly rising"])
def test_promise_is_not_kept_by_never_finding_a_threshold(name: str, quick: None) -> None:
    _, found = mistaken(WORLDS[name], choose_threshold)

    assert found > 0.3


def test_worst_worlds_come_close_to_the_promised_level(quick: None) -> None:
    """So that a bound a little too low would be noticed."""
    for name in ("just above epsilon", "crossing"):
        assert mistaken(WORLDS[name], choose_threshold)[0] > 0.6 * DELTA


@pytest.mark.parametrize("name", ["slowly rising", "just above epsilon", "saturated"])
def test_check_notices_the_empirical_share_in_place_of_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_exit, "binomial_upper", lambda hits, draws, delta: hits / draws if draws else 1.0)

    assert mistaken(WORLDS[name], choose_threshold)[0] > ALLOWED


@pytest.mark.parametrize(("questions", "risk"), [(1, 0.05), (2, 0.2), (4, 0.45)])
def test_promise_needs_independent_questions(questions: int, risk: float, quick: None) -> None:
    """The known limit: questions about one video that always share their fate."""
    rng = np.random.default_rng(1)
    videos = QUESTIONS // questions
    found = [
        choose_threshold(
            np.repeat(0.3 + 0.7 * rng.random(videos) ** 0.2, questions).tolist(),
            np.repeat(rng.random(videos) < JUST_ABOVE, questions).tolist(),
            epsilon=EPSILON,
            delta=DELTA,
        ).threshold
        for _ in range(TRIALS)
    ]

    assert np.mean([each is not None for each in found]) == pytest.approx(risk, abs=0.03)


def test_check_notices_a_rule_that_does_not_stop_at_the_first_failure(quick: None) -> None:
    def best_of_all(confidences: Any, differs: Any, *, epsilon: float, delta: float) -> Calibration:
        for threshold in reversed(THRESHOLDS):
            exits = differs[confidences >= threshold]
            bound = known_bound(int(exits.sum()), len(exits), delta)
            if bound <= epsilon:
                return Calibration(threshold, epsilon, delta, len(differs), len(exits), int(exits.sum()), bound)
        return Calibration(None, epsilon, delta, len(differs), 0, 0, 1.0)

    assert mistaken(WORLDS["just above epsilon, few exits"], best_of_all)[0] > ALLOWED
