"""Runs as one self-contained HTML page: results, a plot, tables, and all questions, which a small script filters.

The page makes no requests. Its content security policy allows one script and one stylesheet, each by its hash. Text
from the runs is either escaped or passed as JSON, which the script inserts only as text nodes.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gridprobe.errors import UsageError
from gridprobe.models.base import CONVENTIONS
from gridprobe.report.format import amount, percent, share_words
from gridprobe.report.html import asset, render_page, render_part, write_whole
from gridprobe_eval.benchmarks import Metric
from gridprobe_eval.benchmarks.base import Interval
from gridprobe_eval.metrics import Row, all_frames_cost, bins_of, official, score, shared
from gridprobe_eval.reader import Run
from gridprobe_eval.report.run_data import RunThumbnails, embedded_json, pack
from gridprobe_eval.report.tables import RunScores, people_tables, uneven

MOST_OPEN = 6
"""The cards of more runs are folded."""

# A plot as inline SVG: accuracy against compute with its Pareto front.

WIDTH, HEIGHT = 520, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 16, 48
RUN_COLOURS = 6
"""The number of distinct colours; with more runs, colours repeat."""
FEW = 6
"""Of more runs, those behind the front get faint error bars."""
WIDE = 8
"""From this factor between the cheapest and the dearest run on, the axis of compute is logarithmic."""
ALL_FRAMES = "all frames in one pass"


@dataclass(frozen=True)
class Axis:
    """Maps values to coordinates; `ticks` are round values on the axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    """Whether equal distances are equal factors."""

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
        scale = 10.0 ** math.floor(math.log10(raw))
        step = scale * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * scale >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def across(low: float, high: float, *, log: bool = False) -> Axis:
    """The horizontal axis."""
    return Axis(low, high, LEFT, WIDTH - RIGHT, log)


def upwards(low: float, high: float) -> Axis:
    """The vertical axis."""
    return Axis(low, high, HEIGHT - BOTTOM, TOP)


# Accuracy against compute.


@dataclass(frozen=True)
class RunPoint:
    """Compute and accuracy of a run; its mark shows the number of the run on the page, from 1."""

    name: str
    number: int
    compute: float
    accuracy: Interval


def frontier(points: Sequence[RunPoint]) -> list[RunPoint]:
    """The Pareto front: points that no other beats in both compute and accuracy, in order of compute."""
    best: list[RunPoint] = []
    for point in sorted(points, key=lambda p: (p.compute, -p.accuracy.mean)):
        if not best or point.accuracy.mean > best[-1].accuracy.mean:
            best.append(point)
    return best


def pareto_svg(points: Sequence[RunPoint], *, everything: float) -> str:
    """Accuracy against mean compute by the honest convention.

    A line joins the front, and the region that it dominates is shaded. `everything` is the cost of all frames in one
    pass, drawn as a line.
    """
    highest = max(everything, *(point.compute for point in points))
    lows, highs = ([100 * getattr(p.accuracy, end) for p in points] for end in ("low", "high"))
    margin = max(2.0, 0.15 * (max(highs) - min(lows)))
    x = _compute_axis([point.compute for point in points], highest)
    y = upwards(max(0.0, min(lows) - margin), min(100.0, max(highs) + margin))
    best = frontier(points)
    stairs = _stairs(best, x, y)
    marks = [  # the front is drawn last, over the others
        _mark(point, x, y, best=point in best) | {"faint": len(points) > FEW and point not in best}
        for point in sorted(points, key=lambda p: p in best)
    ]
    values = "; ".join(f"{p.name}: {100 * p.accuracy.mean:.1f}% at {amount(p.compute)} TFLOPs" for p in points)
    front = ", ".join(point.name for point in best)
    return render_part(
        "plot.html.j2",
        width=WIDTH,
        height=HEIGHT,
        middle=(TOP + HEIGHT - BOTTOM) / 2,
        words=f"accuracy against compute; on the front: {front}; {values}",
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


def _mark(point: RunPoint, x: Axis, y: Axis, *, best: bool) -> dict[str, Any]:
    """An error bar, and a mark with the number of the run."""
    hover = f"{point.name}: {100 * point.accuracy.mean:.1f}% ({100 * point.accuracy.low:.1f} to "
    hover += f"{100 * point.accuracy.high:.1f}), {amount(point.compute)} TFLOPs"
    return {
        "x": x(point.compute),
        "y": y(100 * point.accuracy.mean),
        "low": y(100 * point.accuracy.low),
        "high": y(100 * point.accuracy.high),
        "hover": hover,
        "best": best,
        "square": point.number % 2,
        "colour": point.number % RUN_COLOURS,
        "number": point.number + 1,
    }


# The page.


def save_run_report(
    runs: Sequence[Run], path: Path, *, thumbnails: RunThumbnails | None = None, notes: Sequence[str] = ()
) -> None:
    """Write these runs as one self-contained page."""
    write_whole(path, render_runs(runs, thumbnails=thumbnails, notes=notes).encode("utf-8", "replace"))


def render_runs(runs: Sequence[Run], *, thumbnails: RunThumbnails | None = None, notes: Sequence[str] = ()) -> str:
    """The page as HTML."""
    if not runs:
        raise UsageError("a report needs at least one run, got none")
    scores = RunScores(runs, score(runs, by=bins_of(runs)), {run.name: official(run) for run in runs})
    style, script = asset("answer.css") + asset("runs.css"), asset("runs.js")
    names = ", ".join(run.name for run in runs) if len(runs) <= MOST_OPEN else f"{len(runs)} runs"
    common = shared(runs)
    return render_page(
        "runs.html.j2",
        f"{runs[0].benchmark}: {names}",
        style=style,
        policy=_policy(style, script),
        script=script,
        data=embedded_json(pack(runs, thumbnails)),
        runs=runs,
        folded=len(runs) > MOST_OPEN,
        colours=RUN_COLOURS,
        common=len(common[0].results),
        pareto=_pareto(common),
        meanings=[CONVENTIONS[name] for name in ("tflops", "tflops_paper")],
        asked=max(len(run.results) for run in runs),
        cards=_cards(scores),
        uneven=uneven(runs),
        tables=_tables(scores),
        remarks=[*(f"{run.name}: {note}" for run in runs for note in run.notes), *notes],
        specs=[(run.name, asdict(run.spec)) for run in runs],
    )


def _policy(style: str, script: str) -> str:
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in (style, script))
    allowed = "style-src 'sha256-{}'; script-src 'sha256-{}'".format(*hashes)
    return f"default-src 'none'; img-src data:; {allowed}; base-uri 'none'; form-action 'none'"


def _cards(scores: RunScores) -> list[dict[str, Any]]:
    """What stands on the card of each run: its accuracy and some lines of facts."""
    rows = [row for row in scores.rows if not row.bin]
    return [
        {
            "accuracy": f"{100 * row.accuracy.mean:.1f}" if row.accuracy else None,
            "lines": list(filter(None, _facts(run, row, scores.official[run.name]))),
        }
        for run, row in zip(scores.runs, rows, strict=True)
    ]


def _facts(run: Run, row: Row, official: Sequence[Metric]) -> list[str]:
    counts = [f"{row.asked:,} asked", f"{row.failed:,} failed", *([f"{row.missing:,} missing"] if row.missing else [])]
    facts = [_interval(row.accuracy), _headline(official), " · ".join(counts)]
    if cost := row.cost:
        whole = all_frames_cost(run, "tflops")
        facts += [
            f"{percent(row.reached.overview)} answered from the overview" if row.reached else "",
            f"{cost.kept:.1f} frames kept, median {cost.kept_median:g}",
            f"{share_words(cost.tflops / whole)} of the compute of all frames" if cost.tflops and whole else "",
        ]
    return facts


def _interval(interval: Interval | None) -> str:
    """Empty for one video, which has no variation between videos."""
    if interval is None or interval.clusters < 2:
        return ""
    return f"95% interval {100 * interval.low:.1f} to {100 * interval.high:.1f}"


def _headline(official: Sequence[Metric]) -> str:
    """The benchmark's first score with its interval, if it is not the accuracy that the card shows."""
    first = next(iter(official), None)
    if first is None or first.value is None or first.name == "accuracy":
        return ""
    return ", ".join(filter(None, (f"{first.name} {first.value:.2f}", _interval(first.interval))))


def _pareto(runs: Sequence[Run]) -> dict[str, str] | None:
    """Accuracy against compute for the questions that all runs were asked; None for fewer than two runs to compare."""
    rows = score(runs)
    costs = [(number, row.run, row.cost, row.accuracy) for number, row in enumerate(rows)]
    points = [RunPoint(name, number, cost.tflops, right) for number, name, cost, right in costs if cost and right]
    if len(points) < 2:
        return None
    paper = "; ".join(f"{name} {amount(cost.tflops_paper)}" for _, name, cost, right in costs if cost and right)
    return {
        "svg": pareto_svg(points, everything=max(all_frames_cost(run, "tflops") for run in runs)),
        "words": f"On the front: {_front(points)}",
        "published": paper,
    }


def _front(points: Sequence[RunPoint]) -> str:
    """The runs of the Pareto front in words, cheapest first; on a phone there is no hover."""
    best = (f"{p.name} {100 * p.accuracy.mean:.1f}% at {amount(p.compute)} TFLOPs" for p in frontier(points))
    return "; ".join(best)


def _tables(scores: RunScores) -> dict[str, Any]:
    """The tables for all questions, then those of each bin, by the name of the bin."""
    tables = {}
    for name in dict.fromkeys(row.bin for row in scores.rows):
        rows = [row for row in scores.rows if row.bin == name]
        tables[name] = people_tables(RunScores(scores.runs, rows, {} if name else scores.official))
    return tables
