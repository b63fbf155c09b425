"""Plots of a run page, as inline SVG: kept frames against skew, and histograms of them."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from gridprobe.report.run_page.axes import RUN_COLOURS, WIDTH, Axis, across, frame, svg, text_at, upright, upwards

__all__ = ["histogram_svg", "skew_svg", "smoothed"]

BARS = 24
STEPS = 80
"""Points of a smoothed curve."""
BANDWIDTH = 1 / 12
"""Width of the smoothing kernel, as a fraction of the axis."""

Array = npt.NDArray[np.float64]


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
    x = across(float(at[0]), float(at[-1]), right=54)
    y, second = upwards(0, pool), upwards(*_padded(accuracy))
    dense = smoothed_count(places, at, width)
    base, high_dense = y.start, float(dense.max()) or 1.0
    area = " ".join(f"{x(a):.1f},{base - 34 * d / high_dense:.1f}" for a, d in zip(at, dense, strict=True))
    parts = [f'<polygon class="density" points="{x.start:.1f},{base} {area} {x.end:.1f},{base}"/>']
    parts += frame(x, y, "signed skew of the importance map", "frames kept", "kept-ink")
    parts += [text_at(x.end + 8, second(tick) + 4, f"{tick:g}", "start", "accuracy-ink") for tick in second.ticks]
    parts.append(upright(WIDTH - 8, "accuracy over all frames, %", "accuracy-ink"))
    parts += [_curve("kept-line", at, kept_curve, x, y), _curve("accuracy-line", at, accuracy, x, second)]
    return svg(parts, "frames kept, and accuracy of the run over all frames, against signed skew")


def _padded(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = max(2.0, 0.25 * (high - low))
    return max(0.0, low - margin), min(100.0, high + margin)


def smoothed_count(places: Array, at: Array, width: float) -> Array:
    """The number of questions near each point."""
    found: Array = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2).sum(axis=1)
    return found


def _curve(name: str, at: Array, values: Array, x: Axis, y: Callable[[float], float]) -> str:
    points = " ".join(f"{x(float(a)):.1f},{y(float(v)):.1f}" for a, v in zip(at, values, strict=True))
    return f'<polyline class="{name}" points="{points}"/>'


def histogram_svg(kept: Sequence[int], *, pool: int, number: int, name: str) -> str:
    """A histogram of the number of kept frames."""
    width = -(-pool // BARS)
    edges = np.arange(0, pool + width, width)
    counts, _ = np.histogram(kept, edges + 0.5)  # a bar covers whole numbers: 1 to 6, 7 to 12
    x, y = across(0, float(edges[-1])), upwards(0, float(counts.max()) * 1.06 or 1.0, whole=True)
    parts = [*frame(x, y, "frames kept", "questions")]
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
    parts.append(text_at(x(middle) + (-5 if late else 5), y.end + 12, f"median {middle:g}", "end" if late else "start"))
    inner = f'<g class="run-{number % RUN_COLOURS}">{"".join(parts)}</g>'
    return svg([inner], f"how many frames {name} kept: median {middle:g} of {pool}")
