"""Positions and sizes of the parts of a map, in pixels."""

from dataclasses import dataclass

from gridprobe.answer import Answer

__all__ = ["BARS", "COLUMN_BARS", "GAP", "LINE", "MARGIN", "Box", "Layout"]

Box = tuple[int, int, int, int]
"""Left, top, right and bottom; right and bottom are exclusive."""

MARGIN = 36
LINE = 34
"""Height of a line of the title."""
TIMES = 92
BARS = 128
COLUMN_BARS = 96
LEGEND = 172
GRID_WIDTH, GRID_HEIGHT = 1920, 1600
LARGEST_CELL, SMALLEST = 480, 3
GAP = 1
"""Background around each cell."""
FLATTEST = 4.0
"""The largest aspect ratio of a cell, either way; more extreme frames get bars inside their cells."""
NARROWEST = 760
"""The smallest width; a narrower image has no room for the text."""


@dataclass(frozen=True)
class Layout:
    """A grid of cells with a title above it, bars at its sides and a legend below."""

    columns: int
    rows: int
    picture: tuple[int, int]
    """Width and height of the frame within a cell."""
    mark: int
    """Thickness of the outline of a kept frame."""
    heat: int
    """Thickness of the ring inside it, in the colour of importance."""
    aspect: float
    """Width by height of the kept frames."""
    bars: bool
    """Whether row and column confidences are shown at the right and below."""
    title: int = 0
    """Height of the title."""

    @classmethod
    def of(cls, answer: Answer) -> "Layout":
        """The largest cells that fit, in the aspect ratio of the kept frames."""
        pool, evidence = answer.pool, answer.selection.evidence
        columns = evidence.grid.k if evidence else next(k for k in range(1, len(pool) + 1) if k * k >= len(pool))
        rows = -(-len(pool) // columns)
        true_aspect = answer.frames.width / answer.frames.height
        aspect = min(FLATTEST, max(1 / FLATTEST, true_aspect))
        width = min(GRID_WIDTH / columns, GRID_HEIGHT / rows * aspect, LARGEST_CELL, LARGEST_CELL * aspect)
        short = min(width, width / aspect)
        mark, heat = min(5, max(1, int(short / 16))), min(3, int(short / 16))
        inside = width - 2 * (mark + heat + GAP)
        picture = max(SMALLEST, round(inside)), max(SMALLEST, round(inside / aspect))
        return cls(columns, rows, picture, mark, heat, true_aspect, evidence is not None and evidence.by_frame is None)

    @property
    def inset(self) -> int:
        """Distance from the edge of a cell to its frame."""
        return GAP + self.mark + self.heat

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell."""
        return self.picture[0] + 2 * self.inset, self.picture[1] + 2 * self.inset

    @property
    def origin(self) -> tuple[int, int]:
        """The upper left corner of the grid."""
        return MARGIN + TIMES, MARGIN + self.title

    @property
    def grid(self) -> Box:
        """The whole grid."""
        x, y = self.origin
        return x, y, x + self.columns * self.cell[0], y + self.rows * self.cell[1]

    @property
    def legend(self) -> int:
        """The y coordinate of the legend."""
        return self.grid[3] + (COLUMN_BARS if self.bars else 0) + 26

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image."""
        width = self.grid[2] + (BARS if self.bars else 0) + MARGIN
        return max(NARROWEST, width), self.legend + LEGEND + MARGIN

    def box(self, index: int, inset: int = 0) -> Box:
        """The cell of a frame, reduced by `inset` on each side."""
        (x, y), (width, height) = self.origin, self.cell
        left, top = x + index % self.columns * width, y + index // self.columns * height
        return left + inset, top + inset, left + width - inset, top + height - inset
