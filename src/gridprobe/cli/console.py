"""Output of the command line: consoles, notices and progress."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gridprobe.progress import Event, listening
from gridprobe.text import printable

__all__ = ["announce_saved", "printable", "progress", "speaks_unicode", "stdout"]

STAGES = {
    "hash": "checking the weights (MiB)",
    "features": "encoding frames",
    "decode": "decoding frames",
    "model": "asking the model",
    "write": "writing (tokens)",
    "server": "waiting for the server (s)",
    "encode": "writing the video",
    "questions": "questions done",
    "selectors": "selectors asked",
    "headers": "reading headers",
    "plan": "counting tokens",
    "verify videos": "checking videos",
    "verify subtitles": "checking subtitles",
}
QUIET_SECONDS = 2.0
"""Work that takes less time than this shows no progress."""
LINE_EVERY_SECONDS = 10.0


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False, soft_wrap=False)


def speaks_unicode(console: Console) -> bool:
    """Whether the console can print block characters; under LANG=C it cannot."""
    return console.encoding.lower().replace("-", "").startswith("utf")


def announce_saved(what: str, path: Path) -> None:
    """Print to stderr where a result was saved."""
    print(f"{what} saved to {printable(str(path))}", file=sys.stderr)


@contextmanager
def progress() -> Iterator[None]:
    """Show progress on stderr: bars on a terminal, otherwise a plain line every few seconds."""
    if sys.stderr.isatty():
        with _bars() as bars, listening(_BarListener(bars)):
            yield
    else:
        with listening(_LineListener()):
            yield


def _bars() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _BarListener:
    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        stage, done, total = event
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(STAGES.get(stage, stage), total=total)
        self.bars.update(self.tasks[stage], completed=done, total=total)


class _LineListener:
    def __init__(self) -> None:
        self.next = time.monotonic() + QUIET_SECONDS

    def __call__(self, event: Event) -> None:
        stage, done, total = event
        if total > 1 and time.monotonic() >= self.next:  # "1 of 1" is no information
            self.next = time.monotonic() + LINE_EVERY_SECONDS
            print(f"{STAGES.get(stage, stage)}: {done} of {total}", file=sys.stderr, flush=True)
