"""Method: how every question of a run is asked. Attempt: one question whose failure does not end the run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gridprobe.benchmarks import Benchmark, Item, with_subtitles
from gridprobe.benchmarks.base import as_file
from gridprobe.evaluation.tasks import Task
from gridprobe.pipeline import Session
from gridprobe.question import Question
from gridprobe.setup import Setup
from gridprobe.video import FramePool, SampleSpec

__all__ = ["Attempt", "Method"]


@dataclass(frozen=True)
class Method:
    """How every question of a run is asked. It travels to other processes, and its functions by their names."""

    setup: Setup
    open: Callable[[Item, SampleSpec], Path | FramePool] = as_file
    """The benchmark's way to a video; one that generates its videos does so here."""
    subtitles: str = "none"
    """How subtitles are shown; see `gridprobe.benchmarks.SUBTITLE_MODES`."""

    @classmethod
    def of(cls, benchmark: Benchmark, setup: Setup, *, subtitles: str = "none") -> "Method":
        """The method for a benchmark."""
        return cls(setup, benchmark.open, subtitles)

    def question(self, item: Item) -> Question:
        """The question with its subtitles."""
        return with_subtitles(item, self.subtitles)

    def session(self, task: Task) -> Session:
        """A session about a task's video, which is generated if need be and not opened yet."""
        assert self.setup.sampling is not None
        video = self.open(task.items[0], self.setup.sampling)
        return Session(video, setup=self.setup, reuse=len(task.items) > 1)


class Attempt:
    """A piece of work whose failure, whatever it is, becomes part of the result: `with Attempt() as attempt: …`.

    This is the one place where a bug of ours does not end the program: one bad question must not end three days of
    work. The record names its class, and the summary counts it.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False
