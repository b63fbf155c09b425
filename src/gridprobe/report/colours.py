"""Colours of importance, for the terminal, the PNG and the pages."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FLOOR", "MARK", "MIDDLE", "RGB", "STOPS", "Scale", "hex_colour", "mix", "ramp"]

RGB = tuple[int, int, int]

# Dark blue, magenta, orange, pale yellow: lightness increases evenly, so the order is visible in greyscale and with any
# colour vision deficiency. Kept frames are marked in cyan because it is far from every colour of the ramp.
STOPS: tuple[RGB, ...] = (
    (18, 13, 49),
    (55, 15, 99),
    (99, 26, 128),
    (145, 43, 129),
    (191, 60, 116),
    (231, 88, 99),
    (250, 137, 97),
    (254, 190, 130),
    (252, 247, 186),
)
MARK: RGB = (34, 224, 238)
"""The colour of a kept frame."""

MIDDLE = 0.42
"""The level of a flat map; not ½, which is the boundary between two shades, so rounding errors would be visible."""
FLOOR = 0.02
"""A range below this fraction of the peak does not use the whole ramp; otherwise noise would look like structure."""


@dataclass(frozen=True)
class Scale:
    """Maps values to levels: the lowest to 0, the highest to 1. Nearly equal values all map to about `MIDDLE`."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> "Scale":
        """The scale of these values; NaN is ignored."""
        known = [float(value) for value in values if not math.isnan(value)] or [0.0]
        low, high = min(known), max(known)
        missing = FLOOR * max(abs(low), abs(high)) - (high - low)
        return cls(low, high) if missing <= 0 else cls(low - missing * MIDDLE, high + missing * (1 - MIDDLE))

    def level(self, value: float) -> float:
        """The position of the value between low and high, from 0 to 1."""
        if self.high <= self.low:
            return MIDDLE
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def ramp(level: float) -> RGB:
    """The colour of a level from 0 to 1."""
    place = min(1.0, max(0.0, level)) * (len(STOPS) - 1)
    below = min(bisect_right(range(len(STOPS)), place) - 1, len(STOPS) - 2)
    return mix(STOPS[below], STOPS[below + 1], place - below)


def mix(first: RGB, second: RGB, share: float) -> RGB:
    """Blend two colours; `share` is the fraction of the second."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def hex_colour(colour: RGB) -> str:
    """The colour as #rrggbb, for CSS and rich."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
