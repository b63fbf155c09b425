"""GridProbe: probe rows and columns of the grid, keep the cells where the model is sure (the paper, section 3)."""

from dataclasses import dataclass, field

from gridprobe.backends.base import Backend, Packing, PromptOrder, ScoreRequest, Timestamps
from gridprobe.budget import Budget, ShapeRule, Ties, top
from gridprobe.flops import Cost
from gridprobe.grid import Grid
from gridprobe.importance import ImportanceMap
from gridprobe.question import Question
from gridprobe.selectors.base import Selection
from gridprobe.video import FramePool, FrameSize

__all__ = ["PROBE", "PROBE_SIDE", "GridProbe"]

PROBE_SIDE = 224
"""Probes see small frames: the paper's 224."""
PROBE = FrameSize(max_side=PROBE_SIDE)


@dataclass(frozen=True)
class GridProbe:
    """Ask the model about each row and each column; a frame matters if both of its subsets make the model sure."""

    model: Backend
    budget: Budget = field(default_factory=ShapeRule)
    ties: Ties = "spread"
    pixels: FrameSize = PROBE
    packing: Packing = "single"
    timestamps: Timestamps = "true"
    prompt_order: PromptOrder = "frames_first"
    again: bool = False
    """Whether more questions about the same frames will follow."""

    def select(self, pool: FramePool, question: Question) -> Selection:
        """2K probes in one call, the outer product of their confidences, the budget, the top cells."""
        grid = Grid.holding(len(pool))
        probes = self.model.score([self._request(pool.take(subset), question) for subset in grid.probes()])
        confidence = tuple(probe.confidence for probe in probes)
        evidence = ImportanceMap(grid, confidence[: grid.rows], confidence[grid.rows :])
        indices = top(evidence.scores, self.budget.kept(evidence), ties=self.ties)
        return Selection(
            selector="gridprobe",
            indices=indices,
            timestamps=tuple(pool.times[i] for i in indices),
            pool=len(pool),
            scores=tuple(evidence.scores.tolist()),
            cost=sum((probe.cost for probe in probes), Cost()),
            evidence=evidence,
            probes=tuple(probes),
        )

    def _request(self, frames: FramePool, question: Question) -> ScoreRequest:
        return ScoreRequest(
            frames,
            question.prompt,
            question.labels,
            self.pixels,
            packing=self.packing,
            timestamps=self.timestamps,
            prompt_order=self.prompt_order,
            again=self.again,
            between=question.between(frames.times),
        )
