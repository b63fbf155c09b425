"""gridprobe eval: ask all questions of a benchmark; repeating the command resumes the run."""

import json
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe.cli.benchmark import Asked, asked, run_options
from gridprobe.cli.console import notice, printable, quiet_option, stdout, verbose_option
from gridprobe.cli.help import Verb, names_of
from gridprobe.cli.run_progress import run_progress
from gridprobe.cli.signals import stopping
from gridprobe.evaluation import CrewOptions, Evaluation
from gridprobe.evaluation.foreman import PATIENCE, START_PATIENCE, Patience
from gridprobe.evaluation.runner import MAX_FAILURES
from gridprobe.evaluation.totals import Totals
from gridprobe.registry import BENCHMARKS

__all__ = ["evaluate"]


@click.command(
    "eval",
    cls=Verb,
    examples=(
        "gridprobe eval gridworld --data data/gridworld --out runs/first --limit 20",
        "gridprobe eval mlvu --data data/mlvu --out runs/mlvu -m Qwen/Qwen3-VL-2B-Instruct --workers 2",
        "gridprobe eval jsonl --data mine.jsonl --out runs/mine -m ./checkpoint --selector uniform --frames 8",
    ),
)
@click.argument("benchmark", shell_complete=names_of(BENCHMARKS))
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of the benchmark's files.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@run_options
@click.option("--shard", default="1/1", show_default=True, metavar="I/N", help="Part I of N; parts may run at once.")
@click.option("--max-failures", type=float, default=MAX_FAILURES, show_default=True, help="A number, or a share < 1.")
@click.option("--retry-failed", is_flag=True, help="Ask those again that failed before.")
@click.option("--redo-changed", is_flag=True, help="Ask those again whose video or row was changed.")
@click.option("--total-tokens", type=int, metavar="N", help="The most tokens of all questions together.")
@click.option("--total-tflops", type=float, metavar="X", help="The most TFLOPs of all questions together.")
@click.option("--total-seconds", type=float, metavar="S", help="The most seconds of all questions together.")
@click.option("--workers", type=int, metavar="N", help="Processes; by default 1, with Ray one for each GPU.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option(
    "--patience", type=float, default=PATIENCE, show_default=True, help="Seconds without a message from a worker."
)
@click.option(
    "--start-patience", type=float, default=START_PATIENCE, show_default=True, help="The same while it loads."
)
@click.option("--device", default="auto", show_default=True, help="auto (a GPU for each worker), cpu, cuda or cuda:N.")
@click.option("--dtype", default="auto", show_default=True, help="auto, float32, bfloat16 or float16.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@quiet_option
@verbose_option
def evaluate(benchmark: str, data: Path, out: Path, as_json: bool, **given: Any) -> None:
    """Ask all questions of BENCHMARK and record each answer. Repeating the command resumes the run."""
    with stopping(), run_progress():
        what = asked(benchmark, data, given)
        evaluation = Evaluation(
            what.benchmark,
            out,
            setup=what.setup,
            choice=what.choice,
            crew=CrewOptions(given["workers"], given["engine"], Patience(given["patience"], given["start_patience"])),
            totals=Totals(given["total_tokens"], given["total_tflops"], given["total_seconds"]),
            **{name: given[name] for name in ("subtitles", "max_failures", "retry_failed", "redo_changed")},
        )
        with evaluation:
            _announce(evaluation, what)
            try:
                result = evaluation.run()
            except KeyboardInterrupt:
                notice("answers until now are saved; the same command resumes the run")
                raise
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        _print(result, out)


def _announce(evaluation: Evaluation, what: Asked) -> None:
    """Print what the run will do, before it starts."""
    benchmark, videos = what.benchmark, len({str(item.video) for item in evaluation.items})
    part = "" if evaluation.shard.count == 1 else f", shard {evaluation.shard.number}/{evaluation.shard.count}"
    total = f"{len(evaluation.items)} of {len(benchmark.items)} questions about {videos} videos{part}"
    lines = [f"{benchmark.version}: {total}"]
    if benchmark.problems:
        first = benchmark.problems[0]
        lines.append(f"{len(benchmark.problems)} rows are no questions, such as {first.where}: {first.what}")
    if evaluation.other_versions:
        old = ", ".join(f"{name} {version}" for name, version in evaluation.other_versions.items())
        lines.append(f"note: this run was begun with {old}")
    if any(evaluation.rows):
        lines.append(f"rows since the run was begun: {evaluation.rows}; the changed ones are asked again")
    lines += [f"replaced video, asked about again: {video}" for video in evaluation.changed]
    lines += [f"damaged record, asked again: {damage}" for damage in evaluation.damage]
    for line in (*lines, str(evaluation.counts)):
        notice(line)


def _print(result: dict[str, Any], out: Path) -> None:
    found = result["all"]
    withheld = bool(found["withheld"]) and found["accuracy"] is None
    score = "no answers" if found["accuracy"] is None else f"accuracy {found['accuracy']:.1%}"
    right = f"{found['right']} right of {found['answered']} answered"
    if withheld:
        score, right = "no accuracy, because the answers are withheld", f"{found['answered']} answered"
    counts = f"{right}, {found['failed']} failed, {found['missing']} missing"
    overview = f"; {found['overview']} from the overview" if found["overview"] else ""
    kept = "" if found["kept"] is None else f"{overview}; {found['kept']:.1f} frames kept on average"
    for sentence in result.get("stopped", ()):
        stdout().print(Text(f"{sentence}; repeat the command with a larger total to go on"))
    stdout().print(Text(f"{score}: {counts}{kept}; see gridprobe score {printable(str(out))}"))
