"""What selectors share that read other programs' results: bounded files, checks, and the frame nearest to a time."""

import math
from bisect import bisect_left
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError, UsageError
from gridprobe.files import parse_json
from gridprobe.question import Question

__all__ = ["MAX_BYTES", "MAX_QUESTIONS", "SAME", "is_number", "nearest", "need", "question_id", "read_json"]

MAX_BYTES = 256 * 2**20
MAX_QUESTIONS = 1_000_000
SAME = 0.001
"""Two times that differ by less than this many seconds belong to the same frame."""


def read_json(file: Path, what: str, hint: str) -> Any:
    """The content of a JSON file, or the list of the objects of a file of JSON lines."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(f"{file} is larger than {MAX_BYTES >> 20} MiB, which no {what} file needs to be")
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].startswith(b"{") and lines[0].rstrip().endswith(b"}"):
            return [parse_json(line) for line in lines]
        return parse_json(content)
    except FileNotFoundError:
        raise UsageError(f"there is no {what} file {file}; {hint}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the {what} file {file}: {error}") from error


def need(good: bool, where: str, rule: str) -> None:
    """Refuse what breaks a rule."""
    if not good:
        raise DataError(f"{where}: {rule}")


def question_id(question: Question, known: Container[str], source: str) -> str:
    """The id under which a file knows a question."""
    if question.id is None:
        raise UsageError(f"{source} names questions by id, and this one has none; give it the id of the file")
    if question.id not in known:
        raise DataError(f"{source} holds no question with the id {question.id!r}")
    return question.id


def nearest(time: float, times: Sequence[float]) -> int:
    """The position of the time that is nearest; the earlier one of two."""
    after = min(max(bisect_left(times, time), 1), len(times) - 1) if len(times) > 1 else 0
    return min((max(after - 1, 0), after), key=lambda i: abs(times[i] - time))


def is_number(value: Any) -> bool:
    """Whether it is a finite number of ordinary size."""
    return type(value) in (int, float) and abs(value) < 1e9 and math.isfinite(value)
