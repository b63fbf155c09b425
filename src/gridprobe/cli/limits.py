"""Options that limit what a question may take, shared by ask, eval and plan."""

from collections.abc import Callable
from typing import Any

import click

from gridprobe.allowance import LIMITS, Allowance, as_flag

__all__ = ["allowance_of", "limit_options"]

KINDS: dict[str, tuple[type, str]] = {
    "max_frames": (int, "N"),
    "max_tokens": (int, "N"),
    "max_tflops": (float, "X"),
    "max_seconds": (float, "S"),
    "max_gpu_memory": (float, "GB"),
    "min_frames": (int, "N"),
}


def limit_options() -> list[Callable[[Any], Any]]:
    """An option for each limit of a question."""
    return [
        click.option(as_flag(name), name, type=kind, metavar=unit, help=f"{LIMITS[name].capitalize()}.")
        for name, (kind, unit) in KINDS.items()
    ]


def allowance_of(given: dict[str, Any]) -> dict[str, Allowance]:
    """The limits among the options as a setting; nothing if none was given."""
    limits = {name: given[name] for name in KINDS if given.get(name) is not None}
    return {"allowance": Allowance(**limits)} if limits else {}
