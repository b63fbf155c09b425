"""scores:FILE: frame scores from outside, such as those of Frame-Voyager (arXiv 2410.03226) or HFS (arXiv 2512.11534).

Learned selectors without public code or weights can be evaluated by what they write. The file has a line of JSON for
each question, or one JSON object with a member for each:

    {"id": "v1-a", "scores": [0.1, 0.7, 0.2], "times": [0.0, 12.5, 25.0]}
    {"schema": "gridprobe.scores/1", "questions": {"v1-a": {"scores": [0.1, 0.7, 0.2], "times": [0.0, 12.5, 25.0]}}}

A frame of the pool has the score whose time, in seconds, is nearest. Without `times` the scores must be those of the
pool: as many as it has frames, in time order. Higher is better; scores outside 0…1 are scaled to it. The frames with
the highest scores are kept, as many as the budget says. This selector costs nothing; what made the scores did.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gridprobe.budget import Budget, Ties
from gridprobe.errors import DataError
from gridprobe.grid import Grid
from gridprobe.importance import ImportanceMap
from gridprobe.question import Question
from gridprobe.selectors.base import FLAT, Parts, Selection, Selector
from gridprobe.selectors.encoded import unit_range
from gridprobe.selectors.imported import MAX_QUESTIONS, is_number, nearest, need, question_id, read_json
from gridprobe.video import FramePool

__all__ = ["SCHEMA", "Scores", "Scoring"]

SCHEMA = "gridprobe.scores/1"


@dataclass(frozen=True)
class Scoring:
    """The file's entry for one question."""

    scores: tuple[float, ...]
    times: tuple[float, ...] | None = None


@dataclass(frozen=True, repr=False)
class Scores(Selector):
    """Keeps the frames that a file scores highest."""

    questions: Mapping[str, Scoring]
    budget: Budget
    ties: Ties = "spread"
    source: str = "the scores"
    name: ClassVar[str] = "scores"

    def __repr__(self) -> str:
        return f"Scores({self.source!r}, {len(self.questions)} questions)"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Those that the budget chooses by the file's scores."""
        found = self.questions[question_id(question, self.questions, self.source)]
        scores = _of_pool(found, pool, self.source)
        if scores.min() < 0 or scores.max() > 1:
            scores = unit_range(scores)
        evidence = ImportanceMap(Grid.holding(len(pool)), by_frame=tuple(scores.tolist()), kind="scores")
        notes = (FLAT,) if self.budget.flat(evidence) else ()
        return Selection.of(
            self.name, pool, self.budget.choose(evidence, ties=self.ties), evidence=evidence, notes=notes
        )

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def describe(self) -> dict[str, Any]:
        """The file, a hash of its content, and the budget."""
        content = repr(sorted((name, astuple(each)) for name, each in self.questions.items()))
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return {
            "name": self.name,
            "file": self.source,
            "content": digest,
            "budget": self.budget.describe(),
            "ties": self.ties,
        }


def make(argument: str, parts: Parts) -> Scores:
    """The function of the registry, for "scores:FILE"."""
    whole = read_json(Path(argument), "scores", "see docs/selectors.md for its format")
    return Scores(_questions(whole, argument), parts.budget, parts.ties, argument)


def _of_pool(found: Scoring, pool: FramePool, source: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    if found.times is not None:
        return np.array([found.scores[nearest(time, found.times)] for time in pool.times])
    if len(found.scores) != len(pool):
        raise DataError(
            f'{source} has {len(found.scores)} scores for a pool of {len(pool)} frames; give their "times", or sample '
            "the pool they were made for"
        )
    return np.array(found.scores)


# The file.


def _questions(whole: Any, file: str) -> dict[str, Scoring]:
    rows = [whole] if isinstance(whole, dict) and "schema" not in whole else whole
    if isinstance(rows, list):
        need(all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows), file, 'a line has no "id"')
        entries = {row["id"]: row for row in rows}
        need(len(entries) == len(rows), file, "an id occurs twice")
    else:
        need(isinstance(rows, dict) and rows.get("schema") == SCHEMA, file, f"it is not of schema {SCHEMA}")
        entries = rows.get("questions")
    need(isinstance(entries, dict) and 0 < len(entries) <= MAX_QUESTIONS, file, '"questions" must be an object')
    return {name: _scoring(entry, f"{file}, question {name[:80]!r}") for name, entry in entries.items()}


def _scoring(entry: Any, where: str) -> Scoring:
    need(isinstance(entry, dict), where, "it must be an object")
    scores, times = entry.get("scores"), entry.get("times")
    need(isinstance(scores, list) and bool(scores) and all(map(is_number, scores)), where, '"scores" must be numbers')
    if times is None:
        return Scoring(tuple(scores))
    need(isinstance(times, list) and len(times) == len(scores), where, '"times" must be as many as "scores"')
    need(all(map(is_number, times)) and times == sorted(times), where, '"times" must be numbers that ascend')
    return Scoring(tuple(scores), tuple(times))
