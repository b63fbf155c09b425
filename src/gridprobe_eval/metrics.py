"""Metrics of runs: accuracy, cost and paired differences, by run and bin. Pure functions of run folders.

A failed question counts as wrong; a missing one is only counted as missing. Confidence intervals are 95%, from a
bootstrap that draws whole groups, since questions about one video are not independent; with too few groups, they are
Wilson's. All draws are seeded.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe._util import parse_json, report
from gridprobe.errors import DataError, UsageError
from gridprobe.models import Model, Request
from gridprobe.models.base import choose
from gridprobe.open_ended import exact_match
from gridprobe.question import Question
from gridprobe.record import WHOLE, Record
from gridprobe_eval import benchmarks
from gridprobe_eval.benchmarks import Item, Metric
from gridprobe_eval.benchmarks.base import Interval
from gridprobe_eval.disk import write_whole
from gridprobe_eval.reader import Result, Run, read_run
from gridprobe_eval.statistics import (
    clustered_bootstrap,
    difference_interval,
    expected_calibration_error,
    mcnemar,
    share_interval,
    sign_flip,
)

# summary(): the results in a run folder, as plain values. A pure function of the folder, without times.
#
# An interrupted and resumed run has the same summary, byte for byte, as an uninterrupted one.

SCHEMA = "gridprobe.summary/1"
COUNTED = ("answered", "failed", "skipped", "missing")


def summary(folder: str | Path) -> dict[str, Any]:
    """Counts and accuracy of a run, over all its questions and by bin. A failed question counts as wrong."""
    run = read_run(Path(folder))
    bins: dict[str, dict[str, list[Result]]] = {}
    for result in run.results:
        for name, value in result.bins.items():
            bins.setdefault(name, {}).setdefault(value, []).append(result)
    return {
        "schema": SCHEMA,
        "fingerprint": run.spec.fingerprint,
        "all": _counts(run.results),
        "bins": {
            name: {value: _counts(members) for value, members in sorted(values.items())}
            for name, values in bins.items()
        },
        "errors": _errors(run.results),
        "repeated": run.repeated,
        "foreign": run.stray,
    }


def _counts(results: Sequence[Result]) -> dict[str, Any]:
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in COUNTED}
    answers = [result.answered for result in results if result.answered]
    judged = [bool(result.right) for result in results if result.right is not None and result.outcome != "skipped"]
    return {
        "questions": len(results),
        **count,
        "withheld": sum(result.withheld for result in results),
        "right": sum(judged),
        "accuracy": sum(judged) / len(judged) if judged else None,
        "overview": sum(answer.reached["by"] == "overview" for answer in answers),
        "kept": math.fsum(answer.shown_native for answer in answers) / len(answers) if answers else None,
        "tokens": int(sum(answer.cost["tokens"] for answer in answers)),
        "tflops": math.fsum(answer.cost["tflops"] for answer in answers),
        "tflops_paper": math.fsum(answer.cost["tflops_paper"] for answer in answers),
    }


def _errors(results: Sequence[Result]) -> dict[str, int]:
    """How many questions failed with which class of error."""
    kinds = [result.error.partition(":")[0] for result in results if result.error]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


# Kept frames against the gold intervals of a question: precision, recall, F1, and the distance to the evidence.
#
#     precision   share of the kept frames that lie in a gold interval
#     recall      share of the gold intervals that hold a kept frame: the evidence covered
#     F1          harmonic mean of both, for each question
#     distance    mean over the kept frames of the seconds to the nearest gold interval; 0 inside one
#
# An interval holds its start but not its end. Only frames that a selector kept count: an answer from an overview of all
# frames kept none, and frames that are shown smaller next to the kept ones are not kept.

Span = tuple[float, float]


@dataclass(frozen=True)
class Match:
    """The kept frames of one question against its gold intervals."""

    precision: float
    recall: float
    distance: float
    """Seconds."""

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if both are."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def match(times: Sequence[float], gold: Sequence[Span]) -> Match:
    """Compare at least one kept frame with at least one interval, all in seconds."""
    if not times or not gold:
        raise ValueError(f"a match needs kept frames and gold intervals, got {len(times)} and {len(gold)}")
    inside = [[start <= time < end for start, end in gold] for time in times]
    return Match(
        precision=float(np.mean([any(row) for row in inside])),
        recall=float(np.mean([any(column) for column in zip(*inside, strict=True)])),
        distance=float(np.mean([min(_gap(time, span) for span in gold) for time in times])),
    )


def _gap(time: float, span: Span) -> float:
    return max(0.0, span[0] - time, time - span[1])


def _gold(result: Result) -> list[Span]:
    """The intervals that hold the evidence; none where they are not known, or are the whole video."""
    spans = result.extra.get("evidence") or []
    if isinstance(spans, list) and all(map(_is_span, spans)):
        return [(float(start), float(end)) for start, end in spans]
    raise DataError(
        f"question {result.id!r} of the run: evidence must be a list of [start, end] in seconds, "
        f"got {str(spans)[:80]!r}"
    )


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(each) in (int, float) for each in value)


@dataclass(frozen=True)
class Temporal:
    """Means over the questions that have gold intervals and kept frames, with 95% intervals over videos.

    Those of precision, recall and F1 are found as that of accuracy. Wilson's is wide enough for any numbers from 0 to
    1, as none vary more than hits do.
    """

    precision: Interval
    recall: Interval
    f1: Interval
    distance: Interval
    """In seconds; of the bootstrap, which is too narrow for few videos."""

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Temporal | None":
        """None if no such question was answered."""
        matches = [
            (match(result.answered.selection["timestamps"], gold), result.group)
            for result in results
            if result.answered and result.answered.reached["by"] not in WHOLE and (gold := _gold(result))
        ]
        if not matches:
            return None
        groups = [group for _, group in matches]
        shares = {
            name: share_interval([getattr(each, name) for each, _ in matches], groups)
            for name in ("precision", "recall", "f1")
        }
        return cls(**shares, distance=clustered_bootstrap([each.distance for each, _ in matches], groups))


# Answers in words: how well they match the right texts, and what a judge says of them.
#
# Three scores, from strict to lenient. Exact match, which decides `right`, compares without case, punctuation and
# articles, and numbers as numbers. Token F1 compares the words. A judge is a model that is asked, for every answer that
# is not an exact match, whether it says the same as the right one (`PROMPT`); its verdicts are kept in the run folder.

PROMPT = (
    "A question about a video was answered.\nQuestion: {question}\nRight answer: {right}\nGiven answer: {given}\n"
    "Does the given answer say the same as the right answer?"
)
"""What a judge is asked, with the options yes and no."""
VERDICTS = "verdicts.json"
BATCH = 32


def text_metrics(run: Run) -> list[Metric]:
    """Token F1, and the share that each judge finds right; nothing for runs whose questions have options."""
    scored = [(each.group, 100.0 * each.f1) for each in run.results if each.f1 is not None]
    if not scored:
        return []
    metrics = [Metric("token F1", _mean(scored), len(scored), "", [scored])]
    for name, judged in verdicts(run.path).items():
        accepted = [(each.group, 100.0 * _accepted(each, judged)) for each in run.results if _is_judged(each, judged)]
        if accepted:
            missing = len(scored) - len(accepted)
            note = f"{missing} of {len(scored)} not judged" if missing else ""
            metrics.append(
                Metric(f"judged by {name.partition('@')[0]}", _mean(accepted), len(accepted), note, [accepted])
            )
    return metrics


def _mean(scored: list[tuple[str, float]]) -> float:
    return sum(score for _, score in scored) / len(scored)


def _is_judged(result: Result, judged: Mapping[str, float]) -> bool:
    return result.f1 is not None and (bool(result.right) or result.answered is None or _key(result) in judged)


def _accepted(result: Result, judged: Mapping[str, float]) -> bool:
    return bool(result.right) or (result.answered is not None and judged[_key(result)] > 0.5)


def _key(result: Result) -> str:
    """A verdict is about one answer: another answer to the same question needs another verdict."""
    return json.dumps([result.id, result.answered.reply if result.answered else None], ensure_ascii=False)


def verdicts(folder: Path) -> dict[str, dict[str, float]]:
    """The verdicts of a run folder: name of the judge -> answer -> how likely it says the same as the right one."""
    file = folder / VERDICTS
    if not file.is_file():
        return {}
    try:
        content = parse_json(file.read_bytes())
        return {str(name): {str(key): float(p) for key, p in each.items()} for name, each in content.items()}
    except (OSError, ValueError, AttributeError, TypeError, OverflowError) as error:
        raise DataError(f"{file} does not hold verdicts ({error}); delete it and judge again") from error


def judge(run: Run, model: Model) -> int:
    """Let a model judge the answers of a run that are no exact match; return how many were judged now.

    Answers that this model has judged before are not judged again. Verdicts are written after every batch.
    """
    every = verdicts(run.path)
    mine = every.setdefault(model.identity, {})
    todo = [each for each in _open(run) if _key(each) not in mine]
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        for result, posterior in zip(batch, choose(model, [_request(each) for each in batch]), strict=True):
            mine[_key(result)] = posterior.probabilities["A"]
        write_whole(run.path / VERDICTS, json.dumps(every, ensure_ascii=False).encode())
        report("judge", start + len(batch), len(todo))
    return len(todo)


def _open(run: Run) -> Iterator[Result]:
    """The answers in words that have a right text and are no exact match."""
    for result in run.results:
        reply = result.answered.reply if result.answered else None
        if not result.options and reply is not None and result.answer and not exact_match(reply, result.answer):
            yield result


def _request(result: Result) -> Request:
    assert result.answered is not None
    text = PROMPT.format(question=result.question, right=result.answer, given=result.answered.reply)
    return Request.about(Question(text, ("yes", "no")))


@dataclass(frozen=True)
class RunCost:
    """Means over the answered questions."""

    kept: float
    """Frames at full size; an answer from the overview has none."""
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
    def of(cls, answers: Sequence[Record]) -> "RunCost":
        """The mean cost of at least one answer."""
        kept = np.array([answer.shown_native for answer in answers], dtype=np.float64)
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
class AnsweredBy:
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
    def of(cls, answers: Sequence[Record]) -> "AnsweredBy | None":
        """None if no answer had an overview."""
        stages = [(answer.stage("overview"), answer.stage("focus")) for answer in answers]
        if not any(overview for overview, _ in stages):
            return None
        both = [_same(overview[0], focus[0]) for overview, focus in stages if overview and focus]
        sources = [answer.reached["by"] for answer in answers]
        return cls(
            overview=float(np.mean([source == "overview" for source in sources])),
            refined=float(np.mean([source == "refined" for source in sources])),
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
    cost: RunCost | None
    reached: AnsweredBy | None = None
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
    with_record = [{result.id for result in run.results if result.outcome != "missing"} for run in runs]
    common = set.intersection(*with_record)
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
    results = [result for result in mine if result.outcome != "missing"]
    answers = [result.answered for result in results if result.answered]
    return Row(
        run=runs[place].name,
        bin=part[0],
        value=part[1],
        asked=len(results),
        failed=len(results) - len(answers),
        missing=len(mine) - len(results),
        accuracy=_accuracy(results),
        answered=_accuracy([result for result in results if result.answered]),
        cost=RunCost.of(answers) if answers else None,
        reached=AnsweredBy.of(answers),
        calibration=_calibration(results),
        above_chance=_above_chance(results),
        temporal=Temporal.of(results),
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
    official: list[Metric] = []
    if run.benchmark in benchmarks.BENCHMARKS:
        official = benchmarks.metrics(run.benchmark, [_item(result) for result in run.results], right)
    if official or not right:
        return official
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
