"""Metrics of runs: accuracy, cost and paired differences, by run and bin. Pure functions of run folders.

A failed question counts as wrong; a missing one is only counted as missing. Confidence intervals are 95 %, from a
bootstrap that draws whole groups, since questions about one video are not independent; with too few groups, they are
Wilson's. All draws are seeded.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gridprobe import benchmarks
from gridprobe.benchmarks import Item, Metric
from gridprobe.drafts import exact_match
from gridprobe.errors import DataError, UsageError
from gridprobe.evaluation.reader import Answered, Result, Run
from gridprobe.evaluation.temporal import Temporal
from gridprobe.evaluation.texts import text_metrics
from gridprobe.question import Question
from gridprobe.statistics import (
    Interval,
    difference_interval,
    expected_calibration_error,
    mcnemar,
    share_interval,
    sign_flip,
)

__all__ = [
    "Comparison",
    "Cost",
    "Reached",
    "Row",
    "all_frames_cost",
    "bins_of",
    "compare",
    "official",
    "score",
    "shared",
]


@dataclass(frozen=True)
class Cost:
    """Means over the answered questions."""

    kept: float
    """Frames at native size; an answer from the overview has none."""
    kept_median: float
    tokens: float
    tflops: float
    """By the honest convention."""
    tflops_paper: float
    """By the published convention."""
    variation: float
    """Standard deviation ÷ mean of `tflops`: how much compute varies between questions."""
    variation_paper: float
    seconds: float
    priced: bool = True
    """Whether the TFLOPs of all answers are known."""

    @classmethod
    def of(cls, answers: Sequence[Answered]) -> "Cost":
        """The mean cost of at least one answer."""
        kept = np.array([answer.native for answer in answers], dtype=np.float64)
        honest, paper, tokens = (
            np.array([answer.cost[name] for answer in answers]) for name in ("tflops", "tflops_paper", "tokens")
        )
        return cls(
            kept=float(kept.mean()),
            kept_median=float(np.median(kept)),
            tokens=float(tokens.mean()),
            tflops=float(honest.mean()),
            tflops_paper=float(paper.mean()),
            variation=_variation(honest),
            variation_paper=_variation(paper),
            seconds=float(np.mean([answer.seconds["total"] for answer in answers])),
            priced=all(answer.priced for answer in answers),
        )


def _variation(values: npt.NDArray[np.float64]) -> float:
    mean = float(values.mean())
    return float(values.std()) / mean if mean else 0.0


@dataclass(frozen=True)
class Reached:
    """How answers were reached, in runs with an overview."""

    overview: float
    """Share of the answers that are from the overview."""
    refined: float
    """Share of the answers that are from stretches sampled again."""
    both: int
    """Answers for which both the overview and the focused pass were asked."""
    agree: float | None
    """Share of these for which they prefer the same option."""

    @classmethod
    def of(cls, answers: Sequence[Answered]) -> "Reached | None":
        """None if no answer had an overview."""
        stages = [answer.stages for answer in answers]
        if not any(each.overview for each in stages):
            return None
        both = [_same(each.overview[0], each.focus[0]) for each in stages if each.overview and each.focus]
        return cls(
            overview=float(np.mean([each.by == "overview" for each in stages])),
            refined=float(np.mean([each.by == "refined" for each in stages])),
            both=len(both),
            agree=float(np.mean(both)) if both else None,
        )


def _same(one: str, other: str) -> bool:
    """Whether two passes prefer the same letter, or say the same in words."""
    return one == other or (min(len(one), len(other)) > 1 and exact_match(one, other))


@dataclass(frozen=True)
class Comparison:
    """One run compared with another on the questions both were asked."""

    versus: str
    difference: Interval
    """Accuracy of this run minus that of the other."""
    gained: int
    """Questions only this run got right."""
    lost: int
    """Questions only the other got right."""
    mcnemar: float
    """Exact, two-sided; assumes independent questions."""
    permutation: float
    """Two-sided, flipping the sign of whole groups."""
    unpaired: int
    """Questions that only one of the two runs was asked."""


@dataclass(frozen=True)
class Row:
    """A run, or its questions in one bin."""

    run: str
    bin: str
    """The bin's name; empty for the whole run."""
    value: str
    asked: int
    failed: int
    missing: int
    accuracy: Interval | None
    """Over all asked questions with a known answer."""
    answered: Interval | None
    """The same, without the failed ones."""
    cost: Cost | None
    reached: Reached | None = None
    calibration: float | None = None
    """Expected calibration error of the answers whose right option is known."""
    above_chance: float | None = None
    """Mean confidence less that of a guess; what is left of it without any evidence is prejudice."""
    temporal: Temporal | None = None
    """Kept frames against gold intervals, where the benchmark has such intervals."""
    versus: Comparison | None = None


def score(runs: Sequence[Run], *, by: Sequence[str] = ()) -> list[Row]:
    """A row for every run, then for every value of the named bins; later runs are compared with the first."""
    _check_same(runs)
    for name in by:
        if name not in bins_of(runs):
            raise UsageError(f"no question has a bin {name!r}; choose among {', '.join(bins_of(runs)) or 'none'}")
    parts = [("", "")]
    for name in by:
        values = {result.bins[name] for run in runs for result in run.results if name in result.bins}
        parts += [(name, value) for value in sorted(values, key=_natural)]
    return [_row(runs, place, part) for part in parts for place in range(len(runs))]


def bins_of(runs: Sequence[Run]) -> list[str]:
    """The names of the bins, in the benchmark's order."""
    return list(dict.fromkeys(name for run in runs for result in run.results for name in result.bins))


def shared(runs: Sequence[Run]) -> list[Run]:
    """The runs with only the questions that all were asked: easier questions must not look like a better method."""
    asked = [{result.id for result in run.results if result.outcome != "missing"} for run in runs]
    common = set.intersection(*asked)
    return [replace(run, results=tuple(result for result in run.results if result.id in common)) for run in runs]


def all_frames_cost(run: Run, convention: str) -> float:
    """The mean cost of one pass over all frames, over the answered questions; 0 without any."""
    costs = [result.answered.cost[f"baseline_{convention}"] for result in run.results if result.answered]
    return float(np.mean(costs)) if costs else 0.0


def _natural(text: str) -> tuple[float, str]:
    """A sort key: numbers by value, then text."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


def _check_same(runs: Sequence[Run]) -> None:
    for run in runs[1:]:
        if run.version != runs[0].version:
            raise UsageError(
                f"{run.name} is of {run.version} and {runs[0].name} of {runs[0].version}: runs of different benchmark "
                "versions cannot be compared; name one of them at a time"
            )


def _row(runs: Sequence[Run], place: int, part: tuple[str, str]) -> Row:
    mine = _part(runs[place], part)
    asked = [result for result in mine if result.outcome != "missing"]
    answers = [result.answered for result in asked if result.answered]
    return Row(
        run=runs[place].name,
        bin=part[0],
        value=part[1],
        asked=len(asked),
        failed=len(asked) - len(answers),
        missing=len(mine) - len(asked),
        accuracy=_accuracy(asked),
        answered=_accuracy([result for result in asked if result.answered]),
        cost=Cost.of(answers) if answers else None,
        reached=Reached.of(answers),
        calibration=_calibration(asked),
        above_chance=_above_chance(asked),
        temporal=Temporal.of(asked),
        versus=compare(mine, _part(runs[0], part), versus=runs[0].name) if place else None,
    )


def _calibration(results: Sequence[Result]) -> float | None:
    judged = [(r.answered.confidence, bool(r.right)) for r in results if r.answered and r.right is not None]
    return expected_calibration_error(*zip(*judged, strict=True)) if judged else None


def _above_chance(results: Sequence[Result]) -> float | None:
    """None for answers in words, which nobody could guess from."""
    chosen = [result for result in results if result.answered and result.options]
    above = [result.answered.confidence - 1 / len(result.options) for result in chosen if result.answered]
    return float(np.mean(above)) if above else None


def _part(run: Run, part: tuple[str, str]) -> list[Result]:
    name, value = part
    return [result for result in run.results if not name or result.bins.get(name) == value]


def _accuracy(results: Sequence[Result]) -> Interval | None:
    judged = [result for result in results if result.right is not None]
    right = [float(bool(result.right)) for result in judged]
    return share_interval(right, [result.group for result in judged]) if judged else None


def compare(one: Sequence[Result], other: Sequence[Result], *, versus: str) -> Comparison | None:
    """Compare the first with the second over the questions both were asked; None if there are none."""
    theirs = {result.id: result.right for result in other if result.right is not None}
    mine = {result.id: result for result in one if result.right is not None}
    shared = [result for name, result in mine.items() if name in theirs]
    if not shared:
        return None
    difference = [int(bool(result.right)) - int(bool(theirs[result.id])) for result in shared]
    groups = [result.group for result in shared]
    gained, lost = difference.count(1), difference.count(-1)
    return Comparison(
        versus=versus,
        difference=difference_interval(difference, groups),
        gained=gained,
        lost=lost,
        mcnemar=mcnemar(gained, lost),
        permutation=sign_flip(difference, groups),
        unpaired=len(mine) + len(theirs) - 2 * len(shared),
    )


def official(run: Run) -> list[Metric]:
    """The benchmark's official scores, or plain accuracy if it has none, and what is known about answers in words."""
    return [*_official(run), *text_metrics(run)]


def _official(run: Run) -> list[Metric]:
    right: Mapping[str, bool] = {result.id: result.right for result in run.results if result.right is not None}
    found: list[Metric] = []
    if run.benchmark in benchmarks.BENCHMARKS:
        found = benchmarks.metrics(run.benchmark, [_item(result) for result in run.results], right)
    if found or not right:
        return found
    scores = [(result.group, 100.0 * right[result.id]) for result in run.results if result.id in right]
    value = 100.0 * sum(right.values()) / len(right)
    return [Metric("accuracy", value, len(right), "no official scoring is known", [scores])]


def _item(result: Result) -> Item:
    """A result as the benchmark's item."""
    try:
        question = Question(result.question, result.options, answer=result.answer, id=result.id)
    except UsageError as error:
        raise DataError(f"question {result.id!r} of the run: {error}") from error
    return Item(
        id=result.id,
        question=question,
        video=Path(result.video),
        group=result.group,
        bins=result.bins,
        duration=result.duration,
        extra=result.extra,
    )
