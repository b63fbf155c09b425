"""gridprobe score: print tables for one or more runs."""

import json
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe.cli.console import (
    announce_saved,
    printable,
    progress,
    quiet_option,
    speaks_unicode,
    stdout,
    verbose_option,
)
from gridprobe.cli.evaluate import span
from gridprobe.cli.help import Verb
from gridprobe.errors import DataError
from gridprobe.evaluation.folder import QUESTION_TIMEOUT
from gridprobe.evaluation.folder import status as read_status
from gridprobe.evaluation.metrics import PROMPT, bins_of, judge, official, score
from gridprobe.evaluation.reader import export_keyframes, read_run, read_runs, submission
from gridprobe.models import load_model
from gridprobe.report.files import check_writable, write_whole
from gridprobe.report.run_data import make_thumbnails
from gridprobe.report.run_page import save_run_report
from gridprobe.report.tables import FORMATS, RunScores, all_tables, render_scores, short_table
from gridprobe.report.terminal import Terminal

__all__ = ["export", "export_predictions", "judge_run", "report", "score_runs", "status"]


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


# gridprobe report: save runs as one HTML page.

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


# gridprobe export-keyframes: save which frames a run kept.


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


# gridprobe export-predictions: save a run's answers for a benchmark's evaluation server.


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
    if not any(each.answered for each in found.results):
        raise DataError(f"{run} holds no answered question, so there are no predictions to export")
    content = submission(found)
    write_whole(output, json.dumps(content, indent=1, allow_nan=False).encode())
    left_out = len(found.results) - len(content)
    announce_saved(f"predictions of {len(content)} questions" + f" ({left_out} left out)" * bool(left_out), output)


# gridprobe judge: let a model judge answers in words.


@click.command(
    "judge",
    cls=Verb,
    examples=("gridprobe judge runs/open -m Qwen/Qwen3-VL-8B-Instruct",),
    epilog=f"The judge is asked, with the options yes and no: {PROMPT}",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-m", "--model", required=True, envvar="GRIDPROBE_JUDGE", metavar="NAME", help="The judging model.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--dtype", default="auto", show_default=True, help="auto, float32, bfloat16 or float16.")
@quiet_option
@verbose_option
def judge_run(run: Path, model: str, device: str, dtype: str) -> None:
    """Let a model judge the answers in words of RUN; `gridprobe score --all` then shows its share of accepted ones."""
    found = read_run(run)
    with progress():
        count = judge(found, load_model(model, device=device, dtype=dtype))
    if not count:
        stdout().print(Text(printable(f"{run} has no further answers in words that could be judged")))
        return
    stdout().print(Text(printable(f"{count} answers judged; see gridprobe score {run} --all")))


# gridprobe status: show the progress of a run and the state of its workers.


@click.command(
    cls=Verb,
    examples=(
        "gridprobe status runs/first",
        "gridprobe status runs/first --json",
    ),
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--timeout",
    type=float,
    default=QUESTION_TIMEOUT,
    show_default=True,
    help="Seconds on one question until a worker counts as stuck.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(run: Path, timeout: float, as_json: bool) -> None:
    """Show the progress of the evaluation in the folder RUN, and which workers are stuck or dead."""
    found = read_status(run, timeout=timeout)
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
