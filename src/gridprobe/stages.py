"""The stages of asking one question, as values: what was looked over, what was selected, and what is asked next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from gridprobe.answer import Answer, Reached
from gridprobe.backends import Backend, FrameGroup, Posterior, ScoreRequest
from gridprobe.backends.batcher import own_seconds
from gridprobe.backends.wrapped import Wrapped
from gridprobe.budget import Fixed, spread
from gridprobe.calibration import Exit
from gridprobe.collage import collage_request
from gridprobe.drafting import CANDIDATES, PHRASE, SAMPLES, SENTENCES, remembered
from gridprobe.encoders import Vectors
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.given import Given
from gridprobe.limits import LimitedEncoder, LimitedModel, Price
from gridprobe.prompts import describes
from gridprobe.question import Question
from gridprobe.rotations import rotations_of
from gridprobe.selectors import ExtraFrames, Selection, Selector
from gridprobe.setup import Setup
from gridprobe.video import Footage, FramePool, FrameSize, Pending

__all__ = [
    "Look",
    "Overview",
    "StagePrices",
    "askable",
    "asks_description",
    "focus_request",
    "in_order",
    "others_of",
    "refined",
    "sure",
    "timed",
    "unfilled",
    "warnings_of",
]

T = TypeVar("T")

OPTION_TOKENS = 8
"""Tokens of an option in addition to its text, roughly."""
INSTRUCTION_TOKENS = 64
"""More tokens than the instruction for options has beyond that of an open question."""
FILLER = " word"
"""At least one token, for any tokenizer and by any rule of thumb."""


@dataclass(frozen=True, eq=False)
class Overview:
    """All frames, looked over at a small size."""

    pool: FramePool
    posterior: Posterior
    decoding: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Look:
    """What the answer is read from."""

    pool: FramePool
    selection: Selection
    frames: FramePool
    """The kept ones, in the order the answer is read from."""
    others: tuple[FrameGroup, ...]
    """What is shown beside them."""
    decoding: float
    probing: float
    first: Overview | None = None


def asks_description(question: Question) -> bool:
    """Whether an open question asks for a description."""
    return question.open and describes(question.text)


def askable(question: Question, setup: Setup) -> Question:
    """The question, unless it is an open one that a selector would have to ask about before there are candidates."""
    if question.open and setup.selector.models:
        raise UsageError(
            f"the selector {setup.selector.name!r} asks about options, which an open question gets from an overview; "
            "leave out effort=focus"
        )
    return question


def in_order(selection: Selection, setup: Setup) -> list[int]:
    """The kept positions, in the order they are shown in."""
    order = list(selection.indices)
    if setup.order == "importance" and selection.scores is not None:
        scores = selection.scores
        order.sort(key=lambda i: -scores[i])
    return order


def focus_request(
    frames: FramePool, question: Question, setup: Setup, *, others: Sequence[FrameGroup] = ()
) -> ScoreRequest:
    """The one request the answer is read from: the kept frames, and others among them."""
    if setup.collage:
        return collage_request(frames, question)
    return ScoreRequest.about(question, [FrameGroup(frames, setup.shown), *others], prompt_order=setup.prompt_order)


def others_of(
    selection: Selection, kept: FramePool, setup: Setup, *, get: Callable[[Sequence[int], FrameSize], FramePool]
) -> tuple[FrameGroup, ...]:
    """What is shown beside the kept frames: the selection's own smaller sizes, and all others as context.

    `get` gives the frames at some places of the pool, at a size.
    """
    shown = [(each.indices, setup.smaller(kept, each.share)) for each in selection.extra_frames]
    rest = set(range(selection.pool)).difference(selection.indices, *(each.indices for each in selection.extra_frames))
    if setup.context is not None and rest:
        shown.append((tuple(sorted(rest)), setup.context))
    return tuple(FrameGroup(get(at, setup.size_of(view, len(at))), view) for at, view in shown)


@dataclass(frozen=True, eq=False)
class StagePrices:
    """What the stages of a question take at most, before they run. No frame is decoded for them."""

    setup: Setup
    """With limited models."""
    footage: Footage | Given
    question: Question
    pool_size: FrameSize
    """The size that the pool is decoded at."""
    frame_seconds: float = 0.0
    """How long it takes to decode a frame."""

    @property
    def pool(self) -> FramePool:
        """The frames to choose from."""
        return self._frames(range(len(self.footage.undecoded(self.pool_size))), self.pool_size)

    def overview(self) -> Price:
        """All frames, small, in one pass."""
        setup = self.setup
        assert setup.overview is not None
        groups = (FrameGroup(self.pool, setup.overview),)
        return self._price(setup.model, lambda question: ScoreRequest.about(question, groups))

    def selecting(self, selector: Selector, choose: Callable[[Selector], Selection]) -> Price:
        """What a selector takes to choose frames, if it has to take all its rounds."""
        model, encoder = self.setup.model, getattr(selector, "encoder", None)
        rehearsals: list[_Rehearsal] = []
        if isinstance(model, LimitedModel) and model.identity in selector.models:
            rehearsals.append(model_rehearsal := _Rehearsal(model))
            selector = selector.with_model(model_rehearsal)
        if isinstance(encoder, LimitedEncoder):
            rehearsals.append(encoder_rehearsal := _Rehearsal(encoder))
            selector = replace(selector, encoder=encoder_rehearsal)  # type: ignore[type-var]
        if rehearsals:
            choose(selector)
        return sum((each.price for each in rehearsals), Price())

    def focus(self, selection: Selection) -> Price:
        """The focused pass from a selection."""
        setup = self.setup
        kept = self._frames(in_order(selection, setup), setup.size_of(setup.shown, selection.kept))
        others = others_of(selection, kept, setup, get=self._frames)
        price = self._price(setup.answerer, partial(focus_request, kept, setup=setup, others=others))
        return price + Price(seconds=self.frame_seconds * (len(kept) + sum(len(each.frames) for each in others)))

    def focus_bounds(self, most: int | None) -> tuple[Price, Price]:
        """The focused pass from the fewest and from the most frames that may be kept; `most` limits them, if given."""
        pool, selector = self.pool, self.setup.selector
        prices = []
        for count in selector.bounds(len(pool)):
            selection = Selection.of(selector.name, pool, spread(len(pool), count))
            rest = [i for i in range(len(pool)) if i not in selection.indices]
            beside = []
            for number, share in selector.extra_frames(count, len(pool)):
                beside.append(ExtraFrames(tuple(rest[:number]), share))
                rest = rest[number:]
            prices.append(self.focus(replace(selection, extra_frames=tuple(beside)).best(most or count)))
        return prices[0].bounds(prices[1])

    def _frames(self, places: Sequence[int], size: FrameSize) -> FramePool:
        pool = self.footage.undecoded(size)
        if not isinstance(pool.data, Pending):  # frames in memory would be copied
            pixels = pool.data
            pool = replace(pool, data=Pending(lambda rows: pixels[list(rows)], pixels.shape))
        return pool.take(places)

    def _price(self, model: Backend, show: Callable[[Question], ScoreRequest]) -> Price:
        """What asking a model takes, in all orders of the options; an open question is drafted first."""
        assert isinstance(model, LimitedModel)
        question = self.question
        if question.open:
            return self._drafting(model, show)
        requests = rotations_of(show(question), question, rotations=self.setup.rotations)
        return sum(map(model.price, requests), Price())

    def _drafting(self, model: LimitedModel, show: Callable[[Question], ScoreRequest]) -> Price:
        """What writing drafts, and choosing among them, takes if all are as long as they may be."""
        request, way = show(self.question), self.setup.open_way
        if describes(self.question.text):
            return model.price_texts(request, [SENTENCES])
        again = remembered(model, request)
        price = model.price_texts(request, [PHRASE])
        if way != "text":
            price += model.price_texts(again, [PHRASE] * SAMPLES)
        if way == "drafts":
            tokens = CANDIDATES * (PHRASE + OPTION_TOKENS) + INSTRUCTION_TOKENS
            longer = model.price(replace(again, prompt=again.prompt + FILLER * tokens))
            price = sum([longer] * self.setup.rotations, price)
        return price


class _Rehearsal(Wrapped):
    """A limited model or encoder that is not run: everything is equally likely, and the price is added up."""

    def __init__(self, limited: Any) -> None:
        super().__init__(limited)
        self._limited, self.price = limited, Price()

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Equal probabilities."""
        self.price = sum(map(self._limited.price, requests), self.price)
        return [_undecided(request) for request in requests]

    def images(self, frames: FramePool) -> Vectors:
        """The same vector for each frame."""
        self.price += Price(tflops=self._limited.image_cost(frames).tflops)
        return np.ones((len(frames), 1), dtype=np.float32)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """The same vector for each text."""
        self.price += Price(tflops=self._limited.text_cost(texts).tflops)
        return np.ones((len(texts), 1), dtype=np.float32)


def _undecided(request: ScoreRequest) -> Posterior:
    posterior = Posterior.from_probabilities(dict.fromkeys(request.labels, 1.0), Cost())
    count = sum(len(group.frames) for group in request.groups)
    return replace(posterior, attention=(0.0,) * count) if request.attention else posterior


def refined(again: Answer, look: Look, setup: Setup) -> Answer:
    """The answer of the second look, with the bill of both."""
    assert look.first is not None
    cost, seconds, first = again.cost, again.seconds, look.first
    return replace(
        again,
        reached=replace(again.reached, overview=first.posterior),
        cost=replace(cost, probe=cost.probe + look.selection.cost, overview=cost.overview + first.posterior.cost),
        seconds=replace(
            seconds,
            decode=seconds.decode + look.decoding,
            probe=seconds.probe + look.probing,
            overview=seconds.overview + first.seconds,
        ),
        settings=setup.describe(),
    )


def sure(posterior: Posterior, exit: Exit | None) -> bool:
    """Whether an answer needs no closer look; one from several windows always does, because no pass saw them all."""
    return exit is not None and posterior.windows == 1 and posterior.confidence >= exit.threshold


def warnings_of(look: Look, question: Question, reached: Reached, trouble: tuple[str, ...]) -> tuple[str, ...]:
    """What a reader of the answer should know."""
    stages = (("overview", reached.overview), ("focused pass", reached.focus))
    doubts = [f"in the {name} {warning}" for name, each in stages if each for warning in each.warnings]
    if reached.contradicted and reached.overview is not None:
        said = reached.overview
        what = f"{said.choice!r} (" if question.open else f"{said.choice} ({question.option(said.choice)}, "
        doubts.append(f"the focused pass contradicts the overview, which was sure of {what}{said.confidence:.1%})")
    return (*look.pool.warnings, *question.warnings, *look.selection.warnings, *doubts, *trouble)


def unfilled(selector: Selector, look: Look) -> tuple[str, ...]:
    """A warning if more frames were to be kept than there are."""
    budget, pool = getattr(selector, "budget", None), look.selection.pool
    if not isinstance(budget, Fixed) or budget.frames <= pool:
        return ()
    return (f"{budget.frames} frames were to be kept, but only {pool} were sampled; a larger k samples more",)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What a piece of work gives, and how many seconds it takes; waiting for other questions is not counted."""
    start = own_seconds()
    return work(), own_seconds() - start
