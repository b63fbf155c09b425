"""A run folder as values: every question of the run, and what became of it.

    spec.json          what was run
    items.jsonl        the questions, one a line
    records-*.jsonl    what happened, one line per attempt

Nothing else is read: no benchmark data, no video, no clock. A line that is no record is counted in `Run.notes`, and its
question is then missing; a record that contradicts itself or its question is a DataError.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gridprobe._util import parse_json
from gridprobe.benchmarks.base import NO_RIGHT_OPTION
from gridprobe.errors import DataError, UsageError
from gridprobe.evaluation.disk import listed, remove, write_whole
from gridprobe.evaluation.records import read_records
from gridprobe.evaluation.spec import Spec
from gridprobe.limits import UsageLimits, as_flag, check_limit
from gridprobe.open_ended import exact_match, token_f1

__all__ = [
    "Account",
    "Answered",
    "Outcome",
    "Result",
    "Run",
    "Stage",
    "Stages",
    "Taken",
    "Totals",
    "clear_stop",
    "read_items",
    "read_run",
    "read_runs",
    "stops",
    "taken_by",
    "write_stop",
]

# Totals: what a run may take. Account: what it has spent, and what each question in progress may still spend.
#
# A question is asked only if it was granted a part of what is left, and it keeps to that part as to any limit. So
# the total holds, however many workers there are. No question is granted less than the largest one took so far: the run
# stops instead, and says so in its folder. The same command with a larger total goes on.

Taken = Mapping[str, float]
"""Tokens, TFLOPs and seconds."""
NAMES = ("tokens", "tflops", "seconds")
ROOM = 2.0
"""A question may take so many times what the largest one took so far."""


@dataclass(frozen=True)
class Totals:
    """What all questions of a run, or of a shard of it, may take together; None does not apply."""

    tokens: int | None = None
    tflops: float | None = None
    seconds: float | None = None
    """The sum of all questions' seconds, whatever runs at the same time."""

    def __post_init__(self) -> None:
        for name, value in self.limits.items():
            check_limit(f"total_{name}", value, whole=name == "tokens")

    def __bool__(self) -> bool:
        return bool(self.limits)

    @property
    def limits(self) -> dict[str, float]:
        """Those that apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def taken_by(record: Mapping[str, Any]) -> Taken | None:
    """What the question of a record took; None if that is not known, because it failed or the record is damaged."""
    if record.get("outcome") != "answered":
        return None
    try:
        cost, seconds = record["cost"], record["seconds"]
        taken = {"tokens": cost["tokens"], "tflops": cost["tflops"], "seconds": seconds["total"]}
        return taken if all(math.isfinite(value) for value in taken.values()) else None
    except (KeyError, TypeError, OverflowError):
        return None


class Account:
    """What is left of a run's totals."""

    def __init__(self, totals: Totals, limits: UsageLimits, before: Iterable[Taken | None] = ()) -> None:
        """Begin with what was taken before; a question of which that is not known counts like the largest one."""
        self.totals = totals
        self._own = {name: getattr(limits, f"max_{name}") for name in NAMES}
        self._granted: dict[str, Taken] = {}
        self._closed: str | None = None
        known = list(before)
        self.largest = {name: max((each[name] for each in known if each), default=0.0) for name in NAMES}
        self.spent = {name: sum((each or self.largest)[name] for each in known) for name in NAMES}

    def left(self, name: str) -> float:
        """What is neither spent nor granted."""
        granted = sum(each.get(name, 0.0) for each in self._granted.values())
        return float(self.totals.limits[name]) - self.spent[name] - granted

    @property
    def lacking(self) -> str | None:
        """The total that does not allow for another question; None if there is none."""
        if self._closed is not None:
            return self._closed
        short = (name for name in self.totals.limits if self.left(name) < max(self._least(name), 1e-12))
        return next(short, None)

    def _least(self, name: str) -> float:
        own = self._own[name]
        return self.largest[name] if own is None else min(own, self.largest[name])

    def grant(self, question: str) -> Taken | None:
        """What a question may take; None if it cannot be asked now."""
        if self.lacking is not None:
            return None
        found = {}
        for name in self.totals.limits:
            bounds = [self.left(name), ROOM * self.largest[name] or None, self._own[name]]
            found[name] = min(bound for bound in bounds if bound is not None)
        self._granted[question] = {name: int(value) if name == "tokens" else value for name, value in found.items()}
        return self._granted[question]

    def settle(self, question: str, taken: Taken | None) -> None:
        """A question was asked; one of which nothing is known has taken all that it was granted."""
        granted = self._granted.pop(question, {})
        for name in NAMES:
            value = granted.get(name, 0.0) if taken is None else taken[name]
            self.spent[name] += value
            if taken is not None:
                self.largest[name] = max(self.largest[name], value)

    def close(self, question: str, name: str) -> None:
        """Not even the least of a question fits what is left of a total."""
        self.release(question)
        self._closed = name

    def release(self, question: str) -> None:
        """A question was not begun."""
        self._granted.pop(question, None)


def write_stop(folder: Path, shard: str, account: Account, unasked: int) -> None:
    """Keep why a run stopped before its last question."""
    name = account.lacking
    assert name is not None
    limit = f"{as_flag(f'total_{name}')} {account.totals.limits[name]:g}"
    words = f"{unasked} questions were not asked: {limit} ({account.spent[name]:.6g} spent)"
    write_whole(folder / f"stopped-{shard}.json", json.dumps({"sentence": words}).encode())


def clear_stop(folder: Path, shard: str) -> None:
    """Forget why a run stopped, since it goes on."""
    remove(folder / f"stopped-{shard}.json")


def stops(folder: Path) -> Sequence[str]:
    """Why a run, or shards of it, stopped before the last question."""
    found = []
    for file in listed(folder, "stopped-*.json"):
        try:
            found.append(str(parse_json(file.read_bytes())["sentence"]))
        except (OSError, ValueError, KeyError, TypeError):
            found.append(f"the run stopped at a total; {file.name} does not say at which")
    return found


Outcome = Literal["answered", "failed", "skipped", "missing"]

ITEM_FILE = "items.jsonl"
COSTS = ("tflops", "tflops_paper", "baseline_tflops", "baseline_tflops_paper", "tokens", "visual_tokens")
STAGES = ("decode", "probe", "focus", "total")
SOURCES = ("overview", "focus", "refined")
MOST = 1e15
"""No number of a record is larger; sums of larger ones would overflow."""
ROUNDING = 1e-6

Stage = tuple[str, float]
"""The option that a pass prefers, and its probability."""


@dataclass(frozen=True)
class Stages:
    """How an answer was reached. Records from before there was an overview have only the defaults."""

    by: str = "focus"
    """The pass it is from: overview, focus or refined."""
    overview: Stage | None = None
    focus: Stage | None = None
    threshold: float | None = None
    """The confidence at which the overview is sure, if that was asked."""


@dataclass(frozen=True)
class Answered:
    """What an answered question holds beside its choice."""

    choice: str
    """The letter of an option, or the text of an answer to a question without options."""
    confidence: float
    logprobs: Mapping[str, float]
    selector: str
    pool: int
    indices: tuple[int, ...]
    times: tuple[float, ...]
    rows: tuple[float, ...]
    """Confidences of the row probes; empty for a selector that makes no map."""
    columns: tuple[float, ...]
    probes: tuple[str, ...]
    """What each of these probes answered, rows first; empty in runs that did not record it."""
    map: str
    """The kind of map; empty without one."""
    by_frame: tuple[float, ...]
    """The importance of every frame; empty for a map of rows and columns."""
    native: int
    """How many frames the answer was read from at native size; 0 for an answer from the overview."""
    stages: Stages
    skew: float | None
    cost: Mapping[str, float]
    priced: bool
    """Whether the numbers of TFLOPs are complete; those of a model on a server may not be known."""
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]

    @property
    def kept(self) -> int:
        """How many frames were selected."""
        return len(self.indices)


@dataclass(frozen=True)
class Result:
    """One question of a run."""

    id: str
    group: str
    question: str
    options: tuple[str, ...]
    answer: str | None
    bins: Mapping[str, str]
    video: str
    duration: float | None
    """Seconds: the benchmark's number, or else the length of the video that the record says."""
    extra: Mapping[str, Any]
    outcome: Outcome = "missing"
    answered: Answered | None = None
    error: str = ""
    """Class and message of what stopped it."""
    transient: bool = False
    """Whether it failed for a reason that may be gone: the command that resumes the run asks it again."""
    row: str | None = None
    """The hash of its row; see `gridprobe.evaluation.records`."""

    @property
    def withheld(self) -> bool:
        """Whether the right answer is not public."""
        return self.answer is None and not self.extra.get(NO_RIGHT_OPTION)

    @property
    def f1(self) -> float | None:
        """How many words the text of an answer has in common with the right one; None where there is no such text."""
        if self.options or self.outcome == "missing" or self.answer is None:
            return None
        return 0.0 if self.answered is None else token_f1(self.answered.choice, self.answer)

    @property
    def right(self) -> bool | None:
        """Whether it counts as right: what failed does not. None when it was not asked, or the answer is withheld."""
        if self.outcome == "missing" or self.withheld:
            return None
        if self.answered is None or self.answer is None:
            return False
        said = self.answered.choice
        return said == self.answer if self.options else exact_match(said, self.answer)


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path
    name: str
    spec: Spec
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know about the folder."""

    repeated: int = 0
    """Questions with more than one answer; the last one counts."""
    stray: int = 0
    """Records of questions that are not among the run's."""

    @property
    def benchmark(self) -> str:
        """The benchmark's name."""
        return self.spec.benchmark

    @property
    def version(self) -> str:
        """Which release of the benchmark the questions are from."""
        return self.spec.benchmark_version

    @property
    def selector(self) -> str:
        """How frames were chosen."""
        return self.spec.selector

    @property
    def models(self) -> str:
        """The model, or all of them when one selects and another answers."""
        *selecting, answering = self.spec.models
        return f"{' and '.join(selecting)} selects, {answering} answers" if selecting else answering


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Several folders, each under a name of its own: the folder's, or its path where two are alike."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("the same run folder is named twice; name each one once")
    names = [path.resolve().name for path in paths]
    return [
        read_run(path, name=name if names.count(name) == 1 else str(path))
        for path, name in zip(paths, names, strict=True)
    ]


def read_run(path: Path, *, name: str | None = None) -> Run:
    """Read one folder."""
    spec, items = Spec.read(path), read_items(path)
    records = read_records(path, rows={key: item.row for key, item in items.items()})
    results = tuple(_result(item, records.best.get(key), path) for key, item in items.items())
    stray = len(records.best.keys() - items.keys())
    notes = (*_notes(results, damaged=len(records.damage), stray=stray), *stops(path))
    return Run(path, name or path.resolve().name, spec, results, notes, len(records.repeated), stray)


def _notes(results: Sequence[Result], *, damaged: int, stray: int) -> tuple[str, ...]:
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in ("missing", "skipped")}
    withheld = sum(result.withheld for result in results)
    transient = sum(result.transient for result in results)
    notes = {
        f"{count['missing']} of {len(results)} questions have no record yet and are in no number": count["missing"],
        f"{transient} failed questions may succeed now; the command that began the run asks them again": transient,
        f"{count['skipped']} questions were skipped; they count as failed": count["skipped"],
        f"the answers to {withheld} of {len(results)} questions are withheld; these are in no accuracy": withheld,
        f"{damaged} lines of the record files are no records; they were left out": damaged,
        f"{stray} records are of questions that are not in {ITEM_FILE}; they were left out": stray,
    }
    return tuple(note for note, found in notes.items() if found)


# Files.


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}, line {number}", line
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error


def read_items(folder: Path) -> dict[str, Result]:
    """The questions of a run, before anything is known about their answers."""
    file = folder / ITEM_FILE
    items: dict[str, Result] = {}
    for where, line in _lines(file):
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"{where}: not a JSON object ({error})") from None
        item = _item(row, where)
        if item.id in items:
            raise DataError(f"{where}: the id {item.id!r} is there twice")
        items[item.id] = item
    if not items:
        raise DataError(f"{file} holds no question")
    return items


# Lines.


def _need(good: bool, where: str, rule: str, value: object) -> None:
    if not good:
        raise DataError(f"{where}: {rule}, got {str(value)[:80]!r}")


def _item(row: Any, where: str) -> Result:
    _need(isinstance(row, dict), where, "a question must be an object", row)
    for key in ("id", "group", "question"):
        _need(isinstance(row.get(key), str) and row[key] != "", where, f"{key!r} must be text", row.get(key))
    options, bins, answer = row.get("options"), row.get("bins", {}), row.get("answer")
    _need(
        isinstance(options, list) and all(isinstance(o, str) for o in options), where, "options must be texts", options
    )
    _need(isinstance(bins, dict) and all(isinstance(b, str) for b in bins.values()), where, "bins must be texts", bins)
    _need(answer is None or isinstance(answer, str), where, "the answer must be a letter, a text or null", answer)
    _need(isinstance(row.get("extra", {}), dict), where, "extra must be an object", row.get("extra"))
    _need(isinstance(row.get("row"), str | None), where, "the row's hash must be text or null", row.get("row"))
    duration = row.get("duration")
    _need(duration is None or _is_number(duration), where, "the duration must be a number or null", duration)
    texts = {key: row[key] for key in ("id", "group", "question")}
    return Result(
        **texts,
        options=tuple(options),
        answer=answer,
        bins=bins,
        video=str(row.get("video") or ""),
        duration=duration,
        extra=row.get("extra", {}),
        row=row.get("row"),
    )


def _result(item: Result, record: Mapping[str, Any] | None, folder: Path) -> Result:
    if record is None:
        return item
    where, error = f"{folder}, the record of {item.id!r}", record.get("error") or {}
    answered = _answered(record, where) if record["outcome"] == "answered" else None
    told = f"{error.get('class', 'Error')}: {error.get('message', '')}" if isinstance(error, dict) and error else ""
    outcome: dict[str, Any] = {
        "outcome": record["outcome"],
        "answered": answered,
        "error": told,
        "transient": record["outcome"] == "failed" and record.get("transient") is True,
    }
    if item.duration is None:
        outcome["duration"] = _recorded_length(record, where)
    result = Result(**{**vars(item), **outcome})
    if answered and item.answer is not None and record.get("right") is not result.right:
        raise DataError(
            f"{where}: it says right={record.get('right')}, but {answered.choice!r} next to {item.answer!r}"
        )
    return result


def _recorded_length(record: Mapping[str, Any], where: str) -> float | None:
    """The length of the video as its file says; older records and folders of pictures have none."""
    video = record.get("video")
    length = video.get("duration") if isinstance(video, dict) else None
    _need(length is None or _is_number(length), where, "the video's duration must be a number or null", length)
    return length


def _answered(record: Mapping[str, Any], where: str) -> Answered:
    chosen = record.get("selection")
    _need(isinstance(chosen, dict), where, "selection must be an object", chosen)
    assert isinstance(chosen, dict)
    choice, shape, told = record.get("choice"), chosen.get("shape") or {}, record.get("warnings") or []
    weights = record.get("logprobs") or {}
    _need(isinstance(told, list), where, "warnings must be a list", told)
    _need(isinstance(weights, dict), where, "logprobs must be an object", weights)
    pool = int(_number(chosen, "pool", where))
    _need(isinstance(choice, str), where, "the choice must be text", choice)
    indices, times = (_numbers(chosen.get(key), where, key) for key in ("indices", "timestamps"))
    rows, columns = (_numbers(chosen.get(key) or [], where, key) for key in ("row_confidence", "column_confidence"))
    _need(len(indices) == len(times) > 0, where, "selection must name kept frames", indices)
    _need(all(type(i) is int and 0 <= i < pool for i in indices), where, f"indices must be below {pool}", indices)
    _need(not rows or len(rows) * len(columns) >= pool > (len(rows) - 1) * len(columns), where, "bad map", (rows, pool))
    by_frame = _numbers(chosen.get("by_frame") or [], where, "by_frame")
    _need(len(by_frame) in (0, pool), where, f"by_frame must have {pool} numbers", by_frame)
    probes = chosen.get("probe_choices") or []
    _need(isinstance(probes, list) and all(isinstance(p, str) for p in probes), where, "probes must be letters", probes)
    asked = len(by_frame) or len(rows) + len(columns)
    _need(len(probes) in (0, asked), where, "one answer for each probe is needed", probes)
    return Answered(
        choice=str(choice),
        confidence=_share(record, "confidence", where),
        logprobs={name: value for name, value in weights.items() if _is_number(value)},
        selector=str(chosen.get("selector")),
        pool=pool,
        indices=tuple(int(i) for i in indices),
        times=times,
        rows=rows,
        columns=columns,
        probes=tuple(probes),
        map=str(chosen.get("map") or ("probes" if rows else "")),
        by_frame=by_frame,
        native=int(_number(record, "shown_native", where)) if "shown_native" in record else len(indices),
        stages=_stages(record.get("reached"), where),
        skew=_number(shape, "skew", where) if shape else None,
        cost={name: _number(record.get("cost"), name, where) for name in COSTS},
        priced=not record["cost"].get("unpriced_calls"),
        seconds={name: _number(record.get("seconds"), name, where) for name in STAGES},
        warnings=tuple(map(str, told)),
    )


def _stages(reached: Any, where: str) -> Stages:
    if reached is None:
        return Stages()
    _need(isinstance(reached, dict) and reached.get("by") in SOURCES, where, f"by must be one of {SOURCES}", reached)
    threshold = None if reached.get("threshold") is None else _number(reached, "threshold", where)
    overview, focus = (_stage(reached.get(name), where) for name in ("overview", "focus"))
    return Stages(reached["by"], overview, focus, threshold)


def _stage(stage: Any, where: str) -> Stage | None:
    if stage is None:
        return None
    good = isinstance(stage, dict) and isinstance(stage.get("choice"), str)
    _need(good, where, "a stage must have a choice", stage)
    return stage["choice"], _share(stage, "confidence", where)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number; JSON can also hold 1e400, and whole numbers that are no float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _number(values: Any, name: str, where: str) -> float:
    value = values.get(name) if isinstance(values, dict) else None
    _need(_is_number(value), where, f"{name!r} must be a number", value)
    return float(value)  # type: ignore[arg-type]


def _share(values: Any, name: str, where: str) -> float:
    value = _number(values, name, where)
    _need(-ROUNDING <= value <= 1 + ROUNDING, where, f"{name!r} must be from 0 to 1", value)
    return min(max(value, 0.0), 1.0)


def _numbers(values: Any, where: str, name: str) -> tuple[float, ...]:
    _need(isinstance(values, list) and all(map(_is_number, values)), where, f"{name!r} must be numbers", values)
    return tuple(values)
