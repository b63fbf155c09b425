"""gridprobe score: print tables for one or more runs."""

from pathlib import Path

import click

from gridprobe.evaluation.metrics import bins_of, official, score
from gridprobe.evaluation.reader import read_runs
from gridprobe.report.run_tables import FORMATS, Scores, render_scores

__all__ = ["score_runs"]


@click.command("score")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--by", multiple=True, metavar="BIN", help="Break down by this bin, or by all.  [default: the first bin]")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="table", show_default=True)
def score_runs(runs: tuple[Path, ...], by: tuple[str, ...], form: str) -> None:
    """Show accuracy, official scores and cost of each RUN, and compare further runs with the first."""
    found = read_runs(runs)
    known = bins_of(found)
    names = known if "all" in by and "all" not in known else list(dict.fromkeys(by)) or known[:1]
    rows = score(found, by=names)
    print(render_scores(Scores(found, rows, {run.name: official(run) for run in found}), form))
