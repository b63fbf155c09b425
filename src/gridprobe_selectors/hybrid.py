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

from gridprobe.importance import Grid, ImportanceMap, top
from gridprobe.models.base import Posterior, choose
from gridprobe.question import Question
from gridprobe.selectors.base import Encoder, Parts, Selection
from gridprobe.selectors.gridprobe import ByModel, parts_of
from gridprobe.video import FramePool, FrameSize
from gridprobe_selectors.encoded import encoder_of, similarities_of

SHARE = 0.5
"""The share of rows, and of columns, that are probed."""


@dataclass(frozen=True)
class Hybrid(ByModel):
    """Probes only lines that an encoder finds promising."""

    encoder: Encoder = field(kw_only=True)
    share: float = SHARE
    name: ClassVar[str] = "hybrid"

    @classmethod
    def make(cls, argument: str, parts: Parts) -> "Hybrid":
        """The function of the registry."""
        return cls(**parts_of(parts), encoder=encoder_of(parts, "siglip", argument=argument))

    @property
    def input_size(self) -> FrameSize:
        """The encoder's size; the engine shrinks frames for probes."""
        return self.encoder.image_size

    @property
    def models(self) -> tuple[str, ...]:
        """The model and the encoder."""
        return self.model.identity, self.encoder.identity

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Compare all frames, probe the promising lines, choose."""
        grid = Grid.holding(len(pool))
        similarities = similarities_of(self.encoder, pool, question.text)
        lines = grid.probes()
        promise = np.array([similarities.cosines[list(line)].max() for line in lines])
        chosen = (*self._best(promise[: grid.rows]), *(grid.rows + i for i in self._best(promise[grid.rows :])))
        answers = choose(self.model, [self.request(pool, lines[i], question) for i in chosen])
        evidence = self._map(grid, dict(zip(chosen, answers, strict=True)))
        selection = self.top_of(evidence, pool, answers)
        notes = (*self.encoder.notes(question.text), *selection.notes)
        return replace(selection, cost=similarities.cost + selection.cost, probes=tuple(answers), notes=notes)

    def _best(self, promise: "np.ndarray[Any, np.dtype[np.float64]]") -> tuple[int, ...]:
        return top(promise, max(1, math.ceil(self.share * len(promise))), ties=self.ties)

    def _map(self, grid: Grid, answers: dict[int, Posterior]) -> ImportanceMap:
        confidence = {line: answer.confidence for line, answer in answers.items()}

        def axis(lines: range) -> tuple[float, ...]:
            least = min(confidence[line] for line in lines if line in confidence)
            return tuple(confidence.get(line, least) for line in lines)

        return ImportanceMap(grid, axis(range(grid.rows)), axis(range(grid.rows, grid.rows + grid.k)))

    def loaded(self, **options: Any) -> "Hybrid":
        """The same with its encoder loaded."""
        return replace(self, encoder=self.encoder.loaded(**options))

    def describe(self) -> dict[str, Any]:
        """With its encoder and the share of lines that it probes."""
        return {**super().describe(), "encoder": self.encoder.identity, "share": self.share}
