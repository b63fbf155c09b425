"""Selection: which frames of the pool a selector keeps, and why."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.backends.base import Posterior
from gridprobe.flops import Cost
from gridprobe.importance import ImportanceMap, Shape
from gridprobe.question import Question
from gridprobe.video import FramePool

__all__ = ["Selection", "Selector"]


@dataclass(frozen=True, eq=False)
class Selection:
    """The kept frames. Positions ascend, so time order is a rule of the type and not a habit."""

    selector: str
    indices: tuple[int, ...]
    timestamps: tuple[float, ...]
    pool: int
    """How many frames there were to choose from."""
    scores: tuple[float, ...] | None = None
    """One for every frame of the pool, where the selector has any."""
    cost: Cost = field(default_factory=Cost)
    evidence: ImportanceMap | None = None
    probes: tuple[Posterior, ...] = ()
    """What the model answered to every probe: rows, then columns."""
    notes: tuple[str, ...] = ()
    """What the selector itself has to say about its choice."""

    def __post_init__(self) -> None:
        if not self.indices or list(self.indices) != sorted(set(self.indices)):
            raise ValueError(f"kept positions must ascend and be distinct, got {self.indices}")
        if self.indices[0] < 0 or self.indices[-1] >= self.pool or len(self.timestamps) != len(self.indices):
            raise ValueError(f"{self.indices} with {len(self.timestamps)} times do not fit a pool of {self.pool}")

    @classmethod
    def of(cls, selector: str, pool: FramePool, indices: tuple[int, ...]) -> "Selection":
        """A selection that rests on nothing but positions."""
        return cls(selector, indices, tuple(pool.times[i] for i in indices), len(pool))

    @property
    def kept(self) -> int:
        """How many frames were kept (the paper's M_eff)."""
        return len(self.indices)

    @property
    def importance(self) -> npt.NDArray[np.float64] | None:
        """The K×K map, for selectors that make one."""
        return self.evidence.matrix if self.evidence else None

    @property
    def shape(self) -> Shape | None:
        """Skew, excess kurtosis and sigma of the map."""
        return self.evidence.shape if self.evidence else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the answer should know about the choice."""
        doubtful = [probe for probe in self.probes if probe.warnings]
        if not doubtful:
            return self.notes
        worst = min(doubtful, key=lambda probe: probe.mass)
        return (
            *self.notes,
            f"in {len(doubtful)} of {len(self.probes)} probes {worst.warnings[0]}",
        )


class Selector(Protocol):
    """Chooses frames for a question.

    Two attributes are heeded where a selector has them. `blind = True` says that it looks at no pixels: its pool is not
    decoded, only what it keeps. `pixels`, a FrameSize, is the size it wants its pool at; else that of the settings.
    """

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Choose at least one frame of the pool."""
        ...
