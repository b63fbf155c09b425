"""The data for the page's script: all questions and results in compact JSON.

    runs        names
    bins        [name, [values]]
    videos      paths
    questions   [id, text, [options], index of the right option or -1, [index in each bin or -1], video, seconds]
    results     for each run, for each question: 0 if missing, "error" if failed, else a list in the order of RESULT
    thumbnails  for each run {index of the question: [[tenths of a second, JPEG in base64], …]}

Probabilities and confidences are in thousandths; `scores`, the numbers of a map by frame, are as they are. Times are in
tenths of a second, as differences to the previous one.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from string import ascii_uppercase
from typing import Any

from gridprobe.drafts import exact_match
from gridprobe.evaluation.metrics import bins_of
from gridprobe.evaluation.reader import Answered, Result, Run, Stages
from gridprobe.report.colours import FLOOR, MIDDLE
from gridprobe.report.words import MAP_WORDS, SOURCES, percent

__all__ = ["RESULT", "Thumbnails", "embedded_json", "pack"]

Thumbnails = Mapping[str, Mapping[str, Sequence[tuple[float, str]]]]
"""Name of a run -> id of a question -> time and JPEG of some kept frames."""

RESULT = (
    *("choice", "confidence", "pool", "kept", "times", "rows", "columns"),
    *("shares", "tflops", "seconds", "warnings", "probes"),
    *("map", "scores", "native", "reached"),
)


def pack(runs: Sequence[Run], thumbnails: Thumbnails | None = None) -> dict[str, Any]:
    """Combine the runs; the questions are those of any run."""
    questions: dict[str, Result] = {}
    for run in runs:
        for result in run.results:
            if result.id not in questions or questions[result.id].duration is None:  # a failed one may not know it
                questions[result.id] = result
    said = _said(runs)
    names = bins_of(runs)
    bins = {name: sorted({q.bins[name] for q in questions.values() if name in q.bins}) for name in names}
    videos = {video: place for place, video in enumerate(dict.fromkeys(q.video for q in questions.values()))}
    place = {name: number for number, name in enumerate(questions)}
    return {
        "runs": [run.name for run in runs],
        "bins": list(bins.items()),
        "videos": list(videos),
        "questions": [_question(result, bins, videos, said) for result in questions.values()],
        "results": [_results(run, questions, said) for run in runs],
        "thumbnails": [_thumbnails((thumbnails or {}).get(run.name, {}), place) for run in runs],
        "fields": RESULT,
        "floor": FLOOR,
        "middle": MIDDLE,
        "maps": MAP_WORDS,
    }


def embedded_json(value: Any) -> str:
    """JSON for a script element; it cannot end the element or start a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


Said = Mapping[str, Sequence[str]]
"""Questions without options -> the right text, if it is known, and what the runs answered."""


def _said(runs: Sequence[Run]) -> Said:
    found: dict[str, list[str]] = {}
    for result in (result for run in runs for result in run.results if not result.options):
        texts = found.setdefault(result.id, [] if result.answer is None else [result.answer])
        more = [result.answered.choice, *result.answered.logprobs] if result.answered else []
        for text in more:
            if _place(text, texts) < 0:
                texts.append(text)
    return found


def _place(text: str, texts: Sequence[str]) -> int:
    """The place of the text that says the same; -1 if none does."""
    return next((place for place, each in enumerate(texts) if exact_match(text, each)), -1)


def _question(result: Result, bins: Mapping[str, list[str]], videos: Mapping[str, int], said: Said) -> list[Any]:
    """A question; one without options has what was answered in their place, the right text first."""
    answer = -1 if result.answer is None else ascii_uppercase.find(result.answer) if result.options else 0
    places = [values.index(result.bins[name]) if name in result.bins else -1 for name, values in bins.items()]
    options = result.options or said[result.id]
    return [result.id, result.question, options, answer, places, videos[result.video], result.duration]


def _results(run: Run, questions: Mapping[str, Result], said: Said) -> list[Any]:
    mine = {result.id: result for result in run.results}
    return [_result(mine.get(name), len(question.options), said.get(name, ())) for name, question in questions.items()]


def _result(result: Result | None, options: int, said: Sequence[str]) -> Any:
    if result is None or result.outcome == "missing":
        return 0
    if result.answered is None:
        return result.error or result.outcome
    found = result.answered
    tenths = [round(10 * time) for time in found.times]
    return [
        ascii_uppercase.find(found.choice) if options else _place(found.choice, said),
        round(1000 * found.confidence),
        found.pool,
        _bits(found),
        [*tenths[:1], *(after - before for before, after in pairwise(tenths))],
        _thousandths(found.rows),
        _thousandths(found.columns),
        _shares(found, ascii_uppercase[:options]) if options else _text_shares(found, said),
        _digits(found.cost["tflops"]),
        _digits(found.seconds["total"]),
        found.warnings,
        "".join(found.probes),
        found.map,
        [float(f"{score:.3g}") for score in found.by_frame],
        found.native,
        _reached(found.stages),
    ]


def _reached(stages: Stages) -> str:
    """The pass that the answer is from and what each pass preferred; empty without an overview."""
    if stages.overview is None:
        return ""
    passes = (("overview", stages.overview), ("focus", stages.focus))
    told = [f"{name} {stage[0]} {percent(stage[1])}" for name, stage in passes if stage]
    limit = [] if stages.threshold is None else [f"the limit is {100 * stages.threshold:g} %"]
    return f"{SOURCES[stages.by]} ({', '.join([*told, *limit])})"


def _bits(found: Answered) -> str:
    """The kept positions as a hexadecimal bit mask; position 0 is the lowest bit."""
    return f"{sum(1 << index for index in found.indices):x}"


def _thousandths(values: Sequence[float]) -> list[int]:
    return [round(1000 * value) for value in values]


def _shares(found: Answered, labels: str) -> list[int]:
    """Probabilities of the options in thousandths; 0 for a label without one."""
    return [
        round(1000 * math.exp(min(0.0, found.logprobs[label]))) if label in found.logprobs else 0 for label in labels
    ]


def _text_shares(found: Answered, said: Sequence[str]) -> list[int]:
    """Probabilities of texts in thousandths: of the answer its confidence, of others at most what that leaves."""
    shares = [0] * len(said)
    for text, logprob in found.logprobs.items():
        shares[_place(text, said)] = round(1000 * min(1.0 - found.confidence, math.exp(min(0.0, logprob))))
    shares[_place(found.choice, said)] = round(1000 * found.confidence)
    return shares


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _thumbnails(mine: Mapping[str, Sequence[tuple[float, str]]], place: Mapping[str, int]) -> dict[str, Any]:
    return {str(place[name]): [[round(10 * time), jpeg] for time, jpeg in each] for name, each in mine.items()}
