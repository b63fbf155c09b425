"""ask(): a video and a question in, an Answer out. Session: the same for many questions about one video."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from gridprobe.answer import Answer, AnswerCost, Seconds
from gridprobe.backends import Backend, Posterior, ScoreRequest, load_model
from gridprobe.budget import Fixed
from gridprobe.collage import CANVAS, collage
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.question import Question
from gridprobe.selectors import SELECTORS, All, GridProbe, Random, Selection, Selector, Uniform, UniformLike
from gridprobe.settings import Settings
from gridprobe.video import FramePool, FrameSize, sample

__all__ = ["Session", "ask", "make_selector"]

T = TypeVar("T")


def ask(
    video: str | Path | FramePool,
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
        video: a file, or frames you already have.
        question: what to ask.
        model: the model that probes, and answers too unless `answer_model` is given; a name or a loaded model.
        answer_model: a second, usually larger, model for the focused pass.
        selector: a name from `gridprobe list selectors`, or any object with `select(pool, question)`.
        k: the side of the grid; k² frames are sampled.
        frames: how many of them to keep, or "auto" to let the map decide.
        preset: "default", or "paper" for the published method to the letter.
        **changes: any other field of `Settings` on top of the preset, such as `order="importance"`.
    """
    changes |= {"k": k, "frames": frames}
    with Session(video, model=model, answer_model=answer_model, selector=selector, preset=preset, **changes) as session:
        return session.ask(question)


class Session:
    """One video, many questions: the frames are decoded once, at the first question. Arguments as for `ask`."""

    def __init__(
        self,
        video: str | Path | FramePool,
        *,
        model: str | Backend,
        answer_model: str | Backend | None = None,
        selector: str | Selector = "gridprobe",
        preset: str = "default",
        **changes: Any,
    ) -> None:
        self.settings = Settings.from_preset(preset, **changes)
        if isinstance(selector, str):
            check_selector(selector, self.settings)
        self._probe_model = load_model(model) if isinstance(model, str) else model
        answerer = self._probe_model if answer_model is None else answer_model
        self._answer_model = load_model(answerer) if isinstance(answerer, str) else answerer
        self._selector = make_selector(selector, self._probe_model, self.settings)
        self._video = video
        self._pool: FramePool | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the decoded frames."""
        self._pool = None

    @property
    def pool(self) -> FramePool:
        """The K² candidate frames."""
        if isinstance(self._video, FramePool):
            return self._video
        if self._pool is None:
            settings = self.settings
            self._pool = sample(
                self._video,
                cells=settings.k**2,
                sampling=settings.sampling,
                precision=settings.precision,
                size=settings.native_pixels,
                limits=settings.limits,
                decoder=settings.decoder,
            )
        return self._pool

    def ask(self, question: Question) -> Answer:
        """Select frames for the question and answer it from them."""
        settings = self.settings
        if settings.template is not None:
            question = replace(question, template=settings.template)
        pool, decoding = _timed(lambda: self.pool)
        selection, probing = _timed(lambda: self._selector.select(pool, question))
        request = _focus(pool, question, selection, settings)
        posterior, focusing = _timed(lambda: self._answer_model.score([request])[0])
        return Answer(
            question=question,
            posterior=posterior,
            selection=selection,
            cost=AnswerCost(selection.cost, posterior.cost, self._baseline(question)),
            seconds=Seconds(decoding, probing, focusing),
            pool=pool,
            models=(self._probe_model.identity, self._answer_model.identity),
            settings=settings,
            warnings=_warnings(pool, question, selection, posterior),
        )

    def _baseline(self, question: Question) -> Cost:
        """What the answering model would spend on the whole pool."""
        everything = All().select(self.pool, question)
        settings = replace(self.settings, collage=False)
        return self._answer_model.estimate(_focus(self.pool, question, everything, settings))


def check_selector(name: str, settings: Settings) -> None:
    """Refuse a selector that does not exist or does not fit the frame budget, before anything is loaded."""
    if name not in SELECTORS:
        raise UsageError(f"unknown selector {name!r}; choose one of {', '.join(SELECTORS)}")
    if name in ("uniform", "random") and settings.frames == "auto":
        raise UsageError(f"the selector {name!r} needs a number of frames, such as frames=8 (--frames 8)")
    if name == "all" and settings.frames != "auto":
        raise UsageError(f'the selector "all" keeps every frame; frames={settings.frames} does not fit it')


def make_selector(selector: str | Selector, model: Backend, settings: Settings) -> Selector:
    """Build a selector by name; an object is used as it is."""
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
    )
    makers: dict[str, Callable[[], Selector]] = {
        "gridprobe": lambda: gridprobe,
        "uniform": lambda: Uniform(_fixed(settings)),
        "random": lambda: Random(_fixed(settings), settings.seed),
        "all": All,
        "uniform-like": lambda: UniformLike(gridprobe),
    }
    return makers[selector]()


def _fixed(settings: Settings) -> Fixed:
    budget = settings.budget
    if not isinstance(budget, Fixed):
        raise UsageError("a number of frames is needed")
    return budget


def _focus(pool: FramePool, question: Question, selection: Selection, settings: Settings) -> ScoreRequest:
    """The one request the answer is read from: the kept frames at native size."""
    order = list(selection.indices)
    if settings.order == "importance" and selection.scores is not None:
        scores = selection.scores
        order.sort(key=lambda i: -scores[i])
    frames = pool.take(order)
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
    )


def _warnings(pool: FramePool, question: Question, selection: Selection, posterior: Posterior) -> tuple[str, ...]:
    focus = tuple(f"in the focused pass {warning}" for warning in posterior.warnings)
    return (*pool.warnings, *question.warnings, *selection.warnings, *focus)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start
