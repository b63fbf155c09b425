"""gridprobe export-predictions: save a run's answers for a benchmark's evaluation server."""

import json
from pathlib import Path

import click

from gridprobe.benchmarks.submissions import Prediction, submission
from gridprobe.cli.console import announce_saved, quiet_option
from gridprobe.cli.help import Verb
from gridprobe.errors import DataError
from gridprobe.evaluation.reader import read_run
from gridprobe.report.files import check_writable, write_whole

__all__ = ["export_predictions"]


@click.command(
    "export-predictions",
    cls=Verb,
    examples=("gridprobe export-predictions runs/lvb -o predictions.json",),
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The JSON file to write.")
@quiet_option
def export_predictions(run: Path, output: Path) -> None:
    """Save the answers of RUN in the format that the benchmark's evaluation server or script reads."""
    check_writable(output)
    found = read_run(run)
    answered = {each.id: Prediction(each.answered.choice, each.answer) for each in found.results if each.answered}
    if not answered:
        raise DataError(f"{run} holds no answered question, so there are no predictions to export")
    content = submission(found.benchmark, answered)
    write_whole(output, json.dumps(content, indent=1, allow_nan=False).encode())
    left_out = len(found.results) - len(content)
    announce_saved(f"predictions of {len(content)} questions" + f" ({left_out} left out)" * bool(left_out), output)
