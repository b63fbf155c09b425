"""Families of transformers: the functions that `gridprobe.registry.FAMILIES` requires."""

from pathlib import Path
from typing import Any

from gridprobe.backends.base import Backend
from gridprobe.backends.gauge import Gauge

__all__ = ["KNOWN", "gauge", "load"]

KNOWN: tuple[str, ...] = ()
"""No model of these families can be gauged by its name alone."""


def load(name: str, folder: Path, **options: Any) -> Backend:
    """Load a checkpoint; see `gridprobe.backends.transformers_auto.loading.load`."""
    from gridprobe.backends.transformers_auto.loading import load as load_checkpoint

    return load_checkpoint(name, folder, **options)


def gauge(name: str, folder: Path | None) -> Gauge | None:
    """Gauge a checkpoint on this machine."""
    if folder is None:
        return None
    from gridprobe.backends.transformers_auto.gauging import gauge as gauge_checkpoint

    return gauge_checkpoint(name, folder)
