"""Output of the command line: consoles, notices and progress."""

import io
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from gridprobe._util import REPLACING, Listener, ProgressEvent, listening, printable

STAGES = {
    "load": "loading the model",
    "hash": "checking the weights (MiB)",
    "features": "encoding frames",
    "decode": "decoding frames",
    "model": "asking the model",
    "write": "writing (tokens)",
    "server": "waiting for the server (s)",
    "speech": "transcribing (s of sound)",
    "encode": "writing the video",
    "questions": "questions done",
    "videos": "videos done",
    "selectors": "selectors asked",
    "headers": "reading headers",
    "plan": "counting tokens",
    "verify videos": "checking videos",
    "verify subtitles": "checking subtitles",
}
WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}
"""How lines are broken, so that addresses and commands can be copied."""
QUIET_SECONDS = 2.0
"""Work that takes less time than this shows no progress."""
LINE_EVERY_SECONDS = 10.0
QUIET = "gridprobe.quiet"
"""The key of --quiet in the context's meta."""
VERBOSE = "GRIDPROBE_VERBOSE"
"""Set by --debug; the workers of an evaluation read it, too."""


def never_fail(*streams: Any) -> None:
    """Let these streams replace characters that their encoding lacks, such as × in ASCII, instead of failing."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=REPLACING)


def quiet_option(command: Any) -> Any:
    """Add --quiet."""
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.update({QUIET: value}),
        help="Print only results and errors: no progress, no notices.",
    )(command)


def debug_option(command: Any) -> Any:
    """Add --debug."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=lambda _, __, value: os.environ.update({VERBOSE: "1"}) if value else None,
        help="Also print what the libraries that load models report.",
    )(command)


def is_quiet() -> bool:
    """Whether the command was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def notice(text: str) -> None:
    """Print a line to stderr, unless --quiet."""
    if not is_quiet():
        print(in_lines(printable(text), sys.stderr), file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """Print a sentence about an error to stderr, also with --quiet."""
    print(in_lines(f"gridprobe: {printable(text)}", sys.stderr), file=sys.stderr, flush=True)


def in_lines(text: str, stream: Any) -> str:
    """The text in lines that end between words, for a terminal, which would break words; else as it is."""
    if not stream.isatty():
        return text
    with suppress(OSError):
        columns = os.get_terminal_size(stream.fileno()).columns
        return textwrap.fill(text, columns or 80, **WHOLE_WORDS)
    return text


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False, soft_wrap=False)


def print_rows(rows: Iterable[tuple[Text, Sequence[Text]]]) -> None:
    """Print names with their notes next to them, or below them on a narrow terminal; nothing is cut."""
    rows, console = list(rows), stdout()
    column = max((name.cell_len for name, _ in rows), default=0) + 2
    below = column > console.width // 2
    indent = " " * (4 if below else column)
    for name, notes in rows:
        lines = [
            Text(line, note.style)
            for note in notes
            for line in textwrap.wrap(note.plain, max(20, console.width - len(indent)), **WHOLE_WORDS)
        ]
        first = [] if below or not lines else [Text(" " * (column - name.cell_len)) + lines.pop(0)]
        console.print(Text.assemble(name, *first), soft_wrap=True)
        for line in lines:
            console.print(Text(indent) + line, soft_wrap=True)


def speaks_unicode(console: Console) -> bool:
    """Whether the console can print block characters; under LANG=C it cannot."""
    return console.encoding.lower().replace("-", "").startswith("utf")


def announce_saved(what: str, path: Path) -> None:
    """Print to stderr where a result was saved."""
    notice(f"{what} saved to {path}")


@contextmanager
def progress(*stages: str) -> Iterator[None]:
    """Show progress on stderr, of these stages or of all: bars on a terminal, otherwise a plain line now and then."""
    if is_quiet():
        yield
    elif sys.stderr.isatty():
        with _bars() as bars, listening(_only(stages, _in_bars(bars))):
            yield
    else:
        with listening(_only(stages, _in_lines())):
            yield


def _only(stages: tuple[str, ...], listener: Listener) -> Listener:
    return lambda event: listener(event) if event.stage in stages or not stages else None


def _bars() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shared = sys.stdout.isatty()  # then results appear above the bars; a file must get them itself
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=shared)


def _in_bars(bars: Progress) -> Listener:
    """Draw a bar for each stage."""
    tasks: dict[str, TaskID] = {}

    def update(event: ProgressEvent) -> None:
        stage, done, total = event
        if stage not in tasks:
            tasks[stage] = bars.add_task(STAGES.get(stage, stage), total=total)
        bars.update(tasks[stage], completed=done, total=total)

    return update


def _in_lines() -> Listener:
    """Print a line now and then."""
    following = time.monotonic() + QUIET_SECONDS

    def update(event: ProgressEvent) -> None:
        nonlocal following
        stage, done, total = event
        if total > 1 and time.monotonic() >= following:  # "1 of 1" is no information
            following = time.monotonic() + LINE_EVERY_SECONDS
            print(f"{STAGES.get(stage, stage)}: {done} of {total}", file=sys.stderr, flush=True)

    return update


# Signals that end a run in order, as Ctrl-C does: SIGTERM, SIGHUP, and the SIGUSR1 that schedulers send in advance.

NAMES = ("SIGTERM", "SIGHUP", "SIGUSR1")


class Stopped(KeyboardInterrupt):
    """A signal ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C, as Python does; an ignored one stays ignored.

    During an import Ctrl-C does what it did before: C++ code of torch that is being imported aborts at an exception.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = before if _is_importing(frame) else signal.default_int_handler
        handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextmanager
def stopping() -> Iterator[None]:
    """Raise Stopped at the first of these signals; the next one ends the process at once. Ignored ones stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in signals if signal.getsignal(number) != signal.SIG_IGN}

    def stop(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
