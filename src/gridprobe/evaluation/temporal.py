"""Kept frames against the gold intervals of a question: precision, recall, F1, and the distance to the evidence.

    precision   share of the kept frames that lie in a gold interval
    recall      share of the gold intervals that hold a kept frame: the evidence covered
    F1          harmonic mean of both, for each question
    distance    mean over the kept frames of the seconds to the nearest gold interval; 0 inside one

An interval holds its start but not its end. Only frames that a selector kept count: an answer from an overview of all
frames kept none, and frames that are shown smaller beside the kept ones are not kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridprobe.errors import DataError
from gridprobe.evaluation.reader import Result
from gridprobe.statistics import Interval, clustered_bootstrap, share_interval

__all__ = ["Match", "Temporal", "match"]

Span = tuple[float, float]


@dataclass(frozen=True)
class Match:
    """The kept frames of one question against its gold intervals."""

    precision: float
    recall: float
    distance: float
    """Seconds."""

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if both are."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def match(times: Sequence[float], gold: Sequence[Span]) -> Match:
    """Compare at least one kept frame with at least one interval, all in seconds."""
    if not times or not gold:
        raise ValueError(f"a match needs kept frames and gold intervals, got {len(times)} and {len(gold)}")
    inside = [[start <= time < end for start, end in gold] for time in times]
    return Match(
        precision=float(np.mean([any(row) for row in inside])),
        recall=float(np.mean([any(column) for column in zip(*inside, strict=True)])),
        distance=float(np.mean([min(_gap(time, span) for span in gold) for time in times])),
    )


def _gap(time: float, span: Span) -> float:
    return max(0.0, span[0] - time, time - span[1])


def _gold(result: Result) -> list[Span]:
    """The intervals that hold the evidence; none where they are not known, or are the whole video."""
    found = result.extra.get("evidence") or []
    if isinstance(found, list) and all(map(_is_span, found)):
        return [(float(start), float(end)) for start, end in found]
    raise DataError(
        f"question {result.id!r} of the run: evidence must be a list of [start, end] in seconds, "
        f"got {str(found)[:80]!r}"
    )


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(each) in (int, float) for each in value)


@dataclass(frozen=True)
class Temporal:
    """Means over the questions that have gold intervals and kept frames, with 95 % intervals over videos.

    Those of precision, recall and F1 are found as that of accuracy. Wilson's is wide enough for any numbers from 0 to
    1, as none vary more than hits do.
    """

    precision: Interval
    recall: Interval
    f1: Interval
    distance: Interval
    """In seconds; of the bootstrap, which is too narrow for few videos."""

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Temporal | None":
        """None if no such question was answered."""
        found = [
            (match(result.answered.times, gold), result.group)
            for result in results
            if result.answered and result.answered.stages.by != "overview" and (gold := _gold(result))
        ]
        if not found:
            return None
        groups = [group for _, group in found]
        shares = {
            name: share_interval([getattr(each, name) for each, _ in found], groups)
            for name in ("precision", "recall", "f1")
        }
        return cls(**shares, distance=clustered_bootstrap([each.distance for each, _ in found], groups))
