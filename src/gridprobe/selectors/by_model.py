"""What selectors that ask the model about single frames, windows or contact sheets have in common."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from gridprobe.importance import Budget, Grid, ImportanceMap, MapKind, ShapeRule, Ties
from gridprobe.models.base import FrameGroup, Model, Posterior, PromptOrder, Request, View, choose
from gridprobe.models.cost import Cost
from gridprobe.question import Question
from gridprobe.selectors.base import FLAT, PROBE, Parts, Selection, Selector, doubts
from gridprobe.video import FramePool, FrameSize

__all__ = ["ByModel", "certainty", "parts_of"]

Self = TypeVar("Self", bound="ByModel")


def certainty(probabilities: Mapping[str, float]) -> float:
    """1 minus the entropy of the options divided by its maximum: 1 for a sure answer, 0 if all are equally likely."""
    entropy = -sum(p * math.log(p) for p in probabilities.values() if p > 0)
    return min(1.0, max(0.0, 1.0 - entropy / math.log(len(probabilities))))


@dataclass(frozen=True)
class ByModel(Selector):
    """A selector that asks a model about small frames. Derived classes have a `name` and `select`."""

    model: Model
    budget: Budget = field(default_factory=ShapeRule)
    small_view: View = field(default_factory=lambda: View(PROBE))
    """How the frames of its requests are shown."""
    ties: Ties = "spread"
    prompt_order: PromptOrder = "frames_first"
    keep_kv: bool = False
    """Whether more questions about the same frames will follow."""
    name: ClassVar[str]

    @property
    def input_size(self) -> FrameSize:
        """The size its frames are decoded at."""
        return self.small_view.pixels.rounded_to(self.model.capabilities.frame_multiple)

    @property
    def models(self) -> tuple[str, ...]:
        """The model that is asked."""
        return (self.model.identity,)

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def with_model(self: Self, model: Model) -> Self:
        """The same with another model."""
        return replace(self, model=model, small_view=self.small_view.suiting(model))

    def keeping_kv(self: Self) -> Self:
        """The same, and the model keeps what it computes for the frames."""
        return replace(self, keep_kv=True)

    def describe(self) -> dict[str, Any]:
        """Everything that decides its choice; derived classes add their own numbers."""
        return {
            "name": self.name,
            "model": self.model.identity,
            "budget": self.budget.describe(),
            "view": self.small_view.describe(),
            "ties": self.ties,
            "prompt_order": self.prompt_order,
        }

    def request(self, pool: FramePool, frames: Sequence[int], question: Question) -> Request:
        """The question about some frames of the pool, in one pass."""
        groups = (FrameGroup(pool.take(frames), self.small_view),)
        return Request.about(question, groups, prompt_order=self.prompt_order, keep_kv=self.keep_kv)

    def ask_each(
        self, pool: FramePool, subsets: Sequence[Sequence[int]], question: Question
    ) -> tuple[list[float], list[Posterior]]:
        """How certain the model is from each subset of frames by itself, and what it answered."""
        posteriors = choose(self.model, [self.request(pool, subset, question) for subset in subsets])
        return [certainty(each.probabilities) for each in posteriors], posteriors

    def selected(
        self, pool: FramePool, scores: Sequence[float], asked: Sequence[Posterior], *, kind: MapKind
    ) -> Selection:
        """The frames that the budget chooses by these scores, one for each frame of the pool."""
        evidence = ImportanceMap(Grid.holding(len(pool)), by_frame=tuple(scores), kind=kind)
        return replace(self.chosen(pool, self.budget.choose(evidence, ties=self.ties), asked), evidence=evidence)

    def top_of(self, evidence: ImportanceMap, pool: FramePool, answers: Sequence[Posterior]) -> Selection:
        """The frames that the budget chooses by a map, with the bill, and a note if the map is flat."""
        cost = sum((answer.cost for answer in answers), Cost())
        notes = (FLAT,) if self.budget.flat(evidence) else ()
        indices = self.budget.choose(evidence, ties=self.ties)
        return Selection.of(self.name, pool, indices, evidence=evidence, cost=cost, notes=notes)

    def chosen(self, pool: FramePool, indices: Sequence[int], asked: Sequence[Posterior]) -> Selection:
        """The frames at these positions, in time order, with the bill and the warnings of what was asked."""
        cost = sum((each.cost for each in asked), Cost())
        return Selection.of(self.name, pool, sorted(indices), cost=cost, notes=doubts(asked))


def parts_of(parts: Parts) -> dict[str, Any]:
    """The arguments that all of them are made with."""
    return {
        "model": parts.model,
        "budget": parts.budget,
        "small_view": parts.small_view,
        "ties": parts.ties,
        "prompt_order": parts.prompt_order,
    }
