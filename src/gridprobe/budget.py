"""How many frames to keep (Fixed, ShapeRule, NoiseAware) and which (top)."""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError
from gridprobe.importance import ImportanceMap

__all__ = ["GAMMA0", "Budget", "Fixed", "NoiseAware", "ShapeRule", "Ties", "null_maximum", "spread", "top", "with_ends"]

GAMMA0 = 0.25
"""The paper's γ₀."""

Ties = Literal["spread", "earliest", "argsort"]

EQUAL = 1e-6
"""Two importances that differ by less than this fraction count as equal when ties are broken."""


class Budget(Protocol):
    """Decides how many frames a map deserves, and which. One that derives from it needs only what is abstract here."""

    def kept(self, importance: ImportanceMap) -> int:
        """A number from 1 to the number of cells."""
        ...

    def choose(self, importance: ImportanceMap, *, ties: Ties) -> tuple[int, ...]:
        """The frames to keep, ascending: the highest scores."""
        return top(importance.scores, self.kept(importance), ties=ties)

    def flat(self, importance: ImportanceMap) -> bool:
        """Whether no frame stands out, so that the choice says nothing."""
        return False

    def bounds(self, pool: int) -> tuple[int, int]:
        """The fewest and the most frames it may keep of a pool."""
        ...

    def describe(self) -> dict[str, Any]:
        """Its name and its numbers, for records."""
        ...


@dataclass(frozen=True)
class Fixed(Budget):
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
class ShapeRule(Budget):
    """Shape-Adaptive Selection (eq. 4): M_eff = ceil(K² / (1 + γ₀·K·σ)), with K from the pool at hand.

    A flat map (σ = 0) keeps every frame; a one-hot map keeps few. For a partly filled grid K² is its number of cells.
    """

    gamma0: float = GAMMA0
    least: int = 1
    """The fewest frames it keeps."""
    scale: float | None = None
    """Stands for γ₀·K, whatever K is, if given."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gamma0) and self.gamma0 >= 0):
            raise UsageError(f"gamma0 must be a number of at least 0, got {self.gamma0!r}")

    def kept(self, importance: ImportanceMap) -> int:
        """The paper's M_eff, from the fewest to the number of cells."""
        cells, k = importance.grid.cells, importance.grid.k
        scale = self.gamma0 * k if self.scale is None else self.scale
        return min(cells, max(self.least, math.ceil(cells / (1.0 + scale * importance.shape.sigma))))

    def bounds(self, pool: int) -> tuple[int, int]:
        """Anything from the fewest frames to all."""
        return min(self.least, pool), pool

    def describe(self) -> dict[str, Any]:
        """Plain values."""
        if self.scale is not None:
            return {"name": "authors", "scale": self.scale, "least": self.least}
        return {"name": "shape", "gamma0": self.gamma0}

    @classmethod
    def authors(cls, text: str) -> "ShapeRule":
        """The rule of the authors' code: 3 in place of γ₀·K, which is right for K = 12 only, and at least 2 frames."""
        return cls(least=2, scale=3.0)

    @classmethod
    def parse(cls, text: str) -> "ShapeRule":
        """From the argument of a name such as "shape" or "shape:0.25"."""
        try:
            return cls(float(text)) if text else cls()
        except ValueError:
            raise UsageError(f"gamma0 must be a number of at least 0, got {text!r}") from None


TINY = 1e-9
"""Scores below this count as this in logarithms."""
LEAST, MOST = 1 / 3, 1.0
"""The fewest and the most frames that NoiseAware keeps, in units of K."""
NULL_MAXIMUM = {4: 10.8, 9: 7.1, 16: 4.95, 36: 4.3, 64: 4.2, 144: 4.3, 256: 4.4, 576: 4.55, 1024: 4.75, 4096: 5.0}
"""Cells -> what the largest of so many noise scores exceeds in one map of 100, in robust standard deviations.

Simulated for independent normal scores and for products of normal rows and columns; the larger of the two counts."""


@dataclass(frozen=True)
class NoiseAware(Budget):
    """Keep the frames that stand out from noise, at least K/3 and at most K of them.

    A score stands out if it is further above the median than the largest of as many noise scores would be, with the
    spread estimated from the median absolute deviation. If none does but K or more fall as far below, what is not below
    stands out. For pure noise nothing does, in 99 maps of 100: the map is flat and K/3 frames are kept. Where more than
    K stand out the evidence is redundant: half of the K are then the highest, and the others an even sample of the
    rest.
    """

    def kept(self, importance: ImportanceMap) -> int:
        """As many as stand out, within the bounds."""
        least, most = self.bounds(importance.grid.cells)
        return min(most, max(least, len(self._standing_out(importance))))

    def choose(self, importance: ImportanceMap, *, ties: Ties) -> tuple[int, ...]:
        """The highest scores; of redundant evidence half of them and an even sample of the others that stand out."""
        kept, hot = self.kept(importance), self._standing_out(importance)
        if len(hot) <= kept:
            return top(importance.scores, kept, ties=ties)
        best = top(importance.scores, max(1, kept // 2), ties=ties)
        others = [i for i in hot if i not in best]
        return tuple(sorted((*best, *(others[i] for i in spread(len(others), kept - len(best))))))

    def flat(self, importance: ImportanceMap) -> bool:
        """Whether nothing stands out."""
        return not self._standing_out(importance)

    def bounds(self, pool: int) -> tuple[int, int]:
        """From K/3 to K."""
        k = math.isqrt(pool - 1) + 1
        return min(pool, math.ceil(LEAST * k)), min(pool, math.ceil(MOST * k))

    def describe(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": "noise", "least": LEAST, "most": MOST}

    def _standing_out(self, importance: ImportanceMap) -> list[int]:
        scores = importance.scores
        if importance.by_frame is None:  # the noise of a product is even only in logarithms
            scores = np.log(np.maximum(scores, TINY))
        above = scores - np.median(scores)
        width = 1.4826 * float(np.median(np.abs(above)))
        floor = max(width * null_maximum(len(scores)), EQUAL * float(np.abs(scores).max()))
        hot, cold = above > floor, above < -floor
        if not hot.any() and np.count_nonzero(cold) >= importance.grid.k:  # evidence in most of the video
            hot = ~cold
        return [int(i) for i in np.flatnonzero(hot)]

    @classmethod
    def parse(cls, text: str) -> "NoiseAware":
        """From a name without an argument."""
        return cls()


def null_maximum(cells: int) -> float:
    """What the largest of so many noise scores exceeds in one map of 100, in robust standard deviations."""
    counts = sorted(NULL_MAXIMUM)
    return float(np.interp(math.log(cells), np.log(counts), [NULL_MAXIMUM[count] for count in counts]))


def spread(count: int, wanted: int) -> tuple[int, ...]:
    """Pick `wanted` of `count` positions, each in the middle of an equal share: 2 of 10 are (2, 7)."""
    return tuple((2 * i + 1) * count // (2 * wanted) for i in range(wanted))


def with_ends(count: int, wanted: int) -> tuple[int, ...]:
    """Pick `wanted` of `count` positions from the first to the last, as numpy rounds them: 4 of 144 are 0, 48, 95, 143.

    This is the published control. One position is the first.
    """
    return tuple(dict.fromkeys(int(place) for place in np.linspace(0, count - 1, wanted).round()))


def top(scores: npt.NDArray[np.float64], kept: int, *, ties: Ties = "spread") -> tuple[int, ...]:
    """The `kept` highest scores, as ascending positions (so in time order).

    Where equal scores compete for the last places, "earliest" takes the first of them and "spread" takes them evenly
    over time. If the evidence is everywhere, most cells are equal, and the first ones would cover only one part of the
    video. "argsort" is the authors' code: the end of numpy's argsort, in which the order of equal scores is arbitrary
    and may differ from machine to machine.

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
    if ties == "argsort":
        return tuple(sorted(np.argsort(values)[::-1][:kept].tolist()))
    threshold = float(np.sort(values)[-kept])
    margin = EQUAL * abs(threshold)
    above = np.flatnonzero(values > threshold + margin).tolist()
    level = np.flatnonzero(np.abs(values - threshold) <= margin).tolist()
    return tuple(sorted(above + [level[i] for i in spread(len(level), kept - len(above))]))
