"""Keyframes: frames that were selected before, by gridprobe or another program, read from a file.

    {"schema": "gridprobe.keyframes/1",
     "questions": {"v1-a": {"times": [12.5, 40.0], "indices": [1, 3], "pool": 144, "video": "v1.mp4",
                            "selector": "gridprobe", "model": "Qwen/Qwen3-VL-2B-Instruct"}}}

Only `times` is required. This selector costs nothing; the cost of the first selection is in its own run.
"""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from gridprobe.errors import DataError, UsageError
from gridprobe.files import parse_json
from gridprobe.grid import MAX_K
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection, Selector
from gridprobe.selectors.baselines import require_no_number
from gridprobe.video import FramePool

__all__ = ["SCHEMA", "Chosen", "Keyframes"]

SCHEMA = "gridprobe.keyframes/1"

MAX_BYTES = 256 * 2**20
MAX_QUESTIONS = 1_000_000
MAX_FRAMES = MAX_K**2
SAME = 0.001
"""Two times that differ by less than this many seconds belong to the same frame."""


@dataclass(frozen=True)
class Chosen:
    """The file's entry for one question."""

    times: tuple[float, ...]
    indices: tuple[int, ...] | None = None
    pool: int | None = None


@dataclass(frozen=True, repr=False)
class Keyframes(Selector):
    """Replays a file: for each question, by its id, the frames of the pool that are nearest to the times it names."""

    questions: Mapping[str, Chosen]
    source: str = "the keyframes"
    name: ClassVar[str] = "keyframes"

    def __repr__(self) -> str:
        return f"Keyframes({self.source!r}, {len(self.questions)} questions)"

    @classmethod
    def read(cls, path: str | Path) -> "Keyframes":
        """Read and check a file."""
        file = Path(path)
        try:
            with file.open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise DataError(f"{file} is larger than {MAX_BYTES >> 20} MiB, which no keyframes file needs to be")
            whole = parse_json(content)
        except FileNotFoundError:
            raise UsageError(f"there is no keyframes file {file}; write one with gridprobe export-keyframes") from None
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read the keyframes file {file}: {error}") from error
        return cls(_questions(whole, str(file)), str(file))

    def describe(self) -> dict[str, Any]:
        """The file and a hash of its content."""
        content = repr(sorted((name, astuple(chosen)) for name, chosen in self.questions.items()))
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return {"name": self.name, "file": self.source, "content": digest}

    def select(self, pool: FramePool, question: Question) -> Selection:
        """The frames that were chosen for this question."""
        if question.id is None:
            raise UsageError(f"{self.source} names questions by id, and this one has none; give it the id of the file")
        if question.id not in self.questions:
            raise DataError(f"{self.source} holds no question with the id {question.id!r}")
        chosen = self.questions[question.id]
        if _fits(chosen, pool.times):
            return Selection.of("keyframes", pool, tuple(sorted(chosen.indices or ())))
        nearest = [_nearest(time, pool.times) for time in chosen.times]
        off = max(abs(pool.times[i] - time) for i, time in zip(nearest, chosen.times, strict=True))
        indices = tuple(sorted(set(nearest)))
        selection = Selection.of("keyframes", pool, indices)
        return selection if off <= SAME else replace(selection, notes=(_moved(chosen, indices, off),))


def make(argument: str, parts: Parts) -> Keyframes:
    """The function of the registry, for "keyframes:FILE"."""
    require_no_number(f"keyframes:{argument}", "the frames its file names", parts)
    return Keyframes.read(argument)


def _moved(chosen: Chosen, indices: Sequence[int], off: float) -> str:
    words = (
        f"the pool is not the one the keyframes were chosen from: the nearest frames are used, up to {off:.2f} s away"
    )
    merged = len(chosen.times) - len(indices)
    return f"{words}, and {merged} of {len(chosen.times)} fall on a frame that is used already" if merged else words


def _fits(chosen: Chosen, times: Sequence[float]) -> bool:
    """Whether the positions in the file belong to these frames."""
    if chosen.indices is None or chosen.indices[-1] >= len(times):
        return False
    return all(abs(times[i] - time) <= SAME for i, time in zip(chosen.indices, chosen.times, strict=True))


def _nearest(time: float, times: Sequence[float]) -> int:
    after = min(max(bisect_left(times, time), 1), len(times) - 1) if len(times) > 1 else 0
    return min((max(after - 1, 0), after), key=lambda i: abs(times[i] - time))


# The file.


def _need(good: bool, where: str, rule: str) -> None:
    if not good:
        raise DataError(f"{where}: {rule}")


def _questions(whole: Any, file: str) -> dict[str, Chosen]:
    _need(isinstance(whole, dict) and whole.get("schema") == SCHEMA, file, f"it is not of schema {SCHEMA}")
    questions = whole.get("questions")
    _need(isinstance(questions, dict) and 0 < len(questions) <= MAX_QUESTIONS, file, '"questions" must be an object')
    return {name: _chosen(entry, f"{file}, question {name[:80]!r}") for name, entry in questions.items()}


def _chosen(entry: Any, where: str) -> Chosen:
    _need(isinstance(entry, dict), where, "it must be an object")
    times, indices, pool = (entry.get(key) for key in ("times", "indices", "pool"))
    _need(isinstance(times, list) and 0 < len(times) <= MAX_FRAMES, where, f'"times" must be 1 to {MAX_FRAMES} numbers')
    _need(all(map(_is_time, times)) and times == sorted(times), where, '"times" must be finite numbers that ascend')
    if indices is None:
        return Chosen(tuple(times))
    _need(isinstance(indices, list) and len(indices) == len(times), where, '"indices" must be as many as "times"')
    _need(all(type(i) is int and i >= 0 for i in indices), where, '"indices" must be whole numbers of at least 0')
    _need(indices == sorted(set(indices)), where, '"indices" must ascend')
    _need(pool is None or (type(pool) is int and pool > indices[-1]), where, '"pool" must be larger than any index')
    return Chosen(tuple(times), tuple(indices), pool)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e9 and math.isfinite(value)
