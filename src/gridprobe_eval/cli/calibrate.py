"""gridprobe calibrate: find the confidence at which the overview's answer may be taken."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gridprobe.cli.console import announce_saved, debug_option, notice, progress, quiet_option
from gridprobe.cli.help import Verb, names_of
from gridprobe.cli.options import FILE, in_groups, method_options, model_options
from gridprobe.early_exit import Calibration, needed, store
from gridprobe.errors import RunError
from gridprobe.registry import BENCHMARKS
from gridprobe_eval.cli.evaluate import benchmark_options, check_data, eval_arguments
from gridprobe_eval.runner import Agreement, draw
from gridprobe_eval.runner import calibrate as compare

METHOD = "Clopper-Pearson, fixed-sequence testing"


@click.command(
    cls=Verb,
    examples=("gridprobe calibrate jsonl --data mine.jsonl -m ./checkpoint -n 200",),
)
@in_groups(
    {
        "Benchmark": [
            click.argument("benchmark", shell_complete=names_of(BENCHMARKS)),
            click.option("--data", type=FILE, required=True, help="Folder or file of the questions."),
            *benchmark_options(),
            click.option(
                "-n", "count", type=int, metavar="N", help="Ask N questions, drawn from as many videos as possible."
            ),
            click.option("--seed", type=int, default=0, show_default=True, help="Which ones -n draws."),
        ],
        "Model": model_options("Folder, hub id, http://HOST/v1#NAME or embedded."),
        "Method": [
            *method_options(),
            click.option(
                "--epsilon", type=float, default=0.02, show_default=True, help="Allowed share of mistaken exits."
            ),
            click.option(
                "--delta", type=float, default=0.05, show_default=True, help="Allowed risk of a larger share."
            ),
        ],
        "Output": [
            click.option("--dry-run", is_flag=True, help="Store nothing."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
            quiet_option,
            debug_option,
        ],
    }
)
def calibrate(benchmark: str, data: Path, dry_run: bool, as_json: bool, **arguments: Any) -> None:
    """Find the confidence at which the overview answers as the full path would, and store it.

    Every question of BENCHMARK is taken to the end; known answers are not used. BENCHMARK jsonl reads questions of
    your own.
    """
    questions, plan, choice = eval_arguments(benchmark, data, {**arguments, "limit": None})
    chosen = choice.items(questions)
    check_data(questions, chosen)
    items = draw(chosen, arguments["count"], seed=arguments["seed"])
    with progress():
        agreement = compare(
            questions,
            plan,
            items=items,
            epsilon=arguments["epsilon"],
            delta=arguments["delta"],
            subtitles=arguments["subtitles"],
        )
    calibration = agreement.calibration
    kept = calibration.threshold is not None
    file = store(agreement.setup.calibrated_for, calibration) if kept and not dry_run else None
    if as_json:
        print(json.dumps(_plain(agreement, file), allow_nan=False))
    _warn(agreement)
    if not kept:
        raise RunError(_why_not(calibration))
    if not as_json:
        _print(agreement)
    if file is not None:
        announce_saved("calibration", file)


def _plain(found: Agreement, file: Path | None) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {
        **asdict(found.calibration),
        "method": METHOD,
        "videos": found.videos,
        "failed": [{"id": name, "error": why} for name, why in found.failures],
        "file": None if file is None else str(file),
    }


def _warn(found: Agreement) -> None:
    if found.calibration.questions > found.videos:
        notice("note: the bound counts questions about one video as independent; one for each video is safe")
    if found.failures:
        name, why = found.failures[0]
        text = f"{len(found.failures)} questions failed and are left out, such as {name}: {why}"
        notice(text)


def _print(found: Agreement) -> None:
    result = found.calibration
    asked_about = f"{result.questions} questions about {found.videos} videos"
    print(f"threshold  {result.threshold:g}")
    print(f"exits      {result.exits} of {asked_about} ({result.exits / result.questions:.1%})")
    print(f"differing  {result.differing} of the {result.exits} exits")
    print(f"bound      {result.bound:.2%} differ at most (epsilon {result.epsilon:g}), confidence {1 - result.delta:g}")
    print(f"           {METHOD}")


def _why_not(result: Calibration) -> str:
    """One sentence about why no threshold was found."""
    if result.too_few:
        return (
            f"no threshold was found: {result.exits} of {result.questions} questions exit at the lowest one, and "
            f"epsilon={result.epsilon:g} with delta={result.delta:g} needs at least "
            f"{needed(result.epsilon, result.delta)}; calibrate on more questions, or allow a larger epsilon"
        )
    return (
        f"no threshold was found: the full path differs in {result.differing} of the {result.exits} questions with the "
        f"surest overviews, so up to {result.bound:.2%} may differ and not {result.epsilon:.2%}; "
        "calibrate on more questions, or allow a larger epsilon"
    )
