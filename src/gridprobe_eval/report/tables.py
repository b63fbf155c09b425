"""Scores of runs as tables: for a terminal and in Markdown, with rounded numbers; as CSV and JSON in full.

The rows come from `evaluation.metrics.score`.
"""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridprobe._util import one_line, printable
from gridprobe.models.base import CONVENTIONS
from gridprobe.report.format import aligned, share_words
from gridprobe.report.terminal import Terminal
from gridprobe_eval.benchmarks import Metric
from gridprobe_eval.benchmarks.base import Interval
from gridprobe_eval.metrics import Row, all_frames_cost, shared
from gridprobe_eval.reader import Run
from gridprobe_eval.statistics import FEW_CLUSTERS, FEW_OUTCOMES, FEW_WHOLE

SCHEMA = "gridprobe.scores/1"
PRIORITY = ("accuracy %", "compute", "vs first", "95% interval", "frames", "p", "n", "failed", "seconds")
"""The columns of the short table in the order in which they get room."""
NARROWEST = 10
"""Columns that a name keeps."""


@dataclass(frozen=True)
class RunScores:
    """Everything `gridprobe score` prints."""

    runs: Sequence[Run]
    rows: Sequence[Row]
    official: Mapping[str, Sequence[Metric]]
    """Name of a run -> the official scores of the benchmark."""


@dataclass(frozen=True)
class Table:
    """A table of plain text with a title; the first `left` columns contain names, the others numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 2


def people_tables(scores: RunScores) -> list[Table]:
    """Accuracy, official scores, how answers were reached, cost, confidence, evidence and paired differences."""
    rows = scores.rows
    tables = [_accuracy(rows), _official(scores), _reached(rows), _cost(rows), _confidence(rows)]
    tables += [_temporal(rows), _differences(rows)]
    return [table for table in tables if table.rows]


def _names(row: Row) -> list[str]:
    return [row.run, f"{row.bin}: {row.value}" if row.bin else "all questions"]


def _accuracy(rows: Sequence[Row]) -> Table:
    some_failed = any(row.failed for row in rows)
    head = ["run", "questions", "n", "failed", "missing", "accuracy %", "95% interval", "videos"]
    cells = [
        [*_names(row), str(row.asked), str(row.failed), str(row.missing), *_estimate(row.accuracy)]
        + ([_percent(row.answered)] if some_failed else [])
        for row in rows
    ]
    return Table("Accuracy", [*head, "of answered %"] if some_failed else head, cells)


def _estimate(interval: Interval | None) -> list[str]:
    return [_percent(interval), _span(interval, "{:.1f}"), str(interval.clusters) if interval else "–"]


def _percent(interval: Interval | None) -> str:
    return f"{100 * interval.mean:.1f}" if interval else "–"


def _span(interval: Interval | None, form: str) -> str:
    """The interval; a dash for one video, which has no variation between videos."""
    if interval is None or interval.clusters < 2:
        return "–"
    return f"{form.format(100 * interval.low)} … {form.format(100 * interval.high)}"


def _official(scores: RunScores) -> Table:
    """One row for each score, for each run a column with the score and, if some score has one, with its interval."""
    by_run = {run: {metric.name: metric for metric in metrics} for run, metrics in scores.official.items()}
    names = list(dict.fromkeys(name for metrics in by_run.values() for name in metrics))
    noted = any(metric.note for metrics in by_run.values() for metric in metrics.values())
    wide = any(metric.interval for metrics in by_run.values() for metric in metrics.values())
    cells = []
    for name in names:
        here = {run: metrics[name] for run, metrics in by_run.items() if name in metrics}
        values = [cell for run in by_run for cell in _score(here.get(run))[: 1 + wide]]
        counts = sorted({metric.count for metric in here.values()})
        notes = (f"{run}: {each.note}" if len(by_run) > 1 else each.note for run, each in here.items() if each.note)
        cells.append([name, *values, "–".join(map(str, counts)), *(["; ".join(notes)] if noted else [])])
    heads = [head for run in by_run for head in (run, "95% interval")[: 1 + wide]]
    return Table("Official scores", ["score", *heads, "of", *(["note"] if noted else [])], cells, left=1)


def _score(metric: Metric | None) -> list[str]:
    """The score and its interval."""
    if metric is None or metric.value is None:
        return ["–", "–"]
    return [f"{metric.value:.2f}", _span(metric.interval, "{:.1f}")]


def _reached(rows: Sequence[Row]) -> Table:
    """For runs with an overview."""
    head = ["run", "questions", "from the overview %", "refined %", "native frames", "both stages", "they agree %"]
    cells = []
    for row in rows:
        if (reached := row.reached) and row.cost:
            frames = [f"{row.cost.kept:.1f}", str(reached.both)]
            cells.append([*_names(row), *_shares(reached.overview, reached.refined), *frames, *_shares(reached.agree)])
    return Table("How answers were reached", head, cells)


def _shares(*shares: float | None) -> list[str]:
    return ["–" if share is None else f"{100 * share:.1f}" for share in shares]


def _cost(rows: Sequence[Row]) -> Table:
    head = ["run", "questions", "kept mean", "median", "tokens", "TFLOPs, honest", "CV", "TFLOPs, published", "CV", "s"]
    costs = [row.cost for row in rows if row.cost]
    honest, published = (aligned([getattr(cost, name) for cost in costs]) for name in ("tflops", "tflops_paper"))
    seconds = aligned([cost.seconds for cost in costs])
    cells = []
    for place, row in enumerate(row for row in rows if row.cost):
        cost = costs[place]
        spent = [honest[place], f"{cost.variation:.2f}", published[place], f"{cost.variation_paper:.2f}"]
        if not cost.priced:
            spent = ["unknown"] * len(spent)
        kept = [f"{cost.kept:.1f}", f"{cost.kept_median:.1f}", f"{cost.tokens:,.0f}"]
        cells.append([*_names(row), *kept, *spent, seconds[place]])
    return Table("Cost, mean over answered questions", head, cells)


def _confidence(rows: Sequence[Row]) -> Table:
    head = ["run", "questions", "calibration error", "confidence above chance"]
    cells = [[*_names(row), _three(row.calibration), _three(row.above_chance)] for row in rows if row.cost]
    return Table("Confidence", head, cells)


def _temporal(rows: Sequence[Row]) -> Table:
    """For benchmarks with gold intervals."""
    head = ["run", "questions", "n", "precision %", "95% interval", "evidence covered %", "95% interval"]
    head += ["F1%", "95% interval", "s to evidence", "95% interval"]
    cells = []
    for row in rows:
        if temporal := row.temporal:
            shares = [
                text for each in (temporal.precision, temporal.recall, temporal.f1) for text in _estimate(each)[:2]
            ]
            cells.append([*_names(row), str(temporal.distance.count), *shares, *_seconds(temporal.distance)])
    return Table("Kept frames against the evidence", head, cells)


def _seconds(interval: Interval) -> list[str]:
    """A mean and its interval; a dash for too few videos to resample."""
    wide = interval.clusters >= FEW_CLUSTERS
    return [f"{interval.mean:.1f}", f"{interval.low:.1f} … {interval.high:.1f}" if wide else "–"]


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _differences(rows: Sequence[Row]) -> Table:
    head = [
        "run − other",
        "questions",
        "pairs",
        "points",
        "95% interval",
        "gained",
        "lost",
        "McNemar p",
        "permutation p",
    ]
    cells = []
    for row in rows:
        if versus := row.versus:
            gap = versus.difference
            counts = [str(versus.gained), str(versus.lost), _chance(versus.mcnemar), _chance(versus.permutation)]
            points = [f"{100 * gap.mean:+.1f}", _span(gap, "{:+.1f}")]
            cells.append([f"{row.run} − {versus.versus}", _names(row)[1], str(gap.count), *points, *counts])
    return Table("Paired differences in accuracy", head, cells)


def _chance(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


# The terminal: one short table, or all tables, in lines of at most its width.


def short_table(scores: RunScores, terminal: Terminal) -> str:
    """Accuracy, compute and the difference to the first run, with a line for each run and each value of a bin."""
    rows, binned, width = list(scores.rows), any(row.bin for row in scores.rows), terminal.width
    columns = {name: list(map(terminal.clean, cells)) for name, cells in _short_columns(rows, scores.runs).items()}
    names = {"run": [row.run for row in rows]}
    names |= {"questions": [f"{row.bin}: {row.value}" if row.bin else "all" for row in rows]} if binned else {}
    room = max(NARROWEST, width // (3 * len(names)))
    names = {head: [_cut(terminal.clean(cell), room) for cell in cells] for head, cells in names.items()}
    left, shown = width + 2 - sum(map(_wide, names, names.values())), set[str]()
    for name in (name for name in PRIORITY if name in columns):
        if (wide := _wide(name, columns[name])) <= left:
            shown.add(name)
            left -= wide
    kept = {name: cells for name, cells in columns.items() if name in shown}
    cells = list(zip(*names.values(), *kept.values(), strict=True))
    hidden = [name for name in columns if name not in kept]
    notes = ["compute: of one pass over all frames at full size"] if "compute" in kept else []
    if "vs first" in kept:
        notes.append(f"vs first: points of accuracy more than {rows[0].run}; p: McNemar's test")
    notes.append(f"--all shows more: {', '.join([*hidden, 'official scores, cost, confidence and bins'])}")
    lines = _grid(Table("", [*names, *kept], cells, left=len(names)))
    return "\n".join([*lines, "", *_wrapped([*remarks(scores, short=True), *notes], terminal)])


def _wide(head: str, cells: Sequence[str]) -> int:
    """The width of a column with the space before it."""
    return 2 + max(map(len, (head, *cells)))


def _short_columns(rows: Sequence[Row], runs: Sequence[Run]) -> dict[str, list[str]]:
    """The columns of the short table that say something, in the order in which they stand."""
    whole = {run.name: all_frames_cost(run, "tflops") for run in runs}
    shares = [
        row.cost.tflops / whole[row.run] if row.cost and row.cost.priced and whole[row.run] else None for row in rows
    ]
    accuracy = [row.accuracy for row in rows]
    columns = {
        "n": [str(row.asked) for row in rows],
        "failed": [str(row.failed) if row.failed else "" for row in rows],
        "accuracy %": [f"{100 * each.mean:.1f}" if each else "–" for each in accuracy],
        "95% interval": [
            f"{100 * each.low:.1f}–{100 * each.high:.1f}" if each and each.clusters > 1 else "" for each in accuracy
        ],
        "frames": [f"{row.cost.kept:.1f}" if row.cost else "–" for row in rows],
        "compute": [share_words(share) for share in shares],
        "seconds": aligned([row.cost.seconds if row.cost else None for row in rows]),
        "vs first": [f"{100 * row.versus.difference.mean:+.1f}" if row.versus else "" for row in rows],
        "p": [_short_chance(row.versus.mcnemar) if row.versus else "" for row in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cell not in ("", "–") for cell in cells)}


def _short_chance(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}"


def all_tables(scores: RunScores, terminal: Terminal) -> str:
    """Every table; one that is too wide continues below with its other columns."""
    parts = ["\n".join(_fitted(table, terminal)) for table in people_tables(scores)]
    return "\n\n".join([*parts, "\n".join(_wrapped(remarks(scores), terminal))])


def _fitted(table: Table, terminal: Terminal) -> list[str]:
    """The table in as many parts as it needs; notes stand below it."""
    noted = table.head[-1] == "note"
    head, *rows = (
        [terminal.clean(one_line(cell)) for cell in (row[:-1] if noted else row)] for row in (table.head, *table.rows)
    )
    room = max(NARROWEST, terminal.width // (2 * table.left))
    rows = [[*(_cut(cell, room) for cell in row[: table.left]), *row[table.left :]] for row in rows]
    head = [_cut(cell, max(NARROWEST, terminal.width // 3)) for cell in head]  # a run's name can be a head
    lines = _wrapped([table.title], terminal)
    for number, columns in enumerate(_chunks(head, rows, table.left, terminal.width)):
        part = [[row[column] for column in columns] for row in (head, *rows)]
        lines += ["", *_wrapped([f"{table.title.partition(',')[0]}, continued"], terminal)] if number else []
        lines += _grid(Table(table.title, part[0], part[1:], left=table.left))
    notes = [f"{row[0]}: {row[-1]}" for row in table.rows if noted and row[-1]]
    return [*lines, *_wrapped(notes, terminal)]


def _chunks(head: list[str], rows: list[list[str]], left: int, width: int) -> list[list[int]]:
    """The columns of each part: the names, and as many others as fit."""
    widths = [max(len(row[column]) for row in (head, *rows)) + 2 for column in range(len(head))]
    names, parts = list(range(left)), list[list[int]]()
    used = width + 1
    for column in range(left, len(head)):
        if used + widths[column] > width + 2:
            parts.append([*names])
            used = sum(widths[:left])
        parts[-1].append(column)
        used += widths[column]
    return parts or [names]


def _grid(table: Table) -> list[str]:
    """Lines with aligned columns, names to the left and numbers to the right."""
    lines = [
        [cell if column == 0 else one_line(cell) for column, cell in enumerate(row)]
        for row in (table.head, *table.rows)
    ]
    widths = [max(len(row[column]) for row in lines) for column in range(len(table.head))]
    text = [
        "  ".join(
            cell.ljust(wide) if column < table.left else cell.rjust(wide)
            for column, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in lines
    ]
    return [text[0], "-" * max(map(len, text)), *text[1:]]


def _cut(name: str, width: int) -> str:
    """A name on one line; of a longer one both ends are shown."""
    name = one_line(name)
    half = (width - 2) // 2
    return name if len(name) <= width else f"{name[: width - 2 - half]}..{name[len(name) - half :]}"


def _wrapped(notes: Sequence[str], terminal: Terminal) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(terminal.clean(one_line(note)), terminal.width)]


# Formats.


def remarks(scores: RunScores, *, short: bool = False) -> list[str]:
    """Notes on the runs and, if not short, on the intervals and the two conventions."""
    notes = [f"{run.name}: {note}." for run in scores.runs for note in run.notes]
    notes += [f"{warning}." for warning in (uneven(scores.runs), "" if short else too_few(scores)) if warning]
    return notes if short else [*notes, CONVENTIONS["tflops"], CONVENTIONS["tflops_paper"]]


def too_few(scores: RunScores) -> str:
    """A note if some intervals are of too few videos to resample; otherwise empty."""
    rows = scores.rows
    intervals = [each for row in rows for each in (row.accuracy, row.versus and row.versus.difference) if each]
    intervals += [each for row in rows if (t := row.temporal) for each in (t.precision, t.recall, t.f1)]
    intervals += [metric.interval for metrics in scores.official.values() for metric in metrics if metric.interval]
    wilson = sum(each.method == "wilson" and each.clusters > 1 for each in intervals)
    if not wilson:
        return ""
    return (
        f"too few videos to resample for {wilson} of the intervals (fewer than {FEW_CLUSTERS}, or fewer than "
        f"{FEW_OUTCOMES} with a right or with a wrong answer, or partial scores worth fewer than {FEW_WHOLE} full or "
        "empty ones): these are Wilson's, with each video as one observation"
    )


def uneven(runs: Sequence[Run]) -> str:
    """A warning if the runs were not asked the same questions; otherwise empty."""
    common = len(shared(runs)[0].results)
    if all(sum(result.outcome != "missing" for result in run.results) == common for run in runs):
        return ""
    return (
        f"the runs were not asked the same questions, {common} are common to all: compare them by their paired "
        "differences, not by their accuracies"
    )


def _markdown(scores: RunScores) -> str:
    def escaped(cell: str) -> str:
        return one_line(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")

    parts = []
    for table in people_tables(scores):
        ruler = ["---" if column < table.left else "---:" for column in range(len(table.head))]
        rows = [[escaped(cell) for cell in row] for row in (table.head, *table.rows)]
        lines = [f"| {' | '.join(row)} |" for row in (rows[0], ruler, *rows[1:])]
        parts.append(f"### {table.title}\n\n" + "\n".join(lines))
    notes = "\n".join(f"- {escaped(line)}" for line in remarks(scores))
    return "\n\n".join([*parts, notes])


def _flat(row: Row) -> dict[str, Any]:
    """A row as plain values; shares are fractions, and a number that does not exist is None."""
    cost, versus = row.cost, row.versus
    gap = versus.difference if versus else None
    flat: dict[str, Any] = {"run": row.run, "bin": row.bin, "value": row.value}
    flat |= {"asked": row.asked, "failed": row.failed, "missing": row.missing}
    flat |= _interval("accuracy", row.accuracy) | _interval("accuracy_of_answered", row.answered)
    names = ("kept", "kept_median", "tokens", "tflops", "tflops_paper", "variation", "variation_paper", "seconds")
    flat |= {name: getattr(cost, name, None) for name in names}
    flat |= {f"reached_{name}": getattr(row.reached, name, None) for name in ("overview", "refined", "both", "agree")}
    for name in ("precision", "recall", "f1", "distance"):
        flat |= _interval(f"temporal_{name}", getattr(row.temporal, name, None))
    flat |= {"versus": versus and versus.versus, "pairs": gap and gap.count} | _interval("difference", gap)
    return flat | {
        name: getattr(versus, name, None) for name in ("gained", "lost", "mcnemar", "permutation", "unpaired")
    }


def _interval(name: str, interval: Interval | None) -> dict[str, float | str | None]:
    mean = interval.mean if interval else None
    return {name: mean} | {f"{name}_{end}": value for end, value in _ends(interval).items()}


def _ends(interval: Interval | None, *, scale: float = 1.0) -> dict[str, float | str | None]:
    """The ends and the method of an interval; None for a single video, which has no variation between videos."""
    if interval is None or interval.clusters < 2:
        return {"low": None, "high": None, "interval": None}
    return {"low": scale * interval.low, "high": scale * interval.high, "interval": interval.method}


def _csv(scores: RunScores) -> str:
    """One table: paired differences are further columns of each row, official scores are named official:NAME."""
    metrics = {run: _columns(official) for run, official in scores.official.items()}
    extra = list(dict.fromkeys(name for official in metrics.values() for name in official))
    text = io.StringIO()
    rows = [_flat(row) | (metrics.get(row.run, {}) if not row.bin else {}) for row in scores.rows]
    writer = csv.DictWriter(text, [*_flat(scores.rows[0]), *extra], lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _inert(value) for name, value in row.items()} for row in rows])
    return text.getvalue().rstrip("\n")


def _columns(metrics: Sequence[Metric]) -> dict[str, float | str | None]:
    """The official scores and the ends of their intervals, 0 to 100."""
    columns: dict[str, float | str | None] = {}
    for metric in metrics:
        name, ends = f"official:{metric.name}", _ends(metric.interval, scale=100)
        columns |= {name: metric.value, f"{name}_low": ends["low"], f"{name}_high": ends["high"]}
    return columns


def _official_values(metric: Metric) -> dict[str, Any]:
    ends = _ends(metric.interval, scale=100)
    return {"name": metric.name, "value": metric.value, **ends, "count": metric.count, "note": metric.note}


def _inert(value: Any) -> Any:
    """Escape control characters, and quote text that a spreadsheet would evaluate as a formula."""
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else printable(value)


def _json(scores: RunScores) -> str:
    runs = [
        {
            "run": run.name,
            "path": str(run.path),
            "benchmark": run.benchmark,
            "benchmark_version": run.version,
            "selector": run.selector,
            "model": run.models,
            "official": [_official_values(metric) for metric in scores.official[run.name]],
            "notes": list(run.notes),
        }
        for run in scores.runs
    ]
    whole = {"schema": SCHEMA, "conventions": CONVENTIONS, "runs": runs, "rows": [_flat(row) for row in scores.rows]}
    return json.dumps(whole, indent=2, allow_nan=False)


FORMATS: dict[str, Callable[[RunScores], str]] = {
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
}
