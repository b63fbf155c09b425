"""The data of a run page: questions and results as compact JSON for its script, and thumbnails of kept frames.

    runs        names
    bins        [name, [values]]
    videos      paths
    questions   [id, text, [options], index of the right option or -1, [index in each bin or -1], video, seconds]
    results     for each run, for each question: 0 if missing, "error" if failed, else a list in the order of RESULT
    thumbnails  for each run {index of the question: [[tenths of a second, JPEG in base64], …]}

Probabilities and confidences are in thousandths; `scores`, the numbers of a map by frame, are as they are. Times are in
tenths of a second, as differences to the previous one.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from PIL import Image

from gridprobe._util import report
from gridprobe.errors import GridProbeError
from gridprobe.importance import spread
from gridprobe.open_ended import exact_match
from gridprobe.record import Record
from gridprobe.report.format import FLOOR, MAP_WORDS, MIDDLE, SOURCES, percent
from gridprobe.report.picture import jpeg
from gridprobe.report.view import doubt_words, doubts_of
from gridprobe.video import FrameSize, Video
from gridprobe_eval.metrics import bins_of
from gridprobe_eval.reader import Result, Run

RunThumbnails = Mapping[str, Mapping[str, Sequence[tuple[float, str]]]]
"""Name of a run -> id of a question -> time and JPEG of some kept frames."""

RESULT = (
    *("choice", "confidence", "pool", "kept", "times", "rows", "columns"),
    *("shares", "tflops", "seconds", "warnings", "probes"),
    *("map", "scores", "native", "reached", "doubt"),
)


def pack(runs: Sequence[Run], thumbnails: RunThumbnails | None = None) -> dict[str, Any]:
    """Combine the runs; the questions are those of any run."""
    questions: dict[str, Result] = {}
    for run in runs:
        for result in run.results:
            if result.id not in questions or questions[result.id].duration is None:  # a failed one may not know it
                questions[result.id] = result
    texts = _texts(runs)
    names = bins_of(runs)
    bins = {name: sorted({q.bins[name] for q in questions.values() if name in q.bins}) for name in names}
    videos = {video: place for place, video in enumerate(dict.fromkeys(q.video for q in questions.values()))}
    place = {name: number for number, name in enumerate(questions)}
    return {
        "runs": [run.name for run in runs],
        "bins": list(bins.items()),
        "videos": list(videos),
        "questions": [_question(result, bins, videos, texts) for result in questions.values()],
        "results": [_results(run, questions, texts) for run in runs],
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


Texts = Mapping[str, Sequence[str]]
"""Questions without options -> the right text, if it is known, and what the runs answered."""


def _texts(runs: Sequence[Run]) -> Texts:
    by_question: dict[str, list[str]] = {}
    for result in (result for run in runs for result in run.results if not result.options):
        texts = by_question.setdefault(result.id, [] if result.answer is None else [result.answer])
        record = result.answered
        more = [record.reply, *(text for text, share in record.posterior.items() if share)] if record else []
        for text in more:
            if _place(text, texts) < 0:
                texts.append(text)
    return by_question


def _place(text: str, texts: Sequence[str]) -> int:
    """The place of the text that says the same; -1 if none does."""
    return next((place for place, each in enumerate(texts) if exact_match(text, each)), -1)


def _question(result: Result, bins: Mapping[str, list[str]], videos: Mapping[str, int], texts: Texts) -> list[Any]:
    """A question; one without options has what was answered in their place, the right text first."""
    answer = -1 if result.answer is None else ascii_uppercase.find(result.answer) if result.options else 0
    places = [values.index(result.bins[name]) if name in result.bins else -1 for name, values in bins.items()]
    options = result.options or texts[result.id]
    return [result.id, result.question, options, answer, places, videos[result.video], result.duration]


def _results(run: Run, questions: Mapping[str, Result], texts: Texts) -> list[Any]:
    mine = {result.id: result for result in run.results}
    return [_result(mine.get(name), len(question.options), texts.get(name, ())) for name, question in questions.items()]


def _result(result: Result | None, options: int, texts: Sequence[str]) -> Any:
    if result is None or result.outcome == "missing":
        return 0
    if result.answered is None:
        return result.error or result.outcome
    answered, selection = result.answered, result.answered.selection
    tenths = [round(10 * time) for time in selection["timestamps"]]
    return [
        ascii_uppercase.find(answered.reply) if options else _place(answered.reply, texts),
        round(1000 * answered.confidence),
        selection["pool"],
        _bits(answered),
        [*tenths[:1], *(after - before for before, after in pairwise(tenths))],
        _thousandths(selection["row_confidence"] or ()),
        _thousandths(selection["column_confidence"] or ()),
        _shares(answered, ascii_uppercase[:options]) if options else _text_shares(answered, texts),
        _digits(answered.cost["tflops"]),
        _digits(answered.seconds["total"]),
        [text for text in answered.warnings if text not in doubts_of(answered.warnings, answered.letter_mass)],
        "".join(selection["probe_choices"] or ()),
        selection["map"] or "",
        [float(f"{score:.3g}") for score in answered.by_frame],
        answered.shown_native,
        _reached(answered),
        doubt_words(answered.warnings, answered.letter_mass),
    ]


def _reached(record: Record) -> str:
    """The pass that the answer is from and what each pass preferred; empty without an overview."""
    if record.stage("overview") is None:
        return ""
    passes = [(name, record.stage(name)) for name in ("overview", "focus")]
    preferred = [f"{name} {stage[0]} {percent(stage[1])}" for name, stage in passes if stage]
    limit = [] if record.threshold is None else [f"the limit is {100 * record.threshold:g}%"]
    return f"{SOURCES[record.reached['by']]} ({', '.join([*preferred, *limit])})"


def _bits(answered: Record) -> str:
    """The kept positions as a hexadecimal bit mask; position 0 is the lowest bit."""
    return f"{sum(1 << index for index in answered.selection['indices']):x}"


def _thousandths(values: Sequence[float]) -> list[int]:
    return [round(1000 * value) for value in values]


def _shares(answered: Record, labels: str) -> list[int]:
    """Probabilities of the options in thousandths; 0 for a label without one."""
    return [round(1000 * answered.posterior.get(label, 0.0)) for label in labels]


def _text_shares(answered: Record, texts: Sequence[str]) -> list[int]:
    """Probabilities of texts in thousandths: of the answer its confidence, of others at most what that leaves."""
    shares = [0] * len(texts)
    for text, share in answered.posterior.items():
        if share:
            shares[_place(text, texts)] = round(1000 * min(1.0 - answered.confidence, share))
    shares[_place(answered.reply, texts)] = round(1000 * answered.confidence)
    return shares


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _thumbnails(mine: Mapping[str, Sequence[tuple[float, str]]], place: Mapping[str, int]) -> dict[str, Any]:
    return {str(place[name]): [[round(10 * time), picture] for time, picture in each] for name, each in mine.items()}


# RunThumbnails.

SIZE = FrameSize(max_side=160)
MOST = 12
"""The most thumbnails for a question and run; of more kept frames, evenly spaced ones are shown."""
MOST_BYTES = 12_000_000
"""Limit for all thumbnails of a page, in base64."""
NEAR = 0.05
"""Seconds: if a frame is further from its recorded time, the file has changed and its frames are not shown."""

Pictures = dict[str, list[tuple[float, str]]]


def make_thumbnails(runs: Sequence[Run], *, most_bytes: int = MOST_BYTES) -> tuple[dict[str, Pictures], list[str]]:
    """RunThumbnails by run and question, and notes on those that could not be made."""
    by_run: dict[str, Pictures] = {run.name: {} for run in runs}
    wanted = _wanted(runs)
    troubles: list[str] = []
    left, others = most_bytes, 0
    for done, (video, answers) in enumerate(wanted.items()):
        report("thumbnails", done, len(wanted))
        if left <= 0:
            break
        for run, name, answer in answers:
            try:
                pictures = _pictures(video, answer, run.spec.setup["sampling"] or {})
            except (GridProbeError, OSError) as error:
                troubles.append(str(error))
                break  # the other questions about this video would fail in the same way
            others += not pictures
            left -= sum(len(picture) for _, picture in pictures)
            if pictures and left > 0:
                by_run[run.name][name] = pictures
    stopped = [f"thumbnails stop at {most_bytes / 1e6:g} MB, the limit of a page"] if left <= 0 else []
    return by_run, [*_notes(troubles, others), *stopped]


def _notes(troubles: Sequence[str], others: int) -> list[str]:
    notes = [f"{len(troubles)} videos have no thumbnails; the first error was: {troubles[0]}"] if troubles else []
    return notes + ([f"{others} answers have no thumbnails: the file on disk has different frames"] if others else [])


def _wanted(runs: Sequence[Run]) -> Mapping[str, list[tuple[Run, str, Record]]]:
    videos: dict[str, list[tuple[Run, str, Record]]] = defaultdict(list)
    for run in runs:
        for result in run.results:
            if result.answered and result.video:
                videos[result.video].append((run, result.id, result.answered))
    return videos


def _pictures(video: str, answer: Record, sampling: Mapping[str, Any]) -> list[tuple[float, str]]:
    indices, seconds = answer.selection["indices"], answer.selection["timestamps"]
    places = range(len(indices)) if len(indices) <= MOST else spread(len(indices), MOST)
    recorded = {name: sampling[name] for name in ("sampling", "precision", "stream") if name in sampling}
    footage = Video(Path(video), num_frames=sampling.get("cells", answer.selection["pool"]), **recorded)
    if max(indices) >= len(footage.lazy(SIZE)):
        return []
    frames = footage.frames([indices[place] for place in places], SIZE)
    times = [seconds[place] for place in places]
    if any(abs(now - recorded) > NEAR for now, recorded in zip(frames.times, times, strict=True)):
        return []
    jpegs = [jpeg(Image.fromarray(pixels), quality=70) for pixels in frames.pixels]
    return [(time, base64.b64encode(content).decode("ascii")) for time, content in zip(times, jpegs, strict=True)]
