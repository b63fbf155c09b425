"""Probe posteriors -> a signal for each -> the importance of every cell -> the shape of their distribution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError
from gridprobe.grid import Grid

__all__ = ["ImportanceMap", "Shape", "Signal", "margin", "peak"]

FLAT = 1e-9
"""A map whose standard deviation is below this fraction of its mean is flat; smaller differences are rounding error."""


class Signal(Protocol):
    """How much a probe says about its frames: a number from 0 to 1, from the probabilities of the options."""

    __name__: str

    def __call__(self, probabilities: Mapping[str, float], /) -> float:
        """The signal of one probe."""
        ...


def peak(probabilities: Mapping[str, float]) -> float:
    """The probability of the most likely option (the paper's c(S, q), eq. 1)."""
    return min(1.0, max(probabilities.values()))


def margin(probabilities: Mapping[str, float]) -> float:
    """By how much the most likely option leads the second."""
    first, second, *_ = sorted(probabilities.values(), reverse=True)
    return min(1.0, first - second)


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
    """Importance of each cell, importance[r, c] = row_confidence[r] · column_confidence[c] (the paper's M, eq. 3)."""

    grid: Grid
    row_confidence: tuple[float, ...]
    column_confidence: tuple[float, ...]

    def __post_init__(self) -> None:
        if (len(self.row_confidence), len(self.column_confidence)) != (self.grid.rows, self.grid.k):
            raise ValueError(f"{len(self.row_confidence)}+{len(self.column_confidence)} probes for {self.grid}")
        for value in (*self.row_confidence, *self.column_confidence):
            if not 0.0 <= value <= 1.0:  # also catches NaN
                raise ModelError(f"the model gave a probe confidence of {value}, which is not a probability")

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """Rows × K; a cell without a frame is NaN."""
        outer = np.outer(self.row_confidence, self.column_confidence).astype(np.float64, copy=False)
        outer.reshape(-1)[self.grid.cells :] = np.nan
        return outer

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """Importance of every frame, in time order."""
        flat: npt.NDArray[np.float64] = self.matrix.reshape(-1)[: self.grid.cells]
        return flat

    @property
    def shape(self) -> Shape:
        """Shape statistics over the cells that hold a frame."""
        return Shape.of(self.scores)
