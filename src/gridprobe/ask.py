"""ask(): a video and a question in, an Answer out. Session: the same for many questions about one video.

`_Asking.answer` is the method, and its steps follow it in order:

    overview       all K² frames, small, in one pass; its KV cache serves every later question about the video
    early exit     if the overview is sure enough, that is the answer
    select         a map of which frames the question needs, and a budget that says how many of them are kept
    second look    with `refine`: the same question about denser samples of the segments that the map points at
    focused pass   the kept frames at full size: among all others small, or behind the overview, whose KV cache is kept;
                   where that leaves doubt, more of them among all others

Where that would take more than one pass over all frames at full size, that pass is the answer; see `Plan.never_dearer`.
The published method is the same function without an overview. Its map comes from probes of rows and columns, and it
shows the kept frames alone; see the presets in `gridprobe.options`.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from gridprobe._util import announce, report
from gridprobe.answer import Answer, AnswerCost, Seconds, Trace
from gridprobe.concurrency import (
    FOR_ALL,
    TOGETHER,
    Batcher,
    check_together,
    in_sequence,
    in_threads,
    merged,
    own_seconds,
)
from gridprobe.early_exit import EarlyExit
from gridprobe.errors import GridProbeError, OverLimit, UsageError
from gridprobe.importance import Fixed, Grid, hot_stretches
from gridprobe.limits import Price, UsageTracker, price_of_asking, price_of_selecting
from gridprobe.models import FrameGroup, Model, ModelLike, Posterior, Request
from gridprobe.models.base import Cost, score_rotated
from gridprobe.open_ended import NO_PLACE, answer_open, lettered
from gridprobe.options import PUBLISHED, Options
from gridprobe.plan import Plan
from gridprobe.question import Question, describes, wording
from gridprobe.registry import transcriber
from gridprobe.selectors import Selection, Selector, Uniform
from gridprobe.selectors.base import OVERVIEW
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.video import FramePool, FrameSize, Moved, Pending, Video
from gridprobe.video.subtitles import MAX_TOKENS, Ears, Subtitles

T = TypeVar("T")
ONE_PASS = ("quick", "all")
"""Efforts that end with the first pass."""
DEARER = 1.05
"""An answer that took this many times what showing all frames would have says so."""

VideoLike = Any
"""A path, a `Video`, a `FramePool`, or frames that `FramePool.from_arrays` takes."""


def ask(
    video: VideoLike,
    question: Question | str,
    *,
    options: Sequence[str] = (),
    model: ModelLike | None = None,
    answer_model: ModelLike | None = None,
    selector: str | Selector = "gridprobe",
    k: int = 12,
    frames: int | Literal["auto"] = "auto",
    preset: str = "default",
    show_map: bool = False,
    **settings: Any,
) -> Answer:
    """Ask one question about one video.

    Args:
        video: a file or a folder of pictures; an open video; or your own frames, as a uint8 array or torch tensor of
            shape (n, h, w, 3) or a list of PIL pictures, which are used unchanged at both sizes.
        question: what to ask; a plain text is a question with these `options`, or without any.
        options: the answers to choose from, if `question` is a plain text.
        model: the model that looks over the frames, and answers unless `answer_model` is given: a name, a model, or a
            loaded model of transformers with its processor, as a tuple.
        answer_model: a second, usually larger, model for the focused pass.
        selector: a name from `gridprobe list selectors`, or a `gridprobe.Selector`.
        k: the side of the grid; k² frames are sampled.
        frames: how many of them to keep, or "auto" to let the map decide.
        preset: "default", or "paper" for the published method.
        show_map: make the map also for an answer that the overview settles.
        **settings: `times`, the seconds of your own frames; `subtitles`, `subtitle_language` and `transcribe`, as for
            `Session`; and any other field of `Options` on top of the preset, such as `show="importance"`, or
            `window=(80, 300)` for a part of the video, in seconds.
    """
    settings |= {"reuse": False, "k": k, "frames": frames}
    settings |= {"model": model, "answer_model": answer_model}
    with Session(video, selector=selector, preset=preset, **settings) as session:
        return session.ask(question, options=options, show_map=show_map)


def ask_many(
    videos: Iterable[VideoLike],
    question: Question | str | Sequence[Question],
    *,
    options: Sequence[str] = (),
    setup: Plan | None = None,
    show_map: bool = False,
    subtitles: str | Path | Subtitles | None = None,
    subtitle_language: str = "",
    transcribe: str = "",
    **settings: Any,
) -> Iterator[tuple[VideoLike, Answer | GridProbeError]]:
    """Ask about many videos: each of them with its answer, or with the error that left it without one, as they come.

    The models are loaded once. An error after which no video can be answered, such as a lost server, is raised.

    Args:
        videos: as for `ask`; their order is kept.
        question: what to ask about each; of several questions each gives a pair.
        options: the answers to choose from, if `question` is a plain text.
        setup: a ready-made plan in place of the settings.
        show_map: as for `ask`.
        subtitles: as for `Session`.
        subtitle_language: as for `Session`.
        transcribe: as for `Session`.
        **settings: as for `Session`: `model`, `answer_model`, `selector`, `preset` and any field of `Options`.
    """
    if isinstance(videos, str | Path):
        raise UsageError(f"ask_many takes a list of videos, got {str(videos)!r}; ask() is for one")
    if isinstance(question, str):
        question = Question(question, options).distinct()
    elif options:
        raise UsageError("the question has its own options; give options= only with a plain text")
    questions = [question] if isinstance(question, Question) else list(question)
    if subtitles is None:
        subtitles = _default_subtitles(setup, settings.get("preset", "default"))
    ears = {"subtitles": subtitles, "subtitle_language": subtitle_language, "transcribe": transcribe}
    return _each_video(list(videos), questions, _plan_of(setup, **settings).loaded(), ears, show_map=show_map)


def _each_video(
    videos: list[VideoLike], questions: list[Question], plan: Plan, ears: dict[str, Any], *, show_map: bool
) -> Iterator[tuple[VideoLike, Answer | GridProbeError]]:
    for done, video in enumerate(videos, start=1):
        try:
            with Session(video, setup=plan, reuse=len(questions) > 1, **ears) as session:
                for outcome in in_sequence(session.ask_each(questions, show_map=show_map)):
                    yield video, _answer_or_error(outcome)
        except FOR_ALL:
            raise
        except GridProbeError as error:  # it cannot be opened, or not be asked about
            yield video, error
        report("videos", done, len(videos))


def _answer_or_error(outcome: "Future[Answer]") -> Answer | GridProbeError:
    error = outcome.exception()
    return error if isinstance(error, GridProbeError) and not isinstance(error, FOR_ALL) else outcome.result()


@dataclass(frozen=True, eq=False)
class Overview:
    """All frames, small, and what the model says about them."""

    pool: FramePool
    posterior: Posterior
    decoding: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Kept:
    """The frames that the answer is read from."""

    pool: FramePool
    """The frames to choose from."""
    selection: Selection
    frames: FramePool
    """The kept ones, in the order they are shown in."""
    others: tuple[FrameGroup, ...] = ()
    """What is shown next to them."""


@dataclass(eq=False)
class _Asking:
    """One question about one video."""

    plan: Plan
    """With models that keep to the limits."""
    video: "Video | ArrayFrames"
    question: Question
    pool_size: FrameSize
    """The size that the frames to choose from are decoded at."""
    usage: UsageTracker
    """What the question has taken, and what its limits leave."""
    keep_kv: bool
    """Whether more questions about these frames may follow."""
    show_map: bool = False
    """Whether an answer of the overview gets a map."""
    second: bool = False
    """Whether this is a second look, for which there is no overview to fall back on."""
    cost: AnswerCost = field(default_factory=AnswerCost)
    """What the stages so far cost."""
    seconds: Seconds = field(default_factory=Seconds)
    """How long they took."""

    def answer(self) -> Answer:
        """The method, from the overview to the focused pass."""
        self._plan_cheaply()
        self._check()
        overview = self._look_over() if self.plan.overview is not None else None
        if overview is not None and self._settled(overview):
            return self._answer(overview, self._located(overview))
        try:
            kept = self._keep(overview)
            closer = self._look_again(overview, kept)
            if closer is not None and sure(closer.posterior, self.plan.exit):
                return self._refined(closer, overview)
            posterior = self._focus(overview, kept)
            if overview is not None and self.plan.close_ups and in_doubt(posterior, overview.posterior):
                kept, posterior = self._among(overview, kept, posterior)
        except OverLimit as error:
            if overview is None or self.second:
                raise
            self.usage.degraded[:] = [f"answered from the overview: a focused pass would take {error.more}"]
            return self._answer(overview, _everything(overview))
        if closer is not None and closer.confidence > posterior.confidence:
            return self._refined(closer, overview)
        return self._answer(overview, kept, posterior)

    def _plan_cheaply(self) -> None:
        """Take no more than showing all frames at full size would, if the plan promises that."""
        usage = self.usage
        plan = self.plan if self.second else self.plan.never_dearer(self.question, self._count, self._unread)
        if plan.effort == "all":
            once = replace(self, plan=plan, pool_size=plan.pool_size(self._count))
            over = usage.over(once._overview_price()) if usage.limits.priced else []
            if (usage.limits.max_frames or self._count) < self._count:
                over.append("max_frames")
            if not over:
                self.plan, self.pool_size = once.plan, once.pool_size
                return
            flags = " and ".join(map(usage.limits.flag, over))
            usage.degraded.append(f"answered from the overview: all frames at full size are over {flags}")
            plan = replace(self.plan, effort="quick")
        self.plan = plan

    # The overview, and the early exit.

    def _look_over(self) -> Overview:
        """All frames, small, in one pass."""
        plan = self.plan
        assert plan.overview is not None
        pool, decoding = timed(lambda: self.video.pool(self.pool_size))
        show = partial(overview_request, pool, view=plan.overview, keep_kv=self.keep_kv or plan.effort != "quick")
        before = () if plan.effort in ONE_PASS else None
        posterior, seconds = timed(lambda: self._ask(plan.model, show, before=before))
        overview = Overview(pool, posterior, decoding, seconds)
        stage = "focus" if plan.effort == "all" else "overview"
        self.cost += AnswerCost(**{stage: posterior.cost})
        self.seconds += Seconds(decode=decoding, **{stage: seconds})
        announce("overview", overview)
        return overview

    def _ask(self, model: Model, show: Callable[[Question], Request], *, before: Sequence[str] | None) -> Posterior:
        """What a model answers. `before` are candidates of the overview; None if a closer look may follow."""
        if self.question.open:
            return answer_open(model, self.question, show, rule=self.plan.open_rule, before=before)
        return score_rotated(model, show(self.question), self.question, rotations=self.plan.rotations)

    def _settled(self, overview: Overview) -> bool:
        """Whether the overview answers the question."""
        effort = self.plan.effort
        settled = effort in ONE_PASS or (effort == "auto" and sure(overview.posterior, self.plan.exit))
        return settled and not self._describes

    def _located(self, overview: Overview) -> Kept:
        """Where the overview's answer can be seen, if a map is wanted."""
        if self.show_map:
            try:
                return self._keep(overview)
            except OverLimit as error:
                self.usage.degraded.append(f"the map was left out: it would take {error.more}")
        return _everything(overview)

    # Selection: the map of importance, and the frames that the budget keeps.

    def _keep(self, overview: Overview | None) -> Kept:
        """The frames that the selector keeps, decoded at full size."""
        blind = self.plan.selector.input_size is None and overview is None
        try:
            return self._keep_once(overview, blind=blind)
        except Moved:  # frames that the packets announced are damaged: decode everything to find the good ones
            return self._keep_once(overview, blind=False)

    def _keep_once(self, overview: Overview | None, *, blind: bool) -> Kept:
        start, plan, video = own_seconds(), self.plan, self.video
        pool = video.lazy(self.pool_size) if blind else video.pool(self.pool_size)
        selector = plan.selector.keeping_kv() if self.keep_kv else plan.selector
        selection, probing = timed(lambda: self._choose(selector, pool, overview))
        kept = self._shown(pool, selection)
        self.cost += AnswerCost(probe=selection.cost)
        self.seconds += Seconds(probe=probing, decode=own_seconds() - start - probing)
        announce("kept", kept)
        return kept

    def _shown(self, pool: FramePool, selection: Selection) -> Kept:
        """The frames of a selection, decoded at full size, and what is shown with them."""
        plan, video = self.plan, self.video
        frames = video.frames(plan.in_order(selection), plan.size_of(plan.shown, selection.kept))
        return Kept(pool, selection, frames, plan.others(selection, frames, lambda at, size: video.lazy(size).take(at)))

    def _choose(self, selector: Selector, pool: FramePool, overview: Overview | None) -> Selection:
        """The selection, if it and the focused pass from it fit the limits."""
        choose, usage, most = partial(self._select, pool=pool, overview=overview), self.usage, self._most_frames
        settled = overview is not None and self._settled(overview)
        if usage.limits.priced and overview is not None:
            least = Price() if settled else self._focus_bounds(overview)[0]
            usage.require(price_of_selecting(self.plan, pool, choose) + least)
        selection = choose(selector)
        if settled:
            return selection
        if most is not None and selection.kept > most:
            less = f"{most} of {selection.kept} frames kept: "
            if most == usage.limits.max_frames:
                usage.degraded.append(less + usage.limits.flag("max_frames"))
            else:
                selection = replace(selection, notes=(*selection.notes, less + "more take more than all frames do"))
            selection = selection.best(most)
        if usage.limits.priced:
            usage.require(self._focus_price(selection, overview))
        return selection

    def _select(self, selector: Selector, *, pool: FramePool, overview: Overview | None) -> Selection:
        """What a selector chooses, given what the overview says; a description needs evenly spaced frames."""
        if self._describes:
            evenly = Uniform(Fixed(Grid.holding(len(pool)).k)).select(pool, self.question)
            return replace(evenly, notes=(NO_PLACE,))
        if overview is None:
            return selector.select(pool, self.question)
        question, posterior = lettered(self.question, overview.posterior)
        if self._settled(overview):
            return selector.locate(pool, question, posterior)
        return selector.with_overview(posterior).select(pool, question)

    # The second look.

    def _look_again(self, overview: Overview | None, kept: Kept) -> Answer | None:
        """The same question about denser samples of the segments that the map points at, if that was asked for."""
        plan, usage = self.plan, self.usage
        if not plan.refine or overview is None or sure(overview.posterior, plan.exit):
            return None
        if not isinstance(self.video, Video) or plan.sampling is None:
            raise UsageError("refine samples the video again, so it needs a video and not frames")
        if kept.selection.scores is None:
            return None
        focus = self._focus_price(kept.selection, overview) if usage.limits.priced else Price()
        try:
            if usage.limits.priced:  # a second look takes about as much as the first
                usage.require(self._overview_price() + focus + focus)
            with usage.reserving(focus):
                return self._densely(self.video, kept)
        except OverLimit as error:
            usage.degraded.append(f"hot stretches were not sampled again: that would take {error.more}")
            return None

    def _densely(self, video: Video, kept: Kept) -> Answer:
        """The answer from the segments that the map points at, sampled as densely as the whole was."""
        assert kept.selection.scores is not None and self.plan.sampling is not None
        start, end = video.span
        segments = hot_stretches(kept.selection.scores, (end or kept.pool.times[-1]) - start, start)
        closer, opening = timed(lambda: video.within(segments))
        plan = replace(self.plan, sampling=replace(self.plan.sampling, segments=segments), refine=False)
        asking = replace(self, plan=plan, video=closer, second=True, show_map=False)
        asking.cost, asking.seconds = AnswerCost(), Seconds()
        answer = asking.answer()
        self.cost += replace(answer.cost, baseline=Cost())
        self.seconds += replace(answer.seconds, decode=answer.seconds.decode + opening)
        return replace(answer, reached=replace(answer.reached, by="refined", stretches=segments))

    def _refined(self, closer: Answer, overview: Overview | None) -> Answer:
        """The answer of the second look, with the whole bill."""
        return replace(
            closer,
            reached=replace(closer.reached, overview=overview.posterior if overview else None),
            cost=replace(self.cost, baseline=closer.cost.baseline),
            seconds=self.seconds,
            settings=self.plan.describe(),
        )

    # The focused pass, and the answer.

    def _focus(self, overview: Overview | None, kept: Kept) -> Posterior:
        """The answer from the kept frames."""
        every = self.keep_kv and kept.selection.kept == kept.selection.pool  # the next question will see the same
        show = partial(self.plan.focus_request, kept.frames, others=kept.others, keep_kv=every)
        before = overview.posterior.labels if overview else ()
        posterior, seconds = timed(lambda: self._ask(self.plan.answerer, show, before=before))
        self.cost += AnswerCost(focus=posterior.cost)
        self.seconds += Seconds(focus=seconds)
        return posterior

    def _among(self, overview: Overview, kept: Kept, posterior: Posterior) -> tuple[Kept, Posterior]:
        """The answer from more of the frames, among all others in order of time; the first one if that is too dear."""
        plan, usage = replace(self.plan, behind=False), self.usage
        selection = plan.selector.widened(kept.selection, kept.pool).best(self._most_frames or kept.selection.pool)
        again = plan.answerer.cost(plan.focus_on(selection, self.question, self._unread))
        if (self.cost.total + again).share_of(self._baseline()) > 1:
            return kept, posterior
        close_ups, self.plan = self.plan, plan
        try:
            if usage.limits.priced:
                usage.require(self._focus_price(selection, overview))
            wider = self._shown(kept.pool, selection)
            return wider, self._focus(overview, wider)
        except OverLimit as error:
            self.plan = close_ups
            usage.degraded.append(f"close-ups left doubt, but showing more frames would take {error.more}")
            return kept, posterior

    def _answer(self, overview: Overview | None, kept: Kept, focused: Posterior | None = None) -> Answer:
        """The answer with its bill; without `focused` it is the overview's."""
        plan, posterior = self.plan, focused or (overview.posterior if overview else None)
        assert posterior is not None
        if plan.effort == "all":
            overview, focused = None, posterior
        trace = Trace(
            "all" if plan.effort == "all" else "overview" if focused is None else "focus",
            overview=overview.posterior if overview else None,
            focus=focused,
            exit=plan.exit,
            native=focused is not None and plan.selector.view is None,
        )
        trouble = (*self.video.warnings, *plan.doubts, *unfilled(plan.selector, kept.selection.pool))
        return Answer(
            question=self.question,
            posterior=posterior,
            selection=kept.selection,
            cost=replace(self.cost, baseline=self._baseline()),
            seconds=self.seconds,
            pool=kept.pool,
            frames=kept.frames,
            models=(plan.models, plan.answerer.identity),
            settings=plan.describe(),
            warnings=warnings_of(kept, self.question, trace, trouble),
            reached=trace,
        )

    def _baseline(self) -> Cost:
        """What the answering model would spend on all frames at full size; this needs their size, but no pixels."""
        plan, video = self.plan, self.video
        count = len(video.lazy(self.pool_size))
        everything = FrameGroup(video.lazy(plan.size_of(plan.view, count)), plan.view)
        return plan.answerer.cost(Request.about(self.question, [everything], prompt_order=plan.prompt_order))

    # Limits.

    @property
    def _describes(self) -> bool:
        """Whether the question asks for a description."""
        return self.question.open and describes(self.question.text)

    @property
    def _most_frames(self) -> int | None:
        """The most frames that may be kept, if they are shown at full size."""
        most = [each for each in (self.usage.limits.max_frames, self.plan.most_kept) if each is not None]
        return None if self.plan.selector.view is not None or not most else min(most)

    def _check(self) -> None:
        """Refuse a question that cannot be asked or does not fit its limits, before anything is computed."""
        plan, usage = self.plan, self.usage
        if plan.overview is None and self.question.open and plan.selector.models:
            raise UsageError(
                f"the selector {plan.selector.name!r} asks about options, which an open question gets from an "
                "overview; leave out effort=focus"
            )
        if not usage.limits.priced:
            return
        if plan.overview is not None:
            usage.require(self._overview_price())
            return
        pool = self._unread(range(self._count), self.pool_size)
        selecting = price_of_selecting(plan, pool, partial(self._select, pool=pool, overview=None))
        least, most = self._focus_bounds(None)
        usage.require(selecting + least, enough=selecting + most)

    @property
    def _count(self) -> int:
        return len(self.video.lazy(self.pool_size))

    def _overview_price(self) -> Price:
        assert self.plan.overview is not None
        groups = (FrameGroup(self._unread(range(self._count), self.pool_size), self.plan.overview),)
        return price_of_asking(
            self.plan.model, self.question, lambda question: Request.about(question, groups), self.plan
        )

    def _focus_price(self, selection: Selection, overview: Overview | None) -> Price:
        """The focused pass from a selection, with what decoding its frames takes."""
        plan = self.plan
        show = partial(plan.focus_on, selection, frames_at=self._unread)
        each = overview.decoding / len(overview.pool) if overview else 0.0
        decoding = Price(seconds=each * sum(len(group.frames) for group in show(self.question).groups))
        return price_of_asking(plan.answerer, self.question, show, plan) + decoding

    def _focus_bounds(self, overview: Overview | None) -> tuple[Price, Price]:
        """The focused pass from the fewest and from the most frames that may be kept."""
        pool = self._unread(range(self._count), self.pool_size)
        fewest, most = (
            self.plan.select_evenly(count, pool).best(self._most_frames or count)
            for count in self.plan.selector.bounds(len(pool))
        )
        return self._focus_price(fewest, overview).bounds(self._focus_price(most, overview))

    def _unread(self, places: Sequence[int], size: FrameSize) -> FramePool:
        """Some frames at a size, of which no pixels are needed."""
        pool = self.video.lazy(size)
        if not isinstance(pool.data, Pending):  # frames in memory would be copied
            pixels = pool.data
            pool = replace(pool, data=Pending(lambda rows: pixels[list(rows)], pixels.shape))
        return pool.take(places)


def _everything(overview: Overview) -> Kept:
    """All frames, as the overview shows them."""
    everything = Selection.of(OVERVIEW, overview.pool, tuple(range(len(overview.pool))))
    return Kept(overview.pool, everything, overview.pool)


def sure(posterior: Posterior, exit: EarlyExit | None) -> bool:
    """Whether an answer needs no closer look; one from several windows always does, because no pass saw them all."""
    return exit is not None and posterior.windows == 1 and posterior.confidence >= exit.threshold


def in_doubt(close: Posterior, overview: Posterior) -> bool:
    """Whether close-ups left the question open: no answer is likelier than not, or the overview's was another one."""
    return close.confidence <= 0.5 or (close.choice != overview.choice and overview.confidence > 0.5)


def warnings_of(kept: Kept, question: Question, trace: Trace, trouble: tuple[str, ...]) -> tuple[str, ...]:
    """What a reader of the answer should know."""
    stages = (("overview", trace.overview), ("focused pass", trace.focus))
    doubts = [f"in the {name} {warning}" for name, each in stages if each for warning in each.warnings]
    if trace.contradicted and trace.overview is not None:
        first = trace.overview
        what = f"{first.choice!r} (" if question.open else f"{first.choice} ({question.option(first.choice)}, "
        doubts.append(f"the focused pass contradicts the overview, which was sure of {what}{first.confidence:.1%})")
    return (*kept.pool.warnings, *question.warnings, *kept.selection.warnings, *doubts, *trouble)


def unfilled(selector: Selector, pool: int) -> tuple[str, ...]:
    """A warning if more frames were to be kept than there are."""
    budget = getattr(selector, "budget", None)
    if not isinstance(budget, Fixed) or budget.frames <= pool:
        return ()
    return (f"{budget.frames} frames were to be kept, but only {pool} were sampled; a larger k samples more",)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What a piece of work gives, and how many seconds it takes; waiting for other questions is not counted."""
    start = own_seconds()
    return work(), own_seconds() - start


@dataclass(frozen=True, eq=False)
class ArrayFrames:
    """The caller's frames, used like a video; they have one size."""

    frames_given: FramePool
    warnings: tuple[str, ...] = ()

    def pool(self, size: FrameSize) -> FramePool:
        """All of them."""
        return self.frames_given

    lazy = pool

    def frames(self, indices: Sequence[int], size: FrameSize) -> FramePool:
        """Some of them."""
        return self.frames_given.take(indices)


class Session:
    """One video, many questions. Arguments as for `ask`, or a ready-made `setup` in their place.

    `subtitles` are "auto", "none" or a file. "auto" takes a file next to the video or a text track inside it, in
    `subtitle_language` if that is given; it is the default, but with a ready-made setup or a published preset. A video
    without any is transcribed if `transcribe` names a recogniser. The lines stand between the frames, and frames next
    to which words of the question are said are candidates.

    The pool is decoded at the first question; each question then decodes only those of its kept frames that no earlier
    question kept. Both sizes stay in memory up to `VideoLimits.memory` bytes, and in the frame cache on disk. With
    `reuse` the model keeps the KV cache of the frames, so the next question pays only for its text; answers stay the
    same.
    """

    def __init__(
        self,
        video: VideoLike,
        *,
        times: Sequence[float] | None = None,
        setup: Plan | None = None,
        model: ModelLike | None = None,
        answer_model: ModelLike | None = None,
        selector: str | Selector = "gridprobe",
        preset: str = "default",
        reuse: bool = True,
        subtitles: str | Path | Subtitles | None = None,
        subtitle_language: str = "",
        transcribe: str = "",
        **settings: Any,
    ) -> None:
        if not isinstance(video, str | Path | Video | FramePool):
            video = FramePool.from_arrays(video, times)
        elif times is not None:
            raise UsageError("times= are those of your own frames; a video knows its own")
        settings |= {"model": model, "answer_model": answer_model, "selector": selector, "preset": preset}
        self.setup = for_video(_plan_of(setup, **settings), video).loaded()
        """Everything that decides the answers."""
        if subtitles is None:
            subtitles = _default_subtitles(setup, preset)
        self._ears = Ears(subtitles, subtitle_language, transcriber(transcribe) if transcribe else None)
        self._heard: Subtitles | None = None
        self._reuse = reuse
        self._video = video
        self._opened: Video | ArrayFrames | None = None
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
    def _footage(self) -> Video | ArrayFrames:
        if self._opened is None:
            video = ArrayFrames(self._video) if isinstance(self._video, FramePool) else self._video
            self._opened = video if isinstance(video, Video | ArrayFrames) else self.setup.open(video)
        return self._opened

    @property
    def _pool_size(self) -> FrameSize:
        sampling, video = self.setup.sampling, self._video
        return self.setup.pool_size(
            sampling.num_frames if sampling else len(video) if isinstance(video, FramePool) else 1
        )

    @property
    def subtitles(self) -> Subtitles:
        """What is said in the video, as far as questions are shown it."""
        if self._heard is None:
            footage = self._footage
            self._heard = self._ears.hear(footage) if isinstance(footage, Video) else Subtitles(())
        return self._heard

    def ask(self, question: Question | str, *, options: Sequence[str] = (), show_map: bool = False) -> Answer:
        """Answer a question: from the overview if it is sure, else from the frames that the selector keeps.

        Args:
            question: what to ask; a plain text is a question with these `options`, or without any.
            options: the answers to choose from, if `question` is a plain text.
            show_map: make the map of an answer from the overview too, which then needs none.
        """
        if isinstance(question, str):
            question = Question(question, options).distinct()
        elif options:
            raise UsageError("the question has its own options; give options= only with a plain text")
        if self.setup.template is not None:
            question = replace(question, template=wording(self.setup.template, question.template))
        subtitles, question = self.subtitles, question.hearing(self.subtitles, interleaved=self.setup.interleaves)
        usage = UsageTracker(self.setup.usage_limits)
        plan = self.setup.limited(usage)
        asking = _Asking(plan, self._footage, question, self._pool_size, usage, self._reuse, show_map)
        try:
            return with_source(_billed(asking.answer(), usage), subtitles)
        finally:
            self._spent[0] = usage.spent

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
        _ = self.subtitles
        mine = copy(self)
        mine.setup = merged(self.setup, batcher)
        try:
            yield from in_threads(partial(mine.ask, show_map=show_map), questions, batcher, at_once=together)
        finally:
            batcher.close()


def _default_subtitles(setup: Plan | None, preset: str) -> str:
    """Those of the video; but a ready-made plan, such as a run's or a server's, and published presets read none."""
    return "auto" if setup is None and preset not in PUBLISHED else "none"


def with_source(answer: Answer, subtitles: Subtitles) -> Answer:
    """The answer, and which subtitles the question was shown."""
    spoken, lines = answer.question.spoken, len(subtitles.segments)
    if not lines and not subtitles.notes:
        return answer
    shown = len(spoken.segments) if spoken is not None else lines
    settings, notes = answer.settings, subtitles.notes
    if lines:
        settings = {**settings, "subtitles": {"source": subtitles.source, "lines": lines, "shown": shown}}
    if shown < lines:
        first = "those that share words with the question first"
        notes += (f"{shown} of {lines} lines of subtitles are shown, {MAX_TOKENS} tokens at most: {first}",)
    return replace(answer, settings=settings, warnings=(*answer.warnings, *notes))


def _plan_of(
    setup: Plan | None,
    *,
    model: ModelLike | None = None,
    answer_model: ModelLike | None = None,
    selector: str | Selector = "gridprobe",
    preset: str = "default",
    **settings: Any,
) -> Plan:
    """The ready-made plan, or the one that these settings make."""
    if (setup is None) == (model is None):
        raise UsageError('name the model that is to answer, as in model="embedded", or give a setup, but not both')
    if setup is not None:
        return setup
    options = Options.from_preset(preset, **settings)
    return options.resolve(model=model or "", answer_model=answer_model, selector=selector)


def for_video(setup: Plan, video: object) -> Plan:
    """The plan for this video: an open video must match its sampling; frames of the caller are not sampled."""
    if isinstance(video, FramePool):
        if setup.sampling is not None and setup.sampling.window is not None:
            raise UsageError("a window is a part of a video that is sampled; of your own frames give only those in it")
        return replace(setup, sampling=None)
    if isinstance(video, Video) and setup.sampling is not None:
        for name in ("num_frames", "sampling", "precision", "stream", "window"):
            have, want = getattr(video.spec, name), getattr(setup.sampling, name)
            if have != want:
                raise UsageError(
                    f"the open video was sampled with {name}={have!r}, but the settings say {want!r}; "
                    "open it again, or change the settings"
                )
        return replace(setup, chosen=setup.chosen | {"k"})  # it was sampled, whatever a profile says
    return setup


def _billed(answer: Answer, usage: UsageTracker) -> Answer:
    """The answer with everything that was spent on it, and with what its limits cut."""
    cost = answer.cost
    if usage.limits.priced and cost.total.calls != usage.spent.calls:
        cost = replace(cost, probe=usage.spent - cost.overview - cost.focus)
    degraded = tuple(dict.fromkeys(usage.degraded))
    share = cost.total.share_of(cost.baseline)
    dearer = [f"this took {share:.1f} times what one pass over all frames at full size would have"]
    dearer *= share > DEARER and answer.reached.by != "all"  # a map and texts come on top of that pass
    warnings = tuple(dict.fromkeys((*answer.warnings, *degraded, *usage.warnings, *dearer)))
    return replace(answer, cost=cost, warnings=warnings, reached=replace(answer.reached, degraded=degraded))
