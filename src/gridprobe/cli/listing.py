"""gridprobe list: names for the options of other commands."""

import os
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
from rich.table import Table
from rich.text import Text

from gridprobe.cli.console import printable, stdout
from gridprobe.cli.help import Verb
from gridprobe.options import Options
from gridprobe.registry import BENCHMARKS, BUDGETS, ENCODERS, FAMILIES, MODELS, SELECTORS

__all__ = ["MEANINGS", "listing", "settings_table"]

# gridprobe list settings: each setting with its type, its default and its meaning.

MEANINGS = {
    "k": "side of the grid; K² frames are sampled",
    "frames": "how many frames are kept",
    "budget": "rule behind frames=auto; see gridprobe list budgets",
    "effort": "quick: the overview answers; auto: if it is sure; full: kept frames answer; focus: no overview",
    "sure": "confidence at which the overview's answer is taken",
    "refine": "where the overview is not sure, sample promising stretches again",
    "probes": "what the map is made from; fresh is as published",
    "encoder": "what compares frames with the question; see gridprobe list encoders",
    "rotations": "in how many orders the options are shown; 1 is off",
    "sampling": "the middle of each of K² equal parts, or evenly from the first frame to the last",
    "precision": "whether a keyframe near a sampled moment may stand for it",
    "decode_in": "decode in a child process, which may crash, or in this one",
    "stream": "number of the video stream, for files with several; by default the default one",
    "packing": "frames one by one, or fused in pairs as published",
    "timestamps": "true times of frames, or those of a 24 fps clip as published",
    "prompt_order": "what the model reads first",
    "probe_pixels": "size of the small frames",
    "native_pixels": "size of the kept frames",
    "decoded": "size that all sampled frames are decoded at",
    "probe_view": "what a fresh probe shows: its frames, or one picture of them",
    "context": "what is shown next to the kept frames: nothing, or all others small; by default as suits the selector",
    "sheet": "how many small frames stand side by side in one picture",
    "ties": "which of equally important frames are kept",
    "order": "order of the kept frames",
    "collage": "show the kept frames as one picture",
    "open_way": "how questions without options are answered",
    "window": "the most frames in one pass; by default as many as the model can read",
    "template": "prompt template; by default the question's own",
    "seed": "for selectors that draw",
    "limits": "how large, long and slow a video may be",
    "usage_limits": "what a question may take",
}


def settings_table() -> Table:
    """One row for each setting that --set takes."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    hints = get_type_hints(Options)
    for each in fields(Options):
        if each.name != "preset":
            values = f"{_type(hints[each.name])}; default: {_default(getattr(Options(), each.name))}"
            table.add_row(Text(each.name, "bold"), Text(f"{MEANINGS[each.name]}\n").append(values, "dim"))
    return table


def _type(hint: Any) -> str:
    """For example "int or auto"."""
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type(each) for each in get_args(hint) if each is not NoneType)
    names = {int: "whole number", float: "number", str: "name", bool: "true, false"}
    return names.get(hint, "object")


def _default(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        changed = {name: found for name, found in asdict(value).items() if found not in (None, False, 0)}
        return ", ".join(f"{name} {found:,}" for name, found in changed.items()) or "no limit"
    return "true" if value is True else "false" if value is False else "none" if value is None else str(value)


PRESET_NOTES = {
    "default": "single frames, original aspect ratio, true times, ties spread over time",
    "paper": "the published method: fused frame pairs, 224×224, times as in a 24 fps clip",
    "authors": "as paper, and where text and code of the authors differ, as their code",
    "gridworld": "as default, with probes of 64 pixels; for the embedded models",
}


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
