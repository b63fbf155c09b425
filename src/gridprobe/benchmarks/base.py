"""The values every benchmark is loaded into: items with a question, a video and the bins they count in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from gridprobe.question import Question
from gridprobe.video import FramePool, SampleSpec, VideoInfo

__all__ = [
    "NO_RIGHT_OPTION",
    "Benchmark",
    "Interval",
    "Item",
    "Metric",
    "Module",
    "RowProblem",
    "accuracy",
    "as_file",
    "by_bin",
    "mean",
    "unknown",
    "values",
]

NO_RIGHT_OPTION = "no_right_option"
"""Key of `Item.extra`: the right answer is known but is none of the options, so every answer is wrong."""


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

    @property
    def withheld(self) -> bool:
        """Whether the right answer is not public, so that no answer can be judged."""
        return self.question.answer is None and not self.extra.get(NO_RIGHT_OPTION)


@dataclass(frozen=True)
class RowProblem:
    """A row or file that cannot be used."""

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
    """A benchmark loaded from a folder. Its functions are named ones, so that they can be sent to other processes."""

    name: str
    version: str
    """Name, number of rows and a hash of the files, so that results of different releases never mix."""
    items: tuple[Item, ...]
    problems: tuple[RowProblem, ...] = ()
    """Rows that could not become items. They are reported, never silently dropped."""
    data: str = ""
    """Where its files are."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What it was loaded with, such as its split."""
    open: Callable[[Item, SampleSpec], Path | FramePool] = as_file
    """An item's video: a file, generated if need be, or the frames themselves."""
    info: Callable[[Item], VideoInfo | None] = unknown
    """What is known of an item's video before it is generated; None where it has to be opened to know."""
    model: str = ""
    """The model that answers it unless another is named; most benchmarks have none."""
    generated: bool = False
    """Whether its videos are generated when they are first needed."""
    scores_groups: bool = False
    """Whether its score needs all questions of a group. `--limit` then draws whole groups."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval."""

    mean: float
    low: float
    high: float
    count: int
    clusters: int
    method: Literal["bootstrap", "wilson"] = "bootstrap"
    """How the interval was found: by resampling clusters, or by Wilson's formula if they are too few for that."""


@dataclass(frozen=True)
class Metric:
    """One of the benchmark's official scores."""

    name: str
    value: float | None
    """Between 0 and 100; None if there is nothing to take the mean of."""
    count: int
    """Number of questions, or groups, in the mean."""
    note: str = ""
    strata: Sequence[Sequence[tuple[str, float]]] = field(default=(), compare=False, repr=False)
    """What the interval is made of: groups (videos) and their scores from 0 to 100, whose mean is the value. Several
    lists if the value is the mean of their means. Empty for a score without an interval."""

    @cached_property
    def interval(self) -> Interval | None:
        """The 95 % interval, in fractions of one; None without anything to take the mean of."""
        from gridprobe.evaluation.statistics import score_interval

        if not self.strata or self.value is None:
            return None
        return score_interval(
            [([score / 100 for _, score in each], [name for name, _ in each]) for each in self.strata]
        )


class Module(Protocol):
    """The interface of a benchmark's module in this package."""

    def load(self, data: Path, **options: Any) -> Benchmark:
        """Read the official files under `data`."""

    def metrics(self, items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
        """The official scores, headline first.

        Items that are not in `right` were not asked. Incomplete groups are excluded and reported in a note.
        """


# Accuracy, overall and by bin, as most benchmarks report it.


def accuracy(items: Sequence[Item], right: Mapping[str, bool], *, name: str = "accuracy") -> Metric:
    """The percentage of right answers among the questions that were asked and have a known answer."""
    known = [item for item in items if not item.withheld]
    asked = [(item.group, 100.0 * right[item.id]) for item in known if item.id in right]
    notes = [
        f"{len(known) - len(asked)} of {len(known)} not asked" if len(asked) < len(known) else "",
        f"{len(items) - len(known)} with a withheld answer" if len(known) < len(items) else "",
    ]
    value = mean([score for _, score in asked])
    return Metric(name, value, len(asked), ", ".join(filter(None, notes)), [asked])


def by_bin(items: Sequence[Item], right: Mapping[str, bool], *bins: str) -> list[Metric]:
    """The accuracy for each value of these bins, except values without an asked question."""
    found = []
    for each in bins:
        for value in values(items, each):
            inside = [item for item in items if item.bins.get(each) == value]
            found.append(accuracy(inside, right, name=f"{each} {value}"))
    return [metric for metric in found if metric.count]


def values(items: Sequence[Item], name: str) -> list[str]:
    """The values of a bin: in numerical order if all are numbers, else in the order of the items."""
    found = list(dict.fromkeys(item.bins[name] for item in items if name in item.bins))
    return sorted(found, key=int) if all(value.isdecimal() for value in found) else found


def mean(scores: Sequence[float]) -> float | None:
    """The mean, or None if there are none: nothing asked is not the same as nothing right."""
    return sum(scores) / len(scores) if scores else None
