"""Which questions a run asks, and how they are shared out: by ids, by a limit over all kinds, by shards of videos."""

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gridprobe.benchmarks import Benchmark, Item
from gridprobe.errors import DataError, UsageError

__all__ = ["Choice", "Shard", "Task", "choose", "tasks_of"]


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
    """A worker died over it, or over what it did beside it: nothing is done beside it, to know what is to blame."""
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
        raise UsageError("no question is left to ask; check --ids, --limit and --data")
    return tuple(items)


def _limited(items: Sequence[Item], limit: int, seed: int, *, whole_groups: bool) -> list[Item]:
    """So many of the items, evenly from the values of the first bin; a larger limit adds to what a smaller one drew.

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
