"""gridprobe score: print tables for one or more runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe._util import printable
from gridprobe.cli.console import announce_saved, debug_option, progress, quiet_option, speaks_unicode, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.options import FILE, in_groups
from gridprobe.errors import DataError, UsageError
from gridprobe.models import load_model
from gridprobe.report.html import check_writable, write_whole
from gridprobe.report.terminal import Terminal
from gridprobe_eval.cli.evaluate import span
from gridprobe_eval.folder import QUESTION_TIMEOUT
from gridprobe_eval.folder import status as read_status
from gridprobe_eval.metrics import PROMPT, bins_of, judge, official, score
from gridprobe_eval.reader import Run, export_keyframes, read_run, read_runs, submission
from gridprobe_eval.report.run_data import make_thumbnails
from gridprobe_eval.report.run_page import save_run_report
from gridprobe_eval.report.tables import FORMATS, RunScores, all_tables, short_table


@click.command(
    "score",
    cls=Verb,
    examples=(
        "gridprobe score runs/first",
        "gridprobe score runs/first runs/uniform --all",
        "gridprobe score runs/first --by duration --format markdown",
        "gridprobe score runs/open --judge Qwen/Qwen3-VL-8B-Instruct",
        "gridprobe score runs/lvb --predictions predictions.json",
    ),
    epilog=f"The judge is asked, with the options yes and no: {PROMPT}",
)
@in_groups(
    {
        "Tables": [
            click.argument("runs", nargs=-1, required=True, type=FILE, metavar="RUN..."),
            click.option(
                "--by", multiple=True, metavar="BIN", help="Break down by this bin, or by all, not by the first."
            ),
            click.option("--all", "everything", is_flag=True, help="Every table: scores, cost, confidence, bins."),
            click.option(
                "--format", "form", type=click.Choice(["table", *FORMATS]), default="table", show_default=True
            ),
        ],
        "Instead of tables, for one RUN": [
            click.option("--keyframes", type=FILE, help="Save which frames it kept, for --selector keyframes:FILE."),
            click.option(
                "--predictions", type=FILE, help="Save its answers as the benchmark's server or script reads them."
            ),
            click.option("--judge", "judge_model", metavar="NAME", help="Let a model judge its answers in words."),
            click.option(
                "--device", default="auto", show_default=True, help="Of the judge: auto, cpu, cuda or cuda:N."
            ),
            click.option("--dtype", default="auto", show_default=True, help="Of the judge, such as bfloat16."),
        ],
        "Output": [quiet_option, debug_option],
    }
)
def score_runs(runs: tuple[Path, ...], keyframes: Path | None, predictions: Path | None, **arguments: Any) -> None:
    """Show accuracy and compute of each RUN, and compare further runs with the first."""
    if keyframes or predictions or arguments["judge_model"]:
        if len(runs) > 1:
            raise UsageError(f"--keyframes, --predictions and --judge take one RUN, got {len(runs)}")
        run = read_run(runs[0])
        if keyframes:
            _export_keyframes(run, keyframes)
        if predictions:
            _export_predictions(run, predictions)
        if arguments["judge_model"]:
            _judge(run, runs[0], arguments)
        return
    _print_scores(read_runs(runs), arguments["by"], form=arguments["form"], everything=arguments["everything"])


def _print_scores(runs: Sequence[Run], by: tuple[str, ...], *, form: str, everything: bool) -> None:
    bins = bins_of(runs)
    short = form == "table" and not everything
    names = bins if "all" in by and "all" not in bins else list(dict.fromkeys(by)) or bins[: 0 if short else 1]
    scores = RunScores(runs, score(runs, by=names), {run.name: official(run) for run in runs})
    console = stdout()
    terminal = Terminal(max(40, console.width), color=False, unicode=speaks_unicode(console))
    if form == "table":
        print((short_table if short else all_tables)(scores, terminal))
    else:
        print(terminal.clean(FORMATS[form](scores)))


def _export_keyframes(run: Run, output: Path) -> None:
    check_writable(output)
    content = export_keyframes(run)
    write_whole(output, json.dumps(content, allow_nan=False, separators=(",", ":")).encode())
    left_out = f" ({content['left_out']} were not answered, or only from the overview)" if content["left_out"] else ""
    announce_saved(f"frames of {len(content['questions'])} questions{left_out}", output)


def _export_predictions(run: Run, output: Path) -> None:
    check_writable(output)
    if not any(each.answered for each in run.results):
        raise DataError(f"{run.name} holds no answered question, so there are no predictions to export")
    content = submission(run)
    write_whole(output, json.dumps(content, indent=1, allow_nan=False).encode())
    left_out = len(run.results) - len(content)
    announce_saved(f"predictions of {len(content)} questions" + f" ({left_out} left out)" * bool(left_out), output)


def _judge(run: Run, folder: Path, arguments: dict[str, Any]) -> None:
    """Let a model judge answers in words; `gridprobe score --all` then shows its share of accepted ones."""
    with progress():
        model = load_model(arguments["judge_model"], device=arguments["device"], dtype=arguments["dtype"])
        count = judge(run, model)
    done = f"{count} answers judged; see gridprobe score {folder} --all"
    stdout().print(Text(printable(done if count else f"{folder} has no further answers in words that could be judged")))


# gridprobe report: save runs as one HTML page.

FEW = 50
"""By default, runs with at most this many questions get thumbnails."""


@click.command(
    cls=Verb,
    examples=("gridprobe report runs/first runs/uniform -o report.html",),
)
@click.argument("runs", nargs=-1, required=True, type=FILE, metavar="RUN...")
@click.option("-o", "--output", type=FILE, required=True, help="The HTML file to write.")
@click.option(
    "--thumbnails/--no-thumbnails",
    default=None,
    help=f"Show kept frames, decoded from the videos on disk.  [default: up to {FEW} questions]",
)
@quiet_option
def report(runs: tuple[Path, ...], output: Path, thumbnails: bool | None) -> None:
    """Save a self-contained page: accuracy against compute, tables, and all questions of each RUN with their maps."""
    check_writable(output)
    run_data = read_runs(runs)
    wanted = max(len(run.results) for run in run_data) <= FEW if thumbnails is None else thumbnails
    with progress():
        pictures, notes = make_thumbnails(run_data) if wanted else ({}, [])
    save_run_report(run_data, output, thumbnails=pictures, notes=notes)
    announce_saved("report", output)


# gridprobe status: show the progress of a run and the state of its workers.


@click.command(
    cls=Verb,
    examples=(
        "gridprobe status runs/first",
        "gridprobe status runs/first --json",
    ),
)
@click.argument("run", type=FILE)
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
    state = read_status(run, timeout=timeout)
    if as_json:
        print(json.dumps(state, allow_nan=False))
        return
    console = stdout()
    for line in _lines(state):
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
