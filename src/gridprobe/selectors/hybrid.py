"""hybrid: an encoder chooses which rows and columns GridProbe probes; no published method.

Rule  A line's promise is the highest similarity of its frames with the question. The half of the rows and the half of
      the columns with the highest promise are probed, each by itself, as GridProbe's fresh probes are. A line that is
      not probed gets the lowest confidence of those that are. The map is the product of rows and columns, and the
      budget chooses from it.

This halves the probes and adds one encoder pass for each frame.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from gridprobe.backends.base import Backend, FrameGroup, Posterior, PromptOrder, ScoreRequest, View
from gridprobe.budget import Budget, Ties, top
from gridprobe.encoders import Encoder
from gridprobe.errors import UsageError
from gridprobe.grid import Grid
from gridprobe.importance import Contrast, ImportanceMap, Signal, peak
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection, Selector
from gridprobe.selectors.encoded import compare, encoder_of
from gridprobe.selectors.gridprobe import FLAT, PROBE
from gridprobe.video import FramePool, FrameSize

__all__ = ["SHARE", "Hybrid"]

SHARE = 0.5
"""The share of rows, and of columns, that are probed."""


@dataclass(frozen=True)
class Hybrid(Selector):
    """Probes only lines that an encoder finds promising."""

    model: Backend
    encoder: Encoder
    budget: Budget
    signal: Signal = peak
    view: View = field(default_factory=lambda: View(PROBE))
    ties: Ties = "spread"
    prompt_order: PromptOrder = "frames_first"
    share: float = SHARE
    again: bool = False
    name: ClassVar[str] = "hybrid"

    @property
    def looks_at(self) -> FrameSize:
        """The encoder's size; the engine shrinks frames for probes."""
        return self.encoder.image_size

    @property
    def models(self) -> tuple[str, ...]:
        """The model and the encoder."""
        return self.model.identity, self.encoder.identity

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Compare all frames, probe the promising lines, choose."""
        grid = Grid.holding(len(pool))
        found = compare(self.encoder, pool, question.text)
        lines = grid.probes()
        promise = np.array([found.cosines[list(line)].max() for line in lines])
        chosen = (*self._best(promise[: grid.rows]), *(grid.rows + i for i in self._best(promise[grid.rows :])))
        answers = self.model.score([self._request(pool.take(lines[i]), question) for i in chosen])
        evidence = self._map(grid, dict(zip(chosen, answers, strict=True)))
        indices = self.budget.choose(evidence, ties=self.ties)
        notes = self.encoder.notes(question.text)
        return Selection(
            selector=self.name,
            indices=indices,
            timestamps=tuple(pool.times[i] for i in indices),
            pool=len(pool),
            scores=tuple(evidence.scores.tolist()),
            cost=sum((answer.cost for answer in answers), found.cost),
            evidence=evidence,
            probes=tuple(answers),
            notes=(*notes, FLAT) if self.budget.flat(evidence) else notes,
        )

    def _best(self, promise: "np.ndarray[Any, np.dtype[np.float64]]") -> tuple[int, ...]:
        return top(promise, max(1, math.ceil(self.share * len(promise))), ties=self.ties)

    def _request(self, frames: FramePool, question: Question) -> ScoreRequest:
        groups = (FrameGroup(frames, self.view),)
        return ScoreRequest.about(question, groups, prompt_order=self.prompt_order, again=self.again)

    def _map(self, grid: Grid, answers: dict[int, Posterior]) -> ImportanceMap:
        signals = {line: self.signal(answer.probabilities) for line, answer in answers.items()}

        def axis(lines: range) -> tuple[float, ...]:
            least = min(signals[line] for line in lines if line in signals)
            return tuple(signals.get(line, least) for line in lines)

        return ImportanceMap(grid, axis(range(grid.rows)), axis(range(grid.rows, grid.rows + grid.k)))

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def using(self, model: Backend) -> "Hybrid":
        """The same with another model."""
        return replace(self, model=model, view=self.view.suiting(model))

    def loaded(self, **options: Any) -> "Hybrid":
        """The same with its encoder loaded."""
        return replace(self, encoder=self.encoder.loaded(**options))

    def repeated(self) -> "Hybrid":
        """The same, and the model keeps what it computes for the frames."""
        return replace(self, again=True)

    def describe(self) -> dict[str, Any]:
        """Everything that decides its choice."""
        return {
            "name": self.name,
            "model": self.model.identity,
            "encoder": self.encoder.identity,
            "budget": self.budget.describe(),
            "signal": self.signal.__name__,
            "view": self.view.describe(),
            "share": self.share,
            "ties": self.ties,
            "prompt_order": self.prompt_order,
        }


def make(argument: str, parts: Parts) -> Hybrid:
    """The function of the registry."""
    if isinstance(parts.signal, Contrast):
        raise UsageError(f"hybrid probes lines by themselves; signal={parts.signal.name} does not fit it, use peak")
    return Hybrid(
        parts.model,
        encoder_of(parts, "siglip"),
        parts.budget,
        signal=parts.signal,
        view=parts.view,
        ties=parts.ties,
        prompt_order=parts.prompt_order,
    )
