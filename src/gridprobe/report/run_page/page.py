"""Runs as one self-contained HTML page: figures, tables, and a list of all questions that a small script filters.

The page makes no requests. Its content security policy allows one script and one stylesheet, each by its hash. Text
from the runs is either escaped or passed as JSON, which the script inserts only as text nodes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path

from gridprobe.benchmarks import Metric
from gridprobe.errors import UsageError
from gridprobe.evaluation.metrics import Row, all_frames_cost, bins_of, official, score, shared
from gridprobe.evaluation.reader import Run
from gridprobe.flops import CONVENTIONS
from gridprobe.report.answer_page.style import STYLE
from gridprobe.report.difficulty import difficulty
from gridprobe.report.files import write_whole
from gridprobe.report.html import document, pairs, table
from gridprobe.report.run_page.axes import RUN_COLOURS
from gridprobe.report.run_page.data import Thumbnails, embedded_json, pack
from gridprobe.report.run_page.pareto import Point, frontier, pareto_svg
from gridprobe.report.run_page.plots import histogram_svg, skew_svg
from gridprobe.report.run_page.style import RUN_STYLE
from gridprobe.report.run_tables import Scores, Table, people_tables, uneven
from gridprobe.report.words import amount, percent, share_words

__all__ = ["render_runs", "save_run_report"]

MOST_OPEN = 6
"""The cards and histograms of more runs are folded."""
NAMES = {"tflops": "honest convention", "tflops_paper": "published convention"}


def save_run_report(
    runs: Sequence[Run], path: Path, *, thumbnails: Thumbnails | None = None, notes: Sequence[str] = ()
) -> None:
    """Write these runs as one self-contained page."""
    write_whole(path, render_runs(runs, thumbnails=thumbnails, notes=notes).encode("utf-8", "replace"))


def render_runs(runs: Sequence[Run], *, thumbnails: Thumbnails | None = None, notes: Sequence[str] = ()) -> str:
    """The page as HTML."""
    if not runs:
        raise UsageError("a report needs at least one run, got none")
    scores = Scores(runs, score(runs, by=bins_of(runs)), {run.name: official(run) for run in runs})
    whole = [row for row in scores.rows if not row.bin]
    sections = [_pareto(shared(runs)), _summary(scores, whole), _difficulty(runs), _tables(scores), _list(runs)]
    remarks = [*(f"{run.name}: {note}" for run in runs for note in run.notes), *notes]
    script = files("gridprobe.report.run_page").joinpath("page.js").read_text(encoding="utf-8")
    style = STYLE + RUN_STYLE
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data:",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    data = f'<script type="application/json" id="data">{embedded_json(pack(runs, thumbnails))}</script>'
    return document(
        _title(runs),
        "\n".join([*sections, _about(runs, remarks)]),
        style=style,
        policy=policy,
        after=f"{data}\n<script>{script}</script>\n",
    )


def _title(runs: Sequence[Run]) -> str:
    names = ", ".join(run.name for run in runs) if len(runs) <= MOST_OPEN else f"{len(runs)} runs"
    return f"{runs[0].benchmark}: {names}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


# Sections.


def _summary(scores: Scores, rows: Sequence[Row]) -> str:
    runs = scores.runs
    cards = "".join(
        _card(run, row, number, scores.official[run.name])
        for number, (run, row) in enumerate(zip(runs, rows, strict=True))
    )
    asked = max(len(run.results) for run in runs)
    source = f"{escape(runs[0].benchmark)} · {escape(runs[0].version)} · {asked:,} questions"
    message = uneven(runs)
    warning = f'<aside class="warnings">{escape(message[0].upper() + message[1:])}.</aside>' if message else ""
    body = _folded(runs, f'<div class="cards">{cards}</div>')
    return f'<article><p class="source">{source}</p>{body}{warning}</article>'


def _folded(runs: Sequence[Run], inner: str, words: str = "All") -> str:
    """The HTML, behind a fold if there are many runs."""
    if len(runs) <= MOST_OPEN:
        return inner
    return f"<details><summary>{words} {len(runs)} runs</summary>{inner}</details>"


def _card(run: Run, row: Row, number: int, official: Sequence[Metric]) -> str:
    found, cost = row.accuracy, row.cost
    big = f"{100 * found.mean:.1f}<small>%</small>" if found else "–"
    between = f"95 % interval {100 * found.low:.1f} to {100 * found.high:.1f}" if found and found.clusters > 1 else ""
    facts = [f"{row.asked:,} asked", f"{row.failed:,} failed", *([f"{row.missing:,} missing"] if row.missing else [])]
    lines = [between, _headline(official), " · ".join(facts)]
    if cost:
        whole = all_frames_cost(run, "tflops")
        against = f"{share_words(cost.tflops / whole)} of the compute of all frames" if cost.tflops and whole else ""
        overview = f"{percent(row.reached.overview)} answered from the overview" if row.reached else ""
        lines += [overview, f"{cost.kept:.1f} frames kept, median {cost.kept_median:g}", against]
    items = "".join(f"<li>{line}</li>" for line in lines if line)
    return (
        f'<section class="card run-{number % RUN_COLOURS}"><h2 dir="auto">{escape(run.name)}</h2>'
        f'<p class="source">{escape(run.selector)} · {escape(run.models)}</p>'
        f'<p class="big">{big}</p><ul>{items}</ul></section>'
    )


def _headline(official: Sequence[Metric]) -> str:
    """The benchmark's first score with its interval, if it is not the accuracy that the card shows."""
    first = next(iter(official), None)
    if first is None or first.value is None or first.name == "accuracy":
        return ""
    found = first.interval
    between = f", 95 % interval {100 * found.low:.1f} to {100 * found.high:.1f}" if found and found.clusters > 1 else ""
    return f"{escape(first.name)} {first.value:.2f}{between}"


def _pareto(runs: Sequence[Run]) -> str:
    """Accuracy against compute, for the questions that all runs were asked."""
    rows, figures = score(runs), []
    for convention, words in NAMES.items():
        points = [
            Point(run.name, number, getattr(row.cost, convention), row.accuracy)
            for number, (run, row) in enumerate(zip(runs, rows, strict=True))
            if row.cost and row.accuracy
        ]
        if points:
            everything = max(all_frames_cost(run, convention) for run in runs)
            svg = pareto_svg(points, words=words, everything=everything)
            figures.append(f'<figure>{svg}<figcaption dir="auto">{_front(points)}</figcaption></figure>')
    if not figures:
        return ""
    meanings = "".join(f"<li>{escape(CONVENTIONS[convention])}</li>" for convention in NAMES)
    caption = f"Over the {len(runs[0].results):,} questions that every run was asked. "
    caption += "Error bars: 95 % intervals over videos. Line: the Pareto front. Shaded: more compute than a run with "
    caption += "equal or higher accuracy. A run without a name in the figure shows it on hover, and is in the tables."
    return (
        f'<article><h3>Accuracy against compute</h3><div class="figures">{"".join(figures)}</div>'
        f'<p class="source">{caption}</p><ul class="fine">{meanings}</ul></article>'
    )


def _front(points: Sequence[Point]) -> str:
    """The runs of the Pareto front in words, cheapest first; on a phone there is no hover."""
    best = (f"{escape(p.name)} {100 * p.accuracy.mean:.1f} % at {amount(p.compute)} TFLOPs" for p in frontier(points))
    return f"On the front: {'; '.join(best)}"


def _difficulty(runs: Sequence[Run]) -> str:
    """Kept frames against skew, as in the paper, and a histogram of kept frames for each run."""
    parts = []
    for number, run in enumerate(runs):
        answers = [result.answered for result in run.results if result.answered]
        kept = [answer.native for answer in answers if answer.native]  # an overview keeps none
        if len(set(kept)) > 1:
            svg = histogram_svg(kept, pool=max(answer.pool for answer in answers), number=number, name=run.name)
            parts.append(f'<figure>{svg}<figcaption dir="auto">{escape(run.name)}</figcaption></figure>')
    steady = [run.name for run in runs if len({r.answered.native for r in run.results if r.answered}) == 1]
    note = f'<p class="source">Always the same number of frames: {escape(", ".join(steady))}.</p>' if steady else ""
    histograms = _folded(runs, f'<div class="figures">{"".join(parts)}</div>', "Histograms of") if parts else ""
    return f'<article><h3>Frames kept</h3><div class="figures">{_skew(runs)}</div>{histograms}{note}</article>'


def _skew(runs: Sequence[Run]) -> str:
    """Kept frames of the first run with maps, and accuracy of the run over all frames, against skew."""
    try:
        found = difficulty(runs)
    except UsageError as error:
        words = str(error)
        return f'<p class="lack">{escape(words[0].upper() + words[1:], quote=False)}.</p>'
    svg = skew_svg(found.skew, found.kept, found.right, pool=found.pool)
    caption = (
        f'<span class="kept-key">frames kept by {escape(found.mapped)}</span> and '
        f'<span class="accuracy-key">accuracy of {escape(found.whole)}</span>, '
        f"smoothed over {len(found.skew):,} questions; grey: density of questions"
    )
    return f'<figure>{svg}<figcaption dir="auto">{caption}</figcaption></figure>'


def _tables(scores: Scores) -> str:
    """The tables for all questions, then those of each bin, collapsed."""
    bins = list(dict.fromkeys(row.bin for row in scores.rows))
    parts = []
    for name in bins:
        rows = [row for row in scores.rows if row.bin == name]
        tables = people_tables(Scores(scores.runs, rows, scores.official if not name else {}))
        inner = "".join(
            f'<h3>{escape(each.title)}</h3><div class="names-{each.left}">{_html(each)}</div>' for each in tables
        )
        parts.append(f"<details><summary>By {escape(name)}</summary>{inner}</details>" if name else inner)
    return f'<article class="tables">{"".join(parts)}</article>'


def _html(each: Table) -> str:
    return table([*map(escape, each.head)], [[escape(cell) for cell in row] for row in each.rows])


def _list(runs: Sequence[Run]) -> str:
    """The elements around the list of questions, which the script fills."""
    legend = "".join(
        f'<li class="run-{number % RUN_COLOURS}" dir="auto"><span class="pip"></span>{escape(run.name)}</li>'
        for number, run in enumerate(runs)
    )
    return f"""<article id="questions"><h3>Questions</h3>
<form class="filters" id="filters" role="search" aria-label="Filter the questions"></form>
<ul class="legend-runs">{legend}</ul>
<p class="source" id="count" role="status" aria-live="polite">This list needs JavaScript.</p>
<ol class="questions" id="list"></ol>
<button type="button" class="more" id="more" hidden>Show more</button>
</article>"""


def _about(runs: Sequence[Run], notes: Sequence[str]) -> str:
    items = "".join(f'<li dir="auto">{escape(note)}</li>' for note in notes)
    warnings = f'<aside class="warnings"><h3>Notes</h3><ul>{items}</ul></aside>' if items else ""
    specs = "".join(
        f'<details><summary dir="auto">Settings of {escape(run.name)}</summary>{pairs(asdict(run.spec))}</details>'
        for run in runs
    )
    return f'<article class="about">{warnings}{specs}</article>'
