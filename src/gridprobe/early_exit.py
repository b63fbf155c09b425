"""When is the overview sure enough? A threshold for its confidence, with a bound on how often an exit is mistaken.

An exit is mistaken if the full path would have answered differently; this needs no labels. Both are asked on n
questions. R(t) is the true share of mistaken exits among the questions whose overview has a confidence of at least t.

Test     Given how many of the n questions exit at t, each of their answers differs with probability R(t),
         independently, so Clopper and Pearson's upper bound is below R(t) with probability at most δ. A threshold
         passes if the bound is at most ε.
Order    Thresholds are tested from the highest down to the first that does not pass, and the last that passed is taken
         (fixed-sequence testing). R(t) > ε at the chosen t only if the first tested t with R(t) > ε passed, which has
         probability at most δ, however many thresholds are tested.
Skipped  At the highest thresholds too few questions exit to pass even without a difference; they are not tested.
         Because their number depends on the draws, this needs one assumption: R(t) does not fall when t does. A start
         at t because too few questions exit at the threshold above then means more draws than usual from between the
         two, where answers differ at least as often as above, so that the test passes less often and not more.

The questions must be independent draws from those that will be asked. Questions about one video are not: if they always
share their fate, two of them for each video raise the risk from 5 % to about 20 %. One question for each video is safe.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe._util import parse_json, write_whole
from gridprobe.errors import DataError, UsageError

# Where calibrations are kept: one JSON file for each combination of models and settings.
#
# A file is named after a hash of what it depends on, and is replaced as a whole. Processes that store at the same time
# therefore lose nothing, and a damaged file affects only its own models and settings.

VARIABLE = "GRIDPROBE_CALIBRATION"
"""Environment variable: the user's folder of calibrations and profiles; "off" uses none."""


def calibration_folder() -> Path | None:
    """$GRIDPROBE_CALIBRATION, else gridprobe/calibrations in the XDG data folder; None if off or without a home."""
    named = os.environ.get(VARIABLE, "")
    if named.strip().lower() == "off":
        return None
    if named:
        return Path(named).absolute()
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    with contextlib.suppress(RuntimeError):  # no home directory
        return (
            (data_home if data_home.is_absolute() else Path.home() / ".local" / "share") / "gridprobe" / "calibrations"
        )
    return None


def entry_file(described: Mapping[str, Any], folder: Path) -> Path:
    """The file for setups with this description."""
    key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"{key}.json"


def read_entry(file: Path) -> Mapping[str, Any] | None:
    """The content of a file; None if there is none."""
    try:
        entry = parse_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read the calibration {file}: {error.strerror}; set {VARIABLE}") from error
    except ValueError as error:
        raise damaged(file, f"it is not JSON ({error})") from error
    calibration = entry.get("calibration") if isinstance(entry, dict) else None
    if not isinstance(calibration, dict):
        raise damaged(file, 'it has no object "calibration"')
    return calibration


def write_entry(described: Mapping[str, Any], calibration: Mapping[str, Any], folder: Path | None) -> Path:
    """Write an entry, in place of an older one; None stands for the user's folder."""
    folder = folder or calibration_folder()
    if folder is None:
        raise DataError(f"there is no folder for calibrations; set {VARIABLE} to one")
    file = entry_file(described, folder)
    entry = {"calibration": dict(calibration), "setup": dict(described)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(entry, indent=1, allow_nan=False).encode())
    except OSError as error:
        raise DataError(f"cannot write the calibration to {file}: {error.strerror}; set {VARIABLE}") from error
    return file


def damaged(file: Path, why: str) -> DataError:
    """The error about a file that holds something else."""
    return DataError(f"the calibration {file} is damaged: {why}; delete it, or calibrate again")


CAUTIOUS = 0.99
"""The threshold without a calibration."""
THRESHOLDS = tuple(round(i / 1000, 3) for i in (*range(999, 989, -1), *range(985, 895, -5), *range(890, 390, -10)))
"""Tried in this order."""


@dataclass(frozen=True)
class EarlyExit:
    """The confidence at which the overview's answer is taken, and where the number is from."""

    threshold: float = CAUTIOUS
    source: str = "default"
    """"given", "calibrated", "profile" or "default"."""
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
    """None if no threshold keeps the bound: too few questions exit, or the full path differs too often."""
    epsilon: float
    delta: float
    questions: int
    exits: int
    """How many of the questions exit at the threshold; without one, at the last threshold that was tried."""
    differing: int
    """How many of these the full path answers differently."""
    bound: float
    """The upper bound on their share."""

    @property
    def too_few(self) -> bool:
        """Whether no threshold could be tested, because too few questions exit at every one."""
        return self.exits < needed(self.epsilon, self.delta)


def check_threshold(value: Any) -> None:
    """Refuse what is not a probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f'sure must be "calibrated" or a number from 0 to 1, got {value!r}')


def needed(epsilon: float, delta: float) -> int:
    """The fewest exits that keep the bound, if none of them differs: (1 - ε)^n ≤ δ."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if not 0 < value < 1:
            raise UsageError(f"{name} must be between 0 and 1, got {value!r}")
    count = max(1, math.ceil(math.log(delta) / math.log1p(-epsilon)))
    return count if binomial_upper(0, count, delta) <= epsilon else count + 1  # where rounding decides


def binomial_upper(hits: int, draws: int, delta: float) -> float:
    """Clopper and Pearson's upper bound: the true share is above it with probability at most `delta`."""
    if not 0 <= hits <= draws or not 0 < delta < 1:
        raise ValueError(f"no bound for {hits} of {draws} at {delta}")
    if hits == draws:
        return 1.0
    if hits == 0:
        return -math.expm1(math.log(delta) / draws)
    from gridprobe.registry import explain_missing

    with explain_missing("eval"):
        from scipy.stats import beta

    return float(beta.ppf(1 - delta, hits + 1, draws - hits))


def choose_threshold(
    confidences: Sequence[float], differs: Sequence[bool], *, epsilon: float, delta: float
) -> Calibration:
    """The lowest threshold for which the share of mistaken exits is at most ε with confidence 1 - δ."""
    fewest, count = needed(epsilon, delta), len(confidences)
    if count != len(differs) or np.isnan(confidences).any():
        raise ValueError(f"{count} confidences for {len(differs)} answers, or a confidence that is NaN")
    order = np.argsort(confidences)
    rising = np.asarray(confidences, dtype=np.float64)[order]
    before = np.concatenate([[0], np.cumsum(np.asarray(differs, dtype=np.int64)[order])])
    calibration = Calibration(None, epsilon, delta, count, 0, 0, 1.0)
    for threshold, first in zip(THRESHOLDS, np.searchsorted(rising, THRESHOLDS).tolist(), strict=True):
        exits, differing = count - first, int(before[-1] - before[first])
        bound = binomial_upper(differing, exits, delta)
        keeps = exits >= fewest and bound <= epsilon
        if keeps or calibration.threshold is None:
            calibration = Calibration(threshold if keeps else None, epsilon, delta, count, exits, differing, bound)
        if exits >= fewest and not keeps:
            break
    return calibration


def find(described: Mapping[str, Any]) -> EarlyExit:
    """The calibration for a setup, from its description; the cautious default without one."""
    folder = calibration_folder()
    file = None if folder is None else entry_file(described, folder)
    entry = None if file is None else read_entry(file)
    if file is not None and entry is not None:
        calibration = _parse(entry, file)
        assert calibration.threshold is not None
        epsilon, delta, questions = calibration.epsilon, calibration.delta, calibration.questions
        return EarlyExit(calibration.threshold, "calibrated", epsilon, delta, questions)
    return EarlyExit()


def store(described: Mapping[str, Any], calibration: Calibration, *, folder: Path | None = None) -> Path:
    """Keep a calibration for setups with this description, in the user's folder or another; returns the file."""
    if calibration.threshold is None:
        raise ValueError("a calibration without a threshold is not stored")
    return write_entry(described, asdict(calibration), folder)


def _parse(entry: Mapping[str, Any], file: Path) -> Calibration:
    """A stored calibration; whatever `store` would not have written is refused."""
    names = [each.name for each in fields(Calibration)]
    if sorted(entry) != sorted(names):
        raise damaged(file, f"its fields are not {', '.join(names)}")
    for name, value in entry.items():
        count = name in ("questions", "exits", "differing")
        fits = isinstance(value, int if count else int | float) and not isinstance(value, bool) and value >= 0
        if not fits or (not count and value > 1):
            raise damaged(file, f"{name} is {value!r}, not a {'count' if count else 'number from 0 to 1'}")
    return Calibration(**entry)
