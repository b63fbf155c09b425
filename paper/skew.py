"""The paper's skew figure: kept frames, and the accuracy over all frames, against the signed skew of the map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from canvas import COLUMN, SERIES, add_legend, add_note, new_figure, styled
from gridprobe.errors import UsageError
from gridprobe_eval.reader import Run

__all__ = ["SkewData", "Smoothed", "skew_data", "skew_figure", "smooth"]

RESAMPLES = 1000
STEPS = 80
"""Points of a smoothed curve."""
BANDWIDTH = 1 / 12
"""Width of the smoothing kernel, as a fraction of the axis."""
Array = npt.NDArray[np.float64]


FEW = 20
"""The smallest number of maps for a curve."""


@dataclass(frozen=True)
class SkewData:
    """The paper's skew figure: values of the questions that a run with maps and one over all frames share, in order."""

    mapped: str
    """Name of the run with maps."""
    whole: str
    """Name of the run over all frames."""
    skew: tuple[float, ...]
    kept: tuple[int, ...]
    right: tuple[float, ...]
    """1.0 where the run over all frames is right."""
    groups: tuple[str, ...]
    pool: int
    """The most frames there were to choose from."""


def skew_data(runs: Sequence[Run]) -> SkewData:
    """Pair the first run that has maps with the run of the selector "all"."""
    mapped = next((run for run in runs if any(r.answered and r.answered.skew is not None for r in run.results)), None)
    whole = next((run for run in runs if run.selector == "all"), None)
    if mapped is None or whole is None:
        lacking = "a run with importance maps (gridprobe)" if mapped is None else 'a run of the selector "all" as well'
        raise UsageError(f"the plot of kept frames and accuracy against skew needs {lacking}")
    right = {result.id: result.right for result in whole.results if result.right is not None}
    shared = [
        (result.group, result.answered, float(bool(right[result.id])))
        for result in mapped.results
        if result.answered and result.answered.skew is not None and result.id in right
    ]
    if len(shared) < FEW:
        raise UsageError(f"kept frames against skew: needs {FEW} shared questions, got {len(shared)}")
    return SkewData(
        mapped=mapped.name,
        whole=whole.name,
        skew=tuple(answer.skew or 0.0 for _, answer, _ in shared),
        kept=tuple(answer.shown_native for _, answer, _ in shared),
        right=tuple(hit for _, _, hit in shared),
        groups=tuple(group for group, _, _ in shared),
        pool=max(answer.selection["pool"] for _, answer, _ in shared),
    )


@dataclass(frozen=True)
class Smoothed:
    """A smoothed curve with its pointwise 95% band."""

    at: Array
    mean: Array
    low: Array
    high: Array


def smooth(places: Array, values: Array, groups: tuple[str, ...]) -> Smoothed:
    """Means weighted by a Gaussian a twelfth of the axis wide; the band is from resampling whole groups (videos)."""
    at, width = _axis(places)
    weights = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2)
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    by_group = np.zeros((len(places), member.max() + 1))
    by_group[np.arange(len(places)), member] = 1.0
    weight, total = weights @ by_group, (weights * values) @ by_group
    rng, count = np.random.default_rng(0), by_group.shape[1]
    times_drawn = rng.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)
    drawn = (times_drawn @ total.T) / np.maximum(times_drawn @ weight.T, 1e-300)
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return Smoothed(at, _smoothed(places, values, at, width), low, high)


def _axis(places: Array) -> tuple[Array, float]:
    """Points over the middle 98% of the skews, and the width of the kernel."""
    low, high = (float(end) for end in np.quantile(places, (0.01, 0.99)))
    span = max(high - low, 1e-6)
    return np.linspace(low, low + span, STEPS), span * BANDWIDTH


def _smoothed(places: Array, values: Array, at: Array, width: float) -> Array:
    """Mean of the values near each point, weighted by a Gaussian of this width."""
    weights = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2)
    means: Array = (weights @ values) / weights.sum(axis=1)
    return means


def _density_of(places: Array, at: Array, width: float) -> Array:
    """The number of questions near each point."""
    count: Array = np.exp(-0.5 * ((at[:, None] - places[None, :]) / width) ** 2).sum(axis=1)
    return count


def skew_figure(data: SkewData, *, width: float = COLUMN) -> Any:
    """Kept frames on the left axis, accuracy of the run over all frames on the right one, both with their bands."""
    places = np.asarray(data.skew, dtype=np.float64)
    kept = smooth(places, np.asarray(data.kept, dtype=np.float64), data.groups)
    right = smooth(places, 100 * np.asarray(data.right, dtype=np.float64), data.groups)
    note = (
        f"{len(places):,} questions about {len(set(data.groups)):,} videos, smoothed; bands: pointwise 95%, videos "
        "resampled; grey: density of the questions."
    )
    with styled():
        figure = new_figure(width, 0.76 * COLUMN)
        left = figure.subplots()
        second = left.twinx()
        _density(left, places, kept.at)
        lines = [
            _draw(left, kept, SERIES[0], f"frames kept ({data.mapped})"),
            _draw(second, right, SERIES[1], f"accuracy over all frames ({data.whole})"),
        ]
        left.set_xlabel("signed skew of the importance map")
        left.set_ylabel(f"frames kept, of {data.pool}", color=SERIES[0].ink)
        second.set_ylabel("accuracy, %", color=SERIES[1].ink)
        _limits(left, second, kept, right, data.pool)
        add_legend(figure, lines, width=width)
        add_note(figure, note, width=width)
    return figure


def _draw(axes: Any, curve: Smoothed, style: Any, name: str) -> Any:
    axes.fill_between(curve.at, curve.low, curve.high, color=style.colour, alpha=0.22, linewidth=0, zorder=2)
    (line,) = axes.plot(curve.at, curve.mean, color=style.colour, linestyle=style.dash, label=name, zorder=3)
    return line


def _density(axes: Any, places: Array, at: Array) -> None:
    """How many questions are near each skew, in the lowest part of the plot."""
    dense = _density_of(places, at, _axis(places)[1])
    heights = 0.12 * dense / float(dense.max())
    axes.fill_between(at, 0, heights, transform=axes.get_xaxis_transform(), color="#cccccc", linewidth=0, zorder=1)


def _limits(left: Any, second: Any, kept: Smoothed, right: Smoothed, pool: int) -> None:
    """The scale of accuracy leaves the lowest part to the density of questions."""
    left.set_xlim(kept.at[0], kept.at[-1])
    left.set_ylim(0, pool * 1.02)
    low, high = float(right.low.min()), float(right.high.max())
    margin = max(2.0, 0.15 * (high - low))
    second.set_ylim(max(0.0, low - 2 * margin), min(100.0, high + margin))
    second.spines["right"].set_visible(True)
    left.tick_params(axis="y", colors=SERIES[0].ink)
    second.tick_params(axis="y", colors=SERIES[1].ink)
