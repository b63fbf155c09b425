"""gridprobe list: names for the options of other commands."""

import os
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from gridprobe._util import printable
from gridprobe.cli.console import print_rows
from gridprobe.cli.help import Verb
from gridprobe.limits import as_flag
from gridprobe.options import PRESET_HELP, settings
from gridprobe.registry import BENCHMARKS, BUDGETS, ENCODERS, FAMILIES, MODELS, SELECTORS


def settings_rows() -> Iterator[tuple[Text, list[Text]]]:
    """One row for each setting."""
    for each in settings():
        flag = f"{as_flag(each.name)}: " if each.flag else ""
        values = f"{each.words}; default: {_default(each.default)}"
        yield Text(each.name, "bold"), [Text(f"{flag}{each.help}"), Text(values, "dim")]


def _default(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        changed = {name: part for name, part in asdict(value).items() if part not in (None, False, 0)}
        return ", ".join(f"{name} {part:,}" for name, part in changed.items()) or "no limit"
    return str(value).lower() if isinstance(value, bool | None) else str(value)


def _models() -> dict[str, str]:
    """The registered kinds of models, the families of checkpoints, and the Qwen3-VL checkpoints in the local cache."""
    rows = MODELS.listed()
    rows |= {f"  {kind}": note for kind, note in FAMILIES.listed().items()}
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    for folder in sorted(cache.glob("models--*--*Qwen3-VL*")) if cache.is_dir() else ():
        _, owner, name = folder.name.split("--", 2)
        rows[f"{owner}/{name}"] = "in the local cache"
    return rows


LISTED = {
    "models": _models,
    "encoders": ENCODERS.listed,
    "selectors": SELECTORS.listed,
    "budgets": BUDGETS.listed,
    "presets": PRESET_HELP.copy,
    "benchmarks": BENCHMARKS.listed,
}


@click.command(
    "list",
    cls=Verb,
    examples=(
        "gridprobe list selectors",
        "gridprobe list settings",
    ),
)
@click.argument("what", type=click.Choice([*LISTED, "settings"]), metavar="WHAT")
def listing(what: str) -> None:
    """List names for the options of other commands, or all settings with type, default and meaning.

    WHAT is models, encoders, selectors, budgets, presets, benchmarks or settings.
    """
    if what == "settings":
        print_rows(settings_rows())
        print("\nSet one with its flag or --set NAME=VALUE, or as an argument in Python.")
    else:
        print_rows((Text(printable(name)), [Text(printable(note))]) for name, note in LISTED[what]().items())
