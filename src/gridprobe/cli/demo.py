"""gridprobe demo: run the method on a generated video."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe import demo as gridprobe_demo
from gridprobe.answer import Answer
from gridprobe.backends import load_model
from gridprobe.cli.console import printable, progress, speaks_unicode, stdout
from gridprobe.demo import Compared
from gridprobe.errors import UsageError
from gridprobe.report.terminal_map import Look, map_lines, strip_lines
from gridprobe.report.words import amount, compute_saved

__all__ = ["demo"]

NOTICE = """\
A {minutes:.0f}-minute video of drawn shapes. The small embedded model answers questions
about it; it was trained on such videos only.
"""
MAP_WIDTH, GAP = 39, 2
"""Two maps fit side by side in 80 columns."""


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="gridprobe-demo", show_default=True)
def demo(out: Path) -> None:
    """Generate a ten-minute video, ask five kinds of questions about it, and show which frames each answer needs."""
    start = time.perf_counter()
    console = stdout()
    _make(out)
    video, page = out / "gridworld.mp4", out / "report.html"
    console.print(NOTICE.format(minutes=gridprobe_demo.SECONDS / 60), markup=False)
    with progress():
        model = load_model("embedded")
        gridprobe_demo.write(video)
        rows = list(gridprobe_demo.compare(video, model))
    _show(console, rows)
    _save(rows, page)
    print(f"Report with maps and kept frames: {printable(str(page))} ({time.perf_counter() - start:.0f} s in total)")
    print(f"Try it yourself: {_command(video, rows[0])}")


def _save(rows: Sequence[Compared], page: Path) -> None:
    from gridprobe.report.answer_page import save_report

    others = {
        "uniform, same number of frames": [row.uniform for row in rows],
        f"all {rows[0].everything.selection.kept} frames": [row.everything for row in rows],
        f"all {rows[0].small.selection.kept} frames, small": [row.small for row in rows],
    }
    save_report([row.gridprobe for row in rows], page, title="gridprobe demo", others=others)


def _command(video: Path, row: Compared) -> str:
    """The command that asks a question of the demo."""
    asked = row.gridprobe.question
    words = ["gridprobe", "ask", str(video), asked.text, *(word for option in asked.options for word in ("-o", option))]
    return printable(shlex.join([*words, "--preset", gridprobe_demo.PRESET]))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        name = printable(str(folder))
        raise UsageError(f"cannot create the folder {name}: {error.strerror}; choose another with --out") from error


def _show(console: Console, rows: Sequence[Compared]) -> None:
    color = console.is_terminal and not console.no_color
    look = Look(width=min(MAP_WIDTH, console.width), color=color, unicode=speaks_unicode(console))
    across = max(1, (console.width + GAP) // (look.width + GAP))
    for first in range(0, len(rows), across):
        band = Table.grid(padding=(0, GAP, 0, 0))
        maps = [_map(row, look) for row in rows[first : first + across]]
        for _ in maps:
            band.add_column(width=look.width)
        band.add_row(*maps)
        console.print(band, "")
    console.print(_table(rows, look), "")
    console.print(_summary(rows, look))
    for row in rows:
        for warning in row.gridprobe.warnings:
            console.print(Text(look.clean(f"warning: {row.kind}: {warning}"), "yellow"))


def _map(row: Compared, look: Look) -> Text:
    """A question, its answer and its map."""
    answer, evidence = row.gridprobe, row.gridprobe.selection.evidence
    title = Text(answer.question.text)
    said = Text(f"{answer.text} {answer.confidence:.1%}", look.style("bold"))
    if not answer.right:
        said.append(f" (wrong, it is {_right_text(answer)})", look.style("red"))
    lines = map_lines(answer, evidence, look) if evidence else []
    return Text("\n").join([Text(row.kind, look.style("dim")), title, said, *(lines or strip_lines(answer, look))])


def _table(rows: Sequence[Compared], look: Look) -> Table:
    """One row for each question; fits 80 columns."""
    pool = rows[0].gridprobe.selection.pool
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, pad_edge=False)
    verdict = {"max_width": 10}  # "(triangle)"
    columns: dict[str, Any] = {
        "\nquestion": {"max_width": 44},
        "\nanswer": {},
        "\nright": {},
        f"kept\nof {pool}": {"justify": "right"},
        "compute\nvs. all": {"justify": "right"},
        "uniform,\nsame count": verdict,
        f"all {pool}\nframes": verdict,
    }
    for name, layout in columns.items():
        table.add_column(name, overflow="fold", **layout)
    for row in rows:
        answer = row.gridprobe
        table.add_row(
            Text(answer.question.text),
            Text(answer.text),
            Text("yes", "green") if answer.right else Text("no", "red"),
            str(answer.selection.kept),
            look.clean(compute_saved(answer.cost.tflops, answer.cost.baseline.tflops)),
            _verdict(row.uniform),
            _verdict(row.everything),
        )
    return table


def _right_text(answer: Answer) -> str:
    return answer.question.option(answer.question.answer or answer.choice)


def _verdict(answer: Answer) -> Text:
    """Yes, or no with the wrong answer."""
    return Text("yes", "green") if answer.right else Text(f"no ({answer.text})", "red")


def _summary(rows: Sequence[Compared], look: Look) -> Text:
    """Right answers and total compute of each method."""
    kept = sum(row.gridprobe.selection.kept for row in rows) / len(rows)
    ways = {
        f"the {kept:.0f} frames that GridProbe keeps on average": [row.gridprobe for row in rows],
        "the same number of frames, evenly spaced": [row.uniform for row in rows],
        f"all {rows[0].everything.selection.kept} frames": [row.everything for row in rows],
        f"all {rows[0].small.selection.kept} frames at probe size, in one pass": [row.small for row in rows],
    }
    lines = []
    for name, answers in ways.items():
        right = sum(bool(answer.right) for answer in answers)
        spent = amount(sum(answer.cost.tflops for answer in answers))
        lines.append(f"{right} of {len(rows)} right from {name}: {spent} TFLOPs\n")
    return Text(look.clean("".join(lines)))
