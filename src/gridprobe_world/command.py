"""gridprobe demo: run the method on generated videos."""

import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe._util import printable
from gridprobe.answer import Answer
from gridprobe.cli.console import (
    announce_saved,
    debug_option,
    notice,
    print_rows,
    progress,
    quiet_option,
    speaks_unicode,
    stdout,
)
from gridprobe.cli.help import Verb
from gridprobe.cli.options import models_of
from gridprobe.early_exit import calibration_folder
from gridprobe.errors import UsageError
from gridprobe.models import load_model
from gridprobe.models.profile import write_profile
from gridprobe.models.wrappers import chunked
from gridprobe.report.terminal import Terminal, headline, map_lines, shows_colour, timeline_lines
from gridprobe.report.view import AnswerView
from gridprobe_world import demo as gridprobe_demo
from gridprobe_world.demo import WAYS, DemoRow
from gridprobe_world.profiling import Profiler, steps_of, wording_for
from gridprobe_world.world import COLOURS, SHAPES

NOTICE = """\
Two videos of drawn shapes, {minutes:.0f} and {others:.0f} minutes long. The small embedded model
answers questions about them; it was trained on such videos only.
"""
MAP_WIDTH, GAP = 39, 2
"""Two maps fit side by side in 80 columns."""
MAPPED = ("needle", "fine")
"""The kinds of question whose maps are shown; the report has all of them."""
HEADS = {"ours": "ours", "published": "published", "small": "all small", "native": "all native"}


@click.command(
    cls=Verb,
    examples=(
        "gridprobe demo",
        "gridprobe demo --out /tmp/demo",
        "gridprobe demo --library gridprobe-library",
    ),
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="gridprobe-demo",
    show_default=True,
    help="Folder for the videos and the report.",
)
@click.option(
    "--library",
    type=click.Path(path_type=Path, file_okay=False),
    help="Only make a folder of short videos, to try gridprobe find on.",
)
@quiet_option
@debug_option
def demo(out: Path, library: Path | None) -> None:
    """Generate two videos, ask six kinds of questions about them, and compare four ways of answering."""
    if library is not None:
        _make_library(library)
        return
    start = time.perf_counter()
    console = stdout()
    _make(out)
    page = out / "report.html"
    lengths = {"minutes": gridprobe_demo.SECONDS / 60, "others": gridprobe_demo.FINE_SECONDS / 60}
    console.print(NOTICE.format(**lengths), markup=False)
    with progress():
        model = load_model("embedded")
        gridprobe_demo.write_both(out)
        rows = list(gridprobe_demo.compare(out, model))
    _show(console, rows)
    _save(rows, page)
    print(f"Report with all maps and frames: {printable(str(page))} ({time.perf_counter() - start:.0f} s in total)")
    print(f"Try it yourself: {_command(out / gridprobe_demo.VIDEO, rows[0])}")


def _make_library(folder: Path) -> None:
    """Videos, and three searches to try: for what comes and goes most often, for something once there, for nothing."""
    _make(folder)
    with progress():
        things = gridprobe_demo.write_library(folder)
    often, once = max(things, key=lambda name: things[name]), min(things, key=lambda name: things[name])
    absent = next(name for name in (f"{c} {s}" for c in COLOURS for s in SHAPES) if name not in things)
    print(f"{gridprobe_demo.LIBRARY} videos are in {printable(str(folder))}. Try:")
    for name in (often, once, absent):
        words = ["gridprobe", "find", f"a {name}", str(folder), "--preset", gridprobe_demo.PRESET]
        print(f"  {printable(shlex.join(words))}")


def _save(rows: Sequence[DemoRow], page: Path) -> None:
    from gridprobe.report.answer_page import save_report

    others = {words: _answers(rows, name) for name, words in WAYS.items() if name != "ours"}
    save_report(_answers(rows, "ours"), page, title="gridprobe demo", others=others)


def _answers(rows: Sequence[DemoRow], way: str) -> list[Answer]:
    return [getattr(row, way) for row in rows]


def _command(video: Path, row: DemoRow) -> str:
    """The command that asks a question of the demo."""
    question = row.ours.question
    words = [
        "gridprobe",
        "ask",
        str(video),
        question.text,
        *(word for option in question.options for word in ("-o", option)),
    ]
    return printable(shlex.join([*words, "--preset", gridprobe_demo.PRESET]))


@click.command(
    cls=Verb,
    examples=(
        "gridprobe profile ./checkpoint",
        "gridprobe profile http://localhost:8000/v1#NAME --json",
    ),
)
@click.argument("name", metavar="MODEL")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Keep it in this file instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
@click.option("--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda or cuda:N.")
@click.option("--load", multiple=True, metavar="NAME=VALUE", help="Such as dtype=bfloat16 or quantization=4bit.")
@quiet_option
@debug_option
def profile(name: str, out: Path | None, as_json: bool, device: str, load: tuple[str, ...]) -> None:
    """Measure what MODEL can do: questions about drawn frames whose answers, places and times are known."""
    if out is None and calibration_folder() is None:
        raise UsageError("there is no folder for profiles, as GRIDPROBE_CALIBRATION is off; name a file with --out")
    model = models_of({"load": load, "device": device, "answer_model": None}, model=name)[0].load()
    profiler = Profiler(chunked(model), wording_for(model))
    with progress():
        seconds = profiler.seconds_of_overview()
        notice(f"gridprobe: one look over 144 frames takes {seconds:.1f} s, so this takes about {60 * seconds:.0f} s")
        measured = profiler.measure()
    file = write_profile(measured, out)
    if as_json:
        print(json.dumps(measured.to_dict(), allow_nan=False))
        return
    print_rows([(Text(label), [Text(value)]) for label, value in steps_of(measured)])
    announce_saved("profile", file)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        name = printable(str(folder))
        raise UsageError(f"cannot create the folder {name}: {error.strerror}; choose another with --out") from error


def _show(console: Console, rows: Sequence[DemoRow]) -> None:
    color = shows_colour(console)
    terminal = Terminal(width=min(MAP_WIDTH, console.width), color=color, unicode=speaks_unicode(console))
    across = max(1, (console.width + GAP) // (terminal.width + GAP))
    shown = [row for row in rows if row.kind in MAPPED]
    for first in range(0, len(shown), across):
        band = Table.grid(padding=(0, GAP, 0, 0))
        maps = [_map(row, terminal) for row in shown[first : first + across]]
        for _ in maps:
            band.add_column(width=terminal.width)
        band.add_row(*maps)
        console.print(band, "")
    console.print(_table(rows), "")
    console.print(Text("yes, no: right or wrong; %: compute, 100 is all frames at full size."), "")
    for row in rows:
        for warning in row.ours.warnings:
            console.print(Text(terminal.clean(f"warning: {row.kind}: {warning}"), "yellow"))


def _map(row: DemoRow, terminal: Terminal) -> Text:
    """A question, its answer, where that is, and its map."""
    view = AnswerView(row.ours)
    lines = [Text(row.kind, terminal.style("dim")), *terminal.wrap(row.ours.question.text)]
    lines += [*headline(view, terminal), *timeline_lines(view, terminal), *map_lines(view, terminal)]
    return Text("\n").join(lines)


def _table(rows: Sequence[DemoRow]) -> Table:
    """Who is right, and at what share of the compute for all frames; fits 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, pad_edge=False, show_footer=True)
    table.add_column("question", "right answers, compute", max_width=37, overflow="fold")
    for name, head in HEADS.items():
        answers = _answers(rows, name)
        total = f"{_right(answers)}/{len(answers)} {100 * _share(answers):4.0f}%"
        table.add_column(head, total, justify="right", overflow="fold", style="bold" if name == "ours" else "")
    for row in rows:
        table.add_row(Text(row.ours.question.text), *(_verdict(getattr(row, name)) for name in HEADS))
    return table


def _verdict(answer: Answer) -> Text:
    """Whether it is right, and its compute in percent of that for all frames at full size."""
    right = Text("yes", "green") if answer.right else Text("no", "red")
    return right.append(f" {100 * _share([answer]):4.0f}%")


def _right(answers: Sequence[Answer]) -> int:
    return sum(bool(answer.right) for answer in answers)


def _share(answers: Sequence[Answer]) -> float:
    """Compute as a share of that for all frames at full size, by the honest convention; 1 without prices."""
    whole = sum(answer.cost.baseline.tflops for answer in answers)
    return sum(answer.cost.tflops for answer in answers) / whole if whole else 1.0
