"""How many frames to keep (Fixed, ShapeRule) and which (top)."""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError
from gridprobe.importance import ImportanceMap

__all__ = ["GAMMA0", "Budget", "Fixed", "ShapeRule", "Ties", "spread", "top"]

GAMMA0 = 0.25
"""The paper's γ₀."""

Ties = Literal["spread", "earliest"]

EQUAL = 1e-6
"""Two importances that differ by less than this fraction count as equal when ties are broken."""


class Budget(Protocol):
    """Decides how many frames a map deserves."""

    def kept(self, importance: ImportanceMap) -> int:
        """A number from 1 to the number of cells."""
        ...

    def bounds(self, pool: int) -> tuple[int, int]:
        """The fewest and the most frames it may keep of a pool."""
        ...

    def describe(self) -> dict[str, Any]:
        """Its name and its numbers, for records."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The same number of frames for every question; all of them when the pool is smaller."""

    frames: int

    def __post_init__(self) -> None:
        if isinstance(self.frames, bool) or not isinstance(self.frames, int) or self.frames < 1:
            raise UsageError(f'frames must be "auto" or a whole number of at least 1, got {self.frames!r}')

    def kept(self, importance: ImportanceMap) -> int:
        """The fixed number, at most the size of the pool."""
        return min(self.frames, importance.grid.cells)

    def bounds(self, pool: int) -> tuple[int, int]:
        """The same number twice."""
        return min(self.frames, pool), min(self.frames, pool)

    def describe(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": "fixed", "frames": self.frames}

    @classmethod
    def parse(cls, text: str) -> "Fixed":
        """From the argument of a name such as "fixed:8"."""
        return cls(int(text) if text.isascii() and text.isdigit() else text)  # type: ignore[arg-type]  # refused there


@dataclass(frozen=True)
class ShapeRule:
    """Shape-Adaptive Selection (eq. 4): M_eff = ceil(K² / (1 + γ₀·K·σ)), with K from the pool at hand.

    A flat map (σ = 0) keeps every frame; a one-hot map keeps few. For a partly filled grid K² is its number of cells.
    """

    gamma0: float = GAMMA0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gamma0) and self.gamma0 >= 0):
            raise UsageError(f"gamma0 must be a number of at least 0, got {self.gamma0!r}")

    def kept(self, importance: ImportanceMap) -> int:
        """The paper's M_eff, from 1 to the number of cells."""
        cells, k = importance.grid.cells, importance.grid.k
        return min(cells, max(1, math.ceil(cells / (1.0 + self.gamma0 * k * importance.shape.sigma))))

    def bounds(self, pool: int) -> tuple[int, int]:
        """Anything from one frame to all."""
        return 1, pool

    def describe(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": "shape", "gamma0": self.gamma0}

    @classmethod
    def parse(cls, text: str) -> "ShapeRule":
        """From the argument of a name such as "shape" or "shape:0.25"."""
        try:
            return cls(float(text)) if text else cls()
        except ValueError:
            raise UsageError(f"gamma0 must be a number of at least 0, got {text!r}") from None


def spread(count: int, wanted: int) -> tuple[int, ...]:
    """Pick `wanted` of `count` positions, each in the middle of an equal share: 2 of 10 are (2, 7)."""
    return tuple((2 * i + 1) * count // (2 * wanted) for i in range(wanted))


def top(scores: npt.NDArray[np.float64], kept: int, *, ties: Ties = "spread") -> tuple[int, ...]:
    """The `kept` highest scores, as ascending positions (so in time order).

    Where equal scores compete for the last places, "earliest" takes the first of them and "spread" takes them evenly
    over time. If the evidence is everywhere, most cells are equal, and the first ones would cover only one part of the
    video.

        top([9, 5, 5, 5, 5], 3, ties="earliest")  ->  (0, 1, 2)
        top([9, 5, 5, 5, 5], 3, ties="spread")    ->  (0, 2, 4)
    """
    values = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite")
    if not 1 <= kept <= len(values):
        raise ValueError(f"cannot keep {kept} of {len(values)} frames")
    if ties == "earliest":
        return tuple(sorted(np.argsort(-values, kind="stable")[:kept].tolist()))
    threshold = float(np.sort(values)[-kept])
    margin = EQUAL * abs(threshold)
    above = np.flatnonzero(values > threshold + margin).tolist()
    level = np.flatnonzero(np.abs(values - threshold) <= margin).tolist()
    return tuple(sorted(above + [level[i] for i in spread(len(level), kept - len(above))]))
