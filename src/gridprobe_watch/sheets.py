"""Contact sheets that an agent can read: frames in rows, each with its time below, in pictures of bounded size.

look(path)                        the whole video: one or two sheets
look(path, window=(80, 300))      the same for a part of it
frame_at(path, 161.5)             one frame
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from gridprobe.errors import UsageError
from gridprobe.report.format import MARK, RGB, clock
from gridprobe.report.picture import GROUND, INK, QUIET, fit_line, font_for
from gridprobe.video import FrameCache, FramePool, FrameSize, Video, VideoInfo, VideoLimits, Window
from gridprobe.video.frames import Pixels
from gridprobe.video.sampling import MAX_FRAMES

LONGEST_SIDE, MOST_TOKENS, PIXELS_PER_TOKEN = 1568, 1600, 750
"""What models see of a picture without shrinking it, and how its tokens are commonly counted."""
MOST_CELLS = 144
"""With more cells on a sheet their times would not be legible."""
USUAL_CELLS, USUAL_FRAMES, FEWEST_FRAMES = 72, 144, 16
LABEL, HEAD, GAP = 18, 24, 4
"""Heights of the times and of the line at the top, and the space between cells, in pixels."""
WIDEST = 160
"""The longer side of a cell in an overview; larger ones would only cost more."""
FLATTEST = 4.0
CHANGED, OUTSTANDING, STEP = 0.07, 2.0, 16
"""A new shot differs from the frame before by this share of full brightness, and by that many times the usual."""


def tokens_of(width: int, height: int) -> int:
    """What a picture takes of an agent's context, by the common counting."""
    return math.ceil(width * height / PIXELS_PER_TOKEN)


@dataclass(frozen=True)
class SheetLayout:
    """Columns, rows and the size of a cell."""

    columns: int
    rows: int
    cell: tuple[int, int]

    @classmethod
    def of(cls, count: int, aspect: float, *, columns: int | None = None, widest: int = WIDEST) -> "SheetLayout":
        """The layout with the largest cells that fits; with as few empty ones as possible."""
        layouts = [
            cls._with(each, -(-count // each), aspect, widest)
            for each in ([columns] if columns else range(1, count + 1))
        ]
        return max(layouts, key=lambda each: (each.cell, -each.columns * each.rows, each.columns >= each.rows))

    @classmethod
    def _with(cls, columns: int, rows: int, aspect: float, widest: int) -> "SheetLayout":
        aspect = min(FLATTEST, max(1 / FLATTEST, aspect))

        def cells_of(side: int) -> SheetLayout:
            return cls(columns, rows, (max(1, round(side * min(1.0, aspect))), max(1, round(side / max(1.0, aspect)))))

        fitting = bisect_left(range(1, widest + 1), True, key=lambda side: not cells_of(side).fits)
        return cells_of(max(1, fitting))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the sheet."""
        width, height = self.cell
        return self.columns * (width + GAP) + GAP, HEAD + self.rows * (height + LABEL + GAP)

    @property
    def fits(self) -> bool:
        """Whether an agent sees all of its pixels."""
        return max(self.size) <= LONGEST_SIDE and tokens_of(*self.size) <= MOST_TOKENS

    def corner(self, place: int) -> tuple[int, int]:
        """The upper left corner of a cell."""
        row, column = divmod(place, self.columns)
        return GAP + column * (self.cell[0] + GAP), HEAD + row * (self.cell[1] + LABEL + GAP)


@dataclass(frozen=True, eq=False)
class ContactSheet:
    """Some frames in rows."""

    frames: FramePool
    layout: SheetLayout
    span: tuple[float, float]
    """The part of the video that it shows, in seconds."""
    title: str
    shots: frozenset[float]
    """When new shots begin."""
    tenths: bool
    """Whether the frames are so close that their times need tenths of a second."""

    @property
    def tokens(self) -> int:
        """What the sheet takes of an agent's context."""
        return tokens_of(*self.layout.size)

    def draw(self) -> Image.Image:
        """The picture: a line about it, then the frames with their times; the time of a new shot is bright."""
        image = Image.new("RGB", self.layout.size, GROUND)
        draw, font = ImageDraw.Draw(image), font_for(self.title, 14)
        draw.text((GAP, HEAD // 2), fit_line(self.title, font, image.width - 2 * GAP), QUIET, font, anchor="lm")
        for place, (pixels, time) in enumerate(zip(self.frames.pixels, self.frames.times, strict=True)):
            x, y = self.layout.corner(place)
            width, height = self.layout.cell
            image.paste(
                Image.fromarray(pixels), (x + (width - pixels.shape[1]) // 2, y + (height - pixels.shape[0]) // 2)
            )
            colour: RGB = MARK if time in self.shots else INK
            words = clock(time, tenths=self.tenths)
            draw.text((x + width // 2, y + height + 1 + LABEL // 2), words, colour, font_for(words, 14), anchor="mm")
        return image

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        width, height = self.layout.size
        shape: dict[str, Any] = {
            "span": list(self.span),
            "columns": self.layout.columns,
            "rows": self.layout.rows,
            "cell": list(self.layout.cell),
        }
        return {**shape, "width": width, "height": height, "tokens": self.tokens, "times": list(self.frames.times)}


@dataclass(frozen=True, eq=False)
class FirstLook:
    """What can be seen of a video, or of a part of it, without a model."""

    frames: FramePool
    span: tuple[float, float]
    """The part of the video, in seconds."""
    name: str
    layout: SheetLayout
    per_sheet: int

    @property
    def info(self) -> VideoInfo:
        """The video's properties."""
        assert self.frames.info is not None
        return self.frames.info

    @property
    def interval(self) -> float:
        """Seconds from one frame to the next."""
        return (self.span[1] - self.span[0]) / len(self.frames)

    @cached_property
    def changes(self) -> tuple[float, ...]:
        """How much each frame differs from the one before, from 0 to 1."""
        return changes(self.frames.pixels)

    @cached_property
    def shots(self) -> tuple[float, ...]:
        """Times of the frames with which a new shot begins; two shots between two frames count as one."""
        usual = float(np.median(self.changes[1:])) if len(self.changes) > 1 else 0.0
        least = max(CHANGED, OUTSTANDING * usual)
        return tuple(time for time, change in zip(self.frames.times, self.changes, strict=True) if change > least)

    @property
    def closer(self) -> tuple[int, int]:
        """Whole seconds around the part where most happens, a twelfth of all: to be looked at next."""
        share = max(1, len(self.frames) // 12)
        sums = np.convolve(self.changes, np.ones(share), "valid")
        first = int(np.argmax(sums))
        start, end = self.frames.times[first], self.frames.times[min(first + share, len(self.frames)) - 1]
        return int(start), max(int(start) + 1, math.ceil(min(end + self.interval, self.span[1])))

    @cached_property
    def sheets(self) -> tuple[ContactSheet, ...]:
        """The contact sheets, in order of time."""
        parts = [
            range(at, min(at + self.per_sheet, len(self.frames))) for at in range(0, len(self.frames), self.per_sheet)
        ]
        return tuple(self._sheet(number, part, len(parts)) for number, part in enumerate(parts, start=1))

    def _sheet(self, number: int, part: range, count: int) -> ContactSheet:
        start = self.span[0] if part.start == 0 else self.frames.times[part.start]
        end = self.span[1] if part.stop == len(self.frames) else self.frames.times[part.stop]
        which = f", sheet {number} of {count}" if count > 1 else ""
        words = f"{clock(start)} to {clock(end)} of {clock(self.info.duration or end)}{which}"
        title = f"{words}; one frame every {self.interval:.3g} s, row by row | {self.name}"
        layout = replace(self.layout, rows=-(-len(part) // self.layout.columns))
        return ContactSheet(
            self.frames.cut(part), layout, (start, end), title, frozenset(self.shots), self.interval < 2
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the caller adds where the sheets are."""
        return {
            "schema": "gridprobe.watch/1",
            "video": self.info.to_dict(),
            "span": list(self.span),
            "interval": self.interval,
            "frames": len(self.frames),
            "tokens": sum(each.tokens for each in self.sheets),
            "shots": list(self.shots),
            "closer": list(self.closer),
            "warnings": list(self.frames.warnings),
        }


def changes(pixels: Pixels) -> tuple[float, ...]:
    """How much each frame differs from the one before it, as a share of full brightness; 0 for the first."""
    small = [
        np.asarray(Image.fromarray(each).resize((STEP, STEP), Image.Resampling.BOX), np.float32) for each in pixels
    ]
    return (0.0, *(float(np.abs(b - a).mean()) / 255 for a, b in pairwise(small)))


def look(
    path: Path,
    *,
    frames: int | None = None,
    window: Window | None = None,
    columns: int | None = None,
    most: int = USUAL_FRAMES,
    per_sheet: int = USUAL_CELLS,
    widest: int = WIDEST,
    name: str = "",
    limits: VideoLimits | None = None,
    cache: FrameCache | None = None,
) -> FirstLook:
    """Decode evenly spaced frames, just as large as they are on the sheets.

    Args:
        path: a video, or a folder of pictures.
        frames: how many; by default `most`, or one a second of what is shorter, but at least 16.
        most: the usual number of frames.
        window: the part of the video, in seconds.
        columns: of a sheet; by default as many as leave the largest cells.
        per_sheet: the most frames on a sheet.
        widest: the longest side of a cell.
        name: what the sheets call the video.
        limits: of the video.
        cache: keeps frames on disk.
    """
    if frames is not None and not 1 <= frames <= MAX_FRAMES:
        raise UsageError(f"frames must be a whole number from 1 to {MAX_FRAMES}, got {frames}")
    more: Any = {"precision": "auto", "limits": limits, "cache": cache, "decode_in": "child", "window": window}
    video = Video(path, num_frames=frames or most, **more)
    start, end = video.span
    if frames is None and (fewer := max(FEWEST_FRAMES, math.ceil(end - start))) < most:
        video = Video(path, num_frames=fewer, **more)
    widest = min(widest, max(video.info.width, video.info.height))
    count = len(video.lazy(FrameSize(max_side=widest)))
    per_sheet = -(-count // -(-count // per_sheet))  # as many on each
    layout = SheetLayout.of(per_sheet, video.info.width / video.info.height, columns=columns, widest=widest)
    pool = video.pool(FrameSize(max_side=max(layout.cell)))
    return FirstLook(pool, (start, end), name or Path(path).name, layout, per_sheet)


def frame_at(
    path: Path, time: float, *, side: int, limits: VideoLimits | None = None, cache: FrameCache | None = None
) -> FramePool:
    """The frame on display at a time, or the nearest one if the video does not last as long, as a pool of one."""
    more: Any = {"limits": limits, "cache": cache, "decode_in": "child"}
    video = Video(path, num_frames=1, **more)
    start = min(max(0.0, time), max(0.0, (video.info.duration or 0.0) - 0.002))
    return video.within(((start, start + 0.001),)).pool(FrameSize(max_side=side))
