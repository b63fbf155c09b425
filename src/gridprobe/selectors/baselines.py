"""The controls that selectors are compared with: all frames, uniform, random, and uniform at GridProbe's budget."""

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gridprobe.errors import UsageError
from gridprobe.importance import Fixed, spread, with_ends
from gridprobe.models.base import Model, View
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection, Selector
from gridprobe.selectors.gridprobe import make as make_gridprobe
from gridprobe.video import FramePool, FrameSize, Sampling

EVENLY = {"middle": spread, "linspace": with_ends}
"""Two rules for evenly spaced frames."""


@dataclass(frozen=True)
class All(Selector):
    """Every frame of the pool: the monolithic baseline."""

    name: ClassVar[str] = "all"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Keep everything."""
        return Selection.of(self.name, pool, tuple(range(len(pool))))

    def bounds(self, pool: int) -> tuple[int, int]:
        """All of them."""
        return pool, pool


@dataclass(frozen=True)
class AllSmall(All):
    """Every frame of the pool at the size of the probes, in one pass: what any selector has to beat."""

    small_view: View
    name: ClassVar[str] = "all-small"

    @property
    def view(self) -> View:
        """At the size of the probes."""
        return self.small_view

    def describe(self) -> dict[str, Any]:
        """Its view."""
        return {"name": self.name, "view": self.small_view.describe()}


@dataclass(frozen=True)
class Uniform(Selector):
    """Evenly spaced frames, whatever the question."""

    budget: Fixed
    sampling: Sampling = "middle"
    """The middles of equal shares of the pool; or "linspace", from the first to the last, as in the authors' code."""
    name: ClassVar[str] = "uniform"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Take evenly spaced frames of the pool."""
        return Selection.of(self.name, pool, EVENLY[self.sampling](len(pool), min(self.budget.frames, len(pool))))

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def describe(self) -> dict[str, Any]:
        """Its budget and its rule."""
        return {"name": self.name, "budget": self.budget.describe(), "sampling": self.sampling}


@dataclass(frozen=True)
class Random(Selector):
    """Frames drawn without replacement; the same seed, question and pool size draw the same frames."""

    budget: Fixed
    seed: int = 0
    name: ClassVar[str] = "random"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Draw from a generator seeded by the seed and the question's text."""
        draw = random.Random(f"{self.seed}:{question.text}")
        indices = draw.sample(range(len(pool)), min(self.budget.frames, len(pool)))
        return Selection.of(self.name, pool, tuple(sorted(indices)))

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def describe(self) -> dict[str, Any]:
        """Its budget and its seed."""
        return {"name": self.name, "budget": self.budget.describe(), "seed": self.seed}


@dataclass(frozen=True)
class UniformLike(Selector):
    """As many frames as another selector keeps for the question, but evenly spaced, to test its ranking.

    The other selector must run to find the number, so its cost counts.
    """

    other: Selector
    sampling: Sampling = "middle"
    name: ClassVar[str] = "uniform-like"

    @property
    def input_size(self) -> FrameSize | None:
        """The size for the other one."""
        return self.other.input_size

    @property
    def models(self) -> tuple[str, ...]:
        """Those of the other one."""
        return self.other.models

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Replace the chosen positions, keep the evidence."""
        chosen = self.other.select(pool, question)
        indices = EVENLY[self.sampling](len(pool), chosen.kept)
        times = tuple(pool.times[i] for i in indices)
        return replace(chosen, selector=self.name, indices=indices, timestamps=times)

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of the other one."""
        return self.other.bounds(pool)

    def with_model(self, model: Model) -> "UniformLike":
        """The same, with another model for the other selector."""
        return replace(self, other=self.other.with_model(model))

    def loaded(self, **options: Any) -> "UniformLike":
        """The same, with the other selector loaded."""
        return replace(self, other=self.other.loaded(**options))

    def keeping_kv(self) -> "UniformLike":
        """The same, with the other selector prepared."""
        return replace(self, other=self.other.keeping_kv())

    def describe(self) -> dict[str, Any]:
        """The other selector and its own rule."""
        return {"name": self.name, "other": self.other.describe(), "sampling": self.sampling}


# The functions of the registry.


def everything(argument: str, parts: Parts) -> All:
    """All frames."""
    require_no_number("all", "every frame", parts)
    return All()


def everything_small(argument: str, parts: Parts) -> AllSmall:
    """All frames at the size of the probes."""
    require_no_number("all-small", "every frame", parts)
    return AllSmall(parts.small_view)


def uniform(argument: str, parts: Parts) -> Uniform:
    """Evenly spaced frames."""
    return Uniform(_fixed("uniform", parts), parts.sampling)


def drawn(argument: str, parts: Parts) -> Random:
    """Random frames, by the seed after the colon."""
    if argument and not (argument.isascii() and argument.isdigit()):
        raise UsageError(f"a seed is a whole number of at least 0, as in random:7, got {argument!r}")
    return Random(_fixed("random", parts), int(argument or 0))


def uniform_like(argument: str, parts: Parts) -> UniformLike:
    """As many as gridprobe keeps."""
    return UniformLike(make_gridprobe(argument, parts), parts.sampling)


def _fixed(name: str, parts: Parts) -> Fixed:
    if not isinstance(parts.budget, Fixed):
        raise UsageError(f"the selector {name!r} needs a number of frames, such as frames=8 (--frames 8)")
    return parts.budget


def require_no_number(name: str, keeps: str, parts: Parts) -> None:
    """Refuse a number of frames for a selector that does not use one."""
    if isinstance(parts.budget, Fixed):
        raise UsageError(f'the selector "{name}" keeps {keeps}; frames={parts.budget.frames} does not fit it')
