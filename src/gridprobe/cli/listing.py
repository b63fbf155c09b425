"""gridprobe list: names for the options of other commands."""

import os
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from gridprobe.cli.console import printable, stdout
from gridprobe.cli.help import Verb
from gridprobe.cli.settings_table import settings_table
from gridprobe.registry import BACKENDS, BENCHMARKS, BUDGETS, ENCODERS, FAMILIES, SELECTORS

__all__ = ["listing"]

PRESET_NOTES = {
    "default": "single frames, original aspect ratio, true times, ties spread over time",
    "paper": "the published method: fused frame pairs, 224×224, times as in a 24 fps clip",
    "authors": "as paper, and where text and code of the authors differ, as their code",
    "gridworld": "as default, with probes of 64 pixels; for the embedded models",
}


def _models() -> dict[str, str]:
    """The registered kinds of models, the families of checkpoints, and the Qwen3-VL checkpoints in the local cache."""
    rows = BACKENDS.listed()
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
    "presets": PRESET_NOTES.copy,
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
@click.argument("what", type=click.Choice([*LISTED, "settings"]))
def listing(what: str) -> None:
    """List names for the options of other commands, or all settings with type, default and meaning."""
    if what == "settings":
        stdout().print(settings_table())
        stdout().print(Text("\nSet one with --set NAME=VALUE (eval, plan, calibrate), or as an argument in Python."))
        return
    rows = LISTED[what]()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, note in rows.items():
        table.add_row(Text(printable(name)), Text(printable(note)))
    stdout().print(table)
