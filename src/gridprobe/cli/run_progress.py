"""The progress of an evaluation: shown at once, with what it is doing, the accuracy until now and the time left."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gridprobe.cli.console import LINE_EVERY_SECONDS, is_quiet, notice
from gridprobe.evaluation.runner import RunState
from gridprobe.progress import watching

__all__ = ["Pace", "run_progress", "span"]

WIDE = 110
"""On a terminal with so many columns there is room for a long bar and whole names."""


def span(seconds: float) -> str:
    """A time in words: "42 s", "12 min" or "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Pace:
    """How long the rest takes, from the questions that this process has asked; those before a resume do not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun = clock, clock()
        self._first: tuple[float, int] | None = None

    def words(self, state: RunState) -> str:
        """For example "accuracy 61.5 %, about 12 min left"."""
        now = self._clock()
        if self._first is None and state.doing.startswith("asking"):
            self._first = now, state.done
        words = [] if state.accuracy is None else [f"accuracy {100 * state.accuracy:.1f} %"]
        if self._first is not None and state.total > state.done > self._first[1]:
            each = (now - self._first[0]) / (state.done - self._first[1])
            words.append(f"about {span(each * (state.total - state.done))} left")
        return ", ".join(words)

    @property
    def elapsed(self) -> float:
        """Seconds since the command was started."""
        return self._clock() - self._begun


@contextmanager
def run_progress() -> Iterator[None]:
    """Show the progress of the evaluation inside: a bar on a terminal, otherwise plain lines, on stderr."""
    if is_quiet():
        yield
    elif sys.stderr.isatty():
        with _bar() as bar, watching(_BarWatcher(bar)):
            yield
    else:
        with watching(_LineWatcher()):
            yield


def _bar() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20 if console.width >= WIDE else 8),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    return Progress(*columns, console=console, transient=True)


class _BarWatcher:
    def __init__(self, bar: Progress) -> None:
        self._bar, self._pace = bar, Pace()
        self._task = bar.add_task("opening the benchmark", total=None, pace="")

    def __call__(self, stage: str, state: Any) -> None:
        if isinstance(state, RunState):
            room = 36 if self._bar.console.width >= WIDE else 20
            doing = state.doing if len(state.doing) <= room else f"{state.doing[: room - 1]}…"
            pace = self._pace.words(state)
            self._bar.update(self._task, description=doing, completed=state.done, total=state.total, pace=pace)


class _LineWatcher:
    """The first steps as they come, then a line every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._pace = clock, Pace(clock)
        self._next = 0.0
        self._asked = False

    def __call__(self, stage: str, state: Any) -> None:
        if not isinstance(state, RunState):
            return
        words = self._pace.words(state)
        first = not self._asked and not state.doing.startswith("ask")
        self._asked = self._asked or not first
        if first:
            notice(state.doing)
        elif state.doing.startswith("asked") and self._clock() >= self._next:
            self._next = self._clock() + LINE_EVERY_SECONDS
            parts = [f"{state.done} of {state.total} questions", words, f"{span(self._pace.elapsed)} elapsed"]
            notice(", ".join(filter(None, parts)))
