"""The stages of asking one question, as values: what was looked over, what was selected, and what is asked next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gridprobe.answer import Answer, Reached
from gridprobe.backends import FrameGroup, Posterior, ScoreRequest
from gridprobe.backends.batcher import own_seconds
from gridprobe.budget import Fixed
from gridprobe.calibration import Exit
from gridprobe.collage import collage_request
from gridprobe.errors import UsageError
from gridprobe.prompts import describes
from gridprobe.question import Question
from gridprobe.selectors import Selection, Selector
from gridprobe.setup import Setup
from gridprobe.video import FramePool, FrameSize

__all__ = [
    "Look",
    "Overview",
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
    context = setup.context_at(selection.context)
    if context is not None and rest:
        shown.append((tuple(sorted(rest)), context))
    return tuple(FrameGroup(get(at, setup.size_of(view, len(at))), view) for at, view in shown)


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
