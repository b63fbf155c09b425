"""Scores of runs as tables in Markdown and in LaTeX, with rounded numbers, and as CSV and JSON in full.

The rows come from `evaluation.metrics.score`.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridprobe.benchmarks import Metric
from gridprobe.evaluation.metrics import Row, shared
from gridprobe.evaluation.reader import Run
from gridprobe.flops import CONVENTIONS
from gridprobe.report.words import aligned
from gridprobe.statistics import FEW_CLUSTERS, FEW_OUTCOMES, FEW_WHOLE, Interval
from gridprobe.text import one_line, printable

__all__ = ["FORMATS", "Scores", "Table", "people_tables", "remarks", "render_scores", "too_few", "uneven"]

SCHEMA = "gridprobe.scores/1"


@dataclass(frozen=True)
class Scores:
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


def people_tables(scores: Scores) -> list[Table]:
    """Accuracy, official scores, how answers were reached, cost, confidence, evidence and paired differences."""
    rows = scores.rows
    tables = [_accuracy(rows), _official(scores), _reached(rows), _cost(rows), _confidence(rows)]
    tables += [_temporal(rows), _differences(rows)]
    return [table for table in tables if table.rows]


def _names(row: Row) -> list[str]:
    return [row.run, f"{row.bin}: {row.value}" if row.bin else "all questions"]


def _accuracy(rows: Sequence[Row]) -> Table:
    some_failed = any(row.failed for row in rows)
    head = ["run", "questions", "n", "failed", "missing", "accuracy %", "95 % interval", "videos"]
    cells = [
        [*_names(row), str(row.asked), str(row.failed), str(row.missing), *_estimate(row.accuracy)]
        + ([_percent(row.answered)] if some_failed else [])
        for row in rows
    ]
    return Table("Accuracy", [*head, "of answered %"] if some_failed else head, cells)


def _estimate(found: Interval | None) -> list[str]:
    return [_percent(found), _span(found, "{:.1f}"), str(found.clusters) if found else "–"]


def _percent(found: Interval | None) -> str:
    return f"{100 * found.mean:.1f}" if found else "–"


def _span(found: Interval | None, form: str) -> str:
    """The interval; a dash for one video, which has no variation between videos."""
    if found is None or found.clusters < 2:
        return "–"
    return f"{form.format(100 * found.low)} … {form.format(100 * found.high)}"


def _official(scores: Scores) -> Table:
    """One row for each score, for each run a column with the score and, if some score has one, with its interval."""
    found = {run: {metric.name: metric for metric in metrics} for run, metrics in scores.official.items()}
    names = list(dict.fromkeys(name for metrics in found.values() for name in metrics))
    noted = any(metric.note for metrics in found.values() for metric in metrics.values())
    wide = any(metric.interval for metrics in found.values() for metric in metrics.values())
    cells = []
    for name in names:
        here = {run: metrics[name] for run, metrics in found.items() if name in metrics}
        values = [cell for run in found for cell in _score(here.get(run))[: 1 + wide]]
        counts = sorted({metric.count for metric in here.values()})
        notes = (f"{run}: {each.note}" if len(found) > 1 else each.note for run, each in here.items() if each.note)
        cells.append([name, *values, "–".join(map(str, counts)), *(["; ".join(notes)] if noted else [])])
    heads = [head for run in found for head in (run, "95 % interval")[: 1 + wide]]
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
        if (found := row.reached) and row.cost:
            frames = [f"{row.cost.kept:.1f}", str(found.both)]
            cells.append([*_names(row), *_shares(found.overview, found.refined), *frames, *_shares(found.agree)])
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
    head = ["run", "questions", "n", "precision %", "95 % interval", "evidence covered %", "95 % interval"]
    head += ["F1 %", "95 % interval", "s to evidence", "95 % interval"]
    cells = []
    for row in rows:
        if found := row.temporal:
            shares = [text for each in (found.precision, found.recall, found.f1) for text in _estimate(each)[:2]]
            cells.append([*_names(row), str(found.distance.count), *shares, *_seconds(found.distance)])
    return Table("Kept frames against the evidence", head, cells)


def _seconds(found: Interval) -> list[str]:
    """A mean and its interval; a dash for too few videos to resample."""
    wide = found.clusters >= FEW_CLUSTERS
    return [f"{found.mean:.1f}", f"{found.low:.1f} … {found.high:.1f}" if wide else "–"]


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _differences(rows: Sequence[Row]) -> Table:
    head = [
        "run − other",
        "questions",
        "pairs",
        "points",
        "95 % interval",
        "gained",
        "lost",
        "McNemar p",
        "permutation p",
    ]
    cells = []
    for row in rows:
        if found := row.versus:
            gap = found.difference
            counts = [str(found.gained), str(found.lost), _chance(found.mcnemar), _chance(found.permutation)]
            points = [f"{100 * gap.mean:+.1f}", _span(gap, "{:+.1f}")]
            cells.append([f"{row.run} − {found.versus}", _names(row)[1], str(gap.count), *points, *counts])
    return Table("Paired differences in accuracy", head, cells)


def _chance(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


# Formats.


def render_scores(scores: Scores, form: str) -> str:
    """The scores in one of FORMATS."""
    return FORMATS[form](scores)


def remarks(scores: Scores, *, short: bool = False) -> list[str]:
    """Notes on the runs and, if not short, on the intervals and the two conventions."""
    notes = [f"{run.name}: {note}." for run in scores.runs for note in run.notes]
    notes += [f"{warning}." for warning in (uneven(scores.runs), "" if short else too_few(scores)) if warning]
    return notes if short else [*notes, CONVENTIONS["tflops"], CONVENTIONS["tflops_paper"]]


def too_few(scores: Scores) -> str:
    """A note if some intervals are of too few videos to resample; otherwise empty."""
    rows = scores.rows
    found = [each for row in rows for each in (row.accuracy, row.versus and row.versus.difference) if each]
    found += [each for row in rows if (t := row.temporal) for each in (t.precision, t.recall, t.f1)]
    found += [metric.interval for metrics in scores.official.values() for metric in metrics if metric.interval]
    wilson = sum(each.method == "wilson" and each.clusters > 1 for each in found)
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


def _markdown(scores: Scores) -> str:
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


TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    "−": "$-$",
    "…": r"\dots{}",
    "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _latex(scores: Scores) -> str:
    """One tabular environment for each table; needs the package booktabs."""

    def line(row: Sequence[str]) -> str:
        return " & ".join("".join(TEX.get(char, char) for char in one_line(cell)) for cell in row) + r" \\"

    parts = []
    for table in people_tables(scores):
        columns = "l" * table.left + "r" * (len(table.head) - table.left)
        lines = [rf"% {table.title}; needs \usepackage{{booktabs}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        lines += [line(table.head), r"\midrule", *map(line, table.rows), r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


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


def _interval(name: str, found: Interval | None) -> dict[str, float | str | None]:
    wide = found is not None and found.clusters > 1
    ends = (found.low, found.high) if found and wide else (None, None)
    method = found.method if found and wide else None
    return {
        name: found.mean if found else None,
        f"{name}_low": ends[0],
        f"{name}_high": ends[1],
        f"{name}_interval": method,
    }


def _csv(scores: Scores) -> str:
    """One table: paired differences are further columns of each row, official scores are named official:NAME."""
    metrics = {run: _columns(found) for run, found in scores.official.items()}
    extra = list(dict.fromkeys(name for found in metrics.values() for name in found))
    text = io.StringIO()
    rows = [_flat(row) | (metrics.get(row.run, {}) if not row.bin else {}) for row in scores.rows]
    writer = csv.DictWriter(text, [*_flat(scores.rows[0]), *extra], lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _inert(value) for name, value in row.items()} for row in rows])
    return text.getvalue().rstrip("\n")


def _columns(found: Sequence[Metric]) -> dict[str, float | None]:
    """The official scores and the ends of their intervals, 0 to 100."""
    columns: dict[str, float | None] = {}
    for metric in found:
        low, high = _ends(metric.interval)
        name = f"official:{metric.name}"
        columns |= {name: metric.value, f"{name}_low": low, f"{name}_high": high}
    return columns


def _ends(found: Interval | None) -> tuple[float | None, float | None]:
    """The ends of an official score's interval; none for a single video."""
    return (100 * found.low, 100 * found.high) if found and found.clusters > 1 else (None, None)


def _official_values(metric: Metric) -> dict[str, Any]:
    low, high = _ends(metric.interval)
    method = metric.interval.method if metric.interval and low is not None else None
    values = {"name": metric.name, "value": metric.value, "low": low, "high": high, "interval": method}
    return {**values, "count": metric.count, "note": metric.note}


def _inert(value: Any) -> Any:
    """Escape control characters, and quote text that a spreadsheet would evaluate as a formula."""
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else printable(value)


def _json(scores: Scores) -> str:
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


FORMATS: dict[str, Callable[[Scores], str]] = {
    "json": _json,
    "csv": _csv,
    "latex": _latex,
    "markdown": _markdown,
}
