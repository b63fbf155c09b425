"""gridprobe export-keyframes: save which frames a run kept."""

import json
from pathlib import Path

import click

from gridprobe.cli.console import announce_saved, quiet_option
from gridprobe.cli.help import Verb
from gridprobe.evaluation.keyframes import export_keyframes
from gridprobe.evaluation.reader import read_run
from gridprobe.report.files import check_writable, write_whole

__all__ = ["export"]


@click.command(
    "export-keyframes",
    cls=Verb,
    examples=("gridprobe export-keyframes runs/first -o frames.json",),
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The JSON file to write.")
@quiet_option
def export(run: Path, output: Path) -> None:
    """Save which frames RUN kept for each question; reuse them with --selector keyframes:FILE."""
    check_writable(output)
    found = export_keyframes(read_run(run))
    write_whole(output, json.dumps(found, allow_nan=False, separators=(",", ":")).encode())
    left_out = f" ({found['left_out']} were not answered, or only from the overview)" if found["left_out"] else ""
    announce_saved(f"frames of {len(found['questions'])} questions{left_out}", output)
