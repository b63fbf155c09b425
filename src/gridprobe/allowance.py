"""Allowance: the limits that a question must keep to. `docs/budgets.md` says exactly what each of them means."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gridprobe.errors import UsageError

__all__ = ["LIMITS", "Allowance"]

LIMITS = {
    "max_frames": "the most frames shown at native size",
    "max_tokens": "the most tokens of all passes together",
    "max_tflops": "the most TFLOPs of all passes together",
    "max_seconds": "the most seconds, as planned from the measured speed",
    "max_gpu_memory": "the most gigabytes for weights and the largest pass",
    "min_frames": "the fewest frames shown at native size",
}
"""Every limit in a few words, for the command line."""
WHOLE = ("max_frames", "max_tokens", "min_frames")


@dataclass(frozen=True)
class Allowance:
    """What one question may take. A limit that is None does not apply; one without any limit is false."""

    max_frames: int | None = None
    max_tokens: int | None = None
    max_tflops: float | None = None
    max_seconds: float | None = None
    max_gpu_memory: float | None = None
    """In units of 1e9 bytes."""
    min_frames: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.describe().items():
            check_limit(name, value, whole=name in WHOLE)
        least, most = self.min_frames, self.max_frames
        if least is not None and most is not None and least > most:
            raise UsageError(f"min_frames={least} is more than max_frames={most}; lower one or raise the other")

    def __bool__(self) -> bool:
        return bool(self.describe())

    def describe(self) -> dict[str, Any]:
        """The limits that apply, for records."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def flag(self, name: str) -> str:
        """A limit as it is given on the command line, such as "--max-tokens 20000"."""
        value = getattr(self, name)
        return f"{as_flag(name)} {int(value) if value == int(value) else value}"

    def tightened(self, others: Mapping[str, float]) -> "Allowance":
        """The same with some limits lowered; those that are lower already stay."""
        known = self.describe()
        lower = {name: value for name, value in others.items() if name not in known or value < known[name]}
        return Allowance(**{**known, **lower})


def as_flag(name: str) -> str:
    """The option of the command line for a limit."""
    return "--" + name.replace("_", "-")


def check_limit(name: str, value: Any, *, whole: bool) -> None:
    """Refuse what is no limit."""
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        kind = "a whole number of at least 1" if whole else "a finite number above 0"
        raise UsageError(f"{name} must be {kind}, got {value!r}")
