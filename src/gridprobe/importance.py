"""Confidences of probes -> the importance of every cell -> the shape of their distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError, UsageError

# Grid: which frame of the pool is in which row and column. Integers only.
#
# Frame `i` is in row `i // k` and column `i % k`, so a row holds neighbours in time and a column strides over the
# whole video. A video with fewer than k² distinct frames fills the grid only partly; the last row is then short:
#
#     Grid(4, cells=14)        0  1  2  3
#                              4  5  6  7
#                              8  9 10 11
#                             12 13

MAX_K = 64


@dataclass(frozen=True)
class Grid:
    """A K×K grid of frames, K columns wide."""

    k: int
    cells: int = -1
    """How many cells hold a frame; k² by default."""

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MAX_K:
            raise UsageError(f"k must be a whole number from 1 to {MAX_K}, got {self.k!r}")
        if self.cells == -1:
            object.__setattr__(self, "cells", self.k * self.k)
        if not self.k <= self.cells <= self.k * self.k:
            raise UsageError(f"a grid with k={self.k} holds {self.k} to {self.k**2} frames, got {self.cells}")

    @classmethod
    def holding(cls, cells: int) -> "Grid":
        """The smallest grid with room for `cells` frames."""
        if cells < 1:
            raise UsageError(f"a grid needs at least 1 frame, got {cells}")
        return cls(math.isqrt(cells - 1) + 1, cells)

    @property
    def rows(self) -> int:
        """Number of rows that hold at least one frame; K when the grid is full."""
        return -(-self.cells // self.k)

    def row(self, r: int) -> tuple[int, ...]:
        """Frames of row r: neighbours in time (the paper's S^row_r)."""
        return tuple(range(r * self.k, min((r + 1) * self.k, self.cells)))

    def column(self, c: int) -> tuple[int, ...]:
        """Frames of column c: the whole timeline at stride K (the paper's S^col_c)."""
        return tuple(range(c, self.cells, self.k))

    def probes(self) -> tuple[tuple[int, ...], ...]:
        """All row subsets, then all column subsets."""
        return (*map(self.row, range(self.rows)), *map(self.column, range(self.k)))


MapKind = Literal[
    "probes",
    "attention",
    "evidence",
    "encoder",
    "scores",
    "needed",
    "certainty",
    "descent",
    "when",
]
"""What a map's numbers are.

- probes: how sure the model is from a row and from a column of frames, shown by themselves (the paper);
- attention: how much the question looks at the frame;
- evidence: the same, times how likely the answer is from the frame by itself; 0 for frames that are hardly looked at;
- encoder: how similar the frame is to the question in an encoder's space: (1 + cosine) / 2;
- scores: what a file says;
- needed: how likely the model says of the frame by itself that it is needed (FRAG);
- certainty: 1 less the entropy of the answer from the frame, or from its window, as a share of the largest entropy;
- descent: how far a search by contact sheets descended towards the frame, and how certain it was there;
- when: how likely the model says it is shown there, asked about ranges of time, then about their frames.
"""

FLAT = 1e-9
"""A map whose standard deviation is below this fraction of its mean is flat; smaller differences are rounding error."""


@dataclass(frozen=True)
class Shape:
    """How unevenly importance is spread over the cells."""

    skew: float
    excess_kurtosis: float

    @property
    def sigma(self) -> float:
        """The paper's σ(M) = |skew| + 0.5·max(0, excess kurtosis), eq. 4."""
        return abs(self.skew) + 0.5 * max(0.0, self.excess_kurtosis)

    @classmethod
    def of(cls, scores: Sequence[float] | npt.NDArray[np.float64]) -> "Shape":
        """Population moments (ddof 0) of the scores; a flat map has no shape: 0 and 0."""
        values = np.asarray(scores, dtype=np.float64)
        centred = values - values.mean()
        deviation = float(np.sqrt(np.mean(centred**2)))
        if deviation <= FLAT * float(np.abs(values).mean()):
            return cls(0.0, 0.0)
        standard = centred / deviation
        return cls(float(np.mean(standard**3)), float(np.mean(standard**4)) - 3.0)


@dataclass(frozen=True)
class ImportanceMap:
    """Importance of each cell: one number for every frame, or else importance[r, c] = row[r] · column[c] (eq. 3)."""

    grid: Grid
    row_confidence: tuple[float, ...] = ()
    column_confidence: tuple[float, ...] = ()
    by_frame: tuple[float, ...] | None = None
    """One number for every frame, in time order; None for a product of rows and columns."""
    kind: MapKind = "probes"

    def __post_init__(self) -> None:
        if self.kind not in get_args(MapKind):
            raise ValueError(f"a map is of one of the kinds {', '.join(get_args(MapKind))}, got {self.kind!r}")
        lines = (len(self.row_confidence), len(self.column_confidence))
        if self.by_frame is not None and (len(self.by_frame) != self.grid.cells or lines != (0, 0)):
            raise ValueError(f"{len(self.by_frame)} numbers and {lines} lines for {self.grid}")
        if self.by_frame is None and lines != (self.grid.rows, self.grid.k):
            raise ValueError(f"{lines[0]}+{lines[1]} probes for {self.grid}")
        for value in (*self.row_confidence, *self.column_confidence, *(self.by_frame or ())):
            if not 0.0 <= value <= 1.0:  # also catches NaN
                raise ModelError(f"the model gave a probe confidence of {value}, which is not a probability")

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """Rows × K; a cell without a frame is NaN."""
        if self.by_frame is not None:
            flat = np.full(self.grid.rows * self.grid.k, np.nan)
            flat[: self.grid.cells] = self.by_frame
            return flat.reshape(self.grid.rows, self.grid.k)
        outer = np.outer(self.row_confidence, self.column_confidence).astype(np.float64, copy=False)
        outer.reshape(-1)[self.grid.cells :] = np.nan
        return outer

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """Importance of every frame, in time order."""
        flat: npt.NDArray[np.float64] = self.matrix.reshape(-1)[: self.grid.cells]
        return flat

    def raised(self, shares: Sequence[float]) -> "ImportanceMap":
        """The same by frame, each frame at least at this share of the highest."""
        highest = float(self.scores.max())
        by_frame = (max(score, highest * share) for score, share in zip(self.scores.tolist(), shares, strict=True))
        return ImportanceMap(self.grid, by_frame=tuple(by_frame), kind=self.kind)

    @property
    def shape(self) -> Shape:
        """Shape statistics over the cells that hold a frame."""
        return Shape.of(self.scores)


# How many frames to keep (Fixed, ShapeRule, NoiseAware) and which (top).

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
"""Cells -> what the largest of that many noise scores exceeds in one map of 100, in robust standard deviations.

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

    most: int | None = None
    """Keep no more than this, where that is less."""

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
        most = min(pool, math.ceil(MOST * k), self.most or pool)
        return min(most, math.ceil(LEAST * k)), most

    def describe(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": "noise", "least": LEAST, "most": MOST, **({"frames": self.most} if self.most else {})}

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
        """From the argument of a name such as "noise" or "noise:8"."""
        if text and (not text.isdecimal() or int(text) < 1):
            raise UsageError(f"noise takes the most frames to keep, a whole number of at least 1, got {text!r}")
        return cls(int(text) if text else None)


def null_maximum(cells: int) -> float:
    """What the largest of that many noise scores exceeds in one map of 100, in robust standard deviations."""
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


# Where to look again: the stretches of a video that the map points at.

APART = 3.0
"""Neighbours further apart than this many usual distances belong to two stretches; frames sampled again do."""
SHARE = 4
"""One in that many cells is sampled again, so that frames lie that many times closer there."""


def hot_stretches(scores: Sequence[float], duration: float, start: float = 0.0) -> tuple[tuple[float, float], ...]:
    """The quarter of the cells with the highest scores, neighbours counted in, as intervals of seconds.

    A cell's score is averaged with those of its neighbours, since what matters is rarely over within one cell.

        hot_stretches([0, 0, 9, 1, 0, 0, 0, 0], 80.0)  ->  ((20.0, 40.0),)
    """
    values = np.asarray(scores, dtype=np.float64)
    cells = len(values)
    padded = np.pad(values, 1, mode="edge")
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    hottest = np.lexsort((np.arange(cells), -values, -smooth))[: max(1, cells // SHARE)]
    edges = np.linspace(start, start + duration, cells + 1)
    stretches: list[tuple[float, float]] = []
    for cell in sorted(hottest.tolist()):
        start, end = float(edges[cell]), float(edges[cell + 1])
        if stretches and stretches[-1][1] == start:
            stretches[-1] = stretches[-1][0], end
        else:
            stretches.append((start, end))
    return tuple(stretches)


def runs(times: Sequence[float], places: Sequence[int]) -> list[tuple[int, ...]]:
    """The places of frames, with neighbours taken together; those that are far apart in time are no neighbours.

    runs([0.5, 1.5, 2.5, 3.5, 9.5], [1, 2, 3, 4])  ->  [(1, 2, 3), (4,)]
    """
    groups: list[list[int]] = []
    usual = median([later - earlier for earlier, later in pairwise(times)] or [0.0])
    for place in sorted(places):
        if groups and groups[-1][-1] == place - 1 and times[place] - times[place - 1] <= APART * usual:
            groups[-1].append(place)
        else:
            groups.append([place])
    return [tuple(each) for each in groups]
