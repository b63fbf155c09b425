"""What every benchmark comes down to: items with a question, a video and the bins they are counted in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gridprobe.question import Question
from gridprobe.video import FramePool, SampleSpec, VideoInfo

__all__ = ["Benchmark", "Item", "Metric", "Module", "Problem", "as_file", "unknown"]


@dataclass(frozen=True)
class Item:
    """One question of a benchmark. Its gold answer is `question.answer`, and its id `question.id`."""

    id: str
    question: Question
    video: Path
    """Where the file should be; loading a benchmark does not look."""
    group: str
    """What the questions about one video share. Intervals are clustered by it, and work is handed out by it."""
    bins: Mapping[str, str] = field(default_factory=dict)
    """What results are broken down by, such as {"duration": "600", "level": "L1-Perception"}. `--limit` draws evenly
    from the values of the first."""
    subtitles: Path | None = None
    offset: float = 0.0
    """Seconds by which the subtitles run ahead of the video; subtracted from their times."""
    duration: float | None = None
    """Seconds of the video, where the benchmark tells it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the official metrics need besides, such as a group's structure. Plain JSON values."""


@dataclass(frozen=True)
class Problem:
    """A row that could not be used, or a file that is not as it should be."""

    where: str
    """An item's id, a row's number or a file."""
    what: str


def as_file(item: Item, spec: SampleSpec) -> Path | FramePool:
    """The video of an item is a file that is there."""
    return item.video


def unknown(item: Item) -> VideoInfo | None:
    """Nothing is known of a video before it is opened."""
    return None


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as found in a folder. Its functions are named ones, so that they can travel to other processes."""

    name: str
    version: str
    """Name, number of rows and a hash of the files they came from: results of other releases never mix."""
    items: tuple[Item, ...]
    problems: tuple[Problem, ...] = ()
    """Rows that are not items. They are reported, and never dropped in silence."""
    data: str = ""
    """Where its files are."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What it was loaded with, such as its split."""
    open: Callable[[Item, SampleSpec], Path | FramePool] = as_file
    """An item's video: a file, generated if need be, or the frames themselves."""
    info: Callable[[Item], VideoInfo | None] = unknown
    """What is known of an item's video before it is generated; None where it has to be opened to know."""
    generated: bool = False
    """Whether its videos are generated when they are first needed."""


@dataclass(frozen=True)
class Metric:
    """A number of the benchmark's official scoring."""

    name: str
    value: float
    """Between 0 and 100."""
    count: int
    """How many questions, or groups, it is the mean of."""
    note: str = ""


class Module(Protocol):
    """What a file of this package offers."""

    def load(self, data: Path, **options: Any) -> Benchmark:
        """Read the official files under `data`."""

    def metrics(self, items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
        """The official scores, headline first.

        An item that is not in `right` was not asked: groups that are not complete are reported in a note, never mixed
        in.
        """
