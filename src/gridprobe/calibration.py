"""When is the overview sure enough? A threshold for its confidence, with a bound on how often an exit is mistaken.

An exit is mistaken if the full path would have answered differently; this needs no labels. On n questions, both are
asked, and thresholds are tried from the highest down. At each one the questions that exit are so many draws of "the
full path differs", so Clopper and Pearson's interval bounds the true share from above with confidence 1 - δ. The lowest
threshold before the first bound above ε is taken. Because the order of the tests is fixed and they stop at the first
failure, the chance that the share at the chosen threshold is above ε is at most δ (fixed-sequence testing), as long as
the share does not fall when the threshold does.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError, UsageError
from gridprobe.files import parse_json, write_whole
from gridprobe.statistics import binomial_upper

__all__ = ["CAUTIOUS", "THRESHOLDS", "Calibration", "Exit", "check_threshold", "choose_threshold", "find", "store"]

CAUTIOUS = 0.99
"""The threshold without a calibration."""
THRESHOLDS = tuple(round(i / 1000, 3) for i in (*range(999, 989, -1), *range(985, 895, -5), *range(890, 390, -10)))
"""Tried in this order."""
SHIPPED = Path(__file__).parent / "models" / "calibration.json"
"""Calibrations of the embedded models."""
FOLDER = "GRIDPROBE_CALIBRATION"
"""Environment variable: where calibrations are stored; by default in the user's data folder."""


@dataclass(frozen=True)
class Exit:
    """The confidence at which the overview's answer is taken, and where the number is from."""

    threshold: float = CAUTIOUS
    source: str = "default"
    """"given", "calibrated" or "default"."""
    epsilon: float | None = None
    delta: float | None = None
    questions: int | None = None
    """On how many questions it was calibrated."""

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    def describe(self) -> dict[str, Any]:
        """Plain values, for records."""
        return asdict(self)


@dataclass(frozen=True)
class Calibration:
    """What was found on n questions."""

    threshold: float | None
    """None if no threshold keeps the bound: there are too few questions, or the overview differs too often."""
    epsilon: float
    delta: float
    questions: int
    exits: int
    """How many of the questions exit at the threshold."""
    differing: int
    """How many of these the full path answers differently."""
    bound: float
    """The upper bound on their share."""


def check_threshold(value: Any) -> None:
    """Refuse what is not a probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f'sure must be "calibrated" or a number from 0 to 1, got {value!r}')


def choose_threshold(
    confidences: Sequence[float], differs: Sequence[bool], *, epsilon: float, delta: float
) -> Calibration:
    """The lowest threshold for which the share of mistaken exits is at most ε with confidence 1 - δ."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if not 0 < value < 1:
            raise UsageError(f"{name} must be between 0 and 1, got {value!r}")
    if len(confidences) != len(differs):
        raise ValueError(f"{len(confidences)} confidences for {len(differs)} answers")
    best = Calibration(None, epsilon, delta, len(confidences), 0, 0, 1.0)
    for threshold in THRESHOLDS:
        exits = [bad for confidence, bad in zip(confidences, differs, strict=True) if confidence >= threshold]
        if binomial_upper(0, len(exits), delta) > epsilon:
            continue  # too few questions exit for any test; how many do says nothing about the answers
        bound = binomial_upper(sum(exits), len(exits), delta)
        if bound > epsilon:
            break
        best = Calibration(threshold, epsilon, delta, len(confidences), len(exits), sum(exits), bound)
    return best


def find(described: Mapping[str, Any]) -> Exit:
    """The calibration for a setup, from its description; the cautious default without one."""
    key = _key(described)
    for file in (_file(), SHIPPED):
        entry = _read(file).get(key)
        if entry is not None:
            found = Calibration(**entry["calibration"])
            if found.threshold is not None:
                return Exit(found.threshold, "calibrated", found.epsilon, found.delta, found.questions)
    return Exit()


def store(described: Mapping[str, Any], calibration: Calibration, *, file: Path | None = None) -> Path:
    """Keep a calibration for setups with this description; returns the file."""
    file = file or _file()
    entries = _read(file)
    entries[_key(described)] = {"calibration": asdict(calibration), "setup": dict(described)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(entries, indent=1).encode())
    except OSError as error:
        raise DataError(f"cannot write the calibration to {file}: {error.strerror}; set {FOLDER}") from error
    return file


def _key(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _file() -> Path:
    folder = os.environ.get(FOLDER)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder or Path(data) / "gridprobe") / "calibration.json"


def _read(file: Path) -> dict[str, Any]:
    try:
        entries = parse_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the calibrations in {file}: {error}; delete the file") from error
    if not isinstance(entries, dict):
        raise DataError(f"{file} holds no calibrations; delete the file")
    return entries
