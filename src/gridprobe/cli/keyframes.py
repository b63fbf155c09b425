"""gridprobe export-keyframes: the frames a run kept, as a file."""

import json
from pathlib import Path

import click

from gridprobe.cli.console import announce_saved
from gridprobe.evaluation.keyframes import export_keyframes
from gridprobe.evaluation.reader import read_run
from gridprobe.report.files import check_writable, write_whole

__all__ = ["export"]


@click.command("export-keyframes")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The JSON file to write.")
def export(run: Path, output: Path) -> None:
    """Write which frames RUN kept for each question; replay them with --selector keyframes:FILE."""
    check_writable(output)
    found = export_keyframes(read_run(run))
    write_whole(output, json.dumps(found, allow_nan=False, separators=(",", ":")).encode())
    left_out = f" ({found['left_out']} were not answered and have none)" if found["left_out"] else ""
    announce_saved(f"frames of {len(found['questions'])} questions{left_out}", output)
