"""ask(): a video and a question in, an Answer out. Session: the same for many questions about one video."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from gridprobe.answer import Answer, AnswerCost, Seconds
from gridprobe.backends import Backend, Posterior, ScoreRequest, load_model
from gridprobe.budget import Fixed
from gridprobe.collage import CANVAS, collage
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.question import Question
from gridprobe.selectors import (
    KEYFRAMES,
    SELECTORS,
    All,
    GridProbe,
    Keyframes,
    Random,
    Selection,
    Selector,
    Uniform,
    UniformLike,
)
from gridprobe.settings import Settings
from gridprobe.video import Footage, FramePool, FrameSize, Moved, open_cache

__all__ = ["Session", "ask", "focus_request", "make_selector", "open_footage"]

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
        video: a file or a folder of pictures; footage of one that is open already; or frames you have yourself, which
            are then used as they are at both sizes.
        question: what to ask.
        model: the model that probes, and answers too unless `answer_model` is given; a name or a loaded model.
        answer_model: a second, usually larger, model for the focused pass.
        selector: a name from `gridprobe list selectors`, or any object with `select(pool, question)`.
        k: the side of the grid; k² frames are sampled.
        frames: how many of them to keep, or "auto" to let the map decide.
        preset: "default", or "paper" for the published method to the letter.
        **changes: any other field of `Settings` on top of the preset, such as `order="importance"`.
    """
    changes |= {"reuse": False, "k": k, "frames": frames}
    with Session(video, model=model, answer_model=answer_model, selector=selector, preset=preset, **changes) as session:
        return session.ask(question)


class Session:
    """One video, many questions. Arguments as for `ask`.

    The pool is decoded at the first question; each question decodes those of the frames it keeps that no earlier one
    kept. Both sizes stay in memory up to `Limits.memory` bytes, and in the frame cache on disk. With `reuse` the model
    keeps what it computed for the probes' frames, so that the next question pays only for its text; no answer depends
    on it.
    """

    def __init__(
        self,
        video: str | Path | Footage | FramePool,
        *,
        model: str | Backend,
        answer_model: str | Backend | None = None,
        selector: str | Selector = "gridprobe",
        preset: str = "default",
        reuse: bool = True,
        **changes: Any,
    ) -> None:
        self.settings = Settings.from_preset(preset, **changes)
        if isinstance(selector, str):
            check_selector(selector, self.settings)
        self._probe_model = load_model(model) if isinstance(model, str) else model
        answerer = self._probe_model if answer_model is None else answer_model
        self._answer_model = load_model(answerer) if isinstance(answerer, str) else answerer
        self._selector = make_selector(selector, self._probe_model, self.settings, again=reuse)
        self._reuse = reuse
        self._video = video
        self._opened: Footage | _Given | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the decoded frames."""
        self._opened = None

    def open(self) -> None:
        """Do what needs no model, in another thread if you like: open the video and, if that matters, decode it."""
        _ = self._footage if getattr(self._selector, "blind", False) else self.pool

    @property
    def pool(self) -> FramePool:
        """The K² candidate frames, at the size the selector looks at."""
        return self._footage.pool(self._pool_size)

    @property
    def _footage(self) -> "Footage | _Given":
        if self._opened is None:
            video = _Given(self._video) if isinstance(self._video, FramePool) else self._video
            self._opened = video if isinstance(video, Footage | _Given) else open_footage(video, self.settings)
        return self._opened

    @property
    def _pool_size(self) -> FrameSize:
        wanted = getattr(self._selector, "pixels", None)
        if isinstance(wanted, FrameSize) and self.settings.pool == "probe":
            return wanted
        return self.settings.pool_pixels

    def ask(self, question: Question) -> Answer:
        """Select frames for the question and answer it from them."""
        settings = self.settings
        if settings.template is not None:
            question = replace(question, template=settings.template)
        look, looking = _timed(lambda: self._look(question))
        request = focus_request(look.frames, question, settings)
        if self._reuse and look.selection.kept == look.selection.pool:  # the next question will see the same
            request = replace(request, again=True)
        posterior, focusing = _timed(lambda: self._answer_model.score([request])[0])
        return Answer(
            question=question,
            posterior=posterior,
            selection=look.selection,
            cost=AnswerCost(look.selection.cost, posterior.cost, self._baseline(question)),
            seconds=Seconds(looking - look.probing, look.probing, focusing),
            pool=look.pool,
            models=(self._probe_model.identity, self._answer_model.identity),
            settings=settings,
            warnings=_warnings(look, question, posterior, self._footage.trouble),
        )

    def _look(self, question: Question) -> "_Look":
        """The pool, what is kept of it, and that at native size."""
        blind = bool(getattr(self._selector, "blind", False))
        try:
            return self._look_once(question, blind=blind)
        except Moved:  # damage where the packets promised frames: only decoding everything tells which there are
            return self._look_once(question, blind=False)

    def _look_once(self, question: Question, *, blind: bool) -> "_Look":
        footage = self._footage
        pool = footage.undecoded(self._pool_size) if blind else footage.pool(self._pool_size)
        selection, probing = _timed(lambda: self._selector.select(pool, question))
        frames = footage.frames(_order(selection, self.settings), self.settings.native_pixels)
        return _Look(pool, selection, frames, probing)

    def _baseline(self, question: Question) -> Cost:
        """What the answering model would spend on the whole pool; only its size is needed for that, no pixels."""
        everything = self._footage.undecoded(self.settings.native_pixels)
        return self._answer_model.estimate(focus_request(everything, question, replace(self.settings, collage=False)))


@dataclass(frozen=True, eq=False)
class _Look:
    pool: FramePool
    selection: Selection
    frames: FramePool
    """The kept ones, at native size and in the order the answer is read from."""
    probing: float


@dataclass(frozen=True, eq=False)
class _Given:
    """Frames the caller has, in the place of footage: at every size they are what they are."""

    given: FramePool
    trouble: tuple[str, ...] = ()

    def pool(self, size: FrameSize) -> FramePool:
        return self.given

    def undecoded(self, size: FrameSize) -> FramePool:
        return self.given

    def frames(self, indices: Sequence[int], size: FrameSize) -> FramePool:
        return self.given.take(indices)


def open_footage(video: str | Path, settings: Settings) -> Footage:
    """Open a video as the settings want it sampled, with the user's frame cache behind it; decodes its first frame."""
    return Footage(
        video,
        cells=settings.k**2,
        sampling=settings.sampling,
        precision=settings.precision,
        limits=settings.limits,
        decoder=settings.decoder,
        cache=open_cache(int(settings.limits.cache)),
    )


def check_selector(name: str, settings: Settings) -> None:
    """Refuse a selector that does not exist or does not fit the frame budget, before anything is loaded."""
    replayed = name.startswith(KEYFRAMES)
    if replayed:
        Keyframes.read(name.removeprefix(KEYFRAMES))
    elif name not in SELECTORS:
        raise UsageError(f"unknown selector {name!r}; choose one of {', '.join(SELECTORS)}")
    if name in ("uniform", "random") and settings.frames == "auto":
        raise UsageError(f"the selector {name!r} needs a number of frames, such as frames=8 (--frames 8)")
    if (name == "all" or replayed) and settings.frames != "auto":
        keeps = "the frames its file names" if replayed else "every frame"
        raise UsageError(f'the selector "{name}" keeps {keeps}; frames={settings.frames} does not fit it')


def make_selector(selector: str | Selector, model: Backend, settings: Settings, *, again: bool = False) -> Selector:
    """Build a selector by name; an object is used as it is. `again` tells the model that more questions follow."""
    if not isinstance(selector, str):
        return selector
    check_selector(selector, settings)
    gridprobe = GridProbe(
        model,
        budget=settings.budget,
        ties=settings.ties,
        pixels=settings.probe_pixels,
        packing=settings.packing,
        timestamps=settings.timestamps,
        prompt_order=settings.prompt_order,
        again=again,
    )
    makers: dict[str, Callable[[], Selector]] = {
        "gridprobe": lambda: gridprobe,
        "uniform": lambda: Uniform(_fixed(settings)),
        "random": lambda: Random(_fixed(settings), settings.seed),
        "all": All,
        "uniform-like": lambda: UniformLike(gridprobe),
    }
    if selector.startswith(KEYFRAMES):
        return Keyframes.read(selector.removeprefix(KEYFRAMES))
    return makers[selector]()


def _fixed(settings: Settings) -> Fixed:
    budget = settings.budget
    if not isinstance(budget, Fixed):
        raise UsageError("a number of frames is needed")
    return budget


def _order(selection: Selection, settings: Settings) -> list[int]:
    """The kept positions, in the order they are shown in."""
    order = list(selection.indices)
    if settings.order == "importance" and selection.scores is not None:
        scores = selection.scores
        order.sort(key=lambda i: -scores[i])
    return order


def focus_request(frames: FramePool, question: Question, settings: Settings) -> ScoreRequest:
    """The one request the answer is read from: the kept frames at native size."""
    if settings.collage:
        whole = FrameSize(max_pixels=CANVAS * CANVAS)
        return ScoreRequest(collage(frames), question.prompt, question.labels, whole, timestamps="none")
    return ScoreRequest(
        frames,
        question.prompt,
        question.labels,
        settings.native_pixels,
        packing=settings.packing,
        timestamps=settings.timestamps,
        prompt_order=settings.prompt_order,
        between=question.between(frames.times),
    )


def _warnings(look: _Look, question: Question, posterior: Posterior, trouble: tuple[str, ...]) -> tuple[str, ...]:
    focus = tuple(f"in the focused pass {warning}" for warning in posterior.warnings)
    return (*look.pool.warnings, *question.warnings, *look.selection.warnings, *focus, *trouble)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start
