"""Options that limit what a question may take, shared by ask, eval and plan."""

from collections.abc import Callable
from typing import Any

import click

from gridprobe.limits import LIMITS, UsageLimits, as_flag

__all__ = ["limit_options", "usage_limits_of"]

KINDS: dict[str, tuple[type, str]] = {
    "max_frames": (int, "N"),
    "max_tokens": (int, "N"),
    "max_tflops": (float, "X"),
    "max_seconds": (float, "S"),
    "max_gpu_memory": (float, "GB"),
}


def limit_options() -> list[Callable[[Any], Any]]:
    """An option for each limit of a question."""
    return [
        click.option(as_flag(name), name, type=kind, metavar=unit, help=f"{LIMITS[name].capitalize()}.")
        for name, (kind, unit) in KINDS.items()
    ]


def usage_limits_of(given: dict[str, Any]) -> dict[str, UsageLimits]:
    """The limits among the options as a setting; nothing if none was given."""
    limits = {name: given[name] for name in KINDS if given.get(name) is not None}
    return {"usage_limits": UsageLimits(**limits)} if limits else {}
