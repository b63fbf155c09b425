"""status(): a run's progress and speed, and which of its workers are stuck or dead. It only reads."""

import operator
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from gridprobe._util import parse_json
from gridprobe.errors import RunError
from gridprobe.evaluation.disk import held, listed
from gridprobe.evaluation.folder import interruptions
from gridprobe.evaluation.reader import read_items, stops
from gridprobe.evaluation.records import read_records
from gridprobe.evaluation.spec import Spec
from gridprobe.evaluation.supervisor import TIMEOUTS, check_seconds

__all__ = ["SCHEMA", "status"]

SCHEMA = "gridprobe.status/1"
RECORDS = re.compile(r"records-[\w.-]{1,200}\.jsonl")
MOST = 10**12
"""No worker answers more questions."""


def status(folder: str | Path, *, patience: float = TIMEOUTS, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """The progress of a run.

    A worker is `dead` if it ended without cleaning up: no process holds the lock of its records. It is `stuck` if it
    has spent more than `patience` seconds on one question, and `unknown` where file locks do not work. While the run
    is `loading`, a process has it, but no worker is ready yet. `rate` is the live workers' questions per second since
    they were ready, `eta` the seconds that the missing questions take at that rate. `clock` gives the seconds since
    1970.
    """
    check_seconds("--patience", patience)
    path = Path(folder)
    spec = Spec.read(path)
    rows = {key: item.row for key, item in read_items(path).items()}
    ids, records = rows.keys(), read_records(path, fields=("error",), rows=rows)
    done, failed = (len(records.ids(outcome) & ids) for outcome in ("answered", "failed"))
    missing = len(ids - records.best.keys())
    workers = [_worker(file, patience, clock()) for file in listed(path, "heartbeat-*.json")]
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
        "damage": [str(damage) for damage in records.damage],
        "repeated": sorted(records.repeated),
        "stopped": list(stops(path)),
        "versions": dict(spec.versions),
        "interrupted": interruptions(path),
    }


def _worker(file: Path, patience: float, now: float) -> dict[str, Any] | None:
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
    if state == "working" and beat["question"] is not None and at_it > patience:
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
    found: dict[str, dict[str, Any]] = {}
    for name, record in best.items():
        if record["outcome"] == "failed" and record.get("error"):
            error = record["error"] if isinstance(record["error"], dict) else {"message": record["error"]}
            words = {key: str(error.get(key, "")) for key in ("class", "message")}
            entry = found.setdefault(words["class"], {**words, "count": 0, "example": name})
            entry["count"] += 1
    return sorted(found.values(), key=lambda entry: (-entry["count"], entry["class"]))
