"""The values every benchmark is loaded into: items with a question, a video and the bins they count in."""

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from gridprobe.errors import DataError, UsageError
from gridprobe.question import PAPER_SUBTITLES, Question
from gridprobe.video import FramePool, SampleSpec, VideoInfo, probe
from gridprobe.video.subtitles import Between, Subtitles, clip_time, in_clip, read_subtitles, sentences

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
class DataProblem:
    """A row or file that cannot be used."""

    where: str
    """An item's id, a row's number or a file."""
    what: str
    kind: str = "row"
    """One of `gridprobe_eval.benchmarks.verify.KINDS`."""


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
    problems: tuple[DataProblem, ...] = ()
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
    places: Mapping[str, str] = field(default_factory=dict)
    """Where in its file the row of each item is, such as "line 3", by the item's id."""

    def place(self, item: Item) -> str:
        """Where the row of an item is, such as "line 3 (q7)"."""
        return f"{self.places[item.id]} ({item.id})" if item.id in self.places else item.id

    @property
    def unusable(self) -> str:
        """For example "2 of 40 rows cannot be asked, the first is line 3: question is missing"; empty if all can."""
        if not self.problems:
            return ""
        first, rows = self.problems[0], len(self.items) + len(self.problems)
        return f"{len(self.problems)} of {rows} rows cannot be asked, the first is {first.where}: {first.what}"


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
        """The 95% interval, in fractions of one; None without anything to take the mean of."""
        from gridprobe_eval.statistics import score_interval

        if not self.strata or self.value is None:
            return None
        return score_interval(
            [([score / 100 for _, score in each], [name for name, _ in each]) for each in self.strata]
        )


# Accuracy, overall and by bin, as most benchmarks report it.


def accuracy(items: Sequence[Item], right: Mapping[str, bool], *, name: str = "accuracy") -> Metric:
    """The percentage of right answers among the questions that were asked and have a known answer."""
    public = [item for item in items if not item.withheld]
    scores = [(item.group, 100.0 * right[item.id]) for item in public if item.id in right]
    notes = [
        f"{len(public) - len(scores)} of {len(public)} not asked" if len(scores) < len(public) else "",
        f"{len(items) - len(public)} with a withheld answer" if len(public) < len(items) else "",
    ]
    value = mean([score for _, score in scores])
    return Metric(name, value, len(scores), ", ".join(filter(None, notes)), [scores])


def by_bin(items: Sequence[Item], right: Mapping[str, bool], *bins: str) -> list[Metric]:
    """The accuracy for each value of these bins, except values without an asked question."""
    metrics = [
        accuracy([item for item in items if item.bins.get(name) == value], right, name=f"{name} {value}")
        for name in bins
        for value in values(items, name)
    ]
    return [metric for metric in metrics if metric.count]


def values(items: Sequence[Item], name: str) -> list[str]:
    """The values of a bin: in numerical order if all are numbers, else in the order of the items."""
    distinct = list(dict.fromkeys(item.bins[name] for item in items if name in item.bins))
    return sorted(distinct, key=int) if all(value.isdecimal() for value in distinct) else distinct


def mean(scores: Sequence[float]) -> float | None:
    """The mean, or None if there are none: nothing asked is not the same as nothing right."""
    return sum(scores) / len(scores) if scores else None


# Subtitles added to a question, as a block of text or between the frames:
#
# none         no subtitles
# concat       all text of the clip, joined by spaces; on Video-MME the lines of the frames shown, as officially
# paper        as in the authors' code: the first 3000 characters of the file, whichever part of the source the clip is
# interleaved  between the frames, at the time it is spoken, by the benchmark's own rule

SUBTITLE_MODES = ("none", "concat", "paper", "interleaved")


def has_subtitles(item: Item) -> bool:
    """Whether the item's subtitle file exists. Some videos have none, which is recorded and not an error."""
    return item.subtitles is not None and item.subtitles.is_file()


def with_subtitles(item: Item, mode: str) -> Question:
    """The item's question with its subtitles, if it has any.

    Text that depends on the frames shown goes between or after them, not into the prompt (`Question.spoken`). On
    Video-MME-v2 the template changes with the mode, also for a video without subtitles, as in its own script.
    """
    if mode not in SUBTITLE_MODES:
        raise UsageError(f"unknown subtitle mode {mode!r}; choose one of {', '.join(SUBTITLE_MODES)}")
    question = item.question
    if question.template == "video-mme-v2" and mode in ("concat", "interleaved"):
        return _video_mme_v2(item, mode)
    if mode == "none":
        return replace(question, spoken=None)
    if not has_subtitles(item):
        return question
    if mode == "paper":
        return replace(question, subtitles=_track(item).text[:PAPER_SUBTITLES])
    if mode == "concat" and question.template != "video-mme":
        lines = in_clip(_track(item).segments, offset=item.offset, duration=item.duration)
        return replace(question, subtitles=" ".join(line.text for line in lines))
    spoken = _longvideobench(item) if question.template == "longvideobench" else _between(item, mode)
    return replace(question, spoken=spoken) if spoken.segments else question


def _between(item: Item, mode: str) -> Between:
    """Benchmarks without a rule of their own for lines between frames follow LongVideoBench's."""
    # Lines just outside the clip are included: a short one counts as one second long and may overlap a frame.
    lines = clip_time(_track(item).segments, offset=item.offset, duration=item.duration)
    return Between(lines, rule="video-mme" if mode == "concat" else "longvideobench", duration=item.duration)


def _longvideobench(item: Item) -> Between:
    """As the official loader: a line without an end gets the clip's length as end before the offset is subtracted."""
    lines = _track(item, verbatim=True).segments
    ending = item.duration or 0.0
    closed = (line if math.isfinite(line.end) else replace(line, end=ending) for line in lines)
    return Between(clip_time(closed, offset=item.offset), duration=item.duration)


def _video_mme_v2(item: Item, mode: str) -> Question:
    """As the official script: the wording for subtitles also if there are none, and words unchanged."""
    words = _track(item, verbatim=True).segments if has_subtitles(item) else ()
    if mode == "concat":
        text = " ".join(word.text for word in words)
        return replace(item.question, template="video-mme-v2-listed", subtitles=text if text.strip() else "")
    spoken = Between(sentences(words), rule="video-mme-v2", duration=item.duration or _length(item.video))
    return replace(item.question, template="video-mme-v2-interleaved", spoken=spoken if words else None)


@lru_cache(maxsize=64)
def _length(video: Path) -> float | None:
    """Words after the end of the video are not shown; a video that is not there is reported when it is opened."""
    return probe(video).duration if video.is_file() else None


def _track(item: Item, *, verbatim: bool = False) -> Subtitles:
    return read_subtitles(item.subtitles, verbatim=verbatim) if item.subtitles is not None else Subtitles(())


# Annotations may name only files in the data folder: one from elsewhere must not make a run read the user's files.


def without_outside_files(benchmark: Benchmark, data: Path) -> Benchmark:
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
            problems.append(DataProblem(benchmark.place(item), what))
    return replace(benchmark, items=tuple(items), problems=tuple(problems))


def _outside(item: Item, root: str) -> Path | None:
    for path in (item.video, item.subtitles):
        if path is not None and os.path.commonpath((root, os.path.abspath(path))) != root:
            return path
    return None


# Questions with their options taken away: the text of the right option is the answer to find.

NEEDS_OPTIONS = re.compile(
    r"\b(?:these|the following|following (?:\w+ )?(?:is|are|was|were|best|most)|below|options?|choices|candidates"
    r"|statements?|not (?:true|correct|mentioned|shown|included|one of))\b|_{2,}",
    re.IGNORECASE,
)
"""What a question says that cannot be understood without its options."""


def without_options(benchmark: Benchmark, answer: Callable[[Item], str | None] | None = None) -> Benchmark:
    """The benchmark with open questions. Those that need their options are left out, and named among its problems.

    Args:
        benchmark: one with options.
        answer: the text that answers an item, or None if the item makes no sense without options; by default the text
            of the right option, unless the question speaks of its options.
    """
    items, problems = [], list(benchmark.problems)
    for item in benchmark.items:
        right = answer(item) if answer else _answer(item)
        if right is None and not item.withheld:
            problems.append(DataProblem(item.id, "the question cannot be understood without its options"))
            continue
        items.append(replace(item, question=replace(item.question, options=(), answer=right)))
    if not items:
        raise DataError(f"no question of {benchmark.name} can be asked without options; leave out open=true")
    mark = hashlib.sha256("".join(item.id for item in items).encode()).hexdigest()[:6]
    version = f"{benchmark.version}-open-{len(items)}-{mark}"
    return replace(benchmark, version=version, items=tuple(items), problems=tuple(problems))


def _answer(item: Item) -> str | None:
    question = item.question
    if question.open or question.answer is None:
        return question.answer
    return None if NEEDS_OPTIONS.search(question.text) else question.option(question.answer)
