"""GridProbe: find the frames that a question needs, and keep them.

`probes="fresh"` is the paper (section 3): ask about each row and each column of the grid by itself; a frame matters if
the model is confident about both. The other ways use the overview: all frames, small, read once. They ask its memory
about rows and columns (`memory`) or about single frames (`frames`), or read off how much the question looks at each
frame (`attention`), which costs next to nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from gridprobe.backends.base import Backend, FrameGroup, Posterior, PromptOrder, ScoreRequest, View, recalls
from gridprobe.budget import Budget, ShapeRule, Ties, top
from gridprobe.collage import collage_request
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.grid import Grid
from gridprobe.importance import Contrast, ImportanceMap, MapKind, Signal, peak
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection, Selector
from gridprobe.video import FramePool, FrameSize

__all__ = ["PROBE", "PROBE_SIDE", "GridProbe", "Probes", "overview_request"]

PROBE_SIDE = 224
"""Probes see small frames: the paper's 224."""
PROBE = FrameSize(max_side=PROBE_SIDE)

Probes = Literal["fresh", "memory", "frames", "attention"]
NO_MEMORY = "the model cannot question its memory of frames, so rows and columns were probed one by one"
FLAT = "no frame stands out from the others, so the map does not say where the answer is"


@dataclass(frozen=True)
class GridProbe(Selector):
    """Ask the model where the answer is, and keep those frames."""

    model: Backend
    budget: Budget = field(default_factory=ShapeRule)
    signal: Signal | Contrast = peak
    view: View = field(default_factory=lambda: View(PROBE))
    """How the frames of a probe, and of the overview, are shown."""
    probes: Probes = "fresh"
    decoded: FrameSize | None = None
    """The size its frames are decoded at, if the engine is to shrink them, as in the published chain."""
    collage: bool = False
    """Whether a probe shows its frames as one picture, as in the paper's appendix A."""
    ties: Ties = "spread"
    prompt_order: PromptOrder = "frames_first"
    again: bool = False
    """Whether more questions about the same frames will follow."""
    overview: Posterior | None = None
    """What the model answered to all frames, if it was asked already."""
    name: ClassVar[str] = "gridprobe"

    def __post_init__(self) -> None:
        if self.probes != "fresh" and self.prompt_order != "frames_first":
            raise UsageError(f"probes={self.probes} needs prompt_order=frames_first; the text comes after the memory")
        if self.probes == "attention" and self.signal is not peak:
            raise UsageError(f"a map of attention asks no probes, so signal={self._signal_name} needs probes=memory")
        if self.collage and self.probes != "fresh":
            raise UsageError(
                f"probe_view=collage shows the frames of a probe by themselves: use probes=fresh, not {self.probes}"
            )

    @property
    def looks_at(self) -> FrameSize:
        """The size its frames are decoded at."""
        return (self.decoded or self.view.pixels).rounded_to(self.model.multiple)

    @property
    def models(self) -> tuple[str, ...]:
        """The model that is probed."""
        return (self.model.identity,)

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Make the map, and keep as many of its top frames as the budget says."""
        way: Probes = self.probes if recalls(self.model) else "fresh"
        evidence, asked = self._attention(pool, question) if way == "attention" else self._ask(pool, question, way)
        indices = self.budget.choose(evidence, ties=self.ties)
        notes = [NO_MEMORY] if way != self.probes else []
        notes += [FLAT] if self.budget.flat(evidence) else []
        return Selection(
            selector=self.name,
            indices=indices,
            timestamps=tuple(pool.times[i] for i in indices),
            pool=len(pool),
            scores=tuple(evidence.scores.tolist()),
            cost=sum((posterior.cost for posterior in asked), Cost()),
            evidence=evidence,
            probes=() if way == "attention" else tuple(asked),
            notes=tuple(notes),
        )

    def where(self, pool: FramePool, question: Question, overview: Posterior) -> Selection:
        """The frames that show the overview's answer.

        The K frames that the question looks at most are asked by themselves, in the memory of the overview. Those from
        which the answer is more likely than not are kept. If there are none, no single frame decides the question, and
        those it looks at are kept.
        """
        found = self.knowing(overview).select(pool, question)
        evidence = found.evidence
        if evidence is None or evidence.kind != "attention":
            return found
        looked_at = evidence.scores
        candidates = top(looked_at, min(evidence.grid.k, len(pool)))
        asked = self.model.score([self._request(pool, (i,), question, "frames") for i in candidates])
        likely = {i: each.probabilities[overview.choice] for i, each in zip(candidates, asked, strict=True)}
        kept = tuple(i for i in candidates if likely[i] > 0.5)
        found = replace(found, cost=sum((each.cost for each in asked), found.cost))
        if not kept:
            return found
        scores = tuple(float(looked_at[i]) * likely.get(i, 0.0) for i in range(len(pool)))
        return replace(
            found,
            indices=kept,
            timestamps=tuple(pool.times[i] for i in kept),
            scores=scores,
            evidence=ImportanceMap(evidence.grid, by_frame=scores, kind="evidence"),
            notes=(),
        )

    def _attention(self, pool: FramePool, question: Question) -> tuple[ImportanceMap, list[Posterior]]:
        """The map of what the question looks at in the memory of all frames, and the answer to it."""
        request = replace(self.look_over(pool, question), attention=True)
        if self.overview is not None:  # the memory is there already
            request = replace(request, sees=tuple(range(len(pool))))
        (posterior,) = self.model.score([request])
        if posterior.attention is None:
            raise UsageError(f"the model {self.model.identity} does not say where its attention is; use probes=fresh")
        return ImportanceMap(Grid.holding(len(pool)), by_frame=posterior.attention, kind="attention"), [posterior]

    def _ask(self, pool: FramePool, question: Question, way: Probes) -> tuple[ImportanceMap, list[Posterior]]:
        """The map from the answers to probes, and those answers."""
        grid = Grid.holding(len(pool))
        subsets = tuple((i,) for i in range(grid.cells)) if way == "frames" else grid.probes()
        if isinstance(self.signal, Contrast) and self.signal.leaves_out:
            everything = range(grid.cells)
            subsets = tuple(tuple(i for i in everything if i not in set(each)) or each for each in subsets)
        requests = [self._request(pool, subset, question, way) for subset in subsets]
        reference = self._reference(pool, question)
        answers = self.model.score([*requests, *reference])
        probes, others = answers[: len(requests)], answers[len(requests) :]
        told = others[0] if others else self.overview
        signals = [self._signal(probe.probabilities, told) for probe in probes]
        return _map(grid, signals, self._kind(way)), [*probes, *others]

    def _signal(self, probabilities: Mapping[str, float], reference: Posterior | None) -> float:
        if isinstance(self.signal, Contrast):
            assert reference is not None
            return self.signal(probabilities, reference.probabilities)
        return self.signal(probabilities)

    def _reference(self, pool: FramePool, question: Question) -> list[ScoreRequest]:
        """The request whose answer the probes are compared with, unless it is known or not needed."""
        if not isinstance(self.signal, Contrast):
            return []
        if self.signal.reference == "text":
            return [ScoreRequest.about(question)]
        return [] if self.overview else [self.look_over(pool, question)]

    def _kind(self, way: Probes) -> MapKind:
        if isinstance(self.signal, Contrast) and self.signal.leaves_out:
            return "leave-out"
        kinds: dict[Probes, MapKind] = {"fresh": "probes", "memory": "memory", "frames": "frames"}
        return kinds[way]

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def using(self, model: Backend) -> "GridProbe":
        """The same with another model."""
        return replace(self, model=model, view=self.view.suiting(model))

    def repeated(self) -> "GridProbe":
        """The same, and the model keeps what it computes for the frames."""
        return replace(self, again=True)

    def knowing(self, overview: Posterior) -> "GridProbe":
        """The same, and it need not ask for the overview."""
        return replace(self, overview=overview)

    def describe(self) -> dict[str, Any]:
        """Everything that decides its choice."""
        return {
            "name": self.name,
            "model": self.model.identity,
            "budget": self.budget.describe(),
            "signal": self._signal_name,
            "probes": self.probes,
            "view": self.view.describe(),
            "decoded": None if self.decoded is None else self.decoded.describe(),
            "collage": self.collage,
            "ties": self.ties,
            "prompt_order": self.prompt_order,
        }

    @property
    def _signal_name(self) -> str:
        return self.signal.name if isinstance(self.signal, Contrast) else self.signal.__name__

    def look_over(self, pool: FramePool, question: Question) -> ScoreRequest:
        """The overview's request."""
        return overview_request(pool, question, self.view, again=self.again or self.probes != "fresh")

    def _request(self, pool: FramePool, subset: Sequence[int], question: Question, way: Probes) -> ScoreRequest:
        if way == "fresh" and self.collage:
            return collage_request(pool.take(subset), question)
        if way == "fresh":
            groups = (FrameGroup(pool.take(subset), self.view),)
            return ScoreRequest.about(question, groups, prompt_order=self.prompt_order, again=self.again)
        return replace(self.look_over(pool, question), sees=tuple(subset))


def overview_request(pool: FramePool, question: Question, view: View, *, again: bool = False) -> ScoreRequest:
    """All frames, small, in one pass; `again` if its memory will be asked something else."""
    return ScoreRequest.about(question, (FrameGroup(pool, view),), again=again)


def _map(grid: Grid, signals: Sequence[float], kind: MapKind) -> ImportanceMap:
    if len(signals) == grid.rows + grid.k:
        return ImportanceMap(grid, tuple(signals[: grid.rows]), tuple(signals[grid.rows :]), kind=kind)
    return ImportanceMap(grid, by_frame=tuple(signals), kind=kind)


def make(argument: str, parts: Parts) -> GridProbe:
    """The function of the registry."""
    return GridProbe(
        parts.model,
        budget=parts.budget,
        signal=parts.signal,
        view=parts.view,
        probes=parts.probes,
        decoded=parts.decoded,
        collage=parts.collage,
        ties=parts.ties,
        prompt_order=parts.prompt_order,
    )
