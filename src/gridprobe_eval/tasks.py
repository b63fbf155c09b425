"""Which questions a run asks, and how they are shared out: by ids, by a limit over all kinds, by shards of videos."""

import hashlib
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gridprobe.ask import Session
from gridprobe.errors import DataError, UsageError
from gridprobe.limits import UsageLimits, as_flag, check_limit
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.video import FramePool, SampleSpec
from gridprobe_eval.benchmarks import Benchmark, Item, with_subtitles
from gridprobe_eval.benchmarks.base import as_file


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, counted from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read such as "2/8"."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            raise UsageError(f"a shard is i/n with i from 1 to n, such as 2/8, got {text!r}")
        return cls(number, count)

    @property
    def name(self) -> str:
        """As part of a file's name."""
        return f"{self.number}of{self.count}"


@dataclass(frozen=True)
class Choice:
    """Which questions of a benchmark a run asks, and which part of them this process is responsible for."""

    limit: int | None = None
    """Ask this many questions, drawn evenly from the values of the first bin; rounded up to whole groups where the
    benchmark scores groups."""
    ids: tuple[str, ...] | None = None
    """Ask only these."""
    seed: int = 0
    """For the limit."""
    shard: Shard = field(default_factory=Shard)
    """One of several parts of the videos, which may run at the same time."""

    def items(self, benchmark: Benchmark) -> tuple[Item, ...]:
        """The questions of the run, in the order of the benchmark."""
        if not benchmark.items and benchmark.problems:
            raise DataError(f"{benchmark.data} has no question that can be asked: {benchmark.unusable}")
        return choose(
            benchmark.items, ids=self.ids, limit=self.limit, seed=self.seed, whole_groups=benchmark.scores_groups
        )


@dataclass(frozen=True)
class Task:
    """The questions about one video that are to be asked, which one worker gets together."""

    items: tuple[Item, ...]
    attempts: Mapping[str, int] = field(default_factory=dict)
    """How often each was tried before."""
    alone: bool = False
    """A worker died over it, or over what it did next to it: nothing is done next to it, to know what is to blame."""
    grants: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What each question may take of the run's totals, if it has any."""


def choose(
    items: Sequence[Item], *, ids: Sequence[str] | None, limit: int | None, seed: int, whole_groups: bool = False
) -> tuple[Item, ...]:
    """The questions of a run, in the order of the benchmark."""
    if len({item.id for item in items}) != len(items):
        raise DataError("two questions of the benchmark have the same id; records could not be told apart")
    if ids is not None:
        unknown = sorted(set(ids) - {item.id for item in items})
        if unknown:
            raise UsageError(f"the benchmark has no question {unknown[0]!r} ({len(unknown)} unknown ids in all)")
        items = [item for item in items if item.id in set(ids)]
    if limit is not None:
        items = _limited(items, limit, seed, whole_groups=whole_groups)
    if not items:
        raise UsageError("no question is left to ask; check --ids and --limit")
    return tuple(items)


def _limited(items: Sequence[Item], limit: int, seed: int, *, whole_groups: bool) -> list[Item]:
    """This many of the items, evenly from the values of the first bin; a larger limit adds to what a smaller one drew.

    With `whole_groups`, groups are drawn in place of questions until there are at least as many questions as the limit.
    """
    if limit < 1:
        raise UsageError(f"--limit must be at least 1, got {limit}")
    units: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        units[item.group if whole_groups else item.id].append(item)
    strata: dict[str, list[list[Item]]] = defaultdict(list)
    for unit in units.values():
        strata[next(iter(unit[0].bins.values()), "")].append(unit)
    for value, members in strata.items():
        random.Random(f"{seed}:{value}").shuffle(members)
    drawn: set[str] = set()
    for round_ in range(max(map(len, strata.values()), default=0)):
        for members in strata.values():
            if round_ < len(members) and len(drawn) < limit:
                drawn.update(item.id for item in members[round_])
    return [item for item in items if item.id in drawn]


def tasks_of(items: Sequence[Item], shard: Shard) -> list[Task]:
    """The shard's videos, in the order of the benchmark; a video's questions stay together."""
    videos: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        videos[item.group, str(item.video)].append(item)
    return [Task(tuple(members)) for members in videos.values()][shard.number - 1 :: shard.count]


# The identity of a video file: its size, its time and a hash of samples of its content.
#
# A run keeps it in each record, so a resumed run notices that a video was replaced, also under the same name and with
# the same size. Size and hash decide: a copy on another machine is the same video. While size and time are the same,
# nothing is read.

BLOCK = 1 << 16
BLOCKS = 16
"""This many blocks are hashed, at equal distances, the first and the last included: at most 1 MiB of a file."""

Identity = Mapping[str, Any]


def identity_of(video: Path) -> Identity | None:
    """The identity of a file or of a folder of pictures; None if it cannot be read."""
    try:
        files = _files(video)
        return {**_status(files), "sample": _sample(files)}
    except OSError:
        return None


def changed_items(items: Iterable[Item], best: Mapping[str, Mapping[str, Any]]) -> list[Item]:
    """The items that were answered from another video than the one that is there now.

    A video that is gone, and a record without an identity, as older versions wrote them, count as unchanged.
    """
    status, whole = cache(_status_of), cache(identity_of)  # each video is read once, and only as far as necessary

    def differs(video: Path, recorded: Mapping[str, Any]) -> bool:
        now = status(video)
        if now is None or all(recorded.get(name) == value for name, value in now.items()):
            return False
        if recorded.get("size") != now["size"]:
            return True
        current = whole(video)
        return current is not None and current["sample"] != recorded.get("sample")

    answered = ((item, best[item.id]) for item in items if best.get(item.id, {}).get("outcome") == "answered")
    identities = ((item, record.get("identity")) for item, record in answered)
    return [item for item, identity in identities if isinstance(identity, dict) and differs(item.video, identity)]


def _status_of(video: Path) -> dict[str, int] | None:
    try:
        return _status(_files(video))
    except OSError:
        return None


def _files(video: Path) -> list[Path]:
    return sorted(path for path in video.iterdir() if path.is_file()) if video.is_dir() else [video]


def _status(files: Iterable[Path]) -> dict[str, int]:
    states = [path.stat() for path in files]
    return {
        "size": sum(state.st_size for state in states),
        "mtime": max((state.st_mtime_ns for state in states), default=0),
    }


def _sample(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        name = path.name if len(files) > 1 else ""  # the order of pictures is that of their names
        size = path.stat().st_size
        digest.update(f"{name}\n{size}\n".encode("utf-8", "surrogateescape"))
        with path.open("rb", buffering=0) as stream:
            for place in _places(size, BLOCKS if len(files) == 1 else 2):
                stream.seek(place)
                digest.update(stream.read(BLOCK))
    return digest.hexdigest()[:16]


def _places(size: int, blocks: int) -> list[int]:
    """Where the blocks of a file of this size begin."""
    last = max(0, size - BLOCK)
    return sorted({last * number // (blocks - 1) for number in range(blocks)})


# Totals: what a run may take. Account: what it has spent, and what each question in progress may still spend.
#
# A question is asked only if it was granted a part of what is left, and it keeps to that part as to any limit. So
# the total holds, however many workers there are. No question is granted less than the largest one took so far: the run
# stops instead, and says so in its folder. The same command with a larger total goes on.

Taken = Mapping[str, float]
"""Tokens, TFLOPs and seconds."""
NAMES = ("tokens", "tflops", "seconds")
ROOM = 2.0
"""A question may take that many times what the largest one took so far."""


@dataclass(frozen=True)
class Totals:
    """What all questions of a run, or of a shard of it, may take together; None does not apply."""

    tokens: int | None = None
    tflops: float | None = None
    seconds: float | None = None
    """The sum of all questions' seconds, whatever runs at the same time."""

    def __post_init__(self) -> None:
        for name, value in self.limits.items():
            check_limit(f"total_{name}", value, whole=name == "tokens")

    def __bool__(self) -> bool:
        return bool(self.limits)

    @property
    def limits(self) -> dict[str, float]:
        """Those that apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def taken_by(record: Mapping[str, Any]) -> Taken | None:
    """What the question of a record took; None if that is not known, because it failed or the record is damaged."""
    if record.get("outcome") != "answered":
        return None
    try:
        cost, seconds = record["cost"], record["seconds"]
        usage = {"tokens": cost["tokens"], "tflops": cost["tflops"], "seconds": seconds["total"]}
        return usage if all(math.isfinite(value) for value in usage.values()) else None
    except (KeyError, TypeError, OverflowError):
        return None


class Account:
    """What is left of a run's totals."""

    def __init__(self, totals: Totals, limits: UsageLimits, before: Iterable[Taken | None] = ()) -> None:
        """Begin with what was taken before; a question of which that is not known counts like the largest one."""
        self.totals = totals
        self._own = {name: getattr(limits, f"max_{name}") for name in NAMES}
        self._granted: dict[str, Taken] = {}
        self._closed: str | None = None
        earlier = list(before)
        self.largest = {name: max((each[name] for each in earlier if each), default=0.0) for name in NAMES}
        self.spent = {name: sum((each or self.largest)[name] for each in earlier) for name in NAMES}

    def left(self, name: str) -> float:
        """What is neither spent nor granted."""
        granted = sum(each.get(name, 0.0) for each in self._granted.values())
        return float(self.totals.limits[name]) - self.spent[name] - granted

    @property
    def lacking(self) -> str | None:
        """The total that does not allow for another question; None if there is none."""
        if self._closed is not None:
            return self._closed
        short = (name for name in self.totals.limits if self.left(name) < max(self._least(name), 1e-12))
        return next(short, None)

    def _least(self, name: str) -> float:
        own = self._own[name]
        return self.largest[name] if own is None else min(own, self.largest[name])

    def grant(self, question: str) -> Taken | None:
        """What a question may take; None if it cannot be asked now."""
        if self.lacking is not None:
            return None
        grants = {}
        for name in self.totals.limits:
            bounds = [self.left(name), ROOM * self.largest[name] or None, self._own[name]]
            grants[name] = min(bound for bound in bounds if bound is not None)
        self._granted[question] = {name: int(value) if name == "tokens" else value for name, value in grants.items()}
        return self._granted[question]

    def settle(self, question: str, taken: Taken | None) -> None:
        """A question was asked; one of which nothing is known has taken all that it was granted."""
        granted = self._granted.pop(question, {})
        for name in NAMES:
            value = granted.get(name, 0.0) if taken is None else taken[name]
            self.spent[name] += value
            if taken is not None:
                self.largest[name] = max(self.largest[name], value)

    def close(self, question: str, name: str) -> None:
        """Not even the least of a question fits what is left of a total."""
        self.release(question)
        self._closed = name

    def release(self, question: str) -> None:
        """A question was not begun."""
        self._granted.pop(question, None)

    def stop_sentence(self, unasked: int) -> str:
        """Why a run stopped before its last question."""
        name = self.lacking
        assert name is not None
        limit = f"{as_flag(f'total_{name}')} {self.totals.limits[name]:g}"
        return f"{unasked} questions were not asked: {limit} ({self.spent[name]:.6g} spent)"


# Method: how every question of a run is asked. Attempt: one question whose failure does not end the run.


@dataclass(frozen=True)
class Method:
    """How every question of a run is asked. It travels to other processes, and its functions by their names."""

    setup: Plan
    open: Callable[[Item, SampleSpec], Path | FramePool] = as_file
    """The benchmark's way to a video; one that generates its videos does so here."""
    subtitles: str = "none"
    """How subtitles are shown; see `gridprobe_eval.benchmarks.SUBTITLE_MODES`."""

    def question(self, item: Item) -> Question:
        """The question with its subtitles."""
        return with_subtitles(item, self.subtitles)

    def session(self, task: Task) -> Session:
        """A session about a task's video, which is generated if need be and not opened yet."""
        assert self.setup.sampling is not None
        video = self.open(task.items[0], self.setup.sampling)
        return Session(video, setup=self.setup, reuse=len(task.items) > 1)
