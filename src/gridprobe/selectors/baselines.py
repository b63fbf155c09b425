"""The controls every selector is compared with: all frames, uniform, random, and uniform at GridProbe's own budget."""

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from gridprobe.budget import Fixed, spread
from gridprobe.question import Question
from gridprobe.selectors.base import Selection, Selector
from gridprobe.video import FramePool, FrameSize

__all__ = ["All", "Random", "Uniform", "UniformLike"]


@dataclass(frozen=True)
class All:
    """Every frame of the pool: the monolithic baseline."""

    blind: ClassVar[bool] = True

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Keep everything."""
        return Selection.of("all", pool, tuple(range(len(pool))))


@dataclass(frozen=True)
class Uniform:
    """Frames at equal distances, blind to the question."""

    budget: Fixed
    blind: ClassVar[bool] = True

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Take the middle of equal shares of the pool."""
        return Selection.of("uniform", pool, spread(len(pool), min(self.budget.frames, len(pool))))


@dataclass(frozen=True)
class Random:
    """Frames drawn without replacement; the same seed, question and pool size draw the same frames."""

    budget: Fixed
    seed: int = 0
    blind: ClassVar[bool] = True

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Draw from a generator seeded by the seed and the question's text."""
        draw = random.Random(f"{self.seed}:{question.text}")
        indices = draw.sample(range(len(pool)), min(self.budget.frames, len(pool)))
        return Selection.of("random", pool, tuple(sorted(indices)))


@dataclass(frozen=True)
class UniformLike:
    """As many frames as another selector keeps for the question, but uniform: what is its ranking worth?

    The other selector's probes had to run to know how many, so their cost stays.
    """

    other: Selector

    @property
    def pixels(self) -> FrameSize | None:
        """The size the other one wants its pool at."""
        return getattr(self.other, "pixels", None)

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Replace the chosen positions, keep the evidence."""
        chosen = self.other.select(pool, question)
        indices = spread(len(pool), chosen.kept)
        times = tuple(pool.times[i] for i in indices)
        return replace(chosen, selector="uniform-like", indices=indices, timestamps=times)
