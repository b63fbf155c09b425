"""Axes and texts of the plots of a run page, as inline SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "BOTTOM",
    "HEIGHT",
    "LEFT",
    "RIGHT",
    "RUN_COLOURS",
    "TOP",
    "WIDTH",
    "Axis",
    "across",
    "frame",
    "svg",
    "text_at",
    "upright",
    "upwards",
]

WIDTH, HEIGHT = 520, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 16, 48
RUN_COLOURS = 6
"""The number of distinct colours; with more runs, colours repeat."""


@dataclass(frozen=True)
class Axis:
    """Maps values to coordinates; `ticks` are round values on the axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    """Whether equal distances are equal factors."""
    whole: bool = False
    """Whether only whole numbers are ticks."""

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        low, high, place = self.low, self.high, value
        if self.log:
            low, high, place = (math.log(max(number, self.low)) for number in (low, high, place))
        return self.start + (place - low) / ((high - low) or 1.0) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values from low to high, about five; on a logarithmic axis 1, 2 and 5 times powers of ten."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [f * 10.0**p for p in powers for f in (1, 2, 5) if self.low <= f * 10.0**p <= self.high]
        raw = ((self.high - self.low) or 1.0) / 5
        raw = max(1.0, raw) if self.whole else raw
        scale = 10.0 ** math.floor(math.log10(raw))
        step = scale * next(
            factor for factor in ((1, 2, 5, 10) if self.whole else (1, 2, 2.5, 5, 10)) if factor * scale >= raw * 0.999
        )
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def across(low: float, high: float, right: int = RIGHT, *, log: bool = False) -> Axis:
    """The horizontal axis."""
    return Axis(low, high, LEFT, WIDTH - right, log)


def upwards(low: float, high: float, top: int = TOP, *, whole: bool = False) -> Axis:
    """The vertical axis."""
    return Axis(low, high, HEIGHT - BOTTOM, top, whole=whole)


def frame(x: Axis, y: Axis, below: str, side: str, ink: str = "") -> list[str]:
    """Lines, numbers and names of both axes."""
    parts = []
    for tick in y.ticks:
        height = y(tick)
        parts.append(f'<line class="gridline" x1="{x.start}" x2="{x.end}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(text_at(x.start - 8, height + 4, f"{tick:,g}", "end", ink))
    parts += [text_at(x(tick), y.start + 18, f"{tick:,g}", "middle") for tick in x.ticks]
    parts.append(f'<line class="axis" x1="{x.start}" x2="{x.end}" y1="{y.start}" y2="{y.start}"/>')
    parts.append(text_at((x.start + x.end) / 2, HEIGHT - 8, below, "middle"))
    parts.append(upright(13, side, ink))
    return parts


def upright(x: float, text: str, ink: str = "") -> str:
    """Text that runs upwards."""
    y = (TOP + HEIGHT - BOTTOM) / 2
    kind = f' class="{ink}"' if ink else ""
    return f'<text{kind} transform="rotate(-90 {x:g} {y:g})" x="{x:g}" y="{y:g}" text-anchor="middle">{text}</text>'


def text_at(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    """Escaped text at a place."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def svg(parts: Sequence[str], words: str) -> str:
    """The whole plot, with words for those who do not see it."""
    start = f'<svg class="plot" role="img" aria-label="{escape(words)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
    return f"{start}{''.join(parts)}</svg>"
