"""Colours of importance, the same in the terminal, in the picture and on the page."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FLOOR", "MARK", "MIDDLE", "RGB", "STOPS", "Scale", "hex_colour", "ink_on", "mix", "ramp"]

RGB = tuple[int, int, int]

# From night blue over magenta and orange to pale yellow: lightness grows evenly, so the order survives in grey and for
# every kind of colour vision. The marks are cyan because the ramp holds nothing like it.
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
"""The level of a flat map; not ½, which is the border between two shades, where rounding would decide."""
FLOOR = 0.02
"""A spread below this fraction of the peak does not fill the ramp, or a flat map would look like a busy one."""


@dataclass(frozen=True)
class Scale:
    """Maps values to levels: the lowest to 0, the highest to 1; values that hardly differ all to about `MIDDLE`."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> "Scale":
        """The scale of these values; NaN is left out."""
        known = [float(value) for value in values if not math.isnan(value)] or [0.0]
        low, high = min(known), max(known)
        missing = FLOOR * max(abs(low), abs(high)) - (high - low)
        return cls(low, high) if missing <= 0 else cls(low - missing * MIDDLE, high + missing * (1 - MIDDLE))

    def level(self, value: float) -> float:
        """Where the value stands between low and high."""
        if self.high <= self.low:
            return MIDDLE
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def ramp(level: float) -> RGB:
    """The colour of a level from 0 to 1."""
    place = min(1.0, max(0.0, level)) * (len(STOPS) - 1)
    below = min(bisect_right(range(len(STOPS)), place) - 1, len(STOPS) - 2)
    return mix(STOPS[below], STOPS[below + 1], place - below)


def mix(first: RGB, second: RGB, share: float) -> RGB:
    """`share` of the second colour in the first."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def ink_on(background: RGB) -> RGB:
    """Black or white, whichever reads better."""
    red, green, blue = background
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else (255, 255, 255)


def hex_colour(colour: RGB) -> str:
    """As CSS and rich write it: #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
