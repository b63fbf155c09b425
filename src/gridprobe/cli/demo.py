"""gridprobe demo: watch the method at work on a video made on the spot."""

import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridprobe.answer import Answer
from gridprobe.backends import Scripted
from gridprobe.cli.console import progress, speaks_unicode, stdout
from gridprobe.demo import DemoVideo, observe, questions
from gridprobe.pipeline import Session, open_footage
from gridprobe.settings import Settings

__all__ = ["demo"]

NOTICE = """\
This demo runs without a model: a scripted observer reads planted colours from the decoded pixels of a real H.264 file.
Probing, importance map, budget and focused pass are the real ones; compute is priced as if Qwen3-VL-2B had looked.
"""


@dataclass(frozen=True)
class _Row:
    """One question, asked in three ways."""

    gridprobe: Answer
    uniform: Answer
    everything: Answer


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="gridprobe-demo", show_default=True)
def demo(out: Path) -> None:
    """Make a ten-minute video, ask it three kinds of question, and see which frames each answer needs."""
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    console = stdout()
    console.print(NOTICE, markup=False)
    with progress():
        rows = _ask_all(out / "video.mp4")
    _show(console, rows)
    for name, row in zip(("needle", "redundant", "holistic"), rows, strict=True):
        row.gridprobe.save_map(out / f"{name}.png")
    from gridprobe.report.page import save_report

    save_report([row.gridprobe for row in rows], out / "report.html", title="gridprobe demo")
    seconds = time.perf_counter() - start
    console.print(f"Maps and report are in {out}/ (open {out}/report.html). {seconds:.0f} s in all.", markup=False)


def _ask_all(path: Path) -> list[_Row]:
    video = DemoVideo()
    if not path.exists():
        video.write(path)
    model = Scripted(observe, name="demo observer")
    asked = questions(video)
    footage = open_footage(path, Settings())  # one for all three, so that each frame is decoded once at each size
    ways = [Session(footage, model=model, selector=name) for name in ("gridprobe", "uniform-like", "all")]
    return [_Row(*(way.ask(question) for way in ways)) for question in asked]


def _show(console: Console, rows: list[_Row]) -> None:
    from gridprobe.report.terminal import answer_view

    unicode = speaks_unicode(console)
    color = console.is_terminal and not console.no_color
    for row in rows:
        console.print(answer_view(row.gridprobe, width=console.width, color=color, unicode=unicode))
        console.print()
    table = Table(title="Compute is against all 144 frames; uniform takes as many frames, evenly", title_justify="left")
    table.add_column("question", ratio=1)
    for column in ("answer", "right", "kept", "compute", "uniform", "all 144"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        cost = row.gridprobe.cost
        table.add_row(
            Text(row.gridprobe.question.text),
            Text(row.gridprobe.text),
            _verdict(row.gridprobe),
            str(row.gridprobe.selection.kept),
            f"{cost.tflops / cost.baseline.tflops:.2f}×",
            _verdict(row.uniform),
            _verdict(row.everything),
        )
    console.print(table)


def _verdict(answer: Answer) -> str:
    return "yes" if answer.right else f"no ({answer.text})"
