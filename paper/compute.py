"""The paper's figure 1b: compute over the grid size K, measured in runs or planned from a model's price list."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Literal

from canvas import (
    BLANK,
    COLUMN,
    SERIES,
    SMALL,
    TEXT,
    add_legend,
    add_note,
    new_figure,
    styled,
    wrap,
)
from gridprobe.errors import UsageError
from gridprobe.models import CostModel
from gridprobe.models.base import Cost
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.report.format import share_words
from gridprobe.video import VideoInfo
from gridprobe_eval.benchmarks.base import Interval
from gridprobe_eval.metrics import all_frames_cost, score, shared
from gridprobe_eval.planning import price_grid
from gridprobe_eval.reader import Run

__all__ = ["Convention", "Curve", "Point", "compute_figure", "measured", "planned"]

Convention = Literal["tflops", "tflops_paper"]
AXIS = {"tflops": "TFLOPs a question\n(honest convention)", "tflops_paper": "TFLOPs a question\n(published convention)"}
ALL = "all frames, one pass"
SHARE = "%: of the compute of all frames."
TEXT_CHARACTERS = 1120
"""Length of a planned prompt: 280 tokens, which is what the token counts behind the published tables leave for it."""
SECONDS = 600.0
"""Length of a planned video; it only decides how many digits the frames' times have."""


@dataclass(frozen=True)
class Point:
    """Compute, and accuracy where it was measured, at one grid size."""

    k: int
    compute: float
    accuracy: Interval | None = None
    highest: float | None = None
    """The upper end, if the number of kept frames is not known: `compute` is then the lower end."""


@dataclass(frozen=True)
class Curve:
    """The points of one method, in order of K."""

    name: str
    points: tuple[Point, ...]
    planned: bool
    note: str
    """Where the numbers are from."""


def measured(runs: Sequence[Run], *, convention: Convention) -> list[Curve]:
    """All frames, and every selector of the runs, at mean cost and accuracy over the questions that all runs share."""
    common = _comparable(runs)
    rows = score(common)
    note = f"Measured: {runs[0].benchmark}, {len(common[0].results):,} questions, {_answerer(runs[0])}."
    whole: dict[int, Point] = {}
    others: dict[str, dict[int, Point]] = {}
    for run, row in zip(common, rows, strict=True):
        if row.cost is None:
            raise UsageError(f"{run.name} has no answered question that all runs share; leave it out")
        k, point = _k(run), Point(_k(run), getattr(row.cost, convention), row.accuracy)
        mine = whole if run.selector == "all" else others.setdefault(run.selector, {})
        if k in mine and (run.selector != "all" or mine[k].accuracy is not None):
            raise UsageError(f"{run.name} is a second run of {run.selector} with K = {k}; name one of them")
        mine[k] = point
        whole.setdefault(k, Point(k, all_frames_cost(run, convention)))
    by_name = {ALL: whole, **others}
    return [Curve(name, tuple(points[k] for k in sorted(points)), False, note) for name, points in by_name.items()]


def _comparable(runs: Sequence[Run]) -> list[Run]:
    """The runs with the questions they share; a different benchmark or answering model is refused."""
    for run in runs[1:]:
        if _answerer(run) != _answerer(runs[0]):
            raise UsageError(
                f"{run.name} was answered by {_answerer(run)} and {runs[0].name} by {_answerer(runs[0])}: the figure "
                "compares grid sizes of one model; leave one of them out"
            )
    score(runs)  # refuses runs of different benchmark versions
    common = shared(runs)
    if not common[0].results:
        raise UsageError(f"the {len(runs)} runs share no question; name runs of the same questions")
    return common


def _answerer(run: Run) -> str:
    return str(run.spec.setup["answerer"])


def _k(run: Run) -> int:
    return int((run.spec.setup["sampling"] or {})["k"])


def planned(
    gauge: CostModel,
    sides: Sequence[int],
    *,
    size: tuple[int, int] = (1920, 1080),
    kept: Sequence[int] = (),
    preset: str = "paper",
    convention: Convention,
) -> list[Curve]:
    """All frames and GridProbe, priced for a video of this size.

    `kept` has one number of frames for all grid sizes, or one for each; without any, the cost is from the fewest to
    the most frames that the budget rule may keep.
    """
    if kept and len(kept) not in (1, len(sides)):
        raise UsageError(f"give one number of kept frames, or one for each of the {len(sides)} K, got {len(kept)}")
    counts = list(kept) * (len(sides) if len(kept) == 1 else 1) or [0] * len(sides)
    whole, ours = [], []
    for k, count in sorted(zip(sides, counts, strict=True)):
        if count > k * k:
            raise UsageError(f"K = {k} has {k * k} frames, so {count} cannot be kept; give a smaller number")
        everything, *ends = _price(gauge, Options.from_preset(preset, k=k), size, count)
        low, high = (getattr(end, convention) for end in (ends[0], ends[-1]))
        whole.append(Point(k, getattr(everything, convention)))
        ours.append(Point(k, low, highest=None if count else high))
    words = f"{', '.join(map(str, kept))} frames kept" if kept else "the fewest to the most frames that may be kept"
    note = (
        f"Planned from the dimensions of {gauge.identity} for {size[0]}×{size[1]}, preset {preset}, {words}. "
        "No weights were run."
    )
    return [Curve(ALL, tuple(whole), True, note), Curve("GridProbe", tuple(ours), True, note)]


def _price(gauge: CostModel, settings: Options, size: tuple[int, int], count: int) -> list[Cost]:
    """All frames, then the whole of GridProbe for each number of kept frames."""
    setup = settings.resolve(model=gauge)
    question = _question(settings.template or "default")
    whole, stages, kept = price_grid(setup, question, _video(size), kept=(count,) if count else ())
    return [whole, *(stages.overview + stages.probes + focus for focus in kept.values())]


def _question(template: str) -> Question:
    """A question whose prompt has TEXT_CHARACTERS characters."""
    short = Question("?", ("yes", "no"), template=template)
    sentence = "What does the person do after the bell rings? "
    text = (sentence * (TEXT_CHARACTERS // len(sentence) + 1))[: TEXT_CHARACTERS - len(short.prompt)] + "?"
    return Question(text, short.options, template=template)


def _video(size: tuple[int, int]) -> VideoInfo:
    """A video of this size, long enough for any pool."""
    return VideoInfo(
        path="planned",
        container="",
        codec="",
        width=size[0],
        height=size[1],
        rotation=0,
        fps=None,
        duration_header=SECONDS,
        frames_header=None,
        duration_found=None,
        frames_found=None,
        start_time=0.0,
        pixel_format="",
        hdr=False,
        decoder="",
        fingerprint="planned",
    )


# Drawing.


def compute_figure(curves: Sequence[Curve], *, convention: Convention, width: float = COLUMN) -> Any:
    """Compute over K with the factor saved against all frames, and accuracy below if some was measured."""
    if not any(curve.points for curve in curves):
        raise UsageError("the figure of compute needs runs, or a model and grid sizes to plan for")
    judged = any(point.accuracy for curve in curves for point in curve.points)
    with styled():
        figure = new_figure(width, 0.84 * COLUMN + (26 if judged else 0))
        panels = figure.subplots(2 if judged else 1, sharex=True, squeeze=False, height_ratios=[5, 3][: 1 + judged])
        top, bottom = panels[0, 0], panels[-1, 0]
        _compute_panel(top, curves)
        top.set_ylabel(AXIS[convention])
        if judged:
            _accuracy_panel(bottom, curves)
        _grid_axis(bottom, sorted({point.k for curve in curves for point in curve.points}), width)
        add_legend(figure, top.get_lines(), width=width)
        add_note(figure, " ".join([*dict.fromkeys(curve.note for curve in curves), SHARE]), width=width)
    return figure


def _styles(curves: Sequence[Curve]) -> list[Any]:
    """One style for each name; all frames have the second, our method the first."""
    names = list(dict.fromkeys(curve.name for curve in curves if curve.name != ALL))
    places = {ALL: 1} | {name: (0, 2, 3)[number % 3] for number, name in enumerate(names)}
    return [SERIES[places[curve.name]] for curve in curves]


def _compute_panel(axes: Any, curves: Sequence[Curve]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for curve, style in zip(curves, _styles(curves), strict=True):
        ranged = any(point.highest for point in curve.points)
        words = ", fewest to most frames" if ranged else ""
        name = f"{curve.name}{words} (planned)" if curve.planned else curve.name
        sides, low = [p.k for p in curve.points], [p.compute for p in curve.points]
        line = {"color": style.colour, "linestyle": style.dash, "marker": style.marker, "label": name}
        axes.plot(sides, low, **line, markerfacecolor="white" if curve.planned else style.colour)
        if ranged:
            high = [point.highest or point.compute for point in curve.points]
            axes.plot(sides, high, **line | {"label": "_"}, markerfacecolor="white")
            axes.fill_between(sides, low, high, color=style.colour, alpha=0.15, linewidth=0)
            if len(sides) == 1:  # a band without a width
                axes.vlines(sides, low, high, color=style.colour, alpha=0.3)
    _shares(axes, curves)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.margins(x=0.09)
    low, high = axes.get_ylim()
    axes.set_ylim(low / (high / low) ** 0.08, high)  # room for the shares
    axes.grid(axis="y")


def _shares(axes: Any, curves: Sequence[Curve]) -> None:
    """The share of the compute of all frames, below each point of the other curves; none for a range."""
    whole = {(curve.planned, p.k): p.compute for curve in curves if curve.name == ALL for p in curve.points}
    for curve, style in zip(curves, _styles(curves), strict=True):
        for point in curve.points if curve.name != ALL else ():
            everything = whole[curve.planned, point.k]
            if point.highest is None and min(everything, point.compute) > 0:
                axes.annotate(
                    share_words(point.compute / everything),
                    (point.k, point.compute),
                    xytext=(0, -5),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    fontsize=SMALL,
                    color=style.ink,
                    bbox=BLANK,
                )


def _accuracy_panel(axes: Any, curves: Sequence[Curve]) -> None:
    judged = [each for each in zip(curves, _styles(curves), strict=True) if any(p.accuracy for p in each[0].points)]
    for place, (curve, style) in enumerate(judged):
        shift = 1 + 0.02 * (place - (len(judged) - 1) / 2)
        estimates = [(point.k * shift, point.accuracy) for point in curve.points if point.accuracy]
        means = [100 * accuracy.mean for _, accuracy in estimates]
        below = [100 * (accuracy.mean - accuracy.low) for _, accuracy in estimates]
        above = [100 * (accuracy.high - accuracy.mean) for _, accuracy in estimates]
        axes.errorbar(
            [k for k, _ in estimates],
            means,
            yerr=[below, above],
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            capsize=2,
            elinewidth=0.8,
            label=curve.name,
        )
    axes.set_ylabel("accuracy %\n(95% interval)")
    axes.margins(y=0.1)
    axes.grid(axis="y")


def _grid_axis(axes: Any, sides: Sequence[int], width: float) -> None:
    """Ticks at the grid sizes; a label that would touch the one before is left out."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    room, labels, last = width - 22, [], -1e9
    span = log(sides[-1] / sides[0]) or 1.0
    for k in sides:
        place = room * log(k / sides[0]) / span
        labels.append(f"{k}\n{k * k:,}" if place - last >= 6.5 else "")
        last = place if labels[-1] else last
    axes.xaxis.set_major_locator(FixedLocator(list(sides)))
    axes.xaxis.set_major_formatter(FixedFormatter(labels))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(sides) == 1:
        axes.set_xlim(sides[0] / 2, sides[0] * 2)
    axes.set_xlabel(wrap("grid side K (below: frames in the pool, K²)", width - 24, size=TEXT))
