"""Benchmarks: one module each, with its loader, its official metrics and its file names.

A benchmark is read as its authors released it, from a folder the user downloaded; nothing is fetched, and the package
contains no data. Importing this package loads none of them.
"""

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gridprobe.benchmarks.base import Benchmark, Item, Metric, Problem
from gridprobe.benchmarks.spoken import SUBTITLE_MODES, has_subtitles, with_subtitles
from gridprobe.errors import UsageError

__all__ = [
    "BENCHMARKS",
    "SUBTITLE_MODES",
    "Benchmark",
    "Item",
    "Metric",
    "Problem",
    "has_subtitles",
    "load_benchmark",
    "made_on_demand",
    "metrics",
    "parse_options",
    "ready",
    "with_subtitles",
]

BENCHMARKS = {
    "video-mme-v2": "3200 questions in groups of four about 800 videos; up to 8 options; scored by group (Non-Lin)",
    "longvideobench": "validation: 1337 questions about 753 videos of 8 s to an hour; up to 5 options; subtitles",
    "video-mme": "2700 questions about 900 short, medium and long videos; 4 options; subtitles",
    "mlvu": "dev: 2175 multiple-choice questions of seven tasks; the score is the mean over tasks",
    "lvbench": "1549 questions about 103 videos of up to two hours; 4 options",
    "egoschema": "500 questions with public answers about three-minute first-person clips; 5 options",
    "nextqa": "4996 validation questions about short clips: causal, temporal, descriptive; 5 options",
    "gridworld": "generated on demand for the embedded models, with the intervals of the evidence; needs no data",
    "jsonl": "your own: a file of JSON lines with id, video, question, options, answer, subtitles, bins",
}
"""Name and a one-line description of each."""


def load_benchmark(name: str, data: str | Path, **options: Any) -> Benchmark:
    """Read a benchmark's official files.

    Args:
        name: one of `BENCHMARKS`.
        data: the folder with the files (for "jsonl" also the file itself; for "gridworld" the folder to write its
            videos to).
        **options: the benchmark's own options; see docs/benchmarks.md.
    """
    load = _module(name).load
    parameters = inspect.signature(load).parameters.values()
    known = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise UsageError(f"unknown option {option!r} of {name}; {_hint(option, known)}")
    found: Benchmark = load(Path(data), **options)
    return found


def metrics(name: str, items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """The benchmark's official scores, headline first. Items that are not in `right` were not asked."""
    found: list[Metric] = _module(name).metrics(items, right)
    return found


def ready(name: str, item: Item) -> None:
    """Generate the item's video if the benchmark generates its own; otherwise do nothing."""
    if made_on_demand(name):
        _module(name).make_video(item)


def made_on_demand(name: str) -> bool:
    """Whether the benchmark generates its videos when they are first needed."""
    return hasattr(_module(name), "make_video")


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """Options from the command line: "split=test", "paper_subset=true", "count=40"."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"a benchmark's option is NAME=VALUE, such as split=test; got {text!r}")
        options[name] = _value(value)
    return options


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() else text


def _module(name: str) -> Any:
    if name not in BENCHMARKS:
        raise UsageError(f"unknown benchmark {name!r}; {_hint(name, list(BENCHMARKS))}")
    return importlib.import_module(f"gridprobe.benchmarks.{name.replace('-', '_')}")


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose among {', '.join(known)}" if known else "it has none"
