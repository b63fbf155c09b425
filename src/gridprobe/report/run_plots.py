"""Plots of a run page as inline SVG: accuracy against compute with its Pareto front, and kept frames."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gridprobe.benchmarks.base import Interval
from gridprobe.report.format import amount
from gridprobe.report.html import render_part

__all__ = [
    "BANDWIDTH",
    "RUN_COLOURS",
    "STEPS",
    "Axis",
    "RunPoint",
    "across",
    "frontier",
    "histogram_svg",
    "pareto_svg",
    "skew_svg",
    "smoothed",
    "smoothed_count",
    "upwards",
]

WIDTH, HEIGHT = 520, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 16, 48
NAME_TOP = 44
"""Room above the plot for the name of a run with 100 %."""
RUN_COLOURS = 6
"""The number of distinct colours; with more runs, colours repeat."""
LETTER, LINE = 9.2, 17
"""Width of a letter and height of a line of a name, at the size it has on a phone."""
MARK_RADIUS = 7
"""Radius that a mark takes up."""
FEW = 6
"""Of more runs, those behind the front get faint error bars."""
WIDE = 8
"""From this factor between the cheapest and the dearest run on, the axis of compute is logarithmic."""
LONGEST = 20
"""Letters of a name; of a longer one the end is shown."""
ALL_FRAMES = "all frames in one pass"
BARS = 24
STEPS = 80
"""Points of a smoothed curve."""
BANDWIDTH = 1 / 12
"""Width of the smoothing kernel, as a fraction of the axis."""

Array = npt.NDArray[np.float64]


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


def _plot(template: str, **values: Any) -> str:
    return render_part(template, width=WIDTH, height=HEIGHT, middle=(TOP + HEIGHT - BOTTOM) / 2, **values)


# Accuracy against compute.


@dataclass(frozen=True)
class RunPoint:
    """Compute and accuracy of a run."""

    name: str
    number: int
    compute: float
    accuracy: Interval


class _Box(NamedTuple):
    """A rectangle that a text or a mark takes up."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def frontier(points: Sequence[RunPoint]) -> list[RunPoint]:
    """The Pareto front: points that no other beats in both compute and accuracy, in order of compute."""
    best: list[RunPoint] = []
    for point in sorted(points, key=lambda p: (p.compute, -p.accuracy.mean)):
        if not best or point.accuracy.mean > best[-1].accuracy.mean:
            best.append(point)
    return best


def pareto_svg(points: Sequence[RunPoint], *, words: str, everything: float) -> str:
    """Accuracy against mean compute; a line joins the front, and the region that it dominates is shaded.

    `everything` is the cost of all frames in one pass, drawn as a line.
    """
    highest = max(everything, *(point.compute for point in points))
    lows, highs = ([100 * getattr(p.accuracy, end) for p in points] for end in ("low", "high"))
    margin = max(2.0, 0.15 * (max(highs) - min(lows)))
    x = _compute_axis([point.compute for point in points], highest)
    y = upwards(max(0.0, min(lows) - margin), min(100.0, max(highs) + margin), NAME_TOP)
    best = frontier(points)
    stairs = _stairs(best, x, y)
    boxes = [_mark_box(point, x, y) for point in points]
    boxes += [_Box(min(a, c), min(b, d) - 2, max(a, c) + 2, max(b, d) + 2) for (a, b), (c, d) in pairwise(stairs)]
    if everything:
        at = x(everything)
        boxes.append(_Box(at - 5 - LETTER * len(ALL_FRAMES), y.start - LINE, at, y.start))
    others = sorted((point for point in points if point not in best), key=lambda p: -p.accuracy.mean)
    marks = [  # the front gets its names first
        _mark(point, x, y, boxes, best=point in best) | {"faint": len(points) > FEW and point not in best}
        for point in (*reversed(best), *others)
    ]
    values = "; ".join(f"{p.name}: {100 * p.accuracy.mean:.1f} % at {amount(p.compute)} TFLOPs" for p in points)
    front = ", ".join(point.name for point in best)
    return _plot(
        "plot_pareto.html.j2",
        words=f"accuracy against compute, {words}; on the front: {front}; {values}",
        convention=words,
        whole_words=ALL_FRAMES,
        x=x,
        y=y,
        everything=everything,
        stairs=stairs,
        area=[(stairs[0][0], y.start), *stairs, (x.end, y.start)],
        marks=marks,
    )


def _compute_axis(spent: Sequence[float], highest: float) -> Axis:
    """Logarithmic where the runs differ by a large factor."""
    lowest = min(spent)
    if lowest > 0 and highest / lowest >= WIDE:
        return across(lowest / 1.3, highest * 1.3, log=True)
    return across(0, highest * 1.12)


def _stairs(best: Sequence[RunPoint], x: Axis, y: Axis) -> list[tuple[float, float]]:
    """The corners of the front: level from each run to the next, then up."""
    stairs = []
    for here, after in zip(best, [*best[1:], None], strict=True):
        height = y(100 * here.accuracy.mean)
        stairs += [(x(here.compute), height), (x(after.compute) if after else x.end, height)]
    return stairs


def _mark_box(point: RunPoint, x: Axis, y: Axis) -> _Box:
    at, height = x(point.compute), y(100 * point.accuracy.mean)
    return _Box(at - MARK_RADIUS, height - MARK_RADIUS, at + MARK_RADIUS, height + MARK_RADIUS)


def _mark(point: RunPoint, x: Axis, y: Axis, boxes: list[_Box], *, best: bool) -> dict[str, Any]:
    """An error bar, a mark, and the name where it covers no other; a run behind the front may have none."""
    at, height = x(point.compute), y(100 * point.accuracy.mean)
    hover = f"{point.name}: {100 * point.accuracy.mean:.1f} % ({100 * point.accuracy.low:.1f} to "
    hover += f"{100 * point.accuracy.high:.1f}), {amount(point.compute)} TFLOPs"
    return {
        "x": at,
        "y": height,
        "low": y(100 * point.accuracy.low),
        "high": y(100 * point.accuracy.high),
        "hover": hover,
        "best": best,
        "square": point.number % 2,
        "colour": point.number % RUN_COLOURS,
        "name": _name(_short(point.name), (at, height), y, boxes, needed=best),
    }


def _name(text: str, mark: tuple[float, float], y: Axis, boxes: list[_Box], *, needed: bool) -> dict[str, Any] | None:
    """The name at the first free place near the mark; a needed one at the first place inside if none is free."""
    inside = [box for box in _places(len(text) * LETTER, mark, far=needed) if _fits(box, y)]
    free = [box for box in inside if not any(box.meets(other) for other in boxes)]
    if not free and not (needed and inside):
        return None
    box = (free or inside)[0]
    boxes.append(box)
    right = box.left >= mark[0]
    anchor, x = ("start", box.left) if right else ("end", box.right)
    return {"x": x, "y": box.bottom - 4, "text": text, "anchor": anchor}


def _places(width: float, mark: tuple[float, float], *, far: bool) -> Iterator[_Box]:
    """Where a name may stand: right and left of the mark, level with it, then above and below, then further off."""
    x, y = mark
    for shift in (0, -1, 1, -2, 2, -3, 3) if far else (0, -1, 1):
        top = y + shift * LINE - LINE / 2
        for left in (x + 10, x - 10 - width):
            yield _Box(left, top, left + width, top + LINE)


def _fits(box: _Box, y: Axis) -> bool:
    return box.left >= LEFT and box.right <= WIDTH - 2 and box.top >= 2 and box.bottom <= y.start


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else "…" + text[-LONGEST + 1 :]


# Kept frames.


def smoothed(places: Array, values: Array, at: Array, width: float) -> Array:
    """Mean of the values near each point, weighted by a Gaussian of this width."""
    weights = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2)
    means: Array = (weights @ values) / weights.sum(axis=1)
    return means


def skew_svg(skew: Sequence[float], kept: Sequence[float], right: Sequence[float], *, pool: int) -> str:
    """The figure of the paper: kept frames, and accuracy of the run over all frames, against the skew of the map."""
    places, frames, hits = (np.asarray(values, dtype=np.float64) for values in (skew, kept, right))
    low, high = np.quantile(places, (0.01, 0.99))
    width = max(float(high - low), 1e-6) * BANDWIDTH
    at = np.linspace(low, max(high, low + 1e-6), STEPS)
    kept_curve, accuracy = smoothed(places, frames, at, width), 100 * smoothed(places, hits, at, width)
    x = across(float(at[0]), float(at[-1]), right=54)
    y, second = upwards(0, pool), upwards(*_padded(accuracy))
    dense = smoothed_count(places, at, width)
    heights = y.start - 34 * dense / (float(dense.max()) or 1.0)
    across_plot = [x(float(place)) for place in at]
    return _plot(
        "plot_skew.html.j2",
        x=x,
        y=y,
        second=second,
        density=[(x.start, y.start), *zip(across_plot, heights, strict=True), (x.end, y.start)],
        kept=list(zip(across_plot, map(y, kept_curve), strict=True)),
        accuracy=list(zip(across_plot, map(second, accuracy), strict=True)),
    )


def _padded(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = max(2.0, 0.25 * (high - low))
    return max(0.0, low - margin), min(100.0, high + margin)


def smoothed_count(places: Array, at: Array, width: float) -> Array:
    """The number of questions near each point."""
    count: Array = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2).sum(axis=1)
    return count


def histogram_svg(kept: Sequence[int], *, pool: int, number: int, name: str) -> str:
    """A histogram of the number of kept frames."""
    width = -(-pool // BARS)
    edges = np.arange(0, pool + width, width)
    counts, _ = np.histogram(kept, edges + 0.5)  # a bar covers whole numbers: 1 to 6, 7 to 12
    bars = []
    for low, high, count in zip(edges.tolist(), edges[1:].tolist(), counts.tolist(), strict=False):
        if count:
            span = f"{low + 1} to {high}" if width > 1 else str(high)
            words = f"{span} frames: {count:,} questions"
            bars.append({"low": low, "high": high, "count": count, "words": words})
    return _plot(
        "plot_histogram.html.j2",
        x=across(0, float(edges[-1])),
        y=upwards(0, float(counts.max()) * 1.06 or 1.0, whole=True),
        colour=number % RUN_COLOURS,
        name=name,
        pool=pool,
        bars=bars,
        median=float(np.median(kept)),
        late=float(np.median(kept)) > pool / 2,
    )
