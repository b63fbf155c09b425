"""summary(): the results in a run folder, as plain values. A pure function of the folder, without times.

An interrupted and resumed run has the same summary, byte for byte, as an uninterrupted one.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gridprobe.evaluation.folder import RunFolder
from gridprobe.evaluation.records import read_records

__all__ = ["SCHEMA", "summary"]

SCHEMA = "gridprobe.summary/1"
FIELDS = ("right", "error", "cost", "selection")


def summary(folder: str | Path) -> dict[str, Any]:
    """Counts and accuracy of a run, over all its questions and by bin. A failed question counts as wrong."""
    run = RunFolder.existing(Path(folder))
    items, records = run.items(), read_records(run.path, fields=FIELDS)
    ids = {item["id"] for item in items}
    bins: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for item in items:
        for name, value in item["bins"].items():
            bins.setdefault(name, {}).setdefault(value, []).append(item)
    return {
        "schema": SCHEMA,
        "fingerprint": run.spec.fingerprint,
        "all": _counts(items, records.best),
        "bins": {
            name: {value: _counts(members, records.best) for value, members in sorted(values.items())}
            for name, values in bins.items()
        },
        "errors": _errors(items, records.best),
        "repeated": len(records.repeated),
        "foreign": len(records.best.keys() - ids),
    }


def _counts(items: Sequence[Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found = [best[item["id"]] for item in items if item["id"] in best]
    answered = [record for record in found if record["outcome"] == "answered"]
    right = sum(record["right"] for record in answered)
    failed = sum(record["outcome"] == "failed" for record in found)
    asked = len(answered) + failed
    return {
        "questions": len(items),
        "answered": len(answered),
        "failed": failed,
        "skipped": len(found) - asked,
        "missing": len(items) - len(found),
        "right": right,
        "accuracy": right / asked if asked else None,
        "kept": _mean([record["selection"]["kept"] for record in answered]),
        "tokens": sum(record["cost"]["tokens"] for record in answered),
        "tflops": math.fsum(record["cost"]["tflops"] for record in answered),
        "tflops_paper": math.fsum(record["cost"]["tflops_paper"] for record in answered),
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _errors(items: Sequence[Mapping[str, Any]], best: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The number of failed questions for each error class."""
    counts: dict[str, int] = {}
    for item in items:
        error = best.get(item["id"], {}).get("error")
        if error:
            counts[error["class"]] = counts.get(error["class"], 0) + 1
    return dict(sorted(counts.items()))
