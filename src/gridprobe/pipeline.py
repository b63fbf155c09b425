"""ask(): a video and a question in, an Answer out. Session: the same for many questions about one video."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from gridprobe.answer import Answer, AnswerCost, Seconds
from gridprobe.backends import Backend, FrameGroup, Posterior, ScoreRequest, View
from gridprobe.collage import CANVAS, collage
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.question import Question
from gridprobe.selectors import Selection, Selector
from gridprobe.settings import Settings
from gridprobe.setup import Setup, make_setup
from gridprobe.video import Footage, FramePool, FrameSize, Moved

__all__ = ["Session", "ask", "focus_request"]

T = TypeVar("T")


def ask(
    video: str | Path | Footage | FramePool,
    question: Question,
    *,
    model: str | Backend,
    answer_model: str | Backend | None = None,
    selector: str | Selector = "gridprobe",
    k: int = 12,
    frames: int | Literal["auto"] = "auto",
    preset: str = "default",
    **changes: Any,
) -> Answer:
    """Ask one question about one video.

    Args:
        video: a file or a folder of pictures; open footage of one; or your own frames, which are used unchanged at
            both sizes.
        question: what to ask.
        model: the model that probes, and answers unless `answer_model` is given; a name or a loaded model.
        answer_model: a second, usually larger, model for the focused pass.
        selector: a name from `gridprobe list selectors`, or a `gridprobe.Selector`.
        k: the side of the grid; k² frames are sampled.
        frames: how many of them to keep, or "auto" to let the map decide.
        preset: "default", or "paper" for the method exactly as published.
        **changes: any other field of `Settings` on top of the preset, such as `order="importance"`.
    """
    changes |= {"reuse": False, "k": k, "frames": frames}
    with Session(video, model=model, answer_model=answer_model, selector=selector, preset=preset, **changes) as session:
        return session.ask(question)


class Session:
    """One video, many questions. Arguments as for `ask`, or a ready-made `setup` in their place.

    The pool is decoded at the first question; each question then decodes only those of its kept frames that no earlier
    question kept. Both sizes stay in memory up to `Limits.memory` bytes, and in the frame cache on disk. With `reuse`
    the model keeps what it computed for the probes' frames, so the next question pays only for its text; answers stay
    the same.
    """

    def __init__(
        self,
        video: str | Path | Footage | FramePool,
        *,
        setup: Setup | None = None,
        model: str | Backend | None = None,
        answer_model: str | Backend | None = None,
        selector: str | Selector = "gridprobe",
        preset: str = "default",
        reuse: bool = True,
        **changes: Any,
    ) -> None:
        if (setup is None) == (model is None):
            raise UsageError("a session needs a model, or a setup that has one; give exactly one of them")
        if setup is None:
            settings = Settings.from_preset(preset, **changes)
            setup = make_setup(model=model or "", answer_model=answer_model, selector=selector, settings=settings)
        self.setup = _for_video(setup, video).loaded()
        """Everything that decides the answers."""
        self._reuse = reuse
        self._video = video
        self._opened: Footage | _Given | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the decoded frames."""
        self._opened = None

    def open(self) -> None:
        """Open the video and, if the selector needs pixels, decode it. Needs no model; another thread may call it."""
        _ = self._footage if self.setup.selector.looks_at is None else self.pool

    @property
    def pool(self) -> FramePool:
        """The K² candidate frames, at the size the selector looks at."""
        return self._footage.pool(self._pool_size)

    @property
    def _footage(self) -> "Footage | _Given":
        if self._opened is None:
            video = _Given(self._video) if isinstance(self._video, FramePool) else self._video
            self._opened = video if isinstance(video, Footage | _Given) else self.setup.open(video)
        return self._opened

    @property
    def _pool_size(self) -> FrameSize:
        return self.setup.selector.looks_at or self.setup.size_of(self.setup.shown)

    def ask(self, question: Question) -> Answer:
        """Select frames for the question and answer it from them."""
        setup = self.setup
        if setup.template is not None:
            question = replace(question, template=setup.template)
        look, looking = _timed(lambda: self._look(question))
        request = focus_request(look.frames, question, setup, others=look.others)
        if self._reuse and look.selection.kept == look.selection.pool:  # the next question will see the same frames
            request = replace(request, again=True)
        posterior, focusing = _timed(lambda: setup.answerer.score([request])[0])
        return Answer(
            question=question,
            posterior=posterior,
            selection=look.selection,
            cost=AnswerCost(look.selection.cost, posterior.cost, self._baseline(question)),
            seconds=Seconds(looking - look.probing, look.probing, focusing),
            pool=look.pool,
            frames=look.frames,
            models=(setup.selector.models, setup.answerer.identity),
            settings=setup.describe(),
            warnings=_warnings(look, question, posterior, self._footage.trouble),
        )

    def _look(self, question: Question) -> "_Look":
        """The pool, the selection, and the kept frames at native size."""
        blind = self.setup.selector.looks_at is None
        try:
            return self._look_once(question, blind=blind)
        except Moved:  # frames that the packets announced are damaged: decode everything to find the good ones
            return self._look_once(question, blind=False)

    def _look_once(self, question: Question, *, blind: bool) -> "_Look":
        footage = self._footage
        pool = footage.undecoded(self._pool_size) if blind else footage.pool(self._pool_size)
        selector = self.setup.selector.repeated() if self._reuse else self.setup.selector
        selection, probing = _timed(lambda: selector.select(pool, question))
        frames = footage.frames(_order(selection, self.setup), self.setup.size_of(self.setup.shown))
        return _Look(pool, selection, frames, self._others(selection), probing)

    def _others(self, selection: Selection) -> FramePool | None:
        """The frames that were not kept, at the size of the context; none without a context."""
        rest = sorted(set(range(selection.pool)) - set(selection.indices))
        if self.setup.context is None or not rest:
            return None
        return self._footage.frames(rest, self.setup.size_of(self.setup.context))

    def _baseline(self, question: Question) -> Cost:
        """What the answering model would spend on the whole pool; this needs its size, but no pixels."""
        everything = self._footage.undecoded(self.setup.native)
        groups = (FrameGroup(everything, self.setup.view),)
        request = ScoreRequest.about(question, groups, prompt_order=self.setup.prompt_order)
        return self.setup.answerer.estimate(request)


@dataclass(frozen=True, eq=False)
class _Look:
    pool: FramePool
    selection: Selection
    frames: FramePool
    """The kept ones, in the order the answer is read from."""
    others: FramePool | None
    """The others, where they are shown as context."""
    probing: float


@dataclass(frozen=True, eq=False)
class _Given:
    """The caller's frames, used like footage; they have one size."""

    given: FramePool
    trouble: tuple[str, ...] = ()

    def pool(self, size: FrameSize) -> FramePool:
        return self.given

    def undecoded(self, size: FrameSize) -> FramePool:
        return self.given

    def frames(self, indices: Sequence[int], size: FrameSize) -> FramePool:
        return self.given.take(indices)


def _for_video(setup: Setup, video: object) -> Setup:
    """The setup for this video: open footage must match its sampling; given frames are not sampled."""
    if isinstance(video, FramePool):
        return replace(setup, sampling=None)
    if isinstance(video, Footage) and setup.sampling is not None:
        for name in ("cells", "sampling", "precision", "decoder"):
            have, want = getattr(video.spec, name), getattr(setup.sampling, name)
            if have != want:
                raise UsageError(
                    f"the open video was sampled with {name}={have!r}, but the settings say {want!r}; "
                    "open it again, or change the settings"
                )
    return setup


def _order(selection: Selection, setup: Setup) -> list[int]:
    """The kept positions, in the order they are shown in."""
    order = list(selection.indices)
    if setup.order == "importance" and selection.scores is not None:
        scores = selection.scores
        order.sort(key=lambda i: -scores[i])
    return order


def focus_request(
    frames: FramePool, question: Question, setup: Setup, *, others: FramePool | None = None
) -> ScoreRequest:
    """The one request the answer is read from: the kept frames, and the others around them where there is a context."""
    if setup.collage:
        whole = View(FrameSize(max_pixels=CANVAS * CANVAS), timestamps="none")
        return ScoreRequest(question.prompt, question.labels, (FrameGroup(collage(frames), whole),))
    groups = [FrameGroup(frames, setup.shown)]
    if others is not None and setup.context is not None:
        groups.append(FrameGroup(others, setup.context))
    return ScoreRequest.about(question, groups, prompt_order=setup.prompt_order)


def _warnings(look: _Look, question: Question, posterior: Posterior, trouble: tuple[str, ...]) -> tuple[str, ...]:
    focus = tuple(f"in the focused pass {warning}" for warning in posterior.warnings)
    return (*look.pool.warnings, *question.warnings, *look.selection.warnings, *focus, *trouble)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start
