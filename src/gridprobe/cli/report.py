"""gridprobe report: save runs as one HTML page."""

from pathlib import Path

import click

from gridprobe.cli.console import announce_saved, progress, quiet_option
from gridprobe.cli.help import Verb
from gridprobe.evaluation.reader import read_runs
from gridprobe.report.files import check_writable
from gridprobe.report.run_data import make_thumbnails
from gridprobe.report.run_page import save_run_report

__all__ = ["report"]

FEW = 50
"""By default, runs with at most this many questions get thumbnails."""


@click.command(
    cls=Verb,
    examples=("gridprobe report runs/first runs/uniform -o report.html",),
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The HTML file to write.")
@click.option(
    "--thumbnails/--no-thumbnails",
    default=None,
    help=f"Show kept frames, decoded from the videos on disk.  [default: up to {FEW} questions]",
)
@quiet_option
def report(runs: tuple[Path, ...], output: Path, thumbnails: bool | None) -> None:
    """Save a self-contained page: accuracy against compute, tables, and all questions of each RUN with their maps."""
    check_writable(output)
    found = read_runs(runs)
    wanted = max(len(run.results) for run in found) <= FEW if thumbnails is None else thumbnails
    with progress():
        pictures, notes = make_thumbnails(found) if wanted else ({}, [])
    save_run_report(found, output, thumbnails=pictures, notes=notes)
    announce_saved("report", output)
