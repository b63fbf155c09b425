"""gridprobe score: print tables for one or more runs."""

from pathlib import Path

import click

from gridprobe.cli.console import speaks_unicode, stdout
from gridprobe.cli.help import Verb
from gridprobe.evaluation.metrics import bins_of, official, score
from gridprobe.evaluation.reader import read_runs
from gridprobe.report.tables import FORMATS, RunScores, all_tables, render_scores, short_table
from gridprobe.report.terminal import Terminal

__all__ = ["score_runs"]


@click.command(
    "score",
    cls=Verb,
    examples=(
        "gridprobe score runs/first",
        "gridprobe score runs/first runs/uniform --all",
        "gridprobe score runs/first --by duration --format markdown",
    ),
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--by", multiple=True, metavar="BIN", help="Break down by this bin, or by all.  [default: the first bin]")
@click.option("--all", "everything", is_flag=True, help="Every table: official scores, cost, confidence, bins.")
@click.option("--format", "form", type=click.Choice(["table", *FORMATS]), default="table", show_default=True)
def score_runs(runs: tuple[Path, ...], by: tuple[str, ...], everything: bool, form: str) -> None:
    """Show accuracy and compute of each RUN, and compare further runs with the first."""
    found = read_runs(runs)
    known = bins_of(found)
    short = form == "table" and not everything
    names = known if "all" in by and "all" not in known else list(dict.fromkeys(by)) or known[: 0 if short else 1]
    scores = RunScores(found, score(found, by=names), {run.name: official(run) for run in found})
    console = stdout()
    terminal = Terminal(max(40, console.width), color=False, unicode=speaks_unicode(console))
    if form == "table":
        print((short_table if short else all_tables)(scores, terminal))
    else:
        print(terminal.clean(render_scores(scores, form)))
