"""Record: what became of a question, as `ask --json`, the server and the run folders have it.

The fields are those of src/gridprobe/schemas/answer.json. A line of records-*.jsonl has those of a run in addition, and
leaves out what the folder holds once for all questions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from gridprobe._util import parse_json
from gridprobe.errors import DataError
from gridprobe.importance import Grid
from gridprobe.models.base import CONVENTIONS
from gridprobe.selectors import Selection

if TYPE_CHECKING:
    from gridprobe.answer import Answer, AnswerCost, Trace

SCHEMA = "gridprobe.answer/3"
LINE_SCHEMA = "gridprobe.record/2"
OLD_SCHEMA = "gridprobe.record/1"
SCHEMAS = (LINE_SCHEMA, OLD_SCHEMA)
"""Of the lines that can be read."""
OUTCOMES = ("answered", "failed", "skipped")
OF_A_RUN = ("group", "row", "outcome", "error", "transient", "attempt", "worker", "at", "identity")
"""Fields that only a run's line has."""
OF_THE_FOLDER = ("question", "options", "truth", "models", "settings")
"""Fields that a run's line lacks: items.jsonl, models.json and spec.json have them."""

COSTS = ("tflops", "tflops_paper", "baseline_tflops", "baseline_tflops_paper", "tokens", "visual_tokens")
STAGES = ("decode", "probe", "focus", "total")
SOURCES = ("overview", "all", "focus", "refined")
WHOLE = SOURCES[:2]
"""Those that show all frames in one pass, small or at full size, so that none are kept."""
MOST = 1e15
"""No number of a record is larger; sums of larger ones would overflow."""
ROUNDING = 1e-6

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Record:
    """The answer to a question, or why there is none."""

    id: str | None = None
    question: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    choice: str | None = None
    """The label of the chosen option; None for a question without options."""
    answer: str | None = None
    """The text of the chosen option, or the model's own."""
    truth: str | None = None
    right: bool | None = None
    confidence: float = 0.0
    posterior: Mapping[str, float] = field(default_factory=dict)
    letter_mass: float | None = None
    basis: str = "letters"
    kind: str | None = None
    evidence: Sequence[Sequence[float]] = ()
    reached: Values = field(default_factory=dict)
    shown_native: int = 0
    """How many frames the answer was read from at full size; 0 for an answer from the overview."""
    selection: Values = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    video: Values | None = None
    models: Values = field(default_factory=dict)
    settings: Values = field(default_factory=dict)
    warnings: Sequence[str] = ()

    group: str = ""
    row: str | None = None
    """The hash of the question's row; see `gridprobe_eval.records`."""
    outcome: str = "answered"
    error: Mapping[str, str] | None = None
    """Class and message of what stopped it."""
    transient: bool = False
    """Whether it failed for a reason that may be gone: a resumed run asks it again."""
    attempt: int = 1
    worker: str = ""
    at: str = ""
    """When it was written, in UTC."""
    identity: Values | None = None
    """Of the video; see `gridprobe_eval.tasks`."""

    @classmethod
    def of(cls, answer: "Answer", *, opening: float = 0.0) -> "Record":
        """The record of an answer; opening the video took `opening` seconds in addition to what the answer counts."""
        info, question = answer.pool.info, answer.question
        return cls(
            id=question.id,
            question=question.text,
            options=dict(zip(question.labels, question.options, strict=True)),
            choice=None if question.open else answer.choice,
            answer=answer.text,
            truth=question.answer,
            right=answer.right,
            confidence=answer.confidence,
            posterior=answer.candidates,
            letter_mass=answer.posterior.mass if answer.basis == "letters" else None,
            basis=answer.basis,
            kind=answer.kind,
            evidence=[list(stretch) for stretch in answer.evidence],
            reached=_reached(answer.reached),
            shown_native=answer.shown_native,
            selection=selection_dict(answer.selection),
            cost=_cost(answer.cost),
            seconds=_seconds(answer, opening),
            video=info.to_dict() if info else None,
            models={"selector": " + ".join(answer.models[0]) or None, "answerer": answer.models[1]},
            settings=dict(answer.settings),
            warnings=list(answer.warnings),
        )

    @classmethod
    def failed(cls, error: tuple[str, str], *, transient: bool = False) -> "Record":
        """The record of a question that has no answer; the error is a class and a message.

        A `transient` failure says nothing about the question: it is not held against the run, and a resume asks again.
        """
        described = {"class": error[0], "message": error[1][:2000]}
        return cls(outcome="failed", error=described, transient=transient, right=False)

    @classmethod
    def parse(cls, line: str | bytes | Values, *, where: str = "the record") -> "Record":
        """Read the JSON of an answer or a line of a run, also one of gridprobe.record/1; else a DataError."""
        values = _object(line, where)
        if values.get("schema") == OLD_SCHEMA:
            values = _upgraded(values, where)
        names = {each.name for each in fields(cls)}
        error = values.get("error") or None
        if error is not None:
            details = error if isinstance(error, dict) else {}
            error = {"class": str(details.get("class", "Error")), "message": str(details.get("message", ""))}
        record = cls(**{name: value for name, value in values.items() if name in names} | {"error": error})
        record = replace(record, transient=record.outcome == "failed" and record.transient is True)
        return record._checked(where) if record.outcome == "answered" else record

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, by src/gridprobe/schemas/answer.json."""
        return {"schema": SCHEMA, **{each.name: getattr(self, each.name) for each in fields(self)[: -len(OF_A_RUN)]}}

    def to_line(self) -> dict[str, Any]:
        """The record as a line of a run folder."""
        values = {"schema": LINE_SCHEMA, **{name: getattr(self, name) for name in ("id", *OF_A_RUN, "right", "choice")}}
        if not self.transient:
            del values["transient"]
        if self.outcome == "answered":
            left_out = ("schema", *OF_THE_FOLDER)
            values |= {name: value for name, value in self.to_dict().items() if name not in left_out}
            values["selection"] = self._short_selection()
            values["cost"] = {name: value for name, value in self.cost.items() if name != "conventions"}
        return values

    def _short_selection(self) -> dict[str, Any]:
        """Without a product of rows and columns, and with four digits of a map by frame."""
        importance = None if self.selection["row_confidence"] else self.selection["importance"]
        rounded = importance and [[None if x is None else float(f"{x:.4g}") for x in row] for row in importance]
        return {**self.selection, "importance": rounded}

    @property
    def reply(self) -> str:
        """The label of the chosen option, or the text of an answer to a question without options."""
        return str(self.answer if self.choice is None else self.choice)

    @property
    def by_frame(self) -> tuple[float, ...]:
        """The importance of every frame; empty for a map of rows and columns, and without one."""
        if self.selection["row_confidence"]:
            return ()
        return tuple(x for row in self.selection["importance"] or () for x in row if x is not None)

    @property
    def skew(self) -> float | None:
        """Of the map's numbers; None if it was not needed."""
        shape = self.selection["shape"]
        return shape["skew"] if shape else None

    @property
    def priced(self) -> bool:
        """Whether the numbers of TFLOPs are complete; those of a model on a server may not be known."""
        return not self.cost.get("unpriced_calls")

    def stage(self, name: str) -> tuple[str, float] | None:
        """What the overview or the focused pass preferred, and its probability; None if there was no such pass."""
        shares = self.reached.get("stages", {}).get(name)
        if not shares:
            return None
        choice, share = max(shares.items(), key=lambda each: each[1])
        return choice, min(max(share, 0.0), 1.0)

    @property
    def threshold(self) -> float | None:
        """The confidence at which the overview was sure, if that was asked."""
        limit = self.reached.get("exit")
        return None if limit is None else limit["threshold"]

    def _checked(self, where: str) -> "Record":
        """The same; an error if a report could not be made of it."""
        need(isinstance(self.reply, str) and (self.choice or self.answer) is not None, where, "it needs an answer", "")
        for name in ("choice", "answer"):
            value = getattr(self, name)
            need(isinstance(value, str | None), where, f"the {name} must be text", value)
        need(isinstance(self.warnings, list | None), where, "warnings must be a list", self.warnings)
        need(isinstance(self.posterior, dict), where, "posterior must be an object", self.posterior)
        _check_selection(self.selection, where)
        _check_reached(self.reached, where)
        for name in COSTS:
            _number(self.cost, name, where)
        for name in STAGES:
            _number(self.seconds, name, where)
        return replace(
            self,
            confidence=_share(vars(self), "confidence", where),
            posterior={label: share for label, share in self.posterior.items() if is_number(share)},
            shown_native=int(_number(vars(self), "shown_native", where)),
            warnings=tuple(map(str, self.warnings or ())),
        )


# What an answer's parts are in JSON.


def selection_dict(selection: Selection) -> dict[str, Any]:
    """A selection as plain values, for JSON."""
    evidence, shape = selection.evidence, selection.shape
    matrix = None if evidence is None else evidence.matrix.tolist()
    return {
        "selector": selection.selector,
        "kept": selection.kept,
        "pool": selection.pool,
        "k": Grid.holding(selection.pool).k,
        "indices": list(selection.indices),
        "timestamps": list(selection.timestamps),
        "extra_frames": [{"share": each.share, "indices": list(each.indices)} for each in selection.extra_frames],
        "row_confidence": evidence and (list(evidence.row_confidence) or None),
        "column_confidence": evidence and (list(evidence.column_confidence) or None),
        "map": evidence and evidence.kind,
        "importance": matrix and [[None if math.isnan(value) else value for value in row] for row in matrix],
        "probe_choices": _probe_choices(selection),
        "shape": shape and {"skew": shape.skew, "excess_kurtosis": shape.excess_kurtosis, "sigma": shape.sigma},
    }


def _probe_choices(selection: Selection) -> list[str] | None:
    """What each probe answered: rows and columns, or frames, if all were asked."""
    evidence = selection.evidence
    if evidence is None:
        return None
    count = len(evidence.by_frame or ()) or evidence.grid.rows + evidence.grid.k
    return [probe.choice for probe in selection.probes] if len(selection.probes) == count else None


def _cost(cost: "AnswerCost") -> dict[str, Any]:
    return {
        "tflops": cost.tflops,
        "tflops_paper": cost.tflops_paper,
        "tflops_computed": cost.tflops_computed,
        "overview_tflops": cost.overview.tflops,
        "probe_tflops": cost.probe.tflops,
        "focus_tflops": cost.focus.tflops,
        "baseline_tflops": cost.baseline.tflops,
        "baseline_tflops_paper": cost.baseline.tflops_paper,
        "tokens": cost.total.tokens,
        "visual_tokens": cost.total.visual_tokens,
        "cached_tokens": cost.total.cached_tokens,
        "calls": cost.total.calls,
        "unpriced_calls": cost.total.unpriced,
        "money": cost.total.money,
        "conventions": CONVENTIONS,
    }


def _seconds(answer: "Answer", opening: float) -> dict[str, float]:
    """The seconds of each stage; the first question about a video counts the time it took to open it."""
    seconds = {name: getattr(answer.seconds, name) for name in ("decode", "overview", "probe", "focus", "total")}
    return seconds | {name: seconds[name] + opening for name in ("decode", "total")}


def _reached(trace: "Trace") -> dict[str, Any]:
    stages = {"overview": trace.overview, "focus": trace.focus}
    return {
        "by": trace.by,
        "stages": {
            name: dict(zip(each.labels, each.shares, strict=True)) for name, each in stages.items() if each is not None
        },
        "exit": trace.exit and trace.exit.describe(),
        "contradicted": trace.contradicted,
        "stretches": [list(stretch) for stretch in trace.stretches],
        "windows": trace.windows,
    }


# What older lines said in another way.


def _upgraded(line: Values, where: str) -> dict[str, Any]:
    """A line of gridprobe.record/1 as one of today."""
    values = {name: value for name, value in line.items() if name not in ("logprobs", "confidence")}
    if line.get("outcome") != "answered":
        return values
    logprobs, choice = line.get("logprobs") or {}, line.get("choice")
    need(isinstance(logprobs, dict), where, "logprobs must be an object", logprobs)
    need(isinstance(choice, str), where, "the choice must be text", choice)
    shares = {label: math.exp(min(0.0, log)) for label, log in logprobs.items() if is_number(log)}
    chosen = line.get("selection")
    need(isinstance(chosen, dict), where, "selection must be an object", chosen)
    assert isinstance(chosen, dict)
    return values | {
        "choice": None if line.get("kind") else choice,
        "answer": choice,
        "confidence": line.get("confidence"),
        "posterior": shares,
        "reached": _upgraded_reached(line.get("reached"), where),
        "selection": _upgraded_selection(chosen, where),
        "shown_native": line["shown_native"] if "shown_native" in line else len(chosen.get("indices") or ()),
    }


def _upgraded_reached(reached: Any, where: str) -> Values:
    """The stages by their choices alone; lines from before there was an overview have none."""
    if reached is None:
        return {"by": "focus", "stages": {}, "exit": None}
    need(isinstance(reached, dict) and reached.get("by") in SOURCES, where, f"by must be one of {SOURCES}", reached)
    stages = {}
    for name in ("overview", "focus"):
        stage = reached.get(name)
        if stage is not None:
            well = isinstance(stage, dict) and isinstance(stage.get("choice"), str)
            need(well, where, "a stage must have a choice", stage)
            stages[name] = {stage["choice"]: _share(stage, "confidence", where)}
    limit = None if reached.get("threshold") is None else {"threshold": _number(reached, "threshold", where)}
    return {"by": reached["by"], "stages": stages, "exit": limit}


def _upgraded_selection(selection: Values, where: str) -> dict[str, Any]:
    """With the map by frame in rows; a map without a kind is one of probes."""
    pool, by_frame = int(_number(selection, "pool", where)), selection.get("by_frame") or []
    _numbers(by_frame, where, "by_frame")
    need(len(by_frame) in (0, pool), where, f"by_frame must have {pool} numbers", by_frame)
    k = Grid.holding(max(1, pool)).k
    filled = [*by_frame, *[None] * (-len(by_frame) % k)]
    rows = selection.get("row_confidence")
    return {
        **dict.fromkeys(("selector", "column_confidence", "probe_choices", "shape")),
        **{name: value for name, value in selection.items() if name != "by_frame"},
        "row_confidence": rows,
        "importance": [filled[start : start + k] for start in range(0, len(filled), k)] or None,
        "map": selection.get("map") or ("probes" if rows else None),
    }


# Checks.


def need(good: bool, where: str, rule: str, value: object) -> None:
    """Refuse a value that breaks a rule."""
    if not good:
        raise DataError(f"{where}: {rule}, got {str(value)[:80]!r}")


def is_number(value: Any) -> bool:
    """Whether it is a finite number; JSON can also hold 1e400, and whole numbers that are no float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _object(line: str | bytes | Values, where: str) -> Values:
    try:
        values = parse_json(line) if isinstance(line, str | bytes) else line
    except ValueError as error:
        raise DataError(f"{where}: it is not JSON ({error})") from None
    if not isinstance(values, Mapping) or values.get("schema") not in (SCHEMA, *SCHEMAS):
        raise DataError(f"{where}: it is not an answer of gridprobe; its schema must be {SCHEMA} or {LINE_SCHEMA}")
    return values


def _check_selection(selection: Any, where: str) -> None:
    names = ("selector", "row_confidence", "column_confidence", "map", "importance", "probe_choices", "shape")
    need(isinstance(selection, dict), where, "selection must be an object", selection)
    need(selection.keys() >= set(names), where, f"selection must have {', '.join(names)}", selection)
    pool = int(_number(selection, "pool", where))
    indices, times = (_numbers(selection.get(key), where, key) for key in ("indices", "timestamps"))
    rows, columns = (_numbers(selection[key] or [], where, key) for key in ("row_confidence", "column_confidence"))
    need(len(indices) == len(times) > 0, where, "selection must name kept frames", indices)
    need(all(type(i) is int and 0 <= i < pool for i in indices), where, f"indices must be below {pool}", indices)
    need(not rows or len(rows) * len(columns) >= pool > (len(rows) - 1) * len(columns), where, "bad map", (rows, pool))
    number = len(rows) + len(columns) or len(_cells(selection["importance"] or [], pool, where))
    probes = selection["probe_choices"] or []
    need(isinstance(probes, list) and all(isinstance(p, str) for p in probes), where, "probes must be letters", probes)
    need(len(probes) in (0, number), where, "one answer for each probe is needed", probes)
    if selection["shape"]:
        _number(selection["shape"], "skew", where)


def _cells(importance: Any, pool: int, where: str) -> list[float]:
    """The numbers of a map; cells without a frame have none."""
    well = isinstance(importance, list) and all(isinstance(row, list) for row in importance)
    need(well, where, "importance must be rows", importance)
    cells = [value for row in importance for value in row if value is not None]
    need(len(cells) in (0, pool) and all(map(is_number, cells)), where, f"importance must be {pool} numbers", cells)
    return cells


def _check_reached(reached: Any, where: str) -> None:
    well = isinstance(reached, dict) and reached.get("by") in SOURCES and isinstance(reached.get("stages"), dict)
    need(well, where, f"by must be one of {SOURCES}", reached)
    for shares in reached["stages"].values():
        need(isinstance(shares, dict) and len(shares) > 0, where, "a stage must have a choice", shares)
        for label in shares:
            _share(shares, label, where)
    if reached.get("exit") is not None:
        _number(reached["exit"], "threshold", where)


def _number(values: Any, name: str, where: str) -> float:
    value = values.get(name) if isinstance(values, dict) else None
    need(is_number(value), where, f"{name!r} must be a number", value)
    return float(value)  # type: ignore[arg-type]


def _share(values: Any, name: str, where: str) -> float:
    value = _number(values, name, where)
    need(-ROUNDING <= value <= 1 + ROUNDING, where, f"{name!r} must be from 0 to 1", value)
    return min(max(value, 0.0), 1.0)


def _numbers(values: Any, where: str, name: str) -> Sequence[float]:
    need(isinstance(values, list) and all(map(is_number, values)), where, f"{name!r} must be numbers", values)
    return values  # type: ignore[no-any-return]
