"""gridprobe status: show the progress of a run and the state of its workers."""

import json
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe.cli.console import printable, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.run_progress import span
from gridprobe.evaluation.foreman import PATIENCE
from gridprobe.evaluation.status import status as read_status

__all__ = ["status"]


@click.command(
    cls=Verb,
    examples=(
        "gridprobe status runs/first",
        "gridprobe status runs/first --json",
    ),
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--patience",
    type=float,
    default=PATIENCE,
    show_default=True,
    help="Seconds on one question until a worker counts as stuck.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(run: Path, patience: float, as_json: bool) -> None:
    """Show the progress of the evaluation in the folder RUN, and which workers are stuck or dead."""
    found = read_status(run, patience=patience)
    if as_json:
        print(json.dumps(found, allow_nan=False))
        return
    console = stdout()
    for line in _lines(found):
        console.print(Text(printable(line)))


def _lines(found: dict[str, Any]) -> list[str]:
    counts = f"{found['done']} done, {found['failed']} failed, {found['missing']} missing of {found['questions']}"
    lines = [f"{found['run']}: {counts}", _pace(found)]
    for worker in found["workers"]:
        at = f"at {worker['question']} for {span(worker['seconds'])}" if worker["question"] else "waiting"
        state = worker["state"].upper() if worker["state"] != "working" else "working"
        where = f"process {worker['pid']} on {worker['host']}"
        lines.append(f"{worker['worker']} {state} {at}, {where}, {worker['done']} done, {worker['failed']} failed")
    lines += [f"{e['class']} × {e['count']}, such as {e['example']}: {e['message']}" for e in found["errors"]]
    lines += [f"damaged: {damage}" for damage in found["damage"]]
    if found["repeated"]:
        lines.append(f"answered more than once: {', '.join(found['repeated'][:5])} ({len(found['repeated'])} in total)")
    lines.append(f"begun with {', '.join(f'{name} {version}' for name, version in found['versions'].items())}")
    return lines


def _pace(found: dict[str, Any]) -> str:
    if not found["missing"]:
        return "all questions are done"
    if found["stopped"]:
        return f"{'; '.join(found['stopped'])}; repeat the command with a larger total to go on"
    if found["loading"]:
        return "the run has begun; its workers are loading their models"
    if found["interrupted"] and not found["workers"]:
        return "interrupted; repeat the command that started the run to resume it"
    if not any(worker["state"] != "dead" for worker in found["workers"]):
        return "no worker is running; repeat the command that started the run to resume it"
    if found["rate"] is None:
        return "no running worker has finished a question yet"
    return f"{found['rate']:.3g} questions/s, about {span(found['eta'])} left"
