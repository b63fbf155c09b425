"""RunFolder: the files of a run, and the locks that decide who may write to them.

spec.json            everything that affects a result
items.jsonl          the questions, so that scoring does not need the benchmark
models.json          which models really answered, including weights and precision
records-*.jsonl      one line per question; each file has one writer
heartbeat-*.json     what each worker is doing
lock, lock-*         locked by the kernel for as long as a run is alive
"""

import json
import math
import operator
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from gridprobe._util import parse_json
from gridprobe.errors import DataError, RunError, UsageError
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.disk import close, held, listed, lock, one_sentence, readable, remove, stays_held, write_whole
from gridprobe_eval.reader import ITEM_FILE, SPEC_FILE, Spec, items_hash, read_items, stops
from gridprobe_eval.records import RowChanges, read_records, row_of
from gridprobe_eval.tasks import Shard

OURS = re.compile(r"lock(-\d+of\d+)?|items\.jsonl|\..*\.tmp")
"""Files that a run which died before its first record may leave behind."""


class RunFolder:
    """The folder of one evaluation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def spec(self) -> Spec:
        """What the run was begun with."""
        return Spec.read(self.path)

    @contextmanager
    def taken(self, spec: Spec, items: Sequence[Item], shard: Shard, *, redo: bool = False) -> Iterator[RowChanges]:
        """Start or resume the run, and keep others from doing so at the same time.

        Shards of the same count may run at the same time, also on other machines. With `redo`, the run goes on with
        other rows of the benchmark; yields which ones.
        """
        with one_sentence(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with self._gate():
                stack.callback(close, self._take(shard))
                changes = RowChanges()
                if listed(self.path, SPEC_FILE):
                    changes = self._resume(spec, items, shard, redo=redo)
                else:
                    self._begin(spec, items)
                self._clean(shard)
            yield changes

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """Hold the folder's lock briefly, so that checking its state and acting on it is one step."""
        descriptor = lock(self.path / "lock", wait=True)
        assert descriptor is not None
        try:
            yield
        finally:
            close(descriptor)

    def _take(self, shard: Shard) -> int:
        mine = self.path / f"lock-{shard.name}"
        for other in listed(self.path, "lock-*"):
            overlaps = other == mine or not other.name.endswith(f"of{shard.count}")
            if overlaps and stays_held(other):
                raise RunError(f"{self.path} is in use by {_holder(other)}; wait for it, or stop it first")
        for file in listed(self.path, "records-*.jsonl"):
            if self._concerns(file, shard) and stays_held(file):
                raise RunError(f"a worker of an earlier run still writes {file}; stop it first")
        descriptor = lock(mine, wait=False)
        if descriptor is None:
            raise RunError(f"{self.path} is in use by {_holder(mine)}; wait for it, or stop it first")
        with one_sentence(mine):
            try:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            except OSError:
                close(descriptor)
                raise
        return descriptor

    def _concerns(self, file: Path, shard: Shard) -> bool:
        """Whether a record file may belong to an overlapping run: any file but those of other shards of this count."""
        match = re.match(r"records-s(\d+)of(\d+)\.", file.name)
        return not match or int(match[2]) != shard.count or int(match[1]) == shard.number

    def _begin(self, spec: Spec, items: Sequence[Item]) -> None:
        """Write the items, then the spec: if there is a spec, the items are complete."""
        strange = [each.name for each in listed(self.path, "*") if not OURS.fullmatch(each.name)]
        if strange:
            raise UsageError(f"{self.path} is not empty ({strange[0]}) and not a run; name a new folder with --out")
        self._write_spec(replace(spec, items=self._write_items(items)))

    def _resume(self, spec: Spec, items: Sequence[Item], shard: Shard, *, redo: bool) -> RowChanges:
        """Check that the run was begun with the same spec; with `redo`, the benchmark's rows may be others."""
        begun = self.spec
        if not spec.other_rows_alone(begun):
            spec.require_same(begun, where=str(self.path))
            return RowChanges()
        changes = self._row_changes(items)
        if not redo:
            raise UsageError(
                f"{self.path} was begun with other rows ({changes}): benchmark_version was {begun.benchmark_version!r} "
                f"and is now {spec.benchmark_version!r}; ask the changed rows again with --redo-changed, or "
                "name another folder with --out"
            )
        for other in self._others_alive(shard):
            raise RunError(f"{self.path} has other rows now but {other.name} is in use; stop that run first")
        self._replace_rows(replace(begun, benchmark_version=spec.benchmark_version, data=spec.data), items)
        return changes

    def _row_changes(self, items: Sequence[Item]) -> RowChanges:
        old = {name: each.row for name, each in read_items(self.path, self.spec).items()}
        if None in old.values():
            raise UsageError(
                f"{self.path} was begun with other rows, by a version that did not record them; name another folder "
                "with --out"
            )
        return RowChanges.between(old, items)

    def _replace_rows(self, spec: Spec, items: Sequence[Item]) -> None:
        """Write other items and their spec.

        If this is interrupted, the spec is that of no benchmark: the run is then refused, or this is done again.
        """
        self._write_spec(replace(spec, items="", benchmark_version=f"unfinished change to {spec.benchmark_version}"))
        self._write_spec(replace(spec, items=self._write_items(items)))

    def _write_items(self, items: Sequence[Item]) -> str:
        """Write items.jsonl, and return its hash for the spec."""
        lines = (json.dumps(_line(item), ensure_ascii=False, allow_nan=False) for item in items)
        content = "".join(line + "\n" for line in lines).encode("utf-8", "replace")
        write_whole(self.path / ITEM_FILE, content)
        return items_hash(content)

    def _write_spec(self, spec: Spec) -> None:
        write_whole(self.path / SPEC_FILE, spec.to_json().encode("utf-8", "replace"))

    def _others_alive(self, shard: Shard) -> Iterator[Path]:
        """The locked files of other processes that use the folder."""
        for file in (*listed(self.path, "lock-*"), *listed(self.path, "records-*.jsonl")):
            if file.name != f"lock-{shard.name}" and held(file):
                yield file

    def _clean(self, shard: Shard) -> None:
        """Delete temporary files of processes that died, unless some process may still be writing one."""
        left = listed(self.path, ".gridprobe-*.tmp")
        if left and not any(self._others_alive(shard)):
            for file in left:
                remove(file)

    def claim(self, models: Sequence[str]) -> None:
        """Record which models answer, and at which exit; an error if others, even of the same name, answered before."""
        file = self.path / "models.json"
        with self._gate():
            try:
                with readable(file):
                    before = [str(each) for each in parse_json(file.read_bytes())] if file.is_file() else None
            except (ValueError, TypeError) as error:
                raise DataError(f"cannot read {file}: {error}") from error
            if before is None:
                write_whole(file, json.dumps(list(models)).encode())
                return
        if before != list(models):
            raise RunError(
                f"{self.path} was begun with the models {' and '.join(before)}, but these are {' and '.join(models)}: "
                "other weights, precision, device or calibration; name another folder with --out"
            )


def _line(item: Item) -> dict[str, Any]:
    question = item.question
    return {
        "id": item.id,
        "group": item.group,
        "row": row_of(item),
        "question": question.text,
        "options": list(question.options),
        "answer": question.answer,
        "bins": dict(item.bins),
        "video": str(item.video),
        "duration": item.duration,
        "extra": dict(item.extra),
    }


def _holder(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or "another run"
    except OSError:
        return "another run"


# Why a run, or a shard of it, ended early: a file for each shard, which the next start removes.


def write_end(folder: Path, kind: Literal["interrupted", "stopped"], shard: str, **content: str) -> None:
    """Keep that the user ended a run, so that its workers do not count as dead, or at which total it stopped."""
    write_whole(folder / f"{kind}-{shard}.json", json.dumps(content).encode())


def clear_ends(folder: Path, shard: str) -> None:
    """The run goes on."""
    for kind in ("interrupted", "stopped"):
        remove(folder / f"{kind}-{shard}.json")


# status(): a run's progress and speed, and which of its workers are stuck or dead. It only reads.

QUESTION_TIMEOUT, START_TIMEOUT = 600.0, 1800.0
"""Seconds."""


def check_seconds(option: str, value: float) -> None:
    """Refuse a timeout that is not a positive, finite number."""
    if not 0 < value < math.inf:
        raise UsageError(f"{option} must be a finite number of seconds above 0, got {value}")


@dataclass(frozen=True)
class Timeouts:
    """Seconds without a message after which a worker counts as hung."""

    question: float = QUESTION_TIMEOUT
    start: float = START_TIMEOUT
    """The same until its models are loaded; this includes starting the process and downloading weights."""

    def __post_init__(self) -> None:
        check_seconds("--timeout", self.question)
        check_seconds("--start-timeout", self.start)


SCHEMA = "gridprobe.status/1"
RECORDS = re.compile(r"records-[\w.-]{1,200}\.jsonl")
MOST = 10**12
"""No worker answers more questions."""


def status(
    folder: str | Path, *, timeout: float = QUESTION_TIMEOUT, clock: Callable[[], float] = time.time
) -> dict[str, Any]:
    """The progress of a run.

    A worker is `dead` if it ended without cleaning up: no process holds the lock of its records. It is `stuck` if it
    has spent more than `timeout` seconds on one question, and `unknown` where file locks do not work. While the run
    is `loading`, a process has it, but no worker is ready yet. `rate` is the live workers' questions per second since
    they were ready, `eta` the seconds that the missing questions take at that rate. `clock` gives the seconds since
    1970.
    """
    check_seconds("--timeout", timeout)
    path = Path(folder)
    spec = Spec.read(path)
    rows = {key: item.row for key, item in read_items(path, spec).items()}
    ids, records = rows.keys(), read_records(path, fields=("error",), rows=rows)
    done, failed = (len(records.ids(outcome) & ids) for outcome in ("answered", "failed"))
    missing = len(ids - records.best.keys())
    workers = [_worker(file, timeout, clock()) for file in listed(path, "heartbeat-*.json")]
    loading = not any(workers) and any(_is_held(file) for file in listed(path, "lock-*"))
    living = [worker for worker in workers if worker and worker["state"] != "dead"]
    rate = sum(worker["rate"] for worker in living)
    return {
        "schema": SCHEMA,
        "run": str(path),
        "questions": len(ids),
        "done": done,
        "failed": failed,
        "missing": missing,
        "rate": rate or None,
        "eta": missing / rate if rate else None,
        "loading": loading,
        "workers": [worker for worker in workers if worker],
        "errors": _errors(records.best),
        "damage": records.damage,
        "repeated": sorted(records.repeated),
        "stopped": list(stops(path)),
        "versions": dict(spec.versions),
        "interrupted": [file.stem.removeprefix("interrupted-") for file in listed(path, "interrupted-*.json")],
    }


def _worker(file: Path, timeout: float, now: float) -> dict[str, Any] | None:
    try:
        beat = parse_json(file.read_bytes())
        started, since = (
            datetime.fromisoformat(beat[key].replace("Z", "+00:00")).timestamp() for key in ("started", "since")
        )
        finished = operator.index(beat["done"]) + operator.index(beat["failed"])
        sound = 0 <= finished < MOST and RECORDS.fullmatch(beat["records"]) and isinstance(beat["worker"], str)
        if not sound or not isinstance(beat["question"], str | None):
            return None
        beat = {name: beat[name] for name in ("worker", "pid", "host", "records", "question", "done", "failed")} | beat
        rate = finished / max(1e-3, now - started)
        state = {True: "working", False: "dead", None: "unknown"}[_is_held(file.parent / beat["records"])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):  # just ended, or damaged
        return None
    at_it = max(0.0, now - since)
    if state == "working" and beat["question"] is not None and at_it > timeout:
        state = "stuck"
    return {**beat, "state": state, "seconds": round(at_it, 1), "rate": rate}


def _is_held(file: Path) -> bool | None:
    """Whether a process holds a lock; None where that cannot be found."""
    try:
        return held(file)
    except RunError:
        return None


def _errors(best: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The error classes with one example each, most frequent first."""
    classes: dict[str, dict[str, Any]] = {}
    for name, record in best.items():
        if record["outcome"] == "failed" and record.get("error"):
            error = record["error"] if isinstance(record["error"], dict) else {"message": record["error"]}
            words = {key: str(error.get(key, "")) for key in ("class", "message")}
            entry = classes.setdefault(words["class"], {**words, "count": 0, "example": name})
            entry["count"] += 1
    return sorted(classes.values(), key=lambda entry: (-entry["count"], entry["class"]))
