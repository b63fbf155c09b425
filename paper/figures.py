"""The paper's figures as SVG or PNG, from run folders or from a model's dimensions; matplotlib draws them.

python paper/figures.py compute runs/k6 runs/k12 -o compute.svg
python paper/figures.py compute --model Qwen/Qwen3-VL-2B-Instruct --k 6,8,12 -o planned.svg
python paper/figures.py skew runs/first runs/all -o skew.svg
python paper/figures.py regime runs/first --ids q17,q23 -o regime.png
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from canvas import check_format, save, styled
from compute import compute_figure, measured, planned
from gridprobe._util import printable
from gridprobe.cli.console import announce_saved, never_fail, notice, progress, quiet_option
from gridprobe.errors import GridProbeError, UsageError
from gridprobe.models import cost_model_of
from gridprobe.options import PRESETS
from gridprobe.report.html import check_writable
from gridprobe_eval.metrics import score
from gridprobe_eval.reader import read_runs
from regime import regime_figure, regimes
from skew import skew_data, skew_figure

__all__ = ["main"]

CONVENTIONS = {"honest": "tflops", "published": "tflops_paper"}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def figures() -> None:
    """Draw a figure for a paper as SVG or PNG, from runs. Needs matplotlib: pip install 'gridprobe[figures]'."""


def _common(command: Any) -> Any:
    decorators: list[Callable[[Any], Any]] = [
        click.argument("runs", nargs=-1, type=click.Path(path_type=Path), metavar="RUN..."),
        click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="FILE.svg or FILE.png."),
        click.option("--width", type=click.FloatRange(60, 400), default=80.0, show_default=True, help="Millimetres."),
        quiet_option,
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Whole numbers from "6,8,12" or "6 8 12"."""
    parts = (text or "").replace(",", " ").split()
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--{parameter.name} takes whole numbers above 0, as in 6,8,12; got {text!r}")
    return tuple(map(int, parts))


def _size(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise UsageError(f"--size takes a width and a height, as in 1920x1080; got {text!r}")
    return int(width), int(height)


@figures.command()
@_common
@click.option("-m", "--model", metavar="NAME", help="Also plan the cost of this model; it needs no runs.")
@click.option("--k", callback=_numbers, metavar="6,8,…", help="Grid sizes to plan for.")
@click.option("--kept", callback=_numbers, metavar="N,…", help="Kept frames to plan for, one number or one for each K.")
@click.option("--size", callback=_size, default="1920x1080", show_default=True, help="Size of the planned video.")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="paper", show_default=True, help="To plan for.")
@click.option("--convention", type=click.Choice(list(CONVENTIONS)), default="honest", show_default=True)
def compute(runs: tuple[Path, ...], out: Path, width: float, **planning: Any) -> None:
    """Compute over the grid size K, and accuracy: each RUN of another K at its measured cost (figure 1b)."""
    if bool(planning["model"]) != bool(planning["k"]):
        raise UsageError("to plan, name a model and grid sizes: --model Qwen/Qwen3-VL-2B-Instruct --k 6,8,12")
    _check(out)
    convention: Any = CONVENTIONS[planning["convention"]]
    curves = measured(read_runs(runs), convention=convention) if runs else []
    if planning["model"]:
        options = {name: planning[name] for name in ("size", "kept", "preset")}
        curves += planned(cost_model_of(planning["model"]), planning["k"], convention=convention, **options)
    _save(compute_figure(curves, convention=convention, width=width), out)


@figures.command()
@_common
def skew(runs: tuple[Path, ...], out: Path, width: float) -> None:
    """Kept frames, and accuracy over all frames, against the skew of the map; one RUN is of the selector all."""
    _check(out)
    compared = read_runs(_some(runs))
    score(compared)  # refuses runs of different benchmark versions
    _save(skew_figure(skew_data(compared), width=width), out)


@figures.command()
@_common
@click.option("--ids", metavar="A,B,…", help="The questions.  [default: most, median and fewest frames kept]")
def regime(runs: tuple[Path, ...], out: Path, width: float, ids: str | None) -> None:
    """One row per question: its map, the kept frames, and the answer of each RUN."""
    _check(out)
    with progress():
        rows, notes = regimes(read_runs(_some(runs)), [name.strip() for name in (ids or "").split(",") if name.strip()])
    for note in notes:
        notice(f"note: {note}")
    _save(regime_figure(rows, width=width), out)


def _some(runs: tuple[Path, ...]) -> tuple[Path, ...]:
    if not runs:
        raise UsageError("this figure is drawn from runs; name at least one run folder")
    return runs


def _check(out: Path) -> None:
    """Find out before any work whether the figure can be drawn and saved."""
    check_format(out)
    check_writable(out)
    with styled():
        pass


def _save(drawn: Any, out: Path) -> None:
    for note in save(drawn, out):
        notice(f"note: {note}")
    announce_saved("figure", out)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; an error is one sentence, with the exit codes of gridprobe."""
    never_fail(sys.stdout, sys.stderr)
    try:
        figures(arguments, prog_name="figures.py")
    except GridProbeError as error:
        print(f"figures.py: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
