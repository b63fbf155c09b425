"""The plots of a run page, as inline SVG: accuracy against compute, kept frames against skew, histograms."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from gridprobe.report.words import amount
from gridprobe.statistics import Interval

__all__ = ["RUN_COLOURS", "Point", "frontier", "histogram_svg", "pareto_svg", "skew_svg", "smoothed"]

WIDTH, HEIGHT = 520, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 16, 48
RUN_COLOURS = 6
"""The number of distinct colours; with more runs, colours repeat."""
BARS = 24
STEPS = 80
"""Points of a smoothed curve."""
BANDWIDTH = 1 / 12
"""Width of the smoothing kernel, as a fraction of the axis."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """Compute and accuracy of a run."""

    name: str
    number: int
    compute: float
    accuracy: Interval


@dataclass(frozen=True)
class _Axis:
    """Maps values to coordinates; `ticks` are round values on the axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        raw = ((self.high - self.low) or 1.0) / 5
        scale = 10.0 ** math.floor(math.log10(raw))
        step = scale * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * scale >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _x(low: float, high: float, right: int = RIGHT) -> _Axis:
    return _Axis(low, high, LEFT, WIDTH - right)


def _y(low: float, high: float) -> _Axis:
    return _Axis(low, high, HEIGHT - BOTTOM, TOP)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The Pareto frontier: points that no other beats in both compute and accuracy, in order of compute."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.compute, -p.accuracy.mean)):
        if not best or point.accuracy.mean > best[-1].accuracy.mean:
            best.append(point)
    return best


def pareto_svg(points: Sequence[Point], *, words: str, everything: float) -> str:
    """Accuracy against mean compute; the region that some run dominates is shaded.

    `everything` is the cost of all frames in one pass, drawn as a line.
    """
    highest = max(everything, *(point.compute for point in points))
    lows, highs = ([100 * getattr(p.accuracy, end) for p in points] for end in ("low", "high"))
    margin = max(2.0, 0.15 * (max(highs) - min(lows)))
    x, y = _x(0, highest * 1.12), _y(max(0.0, min(lows) - margin), min(100.0, max(highs) + margin))
    parts = [_shade(frontier(points), x, y), *_frame(x, y, f"TFLOPs a question, {words}", "accuracy %")]
    if everything:
        at = x(everything)
        parts.append(f'<line class="reference" x1="{at:.1f}" x2="{at:.1f}" y1="{y.end}" y2="{y.start}"/>')
        parts.append(_text(at - 5, y.start - 6, "all frames in one pass", "end"))  # the top is for the best run
    taken: list[tuple[float, float]] = []
    parts += [_mark(point, x, y, taken) for point in sorted(points, key=lambda p: -p.accuracy.mean)]
    values = "; ".join(f"{p.name}: {100 * p.accuracy.mean:.1f} % at {amount(p.compute)} TFLOPs" for p in points)
    return _svg(parts, f"accuracy against compute, {words}: {values}")


def _shade(best: Sequence[Point], x: _Axis, y: _Axis) -> str:
    """The region to the right of the frontier and below it."""
    corners = [(x(best[0].compute), y.start)]
    for here, after in zip(best, [*best[1:], None], strict=True):
        height = y(100 * here.accuracy.mean)
        corners += [(x(here.compute), height), (x(after.compute) if after else x.end, height)]
    corners.append((x.end, y.start))
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
    hover = "more compute than a run with equal or higher accuracy"
    return f'<polygon class="dominated" points="{path}"><title>{hover}</title></polygon>'


def _mark(point: Point, x: _Axis, y: _Axis, taken: list[tuple[float, float]]) -> str:
    """An error bar, a mark, and the name, which moves down if it would overlap another name."""
    at, height = x(point.compute), y(100 * point.accuracy.mean)
    low, high = y(100 * point.accuracy.low), y(100 * point.accuracy.high)
    left = at > (x.start + x.end) / 2
    line = height - 8
    while any(abs(line - other) < 14 and abs(at - where) < 160 for where, other in taken):
        line += 14
    taken.append((at, line))
    shape = f'<circle class="mark" cx="{at:.1f}" cy="{height:.1f}" r="6"/>'
    if point.number % 2:
        shape = f'<rect class="mark" x="{at - 5.5:.1f}" y="{height - 5.5:.1f}" width="11" height="11" rx="2"/>'
    hover = f"{point.name}: {100 * point.accuracy.mean:.1f} % ({100 * point.accuracy.low:.1f} to "
    hover += f"{100 * point.accuracy.high:.1f}), {amount(point.compute)} TFLOPs"
    return (
        f'<g class="run-{point.number % RUN_COLOURS}"><title>{escape(hover)}</title>'
        f'<line class="whisker" x1="{at:.1f}" x2="{at:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>{shape}'
        + _text(at + (-11 if left else 11), line, _short(point.name), "end" if left else "start", "name")
        + "</g>"
    )


def smoothed(places: Array, values: Array, at: Array, width: float) -> Array:
    """Mean of the values near each point, weighted by a Gaussian of this width."""
    weights = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2)
    found: Array = (weights @ values) / weights.sum(axis=1)
    return found


def skew_svg(skew: Sequence[float], kept: Sequence[float], right: Sequence[float], *, pool: int) -> str:
    """The figure of the paper: kept frames, and accuracy of the run over all frames, against the skew of the map."""
    places, frames, hits = (np.asarray(values, dtype=np.float64) for values in (skew, kept, right))
    low, high = np.quantile(places, (0.01, 0.99))
    width = max(float(high - low), 1e-6) * BANDWIDTH
    at = np.linspace(low, max(high, low + 1e-6), STEPS)
    kept_curve, accuracy = smoothed(places, frames, at, width), 100 * smoothed(places, hits, at, width)
    x = _x(float(at[0]), float(at[-1]), right=54)
    y, second = _y(0, pool), _y(*_padded(accuracy))
    dense = smoothed_count(places, at, width)
    base, high_dense = y.start, float(dense.max()) or 1.0
    area = " ".join(f"{x(a):.1f},{base - 34 * d / high_dense:.1f}" for a, d in zip(at, dense, strict=True))
    parts = [f'<polygon class="density" points="{x.start:.1f},{base} {area} {x.end:.1f},{base}"/>']
    parts += _frame(x, y, "signed skew of the importance map", "frames kept", "kept-ink")
    parts += [_text(x.end + 8, second(tick) + 4, f"{tick:g}", "start", "accuracy-ink") for tick in second.ticks]
    parts.append(_upright(WIDTH - 8, "accuracy over all frames, %", "accuracy-ink"))
    parts += [_curve("kept-line", at, kept_curve, x, y), _curve("accuracy-line", at, accuracy, x, second)]
    return _svg(parts, "frames kept, and accuracy of the run over all frames, against signed skew")


def _padded(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = max(2.0, 0.25 * (high - low))
    return max(0.0, low - margin), min(100.0, high + margin)


def smoothed_count(places: Array, at: Array, width: float) -> Array:
    """The number of questions near each point."""
    found: Array = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2).sum(axis=1)
    return found


def _curve(name: str, at: Array, values: Array, x: _Axis, y: Callable[[float], float]) -> str:
    points = " ".join(f"{x(float(a)):.1f},{y(float(v)):.1f}" for a, v in zip(at, values, strict=True))
    return f'<polyline class="{name}" points="{points}"/>'


def histogram_svg(kept: Sequence[int], *, pool: int, number: int, name: str) -> str:
    """A histogram of the number of kept frames."""
    width = -(-pool // BARS)
    edges = np.arange(0, pool + width, width)
    counts, _ = np.histogram(kept, edges + 0.5)  # a bar covers whole numbers: 1 to 6, 7 to 12
    x, y = _x(0, float(edges[-1])), _y(0, float(counts.max()) * 1.06 or 1.0)
    parts = [*_frame(x, y, "frames kept", "questions")]
    for low, high, count in zip(edges.tolist(), edges[1:].tolist(), counts.tolist(), strict=False):
        if count:
            span = f"{low + 1} to {high}" if width > 1 else str(high)
            parts.append(
                f'<g><title>{span} frames: {count:,} questions</title><rect class="bar" x="{x(low) + 1:.1f}" '
                f'y="{y(count):.1f}" width="{x(high) - x(low) - 2:.1f}" height="{y.start - y(count):.1f}" rx="2"/></g>'
            )
    middle = float(np.median(kept))
    parts.append(f'<line class="reference" x1="{x(middle):.1f}" x2="{x(middle):.1f}" y1="{y.end}" y2="{y.start}"/>')
    late = middle > pool / 2
    parts.append(_text(x(middle) + (-5 if late else 5), y.end + 12, f"median {middle:g}", "end" if late else "start"))
    inner = f'<g class="run-{number % RUN_COLOURS}">{"".join(parts)}</g>'
    return _svg([inner], f"how many frames {name} kept: median {middle:g} of {pool}")


# Parts of a plot.


def _frame(x: _Axis, y: _Axis, below: str, side: str, ink: str = "") -> list[str]:
    parts = []
    for tick in y.ticks:
        height = y(tick)
        parts.append(f'<line class="gridline" x1="{x.start}" x2="{x.end}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(_text(x.start - 8, height + 4, f"{tick:,g}", "end", ink))
    parts += [_text(x(tick), y.start + 18, f"{tick:,g}", "middle") for tick in x.ticks]
    parts.append(f'<line class="axis" x1="{x.start}" x2="{x.end}" y1="{y.start}" y2="{y.start}"/>')
    parts.append(_text((x.start + x.end) / 2, HEIGHT - 8, below, "middle"))
    parts.append(_upright(13, side, ink))
    return parts


def _upright(x: float, text: str, ink: str = "") -> str:
    y = (TOP + HEIGHT - BOTTOM) / 2
    kind = f' class="{ink}"' if ink else ""
    return f'<text{kind} transform="rotate(-90 {x:g} {y:g})" x="{x:g}" y="{y:g}" text-anchor="middle">{text}</text>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(text: str, length: int = 24) -> str:
    return text if len(text) <= length else "…" + text[-length + 1 :]


def _svg(parts: Sequence[str], words: str) -> str:
    start = f'<svg class="plot" role="img" aria-label="{escape(words)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
    return f"{start}{''.join(parts)}</svg>"
