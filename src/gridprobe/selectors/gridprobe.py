"""GridProbe: probe rows and columns of the grid, keep the cells where the model is confident (the paper, section 3)."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gridprobe.backends.base import Backend, FrameGroup, PromptOrder, ScoreRequest, View
from gridprobe.budget import Budget, ShapeRule, Ties, top
from gridprobe.flops import Cost
from gridprobe.grid import Grid
from gridprobe.importance import ImportanceMap, Signal, peak
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection, Selector
from gridprobe.video import FramePool, FrameSize

__all__ = ["PROBE", "PROBE_SIDE", "GridProbe"]

PROBE_SIDE = 224
"""Probes see small frames: the paper's 224."""
PROBE = FrameSize(max_side=PROBE_SIDE)


@dataclass(frozen=True)
class GridProbe(Selector):
    """Ask the model about each row and each column; a frame matters if the model is confident about both."""

    model: Backend
    budget: Budget = field(default_factory=ShapeRule)
    signal: Signal = peak
    view: View = field(default_factory=lambda: View(PROBE))
    """How the frames of a probe are shown."""
    decoded: FrameSize | None = None
    """The size its frames are decoded at, if the engine is to shrink them, as in the published chain."""
    ties: Ties = "spread"
    prompt_order: PromptOrder = "frames_first"
    again: bool = False
    """Whether more questions about the same frames will follow."""
    name: ClassVar[str] = "gridprobe"

    @property
    def looks_at(self) -> FrameSize:
        """The size its frames are decoded at."""
        return (self.decoded or self.view.pixels).rounded_to(self.model.multiple)

    @property
    def models(self) -> tuple[str, ...]:
        """The model that is probed."""
        return (self.model.identity,)

    def select(self, pool: FramePool, question: Question) -> Selection:
        """2K probes in one call, the outer product of their signals, the budget, the top cells."""
        grid = Grid.holding(len(pool))
        probes = self.model.score([self._request(pool.take(subset), question) for subset in grid.probes()])
        signals = tuple(self.signal(probe.probabilities) for probe in probes)
        evidence = ImportanceMap(grid, signals[: grid.rows], signals[grid.rows :])
        indices = top(evidence.scores, self.budget.kept(evidence), ties=self.ties)
        return Selection(
            selector=self.name,
            indices=indices,
            timestamps=tuple(pool.times[i] for i in indices),
            pool=len(pool),
            scores=tuple(evidence.scores.tolist()),
            cost=sum((probe.cost for probe in probes), Cost()),
            evidence=evidence,
            probes=tuple(probes),
        )

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def using(self, model: Backend) -> "GridProbe":
        """The same with another model."""
        return replace(self, model=model)

    def repeated(self) -> "GridProbe":
        """The same, and the model keeps what it computes for the frames."""
        return replace(self, again=True)

    def describe(self) -> dict[str, Any]:
        """Everything that decides its choice."""
        return {
            "name": self.name,
            "model": self.model.identity,
            "budget": self.budget.describe(),
            "signal": self.signal.__name__,
            "view": self.view.describe(),
            "decoded": None if self.decoded is None else self.decoded.describe(),
            "ties": self.ties,
            "prompt_order": self.prompt_order,
        }

    def _request(self, frames: FramePool, question: Question) -> ScoreRequest:
        groups = (FrameGroup(frames, self.view),)
        return ScoreRequest.about(question, groups, prompt_order=self.prompt_order, again=self.again)


def make(argument: str, parts: Parts) -> GridProbe:
    """The function of the registry."""
    return GridProbe(
        parts.model,
        budget=parts.budget,
        signal=parts.signal,
        view=parts.view,
        decoded=parts.decoded,
        ties=parts.ties,
        prompt_order=parts.prompt_order,
    )
