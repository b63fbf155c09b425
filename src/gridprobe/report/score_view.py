"""Scores of runs for a terminal, in lines of at most its width: one short table, or all tables."""

import textwrap
from collections.abc import Sequence

from gridprobe.evaluation.metrics import Row, all_frames_cost
from gridprobe.evaluation.reader import Run
from gridprobe.report.run_tables import Scores, Table, people_tables, remarks
from gridprobe.report.terminal_lines import Look
from gridprobe.report.words import aligned, share_words
from gridprobe.text import one_line

__all__ = ["all_tables", "short_table"]

PRIORITY = ("accuracy %", "compute", "vs first", "95 % interval", "frames", "p", "n", "failed", "seconds")
"""The columns of the short table in the order in which they get room."""
NARROWEST = 10
"""Columns that a name keeps."""


def short_table(scores: Scores, look: Look) -> str:
    """Accuracy, compute and the difference to the first run, with a line for each run and each value of a bin."""
    rows, binned, width = list(scores.rows), any(row.bin for row in scores.rows), look.width
    columns = {name: list(map(look.clean, cells)) for name, cells in _columns(rows, scores.runs).items()}
    names = {"run": [row.run for row in rows]}
    names |= {"questions": [f"{row.bin}: {row.value}" if row.bin else "all" for row in rows]} if binned else {}
    room = max(NARROWEST, width // (3 * len(names)))
    names = {head: [_cut(look.clean(cell), room) for cell in cells] for head, cells in names.items()}
    left, shown = width + 2 - sum(map(_wide, names, names.values())), set[str]()
    for name in (name for name in PRIORITY if name in columns):
        if (wide := _wide(name, columns[name])) <= left:
            shown.add(name)
            left -= wide
    kept = {name: cells for name, cells in columns.items() if name in shown}
    cells = list(zip(*names.values(), *kept.values(), strict=True))
    hidden = [name for name in columns if name not in kept]
    notes = ["compute: of one pass over all frames at native size"] if "compute" in kept else []
    if "vs first" in kept:
        notes.append(f"vs first: points of accuracy more than {rows[0].run}; p: McNemar's test")
    notes.append(f"--all shows more: {', '.join([*hidden, 'official scores, cost, confidence and bins'])}")
    lines = _grid(Table("", [*names, *kept], cells, left=len(names)))
    return "\n".join([*lines, "", *_wrapped([*remarks(scores, short=True), *notes], look)])


def _wide(head: str, cells: Sequence[str]) -> int:
    """The width of a column with the space before it."""
    return 2 + max(map(len, (head, *cells)))


def _columns(rows: Sequence[Row], runs: Sequence[Run]) -> dict[str, list[str]]:
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
        "95 % interval": [
            f"{100 * each.low:.1f}–{100 * each.high:.1f}" if each and each.clusters > 1 else "" for each in accuracy
        ],
        "frames": [f"{row.cost.kept:.1f}" if row.cost else "–" for row in rows],
        "compute": [share_words(share) for share in shares],
        "seconds": aligned([row.cost.seconds if row.cost else None for row in rows]),
        "vs first": [f"{100 * row.versus.difference.mean:+.1f}" if row.versus else "" for row in rows],
        "p": [_chance(row.versus.mcnemar) if row.versus else "" for row in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cell not in ("", "–") for cell in cells)}


def _chance(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}"


def all_tables(scores: Scores, look: Look) -> str:
    """Every table; one that is too wide continues below with its other columns."""
    parts = ["\n".join(_fitted(table, look)) for table in people_tables(scores)]
    return "\n\n".join([*parts, "\n".join(_wrapped(remarks(scores), look))])


def _fitted(table: Table, look: Look) -> list[str]:
    """The table in as many parts as it needs; notes stand below it."""
    noted = table.head[-1] == "note"
    head, *rows = (
        [look.clean(one_line(cell)) for cell in (row[:-1] if noted else row)] for row in (table.head, *table.rows)
    )
    room = max(NARROWEST, look.width // (2 * table.left))
    rows = [[*(_cut(cell, room) for cell in row[: table.left]), *row[table.left :]] for row in rows]
    head = [_cut(cell, max(NARROWEST, look.width // 3)) for cell in head]  # a run's name can be a head
    lines = _wrapped([table.title], look)
    for number, columns in enumerate(_chunks(head, rows, table.left, look.width)):
        part = [[row[column] for column in columns] for row in (head, *rows)]
        lines += ["", *_wrapped([f"{table.title.partition(',')[0]}, continued"], look)] if number else []
        lines += _grid(Table(table.title, part[0], part[1:], left=table.left))
    notes = [f"{row[0]}: {row[-1]}" for row in table.rows if noted and row[-1]]
    return [*lines, *_wrapped(notes, look)]


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


def _wrapped(notes: Sequence[str], look: Look) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(look.clean(one_line(note)), look.width)]
