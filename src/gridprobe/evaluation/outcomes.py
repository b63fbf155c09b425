"""The record of one question: an answer, or why there is none."""

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from gridprobe.answer import Answer
from gridprobe.benchmarks import Item
from gridprobe.evaluation.records import SCHEMA
from gridprobe.evaluation.rows import row_of
from gridprobe.selectors import Selection

__all__ = ["answered", "failed", "now"]


def now() -> str:
    """The time, for records; nothing is decided by it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _record(
    item: Item, *, outcome: str, attempt: int, worker: str, identity: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": item.id,
        "group": item.group,
        "row": row_of(item),
        "outcome": outcome,
        "right": False,
        "choice": None,
        "error": None,
        "attempt": attempt,
        "worker": worker,
        "at": now(),
        "identity": identity,
    }


def failed(
    item: Item,
    error: tuple[str, str],
    *,
    attempt: int,
    worker: str,
    identity: Mapping[str, Any] | None = None,
    transient: bool = False,
) -> dict[str, Any]:
    """The record of a question that has no answer; the error is a class and a message.

    A `transient` failure says nothing about the question: it is not held against the run, and a resume asks again.
    """
    record = _record(item, outcome="failed", attempt=attempt, worker=worker, identity=identity)
    record |= {"error": {"class": error[0], "message": error[1][:2000]}}
    return record | ({"transient": True} if transient else {})


def answered(
    item: Item,
    answer: Answer,
    *,
    attempt: int,
    worker: str,
    opening: float,
    identity: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of an answer. A map is in it as row and column confidences, or else as one number for each frame.

    `opening` is what it took to open the video, for the first question about it, though it went on beside other work.
    `identity` is that of the video; see `gridprobe.evaluation.identity`.
    """
    values = answer.to_dict()
    values["seconds"] |= {name: values["seconds"][name] + opening for name in ("decode", "total")}
    record = _record(item, outcome="answered", attempt=attempt, worker=worker, identity=identity)
    posterior = zip(answer.posterior.labels, answer.posterior.logprobs, strict=True)
    record |= {
        "right": answer.right is True,
        "choice": answer.choice,
        "confidence": answer.confidence,
        "logprobs": {label: value if math.isfinite(value) else None for label, value in posterior},
    }
    record["letter_mass"] = answer.posterior.mass
    record |= {name: values[name] for name in ("selection", "cost", "seconds", "video", "warnings")}
    record["selection"].pop("importance")
    record["selection"] |= _map(answer.selection)
    record["cost"].pop("conventions")
    record |= {"basis": answer.basis, "kind": answer.kind}
    return record | {"reached": _reached(answer), "shown_native": answer.shown_native}


def _map(selection: Selection) -> dict[str, Any]:
    """The numbers of a map by frame, and what each probe answered: rows and columns, or frames, if all were asked."""
    evidence = selection.evidence
    if evidence is None:
        return {"by_frame": None, "probe_choices": None}
    numbers = [float(f"{value:.4g}") for value in evidence.by_frame or ()]
    count = len(numbers) or evidence.grid.rows + evidence.grid.k
    choices = [probe.choice for probe in selection.probes] if len(selection.probes) == count else None
    return {"by_frame": numbers or None, "probe_choices": choices}


def _reached(answer: Answer) -> dict[str, Any]:
    """The pass that the answer is from, what each pass preferred, and when the overview counts as sure."""
    reached = answer.reached
    stages = {
        name: {"choice": stage.choice, "confidence": stage.confidence} if stage else None
        for name, stage in (("overview", reached.overview), ("focus", reached.focus))
    }
    return {"by": reached.by, **stages, "threshold": reached.exit.threshold if reached.exit else None}
