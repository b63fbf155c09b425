"""The contact sheet of an answer: every frame in its own colours; kept ones framed, others darker."""

from dataclasses import dataclass

from PIL import Image, ImageDraw

from gridprobe.answer import Answer
from gridprobe.grid import Grid
from gridprobe.report.colours import MARK, RGB
from gridprobe.report.pixels import decoded_frames
from gridprobe.report.where import brightness, kept_frames
from gridprobe.video.frames import Pixels

__all__ = ["BLANK", "GROUND", "Sheet", "draw_sheet", "fitted_picture", "outline"]

GROUND: RGB = (16, 18, 24)
BLANK: RGB = (62, 68, 82)
"""A frame that was not decoded, at full brightness."""
FLATTEST = 4.0
"""The largest aspect ratio of a tile, either way; more extreme frames get bars inside their tiles."""
SMALLEST = 3


@dataclass(frozen=True)
class Sheet:
    """Tiles in rows, with a gap around each."""

    columns: int
    rows: int
    tile: tuple[int, int]
    gap: int

    @classmethod
    def of(cls, answer: Answer, *, width: int, height: int) -> "Sheet":
        """The largest tiles that fit, in the aspect ratio of the kept frames."""
        evidence, frames = answer.selection.evidence, answer.frames
        grid = evidence.grid if evidence else Grid.holding(len(answer.pool))
        aspect = min(FLATTEST, max(1 / FLATTEST, frames.width / frames.height))
        gap = 6 if grid.k <= 16 else 4 if grid.k <= 32 else 2
        wide = min(width / grid.k, height / grid.rows * aspect) - gap
        return cls(grid.k, grid.rows, (max(SMALLEST, int(wide)), max(SMALLEST, round(wide / aspect))), gap)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole sheet."""
        return self.columns * (self.tile[0] + self.gap), self.rows * (self.tile[1] + self.gap)

    def corner(self, index: int) -> tuple[int, int]:
        """The upper left corner of a frame's tile."""
        row, column = divmod(index, self.columns)
        return tuple(  # type: ignore[return-value]
            place * (side + self.gap) + self.gap // 2 for place, side in zip((column, row), self.tile, strict=True)
        )


def draw_sheet(answer: Answer, sheet: Sheet) -> Image.Image:
    """All frames of the pool."""
    image = Image.new("RGB", sheet.size, GROUND)
    draw = ImageDraw.Draw(image)
    decoded, kept, aspect = decoded_frames(answer), set(kept_frames(answer)), answer.frames.width / answer.frames.height
    for index, share in enumerate(brightness(answer)):
        corner = sheet.corner(index)
        if index in decoded:
            tile = fitted_picture(decoded[index], sheet.tile, aspect)
        else:
            tile = Image.new("RGB", sheet.tile, BLANK)
        image.paste(Image.blend(Image.new("RGB", tile.size), tile, share), corner)
        if index in kept:
            outline(draw, corner, sheet.tile, thick=max(1, sheet.gap // 2))
    return image


def outline(draw: ImageDraw.ImageDraw, corner: tuple[int, int], size: tuple[int, int], *, thick: int) -> None:
    """A frame around a picture, outside of it."""
    (x, y), (width, height) = corner, size
    box = (x - thick, y - thick, x + width + thick - 1, y + height + thick - 1)
    draw.rectangle(box, outline=MARK, width=thick)


def fitted_picture(pixels: Pixels, size: tuple[int, int], aspect: float) -> Image.Image:
    """The frame in this size and aspect ratio, with bars where it does not fill the size."""
    width, height = size
    inside = max(1, round(min(width, height * aspect))), max(1, round(min(height, width / aspect)))
    smaller = inside[0] < pixels.shape[1]
    way = Image.Resampling.BILINEAR if smaller else Image.Resampling.BICUBIC
    scaled = Image.fromarray(pixels).resize(inside, way, reducing_gap=2.0 if smaller else None)
    if abs(inside[0] - width) <= 1 and abs(inside[1] - height) <= 1:
        return scaled.resize(size) if scaled.size != size else scaled
    canvas = Image.new("RGB", size, (0, 0, 0))
    canvas.paste(scaled, ((width - inside[0]) // 2, (height - inside[1]) // 2))
    return canvas
