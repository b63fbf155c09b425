"""GridProbe: find the frames that a question needs, and keep them.

`probes="fresh"` is the paper (section 3): ask about each row and each column of the grid by itself; a frame matters if
the model is confident about both. `probes="attention"` uses the overview, all frames small and read once: how much the
question looks at each frame costs next to nothing. `probes="when"` asks about the same frames in which part of the
video the answer is shown, and then in which of them: for models on servers, which do not say what they look at. Until
it is measured on a model that can tell time, these get fresh probes unless it is asked for.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from json import JSONDecoder
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError
from gridprobe.importance import Budget, Grid, ImportanceMap, MapKind, NoiseAware, ShapeRule, Ties, top
from gridprobe.models.base import (
    LOW_MASS,
    Choose,
    Completion,
    Cost,
    FrameGroup,
    Heads,
    Model,
    Posterior,
    PromptOrder,
    Request,
    SamplingParams,
    View,
    choose,
    generate,
)
from gridprobe.models.profile import HeadWeights
from gridprobe.question import Question
from gridprobe.selectors.base import FLAT, PROBE, Parts, Probes, Selection, Selector, doubts
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.frames import CANVAS, collage

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

    @classmethod
    def make(cls, argument: str, parts: Parts) -> "ByModel":
        """The function of the registry."""
        return cls(**parts_of(parts))

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

    def top_of(self, evidence: ImportanceMap, pool: FramePool, answers: Sequence[Posterior | Completion]) -> Selection:
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


NO_ATTENTION = "the model does not say what it looks at, so rows and columns were probed one by one"
HEARD = "frames next to which words of the question are said: {}; they are at the top of the map"
NO_SPANS = "asked when, the model wrote no list of time spans"


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
    heads: HeadWeights = ()
    """Which of the model's attention heads make the map; by default the mean of all."""
    name: ClassVar[str] = "gridprobe"

    def __post_init__(self) -> None:
        if self.probes == "fresh":
            return
        if self.prompt_order != "frames_first":
            raise UsageError(
                f"probes={self.probes} needs prompt_order=frames_first: the question looks back at the frames"
            )
        if self.collage:
            raise UsageError(
                f"probe_input=collage shows the frames of a probe by themselves: use probes=fresh, not {self.probes}"
            )
        if self.probes == "when" and self.small_view.timestamps != "true":
            raise UsageError(
                f"probes=when asks about the true times of frames, and timestamps={self.small_view.timestamps} hides "
                "them: use probes=fresh"
            )

    @property
    def input_size(self) -> FrameSize:
        """The size its frames are decoded at."""
        return (self.decoded or self.small_view.pixels).rounded_to(self.model.capabilities.frame_multiple)

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Make the map, and keep as many of its top frames as the budget says."""
        selection, heard = self._by_map(pool, question), question.heard_at(pool.times)
        if not heard or selection.evidence is None:
            return selection
        raised = selection.evidence.raised(heard)
        kept = Selection.of(self.name, pool, self.budget.choose(raised, ties=self.ties), evidence=raised)
        notes = (*(note for note in selection.notes if note != FLAT), HEARD.format(sum(map(bool, heard))))
        return replace(kept, cost=selection.cost, probes=selection.probes, notes=notes)

    def _by_map(self, pool: FramePool, question: Question) -> Selection:
        if self.probes == "fresh":
            return self._by_probes(pool, question)
        if self.probes == "when":
            return self._by_when(pool, question)
        if self.model.capabilities.attention_map:
            return self._by_attention(pool, question)
        selection = self._by_probes(pool, question)
        return replace(selection, notes=(NO_ATTENTION, *selection.notes))

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
        if answer.heads is None:
            raise UsageError(f"the model {self.model.identity} does not say what it looks at; use probes=fresh")
        scores = tuple(map_of_heads(answer.heads, self.heads).tolist())
        evidence = ImportanceMap(Grid.holding(len(pool)), by_frame=scores, kind="attention")
        return self.top_of(evidence, pool, [answer])

    def _by_when(self, pool: FramePool, question: Question) -> Selection:
        """Ours, without attention: how likely the model says it is shown in a range of time, and there in a frame."""
        if len(pool) == 1:
            return self.top_of(_map_of_when((1.0,)), pool, [])
        if not self.model.capabilities.logprobs:
            return self._by_spans(pool, question)
        ranges = finer = equal_parts(range(len(pool)), RANGES)
        coarse = fine = self._ask_when(pool, when(question, ranges, pool.times), known=self.overview is not None)
        answers = [coarse]
        if len(ranges) < len(pool):
            finer = frames_of_best(ranges, tuple(coarse.probabilities.values()))
            fine = self._ask_when(pool, when(question, finer, pool.times), known=True)
            answers.append(fine)
        scores = when_scores(ranges, coarse, finer, fine)
        selection = self.top_of(_map_of_when(scores), pool, answers)
        if certainty(coarse.probabilities) >= EVEN and all(each.mass >= LOW_MASS for each in answers):
            return selection
        return replace(selection, notes=tuple(dict.fromkeys((*selection.notes, FLAT, *doubts(answers)))))

    def _by_spans(self, pool: FramePool, question: Question) -> Selection:
        """The same for a model that only writes: the time spans that it lists."""
        request = self._same_frames(pool, spans_question(question), known=self.overview is not None)
        ((text,),) = generate(self.model, [request], SPANS)
        listed = spans_in(text.text)
        scores, outside = in_spans(listed or (), pool.times)
        selection = self.top_of(_map_of_when(scores), pool, [text])
        unusable = f"{outside} of {len(listed or ())} time spans end before they begin or lie outside the video"
        notes = {NO_SPANS: listed is None, unusable: outside > 0, FLAT: not any(scores)}
        written = (*(note for note, applies in notes.items() if applies), *text.notes)
        return replace(selection, notes=tuple(dict.fromkeys((*selection.notes, *written))))

    def _ask_when(self, pool: FramePool, question: Question, *, known: bool) -> Posterior:
        return choose(self.model, [self._same_frames(pool, question, known=known)])[0]

    def _same_frames(self, pool: FramePool, question: Question, *, known: bool) -> Request:
        """A request that begins as the overview does; a model that keeps what it has read computes only the text."""
        request = overview_request(pool, question, self.small_view, keep_kv=True)
        able = known and self.model.capabilities.kv_reuse
        return replace(request, visible_frames=tuple(range(len(pool)))) if able else request

    def locate(self, pool: FramePool, question: Question, overview: Posterior) -> Selection:
        """The frames that show the overview's answer.

        The K frames that the question looks at most are asked by themselves, as the overview read them. Those from
        which the answer is more likely than not are kept. If there are none, no single frame decides the question, and
        those it looks at are kept; so they are if the model cannot look at single frames of what it has read.
        """
        selection = self.with_overview(overview).select(pool, question)
        attention = selection.evidence
        if attention is None or attention.kind != "attention" or not self.model.capabilities.masks_frames:
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

    def widened(self, selection: Selection, pool: FramePool) -> Selection:
        """As many frames as its rule keeps, whatever a profile says is enough."""
        if not isinstance(self.budget, NoiseAware) or selection.evidence is None:
            return selection
        indices = NoiseAware().choose(selection.evidence, ties=self.ties)
        return replace(selection, indices=indices, timestamps=tuple(pool.times[place] for place in indices))

    def with_overview(self, overview: Posterior) -> "GridProbe":
        """The same, and it need not ask for the overview."""
        return replace(self, overview=overview)

    def describe(self) -> dict[str, Any]:
        """With how the map is made."""
        decoded = None if self.decoded is None else self.decoded.describe()
        heads = {"heads": [list(each) for each in self.heads]} if self.heads else {}
        return {**super().describe(), "probes": self.probes, "decoded": decoded, "collage": self.collage, **heads}

    def request(self, pool: FramePool, frames: Sequence[int], question: Question) -> Request:
        """A probe: the question about some frames by themselves."""
        if self.collage:
            return collage_request(pool.take(frames), question)
        return super().request(pool, frames, question)


# Attention: which heads know where the answer is.


def map_of_heads(heads: Heads, weights: HeadWeights) -> npt.NDArray[np.floating[Any]]:
    """What the heads look at, as one number from 0 to 1 for each frame.

    By default the mean of all. With weights each head counts by how far a frame stands out for it, since some look at
    all frames a little and others at few of them much.
    """
    if not weights or not heads.any():  # a cost model looks at nothing
        mean: npt.NDArray[np.floating[Any]] = heads.mean(0)
        return mean
    numbers, shares = zip(*weights, strict=True)
    if max(numbers) >= len(heads):
        raise UsageError(
            f"the profile names attention head {max(numbers)}, but the model has {len(heads)}; it is of another model"
        )
    chosen = heads[list(numbers)].astype(np.float64)
    spread = chosen.std(1, keepdims=True)
    standing_out = (chosen - chosen.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    scores = np.asarray(shares) @ standing_out
    span = np.ptp(scores)
    return (scores - scores.min()) / span if span > 0 else np.zeros_like(scores)


# When: in which part of the video the answer is shown.

RANGES, LETTERS = 12, 24
"""The first question has this many ranges of time, the second one letters for this many frames."""
EVEN = 0.05
"""Ranges that are chosen with less certainty than this are as good as equally likely."""
PAIRS = re.compile(r"\[(?=\s*(?:\]|\[\s*[-\dNI]))")
SPANS = SamplingParams(limit=256)


def equal_parts(frames: range, count: int) -> list[range]:
    """Frames in at most that many runs of about equal length, in time order."""
    count = min(count, len(frames))
    return [frames[len(frames) * i // count : len(frames) * (i + 1) // count] for i in range(count)]


def frames_of_best(ranges: Sequence[range], likely: Sequence[float]) -> list[range]:
    """Frames of the likeliest ranges, as many as there are letters; parts of a range that has more frames than that."""
    best: list[range] = []
    for number in sorted(range(len(ranges)), key=lambda number: -likely[number]):
        if best and sum(map(len, best)) + len(ranges[number]) > LETTERS:
            break
        best.append(ranges[number])
    return [part for each in sorted(best, key=lambda each: each.start) for part in equal_parts(each, LETTERS)]


def when(question: Question, choices: Sequence[range], times: Sequence[float]) -> Question:
    """The question in which of these parts of the video the answer is shown, by the times next to the frames."""
    ends = [(times[part[0]], times[part[-1]]) for part in choices]
    options = [
        f"{first:.1f} seconds" if first == last else f"{first:.1f} to {last:.1f} seconds" for first, last in ends
    ]
    text = f"{_named(question)}\nIn which part of the video is this shown?"
    # a block of subtitles has no times, so it cannot say when
    return replace(question, text=text, options=options, answer=None, subtitles="", template="default", verbatim="")


def spans_question(question: Question) -> Question:
    """The question in which time spans the answer is shown, as JSON."""
    how = "Return the time spans of the video in which this is shown as JSON, in seconds: [[start, end], ...]"
    return replace(question, verbatim=f"Question: {_named(question)}\n{how}")


def _named(question: Question) -> str:
    options = "; ".join(" ".join(option.split()) for option in question.options)
    return f"{question.text}\nPossible answers: {options}" if options else question.text


def when_scores(
    ranges: Sequence[range], coarse: Posterior, finer: Sequence[range], fine: Posterior
) -> tuple[float, ...]:
    """score(frame) = p(range) · p(frame | range); a range that was not asked about again is spread evenly."""
    scores = np.zeros(ranges[-1].stop)
    for each, share in zip(ranges, coarse.probabilities.values(), strict=True):
        scores[each.start : each.stop] = share / len(each)
        inside = [(part, p) for part, p in zip(finer, fine.probabilities.values(), strict=True) if part.start in each]
        whole = math.fsum(p for _, p in inside)
        for part, p in inside:
            if whole > 0:
                scores[part.start : part.stop] = share * (p / whole) / len(part)
    return tuple(np.minimum(scores, 1.0).tolist())


def spans_in(text: str) -> list[tuple[float, float]] | None:
    """The first JSON list of pairs of numbers in a text; None without one."""
    for start in PAIRS.finditer(text):
        try:
            values, _ = JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        if all(map(_is_span, values)):
            return [(start, end) for start, end in values]
    return None


def _is_span(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(end) in (int, float) for end in value)


def in_spans(spans: Sequence[tuple[float, float]], times: Sequence[float]) -> tuple[tuple[float, ...], int]:
    """1 for every frame whose part of the video a span overlaps, else 0; and how many spans overlap none.

    A frame stands for the time from half way to the frame before to half way to the one after.
    """
    middle = [(earlier + later) / 2 for earlier, later in pairwise(times)]
    edges = [2 * times[0] - middle[0], *middle, 2 * times[-1] - middle[-1]]
    usable = [(start, end) for start, end in spans if start <= end and start < edges[-1] and end >= edges[0]]
    shown = [any(start < after and end >= before for start, end in usable) for before, after in pairwise(edges)]
    return tuple(map(float, shown)), len(spans) - len(usable)


def _map_of_when(scores: tuple[float, ...]) -> ImportanceMap:
    return ImportanceMap(Grid.holding(len(scores)), by_frame=scores, kind="when")


def overview_request(pool: FramePool, question: Question, view: View, *, keep_kv: bool = False) -> Request:
    """All frames, small, in one pass; `again` if something else will be asked about them."""
    return Request.about(question, (FrameGroup(pool, view),), keep_kv=keep_kv)


def make(argument: str, parts: Parts) -> GridProbe:
    """The function of the registry."""
    return GridProbe(**parts_of(parts), probes=parts.probes, decoded=parts.decoded, collage=parts.collage)


def collage_request(frames: FramePool, question: Question) -> Request:
    """The question about a picture of these frames, without their times; what is said between them comes after it."""
    whole = View(FrameSize(max_pixels=CANVAS * CANVAS), timestamps="none")
    text = "\n".join(filter(None, question.between(sorted(frames.times))))
    prompt = f"{text}\n{question.prompt}" if text else question.prompt
    return Request(prompt, Choose(question.labels), (FrameGroup(collage(frames), whole),))
