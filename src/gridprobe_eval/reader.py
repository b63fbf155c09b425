"""A run folder as values: what was run, every question, and what became of it.

    spec.json          what was run
    items.jsonl        the questions, one a line
    records-*.jsonl    what happened, one line per attempt

Nothing else is read: no benchmark data, no video, no clock. A line that is no record is counted in `Run.notes`, and its
question is then missing; a record that contradicts itself or its question is a DataError.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from gridprobe import __version__
from gridprobe._util import parse_json
from gridprobe.errors import DataError, UsageError
from gridprobe.open_ended import exact_match, token_f1
from gridprobe.record import Record, is_number, need
from gridprobe.selectors.base import OVERVIEW
from gridprobe_eval.benchmarks.base import NO_RIGHT_OPTION
from gridprobe_eval.disk import listed
from gridprobe_eval.records import read_records

# Spec: everything that decides the results of a run. Two runs with equal specs may share a folder, others may not.

SCHEMA = "gridprobe.spec/2"
SPEC_FILE = "spec.json"
PACKAGES = ("av", "numpy", "pillow", "torch", "transformers")
NOT_COMPARED = ("data", "versions", "items")
"""Where the data are may differ between machines (`benchmark_version` covers their content); versions are noted."""


@dataclass(frozen=True)
class Spec:
    """A run's spec.json."""

    benchmark: str
    benchmark_version: str
    data: str
    setup: Mapping[str, Any]
    """What `Plan.describe` says, with the models' names."""
    subtitles: str = "none"
    seed: int = 0
    limit: int | None = None
    ids: Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own, such as its split."""
    versions: Mapping[str, str] = field(default_factory=lambda: installed())
    items: str = ""
    """`items_hash` of items.jsonl, which notices damage; older runs have none."""

    @property
    def selector(self) -> str:
        """How frames are chosen."""
        return str(self.setup["selector"]["name"])

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are asked: those of the selector, then the answering one, each once."""
        return tuple(dict.fromkeys([*_models(self.setup["selector"]), str(self.setup["answerer"])]))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that is compared."""
        compared = {name: value for name, value in self._plain().items() if name not in NOT_COMPARED}
        return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]

    def _plain(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]  # tuples become lists, as on disk

    def to_json(self) -> str:
        """The content of spec.json."""
        content = {"schema": SCHEMA, **self._plain(), "fingerprint": self.fingerprint}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> "Spec":
        """The spec of a run folder."""
        file = folder / SPEC_FILE
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UsageError(f"{folder} is not a run: it holds no {SPEC_FILE}; name a folder that eval wrote") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {file}: {error}") from error
        return cls.from_json(text, where=str(file))

    @classmethod
    def from_json(cls, text: str, *, where: str) -> "Spec":
        """Read the content of a spec.json; its fingerprint must be that of what it says."""
        try:
            content = parse_json(text)
            content = {"items": "", **content}
            spec = cls(**{each.name: content[each.name] for each in fields(cls)})
            _ = spec.selector, spec.models
            same = content.get("schema") == SCHEMA and content.get("fingerprint") == spec.fingerprint
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"{where} is not the spec of a run ({error!r:.80}); name another folder") from error
        if not same:
            raise DataError(f"{where} was written by another version of gridprobe or changed by hand; start a new run")
        return spec

    def other_rows_alone(self, begun: "Spec") -> bool:
        """Whether nothing but the benchmark's rows differs from a run that was begun."""
        return [name for name, *_ in _differences(begun._plain(), self._plain())] == ["benchmark_version"]

    def require_same(self, begun: "Spec", *, where: str) -> None:
        """Refuse to go on with a run that was begun with another spec."""
        differing = list(_differences(begun._plain(), self._plain()))
        if differing:
            changes = "; ".join(f"{name} was {_short(old)} and is now {_short(new)}" for name, old, new in differing)
            raise UsageError(f"{where} was begun with another spec: {changes}; name another folder with --out")


def _models(selector: Mapping[str, Any]) -> Iterator[str]:
    """The models of a selector's description, or of the selectors within it."""
    for name, value in selector.items():
        if name == "model":
            yield str(value)
        elif isinstance(value, Mapping):
            yield from _models(value)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Names and both values of what differs, down to single settings."""
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after or (not prefix and name in NOT_COMPARED):
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{prefix}{name}.")
        else:
            yield prefix + name, before, after


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def installed() -> dict[str, str]:
    """Versions of what turns a video and a question into an answer."""
    versions = {name: _version(name) for name in PACKAGES}
    return {"gridprobe": __version__, **{name: each for name, each in versions.items() if each is not None}}


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# Questions and runs.

ITEM_FILE = "items.jsonl"


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
    row: str | None = None
    """The hash of its row; see `gridprobe_eval.records`."""
    record: Record | None = None
    """None if it is missing."""

    @property
    def outcome(self) -> str:
        """One of answered, failed, skipped and missing."""
        return self.record.outcome if self.record else "missing"

    @property
    def answered(self) -> Record | None:
        """Its record, if that has an answer."""
        return self.record if self.record and self.record.outcome == "answered" else None

    @property
    def error(self) -> str:
        """Class and message of what stopped it."""
        error = self.record and self.record.error
        return f"{error['class']}: {error['message']}" if error else ""

    @property
    def withheld(self) -> bool:
        """Whether the right answer is not public."""
        return self.answer is None and not self.extra.get(NO_RIGHT_OPTION)

    @property
    def f1(self) -> float | None:
        """How many words the text of an answer has in common with the right one; None where there is no such text."""
        if self.options or self.outcome == "missing" or self.answer is None:
            return None
        return 0.0 if self.answered is None else token_f1(self.answered.reply, self.answer)

    @property
    def right(self) -> bool | None:
        """Whether it counts as right: what failed does not. None when it was not asked, or the answer is withheld."""
        if self.outcome == "missing" or self.withheld:
            return None
        if self.answered is None or self.answer is None:
            return False
        reply = self.answered.reply
        return reply == self.answer if self.options else exact_match(reply, self.answer)


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
    spec = Spec.read(path)
    items = read_items(path, spec)
    records = read_records(path, rows={key: item.row for key, item in items.items()})
    results = tuple(_result(item, records.best.get(key), path) for key, item in items.items())
    stray = len(records.best.keys() - items.keys())
    notes = (*_notes(results, damaged=len(records.damage), stray=stray), *stops(path))
    return Run(path, name or path.resolve().name, spec, results, notes, len(records.repeated), stray)


def _notes(results: Sequence[Result], *, damaged: int, stray: int) -> tuple[str, ...]:
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in ("missing", "skipped")}
    withheld = sum(result.withheld for result in results)
    transient = sum(bool(result.record and result.record.transient) for result in results)
    notes = {
        f"{count['missing']} of {len(results)} questions have no record yet and are in no number": count["missing"],
        f"{transient} failed questions may succeed now; the command that began the run asks them again": transient,
        f"{count['skipped']} questions were skipped; they count as failed": count["skipped"],
        f"the answers to {withheld} of {len(results)} questions are withheld; these are in no accuracy": withheld,
        f"{damaged} lines of the record files are no records; they were left out": damaged,
        f"{stray} records are of questions that are not in {ITEM_FILE}; they were left out": stray,
    }
    return tuple(note for note, number in notes.items() if number)


def stops(folder: Path) -> Sequence[str]:
    """Why a run, or shards of it, stopped before the last question."""
    sentences = []
    for file in listed(folder, "stopped-*.json"):
        try:
            sentences.append(str(parse_json(file.read_bytes())["sentence"]))
        except (OSError, ValueError, KeyError, TypeError):
            sentences.append(f"the run stopped at a total; {file.name} does not say at which")
    return sentences


def items_hash(content: bytes) -> str:
    """The number of lines of items.jsonl and their hash, for the spec."""
    number = content.count(b"\n")
    return f"{number}-{hashlib.sha256(content).hexdigest()[:16]}"


def read_items(folder: Path, spec: Spec | None = None) -> dict[str, Result]:
    """The questions of a run, before anything is known about their answers; those that its spec was written with."""
    file = folder / ITEM_FILE
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error
    if spec is not None and spec.items not in ("", items_hash(content)):
        raise DataError(f"{file} is damaged: it is not what the run was begun with; restore it, or start a new run")
    items: dict[str, Result] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), start=1):
        if line.strip():
            item = _item(line, f"{file}, line {number}")
            if item.id in items:
                raise DataError(f"{file}, line {number}: the id {item.id!r} is there twice")
            items[item.id] = item
    if not items:
        raise DataError(f"{file} holds no question")
    return items


def _item(line: str, where: str) -> Result:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where}: not a JSON object ({error})") from None
    need(isinstance(row, dict), where, "a question must be an object", row)
    for key in ("id", "group", "question"):
        need(isinstance(row.get(key), str) and row[key] != "", where, f"{key!r} must be text", row.get(key))
    options, bins, answer = row.get("options"), row.get("bins", {}), row.get("answer")
    need(
        isinstance(options, list) and all(isinstance(o, str) for o in options), where, "options must be texts", options
    )
    need(isinstance(bins, dict) and all(isinstance(b, str) for b in bins.values()), where, "bins must be texts", bins)
    need(answer is None or isinstance(answer, str), where, "the answer must be a letter, a text or null", answer)
    need(isinstance(row.get("extra", {}), dict), where, "extra must be an object", row.get("extra"))
    need(isinstance(row.get("row"), str | None), where, "the row's hash must be text or null", row.get("row"))
    duration = row.get("duration")
    need(duration is None or is_number(duration), where, "the duration must be a number or null", duration)
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


def _result(item: "Result", values: Mapping[str, Any] | None, folder: Path) -> "Result":
    if values is None:
        return item
    where = f"{folder}, the record of {item.id!r}"
    record = Record.parse(values, where=where)
    result = replace(item, record=record)
    if item.duration is None:
        length = record.video.get("duration") if isinstance(record.video, dict) else None
        need(length is None or is_number(length), where, "the video's duration must be a number or null", length)
        result = replace(result, duration=length)
    if result.answered and item.answer is not None and record.right is not result.right:
        raise DataError(f"{where}: it says right={record.right}, but {record.reply!r} next to {item.answer!r}")
    return result


# Exporting the frames that a run kept, for the selector that replays them, and predictions for benchmarks' servers.

KEYFRAMES_SCHEMA = "gridprobe.keyframes/1"


def export_keyframes(run: Run) -> dict[str, Any]:
    """The kept frames of every answered question, schema gridprobe.keyframes/1; answers from the overview have none."""
    questions = {
        result.id: {
            "times": list(result.answered.selection["timestamps"]),
            "indices": list(result.answered.selection["indices"]),
            "pool": result.answered.selection["pool"],
            "video": result.video,
            "selector": result.answered.selection["selector"],
            "model": run.spec.models[0],
        }
        for result in run.results
        if result.answered and result.answered.selection["selector"] != OVERVIEW
    }
    if not questions:
        raise DataError(
            f"{run.path} holds no question that was answered from kept frames, so there are none to export; "
            "--effort full keeps some for every question"
        )
    return {
        "schema": KEYFRAMES_SCHEMA,
        "benchmark": run.benchmark,
        "benchmark_version": run.version,
        "left_out": len(run.results) - len(questions),
        "questions": questions,
    }


def submission(run: Run) -> Any:
    """The answers as plain JSON values, in the format that the benchmark's evaluation server or script reads."""
    if run.benchmark not in SUBMISSIONS:
        raise UsageError(
            f"no submission format is known for {run.benchmark}, only for {', '.join(SUBMISSIONS)}; "
            "the records of a run hold every answer"
        )
    return SUBMISSIONS[run.benchmark]({each.id: each for each in run.results if each.answered})


def _letters(results: Mapping[str, Result]) -> dict[str, str]:
    """LongVideoBench's test split, and LVBench's compute_accuracy.py: {"id": "B"}."""
    return {name: each.answered.reply for name, each in results.items() if each.answered}


def _numbers(results: Mapping[str, Result]) -> dict[str, int]:
    """EgoSchema's validation server: {"q_uid": 1}."""
    return {name: ascii_uppercase.index(letter) for name, letter in _letters(results).items()}


def _pairs(results: Mapping[str, Result]) -> dict[str, dict[str, int]]:
    """NExT-QA's eval_mc.py: {"video_qid": {"prediction": 1, "answer": 3}}."""
    return {
        name: {"prediction": number, "answer": ascii_uppercase.index(results[name].answer or "")}
        for name, number in _numbers(results).items()
        if results[name].answer
    }


SUBMISSIONS: dict[str, Callable[[Mapping[str, Result]], Any]] = {
    "longvideobench": _letters,
    "lvbench": _letters,
    "egoschema": _numbers,
    "nextqa": _pairs,
}
