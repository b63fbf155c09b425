"""Qwen3-VL as a model family: the functions that `gridprobe.registry.FAMILIES` requires."""

from pathlib import Path
from typing import Any

from gridprobe.backends.base import Backend
from gridprobe.backends.qwen3vl.gauging import KNOWN, gauge

__all__ = ["KNOWN", "gauge", "load"]


def load(name: str, folder: Path, **options: Any) -> Backend:
    """Load a checkpoint; see `gridprobe.backends.qwen3vl.loading.load`."""
    from gridprobe.backends.qwen3vl.loading import load as load_checkpoint

    return load_checkpoint(name, folder, **options)
