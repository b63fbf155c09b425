"""What a comparison of selectors says: which frames each showed and how, and its bill. Terminal and page share this."""

from collections.abc import Sequence
from typing import Any, Literal

from gridprobe.answer import Answer
from gridprobe.comparison import Compared
from gridprobe.evaluation.temporal import Match, match
from gridprobe.report.facts import answer_words
from gridprobe.report.words import amount, percent, share_words

__all__ = ["COLUMNS", "MARKS", "SCHEMA", "Mark", "Span", "cells", "comparison_dict", "marks"]

SCHEMA = "gridprobe.comparison/1"
Span = tuple[float, float]
Mark = Literal["native", "seen", "small"]
MARKS: dict[Mark, str] = {
    "native": "kept, at native size",
    "seen": "where the overview looked",
    "small": "shown small",
}
"""How a frame was shown, most important first."""
COLUMNS = ("answer", "sure", "frames", "compute", "TFLOPs", "passes", "seconds")
"""The columns of the bill; with evidence there are `covered` and `precision` besides."""


def marks(answer: Answer) -> dict[int, Mark]:
    """Position in the pool -> how the frame was shown to the pass that the answer was read from."""
    selection, settings = answer.selection, answer.settings
    overview = answer.reached.by == "overview"
    small: set[int] = {index for each in selection.extra_frames for index in each.indices}
    if overview or settings.get("context"):
        small = set(range(selection.pool))
    found: dict[int, Mark] = dict.fromkeys(small, "small")
    all_of_it = overview and selection.evidence is None  # an overview without a map points at nothing
    for index in () if all_of_it else selection.indices:
        found[index] = "seen" if overview else "native" if answer.reached.native else "small"
    return found


def against(answer: Answer, evidence: Sequence[Span]) -> Match | None:
    """The kept frames against the evidence; None without any, or for an answer that kept no frames."""
    if not evidence or answer.reached.by == "overview":
        return None
    return match(answer.selection.timestamps, evidence)


def cells(row: Compared, evidence: Sequence[Span]) -> dict[str, str]:
    """The bill of a row in words, by column."""
    answer = row.answer
    cost, whole, found = answer.cost, answer.cost.baseline, against(row.answer, evidence)
    spent = (cost.tflops, whole.tflops) if cost.priced else (cost.total.tokens, whole.tokens)
    words = {
        "answer": answer_words(answer),
        "sure": percent(answer.confidence),
        "frames": f"{answer.shown_native}" if answer.shown_native else f"{answer.selection.pool} small",
        "compute": share_words(spent[0] / spent[1] if spent[1] else None),
        "TFLOPs": amount(cost.tflops) if cost.priced else "unknown",
        "passes": f"{cost.total.calls:,}",
        "seconds": f"{answer.seconds.total - answer.seconds.decode:.2f}",
    }
    if evidence:
        words |= {
            "covered": percent(found.recall, 0) if found else "–",
            "precision": percent(found.precision, 0) if found else "–",
        }
    return words


def comparison_dict(rows: Sequence[Compared], evidence: Sequence[Span]) -> dict[str, Any]:
    """The comparison as plain values; each answer is of the schema `gridprobe.answer/3`."""
    return {
        "schema": SCHEMA,
        "evidence": [list(span) for span in evidence],
        "rows": [
            {
                "selector": row.selector,
                "control": row.control,
                "answer": row.answer.to_dict(),
                "evidence": _match_dict(against(row.answer, evidence)),
            }
            for row in rows
        ],
    }


def _match_dict(found: Match | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"precision": found.precision, "recall": found.recall, "f1": found.f1, "distance": found.distance}
