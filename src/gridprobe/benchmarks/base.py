"""The values every benchmark is loaded into: items with a question, a video and the bins they count in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gridprobe.question import Question

__all__ = ["Benchmark", "Item", "Metric", "Module", "Problem"]


@dataclass(frozen=True)
class Item:
    """One question of a benchmark. Its gold answer is `question.answer`, and its id `question.id`."""

    id: str
    question: Question
    video: Path
    """Where the file should be; loading a benchmark does not check."""
    group: str
    """Common to all questions about one video. Confidence intervals are clustered by it, and work is divided by it."""
    bins: Mapping[str, str] = field(default_factory=dict)
    """Categories for breaking down results, such as {"duration": "600", "level": "L1-Perception"}. `--limit` draws
    evenly from the values of the first."""
    subtitles: Path | None = None
    offset: float = 0.0
    """Seconds subtracted from the subtitles' times to get the video's."""
    duration: float | None = None
    """Length of the video in seconds, if the benchmark gives it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What else the official metrics need, such as a group's structure. Plain JSON values."""


@dataclass(frozen=True)
class Problem:
    """A row or file that cannot be used."""

    where: str
    """An item's id, a row's number or a file."""
    what: str


@dataclass(frozen=True)
class Benchmark:
    """A benchmark loaded from a folder."""

    name: str
    version: str
    """Name, number of rows and a hash of the files, so that results of different releases never mix."""
    items: tuple[Item, ...]
    problems: tuple[Problem, ...] = ()
    """Rows that could not become items. They are reported, never silently dropped."""


@dataclass(frozen=True)
class Metric:
    """One of the benchmark's official scores."""

    name: str
    value: float
    """Between 0 and 100."""
    count: int
    """Number of questions, or groups, in the mean."""
    note: str = ""


class Module(Protocol):
    """The interface of a benchmark's module in this package."""

    def load(self, data: Path, **options: Any) -> Benchmark:
        """Read the official files under `data`."""

    def metrics(self, items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
        """The official scores, headline first.

        Items that are not in `right` were not asked. Incomplete groups are excluded and reported in a note.
        """
