"""Where calibrations are kept: one JSON file for each combination of models and settings.

A file is named after a hash of what it depends on, and is replaced as a whole. Processes that store at the same time
therefore lose nothing, and a damaged file affects only its own models and settings.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.files import parse_json, write_whole

__all__ = ["SHIPPED", "VARIABLE", "calibration_folder", "damaged", "entry_file", "read_entry", "write_entry"]

VARIABLE = "GRIDPROBE_CALIBRATION"
"""Environment variable: the user's folder of calibrations; "off" uses none."""
SHIPPED = Path(__file__).parent / "models" / "calibrations"
"""Calibrations of the embedded models."""


def calibration_folder() -> Path | None:
    """$GRIDPROBE_CALIBRATION, else gridprobe/calibrations in the XDG data folder; None if off or without a home."""
    named = os.environ.get(VARIABLE, "")
    if named.strip().lower() == "off":
        return None
    if named:
        return Path(named).absolute()
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    with contextlib.suppress(RuntimeError):  # no home directory
        return (given if given.is_absolute() else Path.home() / ".local" / "share") / "gridprobe" / "calibrations"
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
    found = entry.get("calibration") if isinstance(entry, dict) else None
    if not isinstance(found, dict):
        raise damaged(file, 'it has no object "calibration"')
    return found


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
