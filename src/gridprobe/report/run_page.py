"""Runs as one self-contained HTML page: figures, tables, and a list of all questions that a small script filters.

The page makes no requests. Its content security policy allows one script and one stylesheet, each by its hash. Text
from the runs is either escaped or passed as JSON, which the script inserts only as text nodes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gridprobe.benchmarks import Metric
from gridprobe.benchmarks.base import Interval
from gridprobe.errors import UsageError
from gridprobe.evaluation.metrics import Row, all_frames_cost, bins_of, official, score, shared
from gridprobe.evaluation.reader import Run
from gridprobe.models.cost import CONVENTIONS
from gridprobe.report.files import write_whole
from gridprobe.report.format import amount, percent, share_words
from gridprobe.report.html import asset, render_page
from gridprobe.report.run_data import RunThumbnails, embedded_json, pack, skew_data
from gridprobe.report.run_plots import RUN_COLOURS, RunPoint, frontier, histogram_svg, pareto_svg, skew_svg
from gridprobe.report.tables import RunScores, people_tables, uneven

__all__ = ["render_runs", "save_run_report"]

MOST_OPEN = 6
"""The cards and histograms of more runs are folded."""
NAMES = {"tflops": "honest convention", "tflops_paper": "published convention"}


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
        meanings=[CONVENTIONS[convention] for convention in NAMES],
        asked=max(len(run.results) for run in runs),
        cards=_cards(scores),
        uneven=uneven(runs),
        skew=_skew(runs),
        histograms=_histograms(runs),
        steady=[run.name for run in runs if len({r.answered.shown_native for r in run.results if r.answered}) == 1],
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
    return f"95 % interval {100 * interval.low:.1f} to {100 * interval.high:.1f}"


def _headline(official: Sequence[Metric]) -> str:
    """The benchmark's first score with its interval, if it is not the accuracy that the card shows."""
    first = next(iter(official), None)
    if first is None or first.value is None or first.name == "accuracy":
        return ""
    return ", ".join(filter(None, (f"{first.name} {first.value:.2f}", _interval(first.interval))))


def _pareto(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Accuracy against compute by both conventions, for the questions that all runs were asked."""
    rows, figures = score(runs), []
    for convention, words in NAMES.items():
        points = [
            RunPoint(run.name, number, getattr(row.cost, convention), row.accuracy)
            for number, (run, row) in enumerate(zip(runs, rows, strict=True))
            if row.cost and row.accuracy
        ]
        if points:
            everything = max(all_frames_cost(run, convention) for run in runs)
            svg = pareto_svg(points, words=words, everything=everything)
            figures.append({"svg": svg, "words": f"On the front: {_front(points)}"})
    return figures


def _front(points: Sequence[RunPoint]) -> str:
    """The runs of the Pareto front in words, cheapest first; on a phone there is no hover."""
    best = (f"{p.name} {100 * p.accuracy.mean:.1f} % at {amount(p.compute)} TFLOPs" for p in frontier(points))
    return "; ".join(best)


def _histograms(runs: Sequence[Run]) -> list[dict[str, str]]:
    """How many frames each run kept, if that varies."""
    figures = []
    for number, run in enumerate(runs):
        answers = [result.answered for result in run.results if result.answered]
        kept = [answer.shown_native for answer in answers if answer.shown_native]  # an overview keeps none
        if len(set(kept)) > 1:
            svg = histogram_svg(
                kept, pool=max(answer.selection["pool"] for answer in answers), number=number, name=run.name
            )
            figures.append({"svg": svg, "words": run.name})
    return figures


def _skew(runs: Sequence[Run]) -> dict[str, Any]:
    """Kept frames of the first run with maps, and accuracy of the run over all frames, against skew; or what lacks."""
    try:
        data = skew_data(runs)
    except UsageError as error:
        return {"lack": str(error)}
    return {"data": data, "svg": skew_svg(data.skew, data.kept, data.right, pool=data.pool)}


def _tables(scores: RunScores) -> dict[str, Any]:
    """The tables for all questions, then those of each bin, by the name of the bin."""
    tables = {}
    for name in dict.fromkeys(row.bin for row in scores.rows):
        rows = [row for row in scores.rows if row.bin == name]
        tables[name] = people_tables(RunScores(scores.runs, rows, {} if name else scores.official))
    return tables
