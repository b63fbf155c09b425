"""GridProbe: find the frames that a question needs, and keep them.

`probes="fresh"` is the paper (section 3): ask about each row and each column of the grid by itself; a frame matters if
the model is confident about both. `probes="attention"` uses the overview, all frames small and read once: how much the
question looks at each frame costs next to nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from gridprobe.errors import UsageError
from gridprobe.importance import Grid, ImportanceMap, top
from gridprobe.models.base import FrameGroup, Posterior, Request, View, choose
from gridprobe.models.prompting import collage_request
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import ByModel, parts_of
from gridprobe.video import FramePool, FrameSize

__all__ = ["NO_MEMORY", "GridProbe", "Probes", "overview_request"]

Probes = Literal["fresh", "attention"]
NO_MEMORY = "the model cannot question its memory of frames, so rows and columns were probed one by one"


@dataclass(frozen=True)
class GridProbe(ByModel):
    """Ask the model where the answer is, and keep those frames."""

    probes: Probes = "fresh"
    decoded: FrameSize | None = None
    """The size its frames are decoded at, if the engine is to shrink them, as in the published chain."""
    collage: bool = False
    """Whether a probe shows its frames as one picture, as in the paper's appendix A."""
    overview: Posterior | None = None
    """What the model answered to all frames, if it was asked already."""
    name: ClassVar[str] = "gridprobe"

    def __post_init__(self) -> None:
        if self.probes == "attention" and self.prompt_order != "frames_first":
            raise UsageError("probes=attention needs prompt_order=frames_first: the question looks back at the frames")
        if self.probes == "attention" and self.collage:
            raise UsageError(
                "probe_input=collage shows the frames of a probe by themselves: use probes=fresh, not attention"
            )

    @property
    def input_size(self) -> FrameSize:
        """The size its frames are decoded at."""
        return (self.decoded or self.small_view.pixels).rounded_to(self.model.capabilities.frame_multiple)

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Make the map, and keep as many of its top frames as the budget says."""
        if self.probes == "fresh":
            return self._by_probes(pool, question)
        if self.model.capabilities.kv_reuse:
            return self._by_attention(pool, question)
        selection = self._by_probes(pool, question)
        return replace(selection, notes=(NO_MEMORY, *selection.notes))

    def _by_probes(self, pool: FramePool, question: Question) -> Selection:
        """The paper: how confident the model is about each row and each column (eq. 1), multiplied (eq. 3)."""
        grid = Grid.holding(len(pool))
        answers = choose(self.model, [self.request(pool, line, question) for line in grid.probes()])
        confidences = tuple(answer.confidence for answer in answers)
        evidence = ImportanceMap(grid, confidences[: grid.rows], confidences[grid.rows :])
        return replace(self.top_of(evidence, pool, answers), probes=tuple(answers))

    def _by_attention(self, pool: FramePool, question: Question) -> Selection:
        """Ours: how much the question looks at each frame of the overview."""
        request = replace(overview_request(pool, question, self.small_view, keep_kv=True), attention=True)
        if self.overview is not None:  # the frames were read: only the question is computed
            request = replace(request, visible_frames=tuple(range(len(pool))))
        (answer,) = choose(self.model, [request])
        if answer.attention is None:
            raise UsageError(f"the model {self.model.identity} does not say where its attention is; use probes=fresh")
        evidence = ImportanceMap(Grid.holding(len(pool)), by_frame=answer.attention, kind="attention")
        return self.top_of(evidence, pool, [answer])

    def locate(self, pool: FramePool, question: Question, overview: Posterior) -> Selection:
        """The frames that show the overview's answer.

        The K frames that the question looks at most are asked by themselves, as the overview read them. Those from
        which the answer is more likely than not are kept. If there are none, no single frame decides the question, and
        those it looks at are kept.
        """
        selection = self.with_overview(overview).select(pool, question)
        attention = selection.evidence
        if attention is None or attention.kind != "attention":
            return selection
        candidates = top(attention.scores, min(attention.grid.k, len(pool)))
        prefix = overview_request(pool, question, self.small_view, keep_kv=True)
        answers = choose(self.model, [replace(prefix, visible_frames=(frame,)) for frame in candidates])
        likely = dict(zip(candidates, (each.probabilities[overview.choice] for each in answers), strict=True))
        cost = sum((each.cost for each in answers), selection.cost)
        showing = tuple(frame for frame in candidates if likely[frame] > 0.5)
        if not showing:
            return replace(selection, cost=cost)
        scores = tuple(score * likely.get(frame, 0.0) for frame, score in enumerate(attention.scores.tolist()))
        evidence = ImportanceMap(attention.grid, by_frame=scores, kind="evidence")
        return Selection.of(self.name, pool, showing, evidence=evidence, cost=cost)

    def with_overview(self, overview: Posterior) -> "GridProbe":
        """The same, and it need not ask for the overview."""
        return replace(self, overview=overview)

    def describe(self) -> dict[str, Any]:
        """With how the map is made."""
        decoded = None if self.decoded is None else self.decoded.describe()
        return {**super().describe(), "probes": self.probes, "decoded": decoded, "collage": self.collage}

    def request(self, pool: FramePool, frames: Sequence[int], question: Question) -> Request:
        """A probe: the question about some frames by themselves."""
        if self.collage:
            return collage_request(pool.take(frames), question)
        return super().request(pool, frames, question)


def overview_request(pool: FramePool, question: Question, view: View, *, keep_kv: bool = False) -> Request:
    """All frames, small, in one pass; `again` if something else will be asked about them."""
    return Request.about(question, (FrameGroup(pool, view),), keep_kv=keep_kv)


def make(argument: str, parts: Parts) -> GridProbe:
    """The function of the registry."""
    return GridProbe(**parts_of(parts), probes=parts.probes, decoded=parts.decoded, collage=parts.collage)
