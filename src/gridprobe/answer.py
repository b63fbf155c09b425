"""Answer: what the model answered, from which frames, at what cost; as an object, as JSON and as a picture."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridprobe.backends import Posterior
from gridprobe.flops import CONVENTIONS, Cost
from gridprobe.grid import Grid
from gridprobe.question import Question
from gridprobe.selectors import Selection
from gridprobe.video import FramePool

__all__ = ["SCHEMA", "Answer", "AnswerCost", "Seconds"]

SCHEMA = "gridprobe.answer/1"


@dataclass(frozen=True)
class AnswerCost:
    """What probing and the focused pass cost, and what all frames would have cost."""

    probe: Cost
    focus: Cost
    baseline: Cost
    """One pass of the answering model over the whole pool at native size."""

    @property
    def total(self) -> Cost:
        """Probing and focused pass together."""
        return self.probe + self.focus

    @property
    def tflops(self) -> float:
        """All passes, by the honest convention."""
        return self.total.tflops

    @property
    def tflops_paper(self) -> float:
        """All passes, by the published convention."""
        return self.total.tflops_paper

    @property
    def tflops_computed(self) -> float:
        """What was computed, by the honest convention: less than `tflops` if results were reused."""
        return self.total.tflops_computed

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "tflops": self.tflops,
            "tflops_paper": self.tflops_paper,
            "tflops_computed": self.tflops_computed,
            "probe_tflops": self.probe.tflops,
            "focus_tflops": self.focus.tflops,
            "baseline_tflops": self.baseline.tflops,
            "baseline_tflops_paper": self.baseline.tflops_paper,
            "tokens": self.total.tokens,
            "visual_tokens": self.total.visual_tokens,
            "calls": self.total.calls,
            "conventions": CONVENTIONS,
        }


@dataclass(frozen=True)
class Seconds:
    """Wall-clock time of the stages; loading a model is not counted."""

    decode: float
    probe: float
    focus: float

    @property
    def total(self) -> float:
        """All stages."""
        return self.decode + self.probe + self.focus

    def to_dict(self) -> dict[str, float]:
        """Plain values, for JSON."""
        return {"decode": self.decode, "probe": self.probe, "focus": self.focus, "total": self.total}


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one question about one video."""

    question: Question
    posterior: Posterior
    selection: Selection
    cost: AnswerCost
    seconds: Seconds
    pool: FramePool
    """The frames to choose from, at the size the selector looked at."""
    frames: FramePool
    """The kept frames, at the size and in the order the answer was read from."""
    models: tuple[tuple[str, ...], str]
    """Identities of the models the selector asked, and of the answering model."""
    settings: Mapping[str, Any]
    """Everything that decided the answer, from `Setup.describe`."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        kept = f"{self.selection.kept} of {self.selection.pool} frames"
        return f"Answer({self.choice}: {self.text!r}, confidence={self.confidence:.3f}, from {kept})"

    @property
    def choice(self) -> str:
        """The label, such as "B"."""
        return self.posterior.choice

    @property
    def text(self) -> str:
        """The text of the chosen option."""
        return self.question.option(self.choice)

    @property
    def confidence(self) -> float:
        """The probability of the chosen option among the question's own."""
        return self.posterior.confidence

    @property
    def right(self) -> bool | None:
        """Whether the choice is the question's known answer; None if that is not known."""
        return None if self.question.answer is None else self.choice == self.question.answer

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, schema `gridprobe.answer/1` (src/gridprobe/schemas/answer-1.json)."""
        info = self.pool.info
        return {
            "schema": SCHEMA,
            "id": self.question.id,
            "question": self.question.text,
            "options": dict(zip(self.question.labels, self.question.options, strict=True)),
            "choice": self.choice,
            "answer": self.text,
            "confidence": self.confidence,
            "posterior": self.posterior.probabilities,
            "letter_mass": self.posterior.mass,
            "selection": _selection_dict(self.selection),
            "cost": self.cost.to_dict(),
            "seconds": self.seconds.to_dict(),
            "video": info.to_dict() if info else None,
            "models": {"selector": " + ".join(self.models[0]) or None, "answerer": self.models[1]},
            "settings": dict(self.settings),
            "warnings": list(self.warnings),
        }

    def save_map(self, path: str | Path) -> None:
        """Write the grid of frames with its importance as a PNG."""
        from gridprobe.report.png import save_map

        save_map([self], Path(path))

    def save_report(self, path: str | Path) -> None:
        """Write one self-contained HTML page about the answer."""
        from gridprobe.report.answer_page import save_report

        save_report([self], Path(path))


def _selection_dict(selection: Selection) -> dict[str, Any]:
    evidence, shape = selection.evidence, selection.shape
    matrix = None if evidence is None else evidence.matrix.tolist()
    return {
        "selector": selection.selector,
        "kept": selection.kept,
        "pool": selection.pool,
        "k": Grid.holding(selection.pool).k,
        "indices": list(selection.indices),
        "timestamps": list(selection.timestamps),
        "row_confidence": None if evidence is None else list(evidence.row_confidence),
        "column_confidence": None if evidence is None else list(evidence.column_confidence),
        "importance": matrix and [[None if math.isnan(value) else value for value in row] for row in matrix],
        "shape": shape and {"skew": shape.skew, "excess_kurtosis": shape.excess_kurtosis, "sigma": shape.sigma},
    }
