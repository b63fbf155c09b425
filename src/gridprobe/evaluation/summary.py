"""summary(): the results in a run folder, as plain values. A pure function of the folder, without times.

An interrupted and resumed run has the same summary, byte for byte, as an uninterrupted one.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gridprobe.evaluation.reader import Result, read_run

__all__ = ["SCHEMA", "summary"]

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
        "overview": sum(answer.stages.by == "overview" for answer in answers),
        "kept": math.fsum(answer.native for answer in answers) / len(answers) if answers else None,
        "tokens": int(sum(answer.cost["tokens"] for answer in answers)),
        "tflops": math.fsum(answer.cost["tflops"] for answer in answers),
        "tflops_paper": math.fsum(answer.cost["tflops_paper"] for answer in answers),
    }


def _errors(results: Sequence[Result]) -> dict[str, int]:
    """How many questions failed with which class of error."""
    kinds = [result.error.partition(":")[0] for result in results if result.error]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
