"""Options that `eval`, `plan` and `calibrate` share: the benchmark, the questions, the models and the settings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gridprobe.benchmarks import SUBTITLE_MODES, Benchmark, load_benchmark, parse_options
from gridprobe.cli.ask import WAY, given_settings, model_option, named_models, way_options
from gridprobe.cli.limits import limit_options, usage_limits_of
from gridprobe.errors import UsageError
from gridprobe.evaluation.tasks import Choice, Shard
from gridprobe.question import TEMPLATES
from gridprobe.settings import Settings, parse_changes
from gridprobe.setup import Setup, make_setup

__all__ = ["Asked", "answer_options", "asked", "run_options"]


def answer_options() -> list[Callable[[Any], Any]]:
    """The options for models, settings and the benchmark, and which questions it is about."""
    return [
        model_option("Folder, hub id, http://HOST/v1#NAME or embedded."),
        *way_options(),
        click.option("--subtitles", type=click.Choice(SUBTITLE_MODES), default="none", show_default=True),
        click.option("--template", type=click.Choice(list(TEMPLATES)), help="Prompt, in place of the benchmark's."),
        click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any other setting."),
        click.option("--with", "options", multiple=True, metavar="NAME=VALUE", help="An option of the benchmark."),
        click.option("--ids", metavar="FILE|A,B,…", help="Ask only these questions."),
    ]


def run_options(command: Any) -> Any:
    """Add the options for questions, models and settings."""
    decorators = [
        *answer_options(),
        *limit_options(),
        click.option("--limit", type=int, metavar="N", help="Ask N questions, evenly from the first bin's values."),
        click.option("--seed", type=int, default=0, show_default=True, help="For --limit and the random selector."),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@dataclass(frozen=True)
class Asked:
    """A benchmark, and the values of these options."""

    benchmark: Benchmark
    setup: Setup
    choice: Choice


def asked(name: str, data: Path, given: dict[str, Any]) -> Asked:
    """Turn names into values: read the benchmark, and make the setup; models are not loaded."""
    benchmark = load_benchmark(name, data, **parse_options(given["options"]))
    model = given["model"] or benchmark.model
    if not model:
        raise UsageError(f"name the model that is to answer {name} with --model or GRIDPROBE_MODEL")
    changes = (
        parse_changes(given["changes"]) | given_settings(given, (*WAY, "seed", "template")) | usage_limits_of(given)
    )
    loading = tuple((key, given[key]) for key in ("device", "dtype") if given.get(key, "auto") != "auto")
    probing, answering = named_models(given, model, loading)
    setup = make_setup(
        model=probing,
        answer_model=answering,
        selector=given["selector"],
        settings=Settings.from_preset(given["preset"], **changes),
    )
    shard = Shard.parse(given.get("shard", "1/1"))
    choice = Choice(limit=given["limit"], ids=_ids(given["ids"]), seed=given["seed"], shard=shard)
    return Asked(benchmark, setup, choice)


def _ids(text: str | None) -> tuple[str, ...] | None:
    """Ids from a file with one id per line, or from a comma-separated list."""
    if text is None:
        return None
    file = Path(text)
    try:
        found = file.read_text(encoding="utf-8").splitlines() if file.is_file() else text.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the ids in {text}: {error}") from error
    return tuple(dict.fromkeys(name.strip() for name in found if name.strip()))
