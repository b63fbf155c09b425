"""Grid: which frame of the pool is in which row and column. Integers only.

Frame `i` is in row `i // k` and column `i % k`, so a row holds neighbours in time and a column strides over the
whole video. A video with fewer than k² distinct frames fills the grid only partly; the last row is then short:

    Grid(4, cells=14)        0  1  2  3
                             4  5  6  7
                             8  9 10 11
                            12 13
"""

import math
from dataclasses import dataclass

from gridprobe.errors import UsageError

__all__ = ["MAX_K", "Grid"]

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
