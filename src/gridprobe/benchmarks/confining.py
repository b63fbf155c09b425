"""Annotations may name only files in the data folder: one from elsewhere must not make a run read the user's files."""

import os
from dataclasses import replace
from pathlib import Path

from gridprobe.benchmarks.base import Benchmark, Item, Problem

__all__ = ["confined"]


def confined(benchmark: Benchmark, data: Path) -> Benchmark:
    """The benchmark without items that name a file outside its folder; these are among its problems.

    Only names are compared: a link in the folder was made by the user and may lead anywhere.
    """
    root = os.path.abspath(data.parent if data.is_file() else data)
    items, problems = [], list(benchmark.problems)
    for item in benchmark.items:
        outside = _outside(item, root)
        if outside is None:
            items.append(item)
        else:
            what = f"{outside} is outside the data folder; allow it with --with outside=true if you trust the file"
            problems.append(Problem(item.id, what))
    return replace(benchmark, items=tuple(items), problems=tuple(problems))


def _outside(item: Item, root: str) -> Path | None:
    for path in (item.video, item.subtitles):
        if path is not None and os.path.commonpath((root, os.path.abspath(path))) != root:
            return path
    return None
