"""ask(): a video and a question in, an Answer out. Session: the same for many questions about one video."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from gridprobe._util import announce
from gridprobe.answer import Answer, AnswerCost, Seconds, Trace
from gridprobe.concurrency import TOGETHER, Batcher, check_together, in_threads, merged, own_seconds
from gridprobe.early_exit import EarlyExit
from gridprobe.errors import OverLimit, UsageError
from gridprobe.importance import Fixed, Grid, hot_stretches, spread
from gridprobe.limits import LimitedEncoder, LimitedModel, Price, UsageTracker
from gridprobe.models import FrameGroup, Model, Posterior, Request, Response, SamplingParams
from gridprobe.models.cost import Cost
from gridprobe.models.prompting import collage_request, rotations_of, score_rotated
from gridprobe.models.wrappers import ModelWrapper
from gridprobe.open_ended import CANDIDATES, DRAFTS, NO_PLACE, PHRASE, SENTENCES, answer_open, lettered, remembered
from gridprobe.options import Options, Plan, make_plan
from gridprobe.question import Question, describes, wording
from gridprobe.selectors import ExtraFrames, Selection, Selector, Uniform
from gridprobe.selectors.base import OVERVIEW
from gridprobe.selectors.encoders import Vectors
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.video import FramePool, FrameSize, Moved, Pending, Video

__all__ = [
    "ArrayFrames",
    "Look",
    "Overview",
    "Session",
    "StagePrices",
    "ask",
    "askable",
    "asks_description",
    "focus_request",
    "for_video",
    "in_order",
    "others_of",
    "refined",
    "sure",
    "timed",
    "unfilled",
    "warnings_of",
]

# What a session is about: a video, or frames that the caller brings.


@dataclass(frozen=True, eq=False)
class ArrayFrames:
    """The caller's frames, used like footage; they have one size."""

    given: FramePool
    trouble: tuple[str, ...] = ()

    def pool(self, size: FrameSize) -> FramePool:
        """All of them."""
        return self.given

    def undecoded(self, size: FrameSize) -> FramePool:
        """All of them."""
        return self.given

    def frames(self, indices: Sequence[int], size: FrameSize) -> FramePool:
        """Some of them."""
        return self.given.take(indices)


def for_video(setup: Plan, video: object) -> Plan:
    """The setup for this video: open footage must match its sampling; given frames are not sampled."""
    if isinstance(video, FramePool):
        return replace(setup, sampling=None)
    if isinstance(video, Video) and setup.sampling is not None:
        for name in ("cells", "sampling", "precision", "stream"):
            have, want = getattr(video.spec, name), getattr(setup.sampling, name)
            if have != want:
                raise UsageError(
                    f"the open video was sampled with {name}={have!r}, but the settings say {want!r}; "
                    "open it again, or change the settings"
                )
    return setup


# The stages of asking one question, as values: what was looked over, what was selected, and what is asked next.

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


def askable(question: Question, setup: Plan) -> Question:
    """The question, unless it is an open one that a selector would have to ask about before there are candidates."""
    if question.open and setup.selector.models:
        raise UsageError(
            f"the selector {setup.selector.name!r} asks about options, which an open question gets from an overview; "
            "leave out effort=focus"
        )
    return question


def in_order(selection: Selection, setup: Plan) -> list[int]:
    """The kept positions, in the order they are shown in."""
    order = list(selection.indices)
    if setup.order == "importance" and selection.scores is not None:
        scores = selection.scores
        order.sort(key=lambda i: -scores[i])
    return order


def focus_request(frames: FramePool, question: Question, setup: Plan, *, others: Sequence[FrameGroup] = ()) -> Request:
    """The one request the answer is read from: the kept frames, and others among them."""
    if setup.collage:
        return collage_request(frames, question)
    return Request.about(question, [FrameGroup(frames, setup.shown), *others], prompt_order=setup.prompt_order)


def others_of(
    selection: Selection, kept: FramePool, setup: Plan, *, get: Callable[[Sequence[int], FrameSize], FramePool]
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

    setup: Plan
    """With limited models."""
    footage: Video | ArrayFrames
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
        return self._price(setup.model, lambda question: Request.about(question, groups))

    def selecting(self, selector: Selector, choose: Callable[[Selector], Selection]) -> Price:
        """What a selector takes to choose frames, if it has to take all its rounds."""
        model, encoder = self.setup.model, getattr(selector, "encoder", None)
        rehearsals: list[_ModelRehearsal | _EncoderRehearsal] = []
        if isinstance(model, LimitedModel) and model.identity in selector.models:
            rehearsals.append(model_rehearsal := _ModelRehearsal(model))
            selector = selector.with_model(model_rehearsal)
        if isinstance(encoder, LimitedEncoder):
            rehearsals.append(encoder_rehearsal := _EncoderRehearsal(encoder))
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

    def _price(self, model: Model, show: Callable[[Question], Request]) -> Price:
        """What asking a model takes, in all orders of the options; an open question is drafted first."""
        assert isinstance(model, LimitedModel)
        question = self.question
        if question.open:
            return self._drafting(model, show)
        requests = rotations_of(show(question), question, rotations=self.setup.rotations)
        return sum(map(model.price, requests), Price())

    def _drafting(self, model: LimitedModel, show: Callable[[Question], Request]) -> Price:
        """What writing drafts, and choosing among them, takes if all are as long as they may be."""
        request, way = show(self.question), self.setup.open_way
        if describes(self.question.text):
            return model.price(replace(request, task=SamplingParams(limit=SENTENCES)))
        again = remembered(model, request)
        price = model.price(replace(request, task=SamplingParams(limit=PHRASE)))
        if way != "text":
            price += model.price(replace(again, task=DRAFTS))
        if way == "drafts":
            tokens = CANDIDATES * (PHRASE + OPTION_TOKENS) + INSTRUCTION_TOKENS
            longer = model.price(replace(again, prompt=again.prompt + FILLER * tokens))
            price = sum([longer] * self.setup.rotations, price)
        return price


class _ModelRehearsal(ModelWrapper):
    """A limited model that is not run: everything is equally likely, and the price is added up."""

    def __init__(self, limited: LimitedModel) -> None:
        super().__init__(limited)
        self._limited, self.price = limited, Price()

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Equal probabilities."""
        self.price = sum(map(self._limited.price, requests), self.price)
        return [_undecided(request) for request in requests]


class _EncoderRehearsal:
    """A limited encoder that is not run: everything is equally likely, and the price is added up."""

    def __init__(self, limited: LimitedEncoder) -> None:
        self._limited, self.price = limited, Price()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._limited, name)

    def images(self, frames: FramePool) -> Vectors:
        """The same vector for each frame."""
        self.price += Price(tflops=self._limited.image_cost(frames).tflops)
        return np.ones((len(frames), 1), dtype=np.float32)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """The same vector for each text."""
        self.price += Price(tflops=self._limited.text_cost(texts).tflops)
        return np.ones((len(texts), 1), dtype=np.float32)


def _undecided(request: Request) -> Posterior:
    posterior = Posterior.from_probabilities(dict.fromkeys(request.labels, 1.0), Cost())
    count = sum(len(group.frames) for group in request.groups)
    return replace(posterior, attention=(0.0,) * count) if request.attention else posterior


def refined(again: Answer, look: Look, setup: Plan) -> Answer:
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


def sure(posterior: Posterior, exit: EarlyExit | None) -> bool:
    """Whether an answer needs no closer look; one from several windows always does, because no pass saw them all."""
    return exit is not None and posterior.windows == 1 and posterior.confidence >= exit.threshold


def warnings_of(look: Look, question: Question, reached: Trace, trouble: tuple[str, ...]) -> tuple[str, ...]:
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


def ask(
    video: str | Path | Video | FramePool,
    question: Question | str,
    *,
    model: str | Model | None = None,
    answer_model: str | Model | None = None,
    selector: str | Selector = "gridprobe",
    k: int = 12,
    frames: int | Literal["auto"] = "auto",
    preset: str = "default",
    show_map: bool = False,
    **changes: Any,
) -> Answer:
    """Ask one question about one video.

    Args:
        video: a file or a folder of pictures; open footage of one; or your own frames, which are used unchanged at
            both sizes.
        question: what to ask; a plain text is a question without options.
        model: the model that probes, and answers unless `answer_model` is given; a name or a loaded model.
        answer_model: a second, usually larger, model for the focused pass.
        selector: a name from `gridprobe list selectors`, or a `gridprobe.Selector`.
        k: the side of the grid; k² frames are sampled.
        frames: how many of them to keep, or "auto" to let the map decide.
        preset: "default", or "paper" for the published method.
        show_map: make the map also for an answer that the overview settles.
        **changes: any other field of `Options` on top of the preset, such as `order="importance"`.
    """
    changes |= {"reuse": False, "k": k, "frames": frames}
    with Session(video, model=model, answer_model=answer_model, selector=selector, preset=preset, **changes) as session:
        return session.ask(question, show_map=show_map)


class Session:
    """One video, many questions. Arguments as for `ask`, or a ready-made `setup` in their place.

    The pool is decoded at the first question; each question then decodes only those of its kept frames that no earlier
    question kept. Both sizes stay in memory up to `VideoLimits.memory` bytes, and in the frame cache on disk. With
    `reuse` the model keeps what it computed for the probes' frames, so the next question pays only for its text;
    answers stay the same.
    """

    def __init__(
        self,
        video: str | Path | Video | FramePool,
        *,
        setup: Plan | None = None,
        model: str | Model | None = None,
        answer_model: str | Model | None = None,
        selector: str | Selector = "gridprobe",
        preset: str = "default",
        reuse: bool = True,
        **changes: Any,
    ) -> None:
        if (setup is None) == (model is None):
            raise UsageError('name the model that is to answer, as in model="embedded", or give a setup, but not both')
        if setup is None:
            settings = Options.from_preset(preset, **changes)
            setup = make_plan(model=model or "", answer_model=answer_model, selector=selector, settings=settings)
        self.setup = for_video(setup, video).loaded()
        """Everything that decides the answers."""
        self._reuse = reuse
        self._video = video
        self._opened: Video | ArrayFrames | None = None
        self._usage = UsageTracker(self.setup.usage_limits)
        """What the question that is asked has taken."""
        self._spent = [Cost()]

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the decoded frames."""
        self._opened = None

    def open(self) -> None:
        """Open the video and, if the selector needs pixels, decode it. Needs no model; another thread may call it."""
        blind = self.setup.selector.input_size is None and self.setup.overview is None
        _ = self._footage if blind else self.pool

    @property
    def spent(self) -> Cost:
        """What the last question with limits took, also if it failed."""
        return self._spent[0]

    @property
    def pool(self) -> FramePool:
        """The K² candidate frames, at the size the selector looks at."""
        return self._footage.pool(self._pool_size)

    @property
    def _footage(self) -> "Video | ArrayFrames":
        if self._opened is None:
            video = ArrayFrames(self._video) if isinstance(self._video, FramePool) else self._video
            self._opened = video if isinstance(video, Video | ArrayFrames) else self.setup.open(video)
        return self._opened

    @property
    def _pool_size(self) -> FrameSize:
        sampling, given = self.setup.sampling, self._video
        return self.setup.pool_size(sampling.cells if sampling else len(given) if isinstance(given, FramePool) else 1)

    def ask(self, question: Question | str, *, show_map: bool = False) -> Answer:
        """Answer a question: from the overview if it is sure, else from the frames that the selector keeps.

        Args:
            question: what to ask; a plain text is a question without options.
            show_map: make the map of an answer from the overview too, which then needs none.
        """
        question = Question(question) if isinstance(question, str) else question
        if self.setup.template is not None:
            question = replace(question, template=wording(self.setup.template, question.template))
        mine, usage = copy(self), UsageTracker(self.setup.usage_limits)
        mine._opened, mine._usage, mine.setup = self._footage, usage, self.setup.limited(usage)
        try:
            return mine._billed(mine._ask(question, show_map=show_map))
        finally:
            self._spent[0] = usage.spent

    def _ask(self, question: Question, *, show_map: bool = False, second: bool = False) -> Answer:
        """The stages of a question. A `second` look that does not fit its limits raises OverLimit."""
        self._check(question)
        first = self._look_over(question) if self.setup.overview is not None else None
        if first is not None and self._settles(first, question):
            return self._from_overview(question, first, show_map=show_map)
        try:
            return self._ask_closely(question, first)
        except OverLimit as error:
            if first is None or second:
                raise
            self._usage.degraded[:] = [f"answered from the overview: a focused pass would take {error.more}"]
            return self._from_overview(question, first, show_map=False)

    def _check(self, question: Question) -> None:
        """Refuse a question that cannot be asked or does not fit its limits, before anything is computed."""
        setup, usage = self.setup, self._usage
        if setup.overview is None:
            askable(question, setup)
        if not usage.limits.priced:
            return
        prices = self._prices(question)
        if setup.overview is not None:
            usage.require(prices.overview())
            return
        choose = partial(self._select, pool=prices.pool, question=question, first=None)
        selecting = prices.selecting(setup.selector, choose)
        least, most = prices.focus_bounds(self._cap)
        usage.require(selecting + least, enough=selecting + most)

    @property
    def _cap(self) -> int | None:
        """The most frames that may be kept, if they are shown at native size."""
        return None if self.setup.selector.view is not None else self._usage.limits.max_frames

    def _prices(self, question: Question, first: Overview | None = None) -> StagePrices:
        seconds = first.decoding / len(first.pool) if first else 0.0
        return StagePrices(self.setup, self._footage, question, self._pool_size, seconds)

    def _billed(self, answer: Answer) -> Answer:
        """The answer with everything that was spent on it, and with what its limits cut."""
        usage, cost = self._usage, answer.cost
        if usage.limits.priced and cost.total.calls != usage.spent.calls:
            cost = replace(cost, probe=usage.spent - cost.overview - cost.focus)
        degraded = tuple(dict.fromkeys(usage.degraded))
        warnings = tuple(dict.fromkeys((*answer.warnings, *degraded, *usage.warnings)))
        return replace(answer, cost=cost, warnings=warnings, reached=replace(answer.reached, degraded=degraded))

    def _ask_closely(self, question: Question, first: Overview | None) -> Answer:
        """The answer from the frames that the selector keeps, or from stretches that were sampled again."""
        setup = self.setup
        look = self._look(question, first)
        unsure = first is not None and not sure(first.posterior, setup.exit)
        again = self._second_look(question, look) if setup.refine and unsure else None
        if again is not None and sure(again.posterior, setup.exit):
            return refined(again, look, setup)
        posterior, focusing = timed(lambda: self._focus(question, look))
        answer = self._answer(question, look, posterior, focusing)
        if again is None:
            return answer
        whole = refined(again, look, setup)
        return replace(
            whole if again.confidence > posterior.confidence else answer,
            cost=replace(whole.cost, focus=whole.cost.focus + answer.cost.focus),
            seconds=replace(whole.seconds, focus=whole.seconds.focus + answer.seconds.focus),
        )

    def ask_all(
        self, questions: Sequence[Question], *, together: int = TOGETHER, show_map: bool = False
    ) -> list[Answer]:
        """The answers to all questions, in order; what several of them ask the models is asked in one call.

        An error of one question does not keep the others from being answered; then it is raised. `ask_each` gives what
        there is.

        Args:
            questions: what to ask.
            together: how many questions are asked at the same time.
            show_map: as for `ask`.
        """
        outcomes = dict(self.ask_each(questions, together=together, show_map=show_map))
        return [outcomes[number].result() for number in range(len(questions))]

    def ask_each(
        self, questions: Sequence[Question], *, together: int = TOGETHER, show_map: bool = False
    ) -> Generator[tuple[int, "Future[Answer]"], None, None]:
        """As `ask_all`: the number of each question and its outcome, as soon as it is there."""
        check_together(together)
        together = 1 if self.setup.usage_limits.priced else together  # a merged call would take the memory of several
        batcher = Batcher(in_turns=True)
        _ = self._footage
        mine = copy(self)
        mine.setup = merged(self.setup, batcher)
        try:
            yield from in_threads(partial(mine.ask, show_map=show_map), questions, batcher, at_once=together)
        finally:
            batcher.close()

    def _focus(self, question: Question, look: Look) -> Posterior:
        """The answer from the kept frames."""
        setup = self.setup
        every = self._reuse and look.selection.kept == look.selection.pool  # the next question will see the same frames

        def show(asked: Question) -> Request:
            request = focus_request(look.frames, asked, setup, others=look.others)
            return replace(request, keep_kv=True) if every else request

        before = look.first.posterior.labels if look.first else ()
        return self._believe(setup.answerer, question, show, before=before)

    def _believe(
        self,
        model: Model,
        question: Question,
        show: Callable[[Question], Request],
        *,
        before: Sequence[str] | None,
    ) -> Posterior:
        """What a model answers. `before` are candidates of the overview; None if a closer look may follow."""
        setup = self.setup
        if question.open:
            return answer_open(model, question, show, rule=setup.open_rule, before=before)
        return score_rotated(model, show(question), question, rotations=setup.rotations)

    def _settles(self, first: Overview, question: Question) -> bool:
        effort = self.setup.effort
        settled = effort == "quick" or (effort == "auto" and sure(first.posterior, self.setup.exit))
        return settled and not asks_description(question)

    def _from_overview(self, question: Question, first: Overview, *, show_map: bool) -> Answer:
        """The answer of the overview, with a map if that is wanted."""
        everything = Selection.of(OVERVIEW, first.pool, tuple(range(len(first.pool))))
        look = Look(first.pool, everything, first.pool, (), first.decoding, 0.0, first)
        if show_map:
            try:
                look = self._look(question, first)
            except OverLimit as error:
                self._usage.degraded.append(f"the map was left out: it would take {error.more}")
        return self._answer(question, look, first.posterior, None)

    def _answer(self, question: Question, look: Look, posterior: Posterior, focusing: float | None) -> Answer:
        """The answer with its bill; `focusing` is None if there was no focused pass."""
        setup, first, focused = self.setup, look.first, focusing is not None
        reached = Trace(
            "focus" if focused else "overview",
            overview=first.posterior if first else None,
            focus=posterior if focused else None,
            exit=setup.exit,
            native=focused and setup.selector.view is None,
        )
        return Answer(
            question=question,
            posterior=posterior,
            selection=look.selection,
            cost=AnswerCost(
                look.selection.cost,
                posterior.cost if focused else Cost(),
                self._baseline(question),
                first.posterior.cost if first else Cost(),
            ),
            seconds=Seconds(look.decoding, look.probing, focusing or 0.0, first.seconds if first else 0.0),
            pool=look.pool,
            frames=look.frames,
            models=(setup.models, setup.answerer.identity),
            settings=setup.describe(),
            warnings=warnings_of(look, question, reached, (*self._footage.trouble, *unfilled(setup.selector, look))),
            reached=reached,
        )

    def _look_over(self, question: Question) -> Overview:
        """All frames, small, in one pass."""
        setup = self.setup
        assert setup.overview is not None
        pool, decoding = timed(lambda: self.pool)
        more = self._reuse or setup.effort != "quick"
        show = partial(overview_request, pool, view=setup.overview, keep_kv=more)
        before = () if setup.effort == "quick" else None
        posterior, seconds = timed(lambda: self._believe(setup.model, question, show, before=before))
        first = Overview(pool, posterior, decoding, seconds)
        announce("overview", first)
        return first

    def _look(self, question: Question, first: Overview | None) -> Look:
        """The pool, the selection, and the kept frames at native size."""
        blind = self.setup.selector.input_size is None
        try:
            return self._look_once(question, first, blind=blind)
        except Moved:  # frames that the packets announced are damaged: decode everything to find the good ones
            return self._look_once(question, first, blind=False)

    def _look_once(self, question: Question, first: Overview | None, *, blind: bool) -> Look:
        start = own_seconds()
        footage = self._footage
        blind = blind and first is None
        pool = footage.undecoded(self._pool_size) if blind else footage.pool(self._pool_size)
        selector = self.setup.selector.keeping_kv() if self._reuse else self.setup.selector
        selection, probing = timed(lambda: self._chosen(selector, pool, question, first))
        frames = footage.frames(in_order(selection, self.setup), self.setup.size_of(self.setup.shown, selection.kept))
        others = others_of(selection, frames, self.setup, get=lambda at, size: footage.undecoded(size).take(at))
        decoding = own_seconds() - start - probing + (first.decoding if first else 0.0)
        look = Look(pool, selection, frames, others, decoding, probing, first)
        announce("look", look)
        return look

    def _chosen(self, selector: Selector, pool: FramePool, question: Question, first: Overview | None) -> Selection:
        """The selection, if it and the focused pass from it fit the limits."""
        choose, usage = partial(self._select, pool=pool, question=question, first=first), self._usage
        settled = first is not None and self._settles(first, question)
        prices, most = self._prices(question, first), self._cap
        if usage.limits.priced and first is not None:
            least = Price() if settled else prices.focus_bounds(most)[0]
            usage.require(prices.selecting(selector, choose) + least)
        selection = choose(selector)
        if settled:
            return selection
        if most is not None and selection.kept > most:
            usage.degraded.append(f"{most} of {selection.kept} frames kept: {usage.limits.flag('max_frames')}")
            selection = selection.best(most)
        if usage.limits.priced:
            usage.require(prices.focus(selection))
        return selection

    def _select(self, selector: Selector, *, pool: FramePool, question: Question, first: Overview | None) -> Selection:
        if asks_description(question):
            spread = Uniform(Fixed(Grid.holding(len(pool)).k)).select(pool, question)
            return replace(spread, notes=(NO_PLACE,))
        if first is None:
            return selector.select(pool, question)
        asked, posterior = lettered(question, first.posterior)
        if self._settles(first, question):
            return selector.locate(pool, asked, posterior)
        return selector.with_overview(posterior).select(pool, asked)

    def _second_look(self, question: Question, look: Look) -> Answer | None:
        """The second look, if the limits hold it and the focused pass. It takes about as much as the first."""
        usage, prices = self._usage, self._prices(question, look.first)
        if not usage.limits.priced:
            return self._look_again(question, look)
        focus = prices.focus(look.selection)
        try:
            usage.require(prices.overview() + focus + focus)
            with usage.reserving(focus):
                return self._look_again(question, look)
        except OverLimit as error:
            usage.degraded.append(f"hot stretches were not sampled again: that would take {error.more}")
            return None

    def _look_again(self, question: Question, look: Look) -> Answer | None:
        """The same question about the stretches that the map points at, sampled more densely."""
        footage, setup = self._footage, self.setup
        if not isinstance(footage, Video) or setup.sampling is None:
            raise UsageError("refine samples the video again, so it needs a video and not frames")
        if look.selection.scores is None:
            return None
        stretches = hot_stretches(look.selection.scores, footage.info.duration or look.pool.times[-1])
        closer, opening = timed(lambda: footage.within(stretches))
        sampling = replace(setup.sampling, stretches=stretches)
        session = copy(self)
        session._opened, session.setup = closer, replace(setup, sampling=sampling, refine=False)
        answer = session._ask(question, second=True)
        seconds = replace(answer.seconds, decode=answer.seconds.decode + opening)
        return replace(answer, seconds=seconds, reached=replace(answer.reached, by="refined", stretches=stretches))

    def _baseline(self, question: Question) -> Cost:
        """What the answering model would spend on the whole pool; this needs its size, but no pixels."""
        setup, footage = self.setup, self._footage
        count = len(footage.undecoded(self._pool_size))
        everything = FrameGroup(footage.undecoded(setup.size_of(setup.view, count)), setup.view)
        return setup.answerer.cost(Request.about(question, [everything], prompt_order=setup.prompt_order))
