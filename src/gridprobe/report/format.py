"""How reports write numbers and times, name what they show, and colour what matters; every rendering uses this."""

import math
from collections.abc import Sequence

from gridprobe.importance import MapKind

MAP_WORDS: dict[MapKind, str] = {
    "attention": "what the question looks at",
    "probes": "how sure the model is from each row and column",
    "evidence": "which frames show the answer by themselves",
    "encoder": "how similar each frame is to the question",
    "scores": "the scores of a file",
    "needed": "how likely the model calls each frame needed",
    "certainty": "how certain the answer from each frame is",
    "descent": "where a search by contact sheets went",
    "when": "when the model says it is shown",
}
"""What the numbers of a map are."""
SOURCES = {
    "overview": "answered from the overview",
    "all": "answered from all frames at full size",
    "focus": "answered from the focused pass",
    "refined": "answered from segments sampled again",
}
"""What is known of an answer in a record."""


def clock(seconds: float, *, tenths: bool = False) -> str:
    """Format seconds as m:ss or h:mm:ss and, with tenths, as m:ss.s.

    160.25 -> "2:40"; 3725.64 -> "1:02:05", with tenths "1:02:05.6". Whole seconds are rounded down, tenths to the
    nearest.
    """
    sign = "-" if seconds < 0 else ""
    parts = round(abs(seconds) * 10) if tenths else int(abs(seconds)) * 10
    minutes, rest = divmod(parts, 600)
    hours, minutes = divmod(minutes, 60)
    second = f"{rest / 10:04.1f}" if tenths else f"{rest // 10:02d}"
    return f"{sign}{hours}:{minutes:02d}:{second}" if hours else f"{sign}{minutes}:{second}"


def amount(value: float) -> str:
    """Format a number with about three significant digits: 0.012, 4.57, 45.7, 4,568."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2}f}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"


def aligned(values: Sequence[float | None]) -> list[str]:
    """The numbers of a column, all with the same decimals: as many as the smallest needs for two digits, at most 3."""
    sizes = [abs(value) for value in values if value]
    least, most = min(sizes, default=1.0), max(sizes, default=1.0)
    digits = 0 if most >= 1000 else min(3 if most < 100 else 1, max(0, 1 - math.floor(math.log10(least))))
    return ["–" if value is None else f"{value:,.{digits}f}" for value in values]


def score_words(score: float, digits: int = 2) -> str:
    """The importance of a frame: with this many decimals, as 0.72, or significant digits if it is small, as 0.0069."""
    return f"{score:.{digits}f}" if score == 0 or score >= 0.1 else f"{score:.{digits}g}"


def share_words(share: float | None) -> str:
    """A share of compute with two or three digits: "17%", "6.1%", "0.08%", "104%"; a dash if it is not known."""
    if share is None:
        return "–"
    return percent(share, 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2)


def sure_words(share: float) -> str:
    """The probability of an option; it is never rounded to certainty: "> 99.9%"."""
    return "> 99.9%" if 0.9995 <= share < 1 else "< 0.1%" if 0 < share < 0.0005 else percent(share)


def percent(share: float, digits: int = 1) -> str:
    """For example "99.8%"."""
    return f"{100 * share:.{digits}f}%"


def model_words(selecting: Sequence[str], answering: str) -> str:
    """The models without revision, dtype and settings, such as "small selects, large answers"."""
    *others, answerer = (name.rpartition("@")[0] or name for name in (*selecting, answering))
    others = [name for name in dict.fromkeys(others) if name != answerer]
    return f"{' and '.join(others)} selects, {answerer} answers" if others else answerer


# Colours.

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


def levels(values: Sequence[float]) -> list[float]:
    """The position of each value between the lowest, 0, and the highest, 1; nearly equal values are all about `MIDDLE`.

    NaN does not count as lowest or highest.
    """
    numbers = [value for value in values if not math.isnan(value)] or [0.0]
    low, high = min(numbers), max(numbers)
    missing = FLOOR * max(abs(low), abs(high)) - (high - low)
    if missing > 0:
        low, high = low - missing * MIDDLE, high + missing * (1 - MIDDLE)
    return [MIDDLE if high <= low else min(1.0, max(0.0, (value - low) / (high - low))) for value in values]


def mix(first: RGB, second: RGB, share: float) -> RGB:
    """Blend two colours; `share` is the fraction of the second."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def hex_colour(colour: RGB) -> str:
    """The colour as #rrggbb, for CSS and rich."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
