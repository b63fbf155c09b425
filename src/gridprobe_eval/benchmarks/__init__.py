"""Benchmarks: one module each, with its loader, its official metrics and its file names.

A benchmark is read as its authors released it, from a folder the user downloaded; nothing is fetched, and the package
contains no data. Importing this package loads none of them.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridprobe.errors import UsageError
from gridprobe.registry import BENCHMARKS, suggestion
from gridprobe_eval.benchmarks.base import (
    SUBTITLE_MODES,
    Benchmark,
    DataProblem,
    Item,
    Metric,
    has_subtitles,
    with_subtitles,
    without_options,
    without_outside_files,
)
from gridprobe_eval.benchmarks.files import choose

__all__ = [
    "BENCHMARKS",
    "SUBTITLE_MODES",
    "Benchmark",
    "DataProblem",
    "Item",
    "Metric",
    "has_subtitles",
    "load_benchmark",
    "metrics",
    "with_subtitles",
]


def load_benchmark(name: str, data: str | Path, **options: Any) -> Benchmark:
    """Read a benchmark's official files.

    Args:
        name: one of `BENCHMARKS`.
        data: the folder with the files (for "jsonl" also the file itself; for "gridworld" the folder to write its
            videos to).
        **options: the benchmark's own options; see docs/evaluation.md. All have `open`: with `open=True` the questions
            are asked without their options, and the text of the right one is the answer to find. With `outside=True`
            annotations may name videos and subtitles outside `data`.
    """
    code, _ = BENCHMARKS.resolve(name)
    everywhere = {name: options.get(name, False) for name in ("open", "outside")}
    for option, value in everywhere.items():
        choose(option, value, (True, False))
    own = {option: value for option, value in options.items() if option not in everywhere}
    parameters = inspect.signature(code.load).parameters.values()
    names = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in own:
        if option not in names:
            raise UsageError(f"unknown option {option!r} of {name}; {suggestion(option, [*names, *everywhere])}")
    benchmark: Benchmark = code.load(Path(data), **own)
    if not everywhere["outside"]:
        benchmark = without_outside_files(benchmark, Path(data))
    if everywhere["open"]:
        benchmark = without_options(benchmark, getattr(code, "open_answer", None))
    return replace(benchmark, data=str(data), options=options)


def metrics(name: str, items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """The benchmark's official scores, headline first. Items that are not in `right` were not asked."""
    scores: list[Metric] = BENCHMARKS.resolve(name)[0].metrics(items, right)
    return scores
