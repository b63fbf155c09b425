"""Confidences of probes -> the importance of every cell -> the shape of their distribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError
from gridprobe.grid import Grid

__all__ = ["ImportanceMap", "MapKind", "Shape"]

MapKind = Literal[
    "probes",
    "attention",
    "evidence",
    "encoder",
    "scores",
    "needed",
    "certainty",
    "descent",
]
"""What a map's numbers are.

- probes: how sure the model is from a row and from a column of frames, shown by themselves (the paper);
- attention: how much the question looks at the frame;
- evidence: the same, times how likely the answer is from the frame by itself; 0 for frames that are hardly looked at;
- encoder: how similar the frame is to the question in an encoder's space: (1 + cosine) / 2;
- scores: what a file says;
- needed: how likely the model says of the frame by itself that it is needed (FRAG);
- certainty: 1 less the entropy of the answer from the frame, or from its window, as a share of the largest entropy;
- descent: how far a search by contact sheets descended towards the frame, and how certain it was there.
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

    @property
    def shape(self) -> Shape:
        """Shape statistics over the cells that hold a frame."""
        return Shape.of(self.scores)
