"""Totals: what a run may take. Account: what it has spent, and what each question in progress may still spend.

A question is asked only if it was granted a part of what is left, and it keeps to that part as to any limit. So
the total holds, however many workers there are. No question is granted less than the largest one took so far: the run
stops instead, and says so in its folder. The same command with a larger total goes on.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gridprobe.evaluation.disk import listed, remove, write_whole
from gridprobe.files import parse_json
from gridprobe.limits import UsageLimits, as_flag, check_limit

__all__ = ["Account", "Taken", "Totals", "clear_stop", "stops", "taken_by", "write_stop"]

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
