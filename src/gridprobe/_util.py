"""Strict JSON, and files that are written completely or not at all."""

import codecs
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from pathlib import Path
from threading import Event as Flag
from threading import RLock
from typing import Any, NamedTuple, NoReturn

from gridprobe.errors import Cancelled

SURROGATE = re.compile("\\\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""A surrogate or its escape, of which JSON may have one half without the other."""


def parse_json(text: str | bytes, *, floats: bool = True) -> Any:
    """As json.loads, but NaN, Infinity, half surrogate pairs and deep nesting raise ValueError, too.

    Without `floats`, numbers with a fraction or an exponent stay text, which is faster.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        value = (_DECODER if floats else _LIGHT_DECODER).decode(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        if "set_int_max_str_digits" in str(error):  # Python's advice is for programmers
            raise ValueError("a whole number has too many digits") from None
        raise
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_LIGHT_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=str)


class Disk:
    """The calls that fail when a disk is full or broken; a test replaces them to make them fail."""

    def write(self, descriptor: int, content: bytes) -> int:
        """Return how many bytes were written, which can be fewer than given."""
        return os.write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        """Return once everything is on the disk itself."""
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file atomically, replacing the target."""
        os.replace(source, target)


_DISK = Disk()


def write_whole(path: Path, content: bytes, *, durable: bool = False, disk: Disk = _DISK) -> None:
    """Write a temporary file next to `path`, then rename it: a reader sees the old file or the new one, never a part.

    A `durable` file is on the disk when this returns; any other may be lost in a power cut. Failures are OSErrors.
    """
    temporary = path.parent / f".gridprobe-{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
        try:
            while content:
                content = content[disk.write(descriptor, content) :]
            if durable:
                disk.sync(descriptor)
        finally:
            os.close(descriptor)
        disk.replace(temporary, path)
    finally:
        with suppress(OSError):  # after the rename, or if it was never created, there is nothing to remove
            temporary.unlink()
    if durable:
        sync_folder(path.parent, disk=disk)


def sync_folder(folder: Path, *, disk: Disk = _DISK) -> None:
    """Make new names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        disk.sync(descriptor)
    finally:
        os.close(descriptor)


# Text that is safe to print: file names, questions and error messages can contain anything.

ASCII_WORDS = str.maketrans(
    {"×": "x", "–": "-", "−": "-", "…": "...", "σ": "sigma", "●": "O", "▸": ">", "·": "."}
    | {"✓": "+", "✗": "x", "²": "^2"}
)
"""Symbols of our own, where the output cannot show them."""
REPLACING = "gridprobe.replacing"
"""The error handler for streams: a character that the encoding lacks is replaced by ASCII, so printing never fails."""

UNSAFE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, surrogates, and line and paragraph separators."""
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder the text around them, so that one answer could read as another."""


def printable(text: str) -> str:
    """Escape every character that would move the cursor, start a new line or reorder the text."""
    return "".join(_escaped(char) if unicodedata.category(char) in UNSAFE or char in BIDI else char for char in text)


def one_line(text: str) -> str:
    """The same for running text: each run of white space becomes one space, and a lone surrogate becomes "?"."""
    return printable(" ".join(text.encode("utf-8", "replace").decode("utf-8").split()))


def is_utf8(text: str) -> bool:
    """Whether the text has no lone surrogates, so that it can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(ASCII_WORDS)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(REPLACING, _replaced)


# How many processor cores this process may use.


def usable_cores() -> int:
    """The cores this process is allowed to run on, which in a container or batch job can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Progress events, without threading a callback through every signature.
#
# Code that takes time calls `report("decode", 3, 144)`; whoever wants to show it wraps the call in
# `listening(callback)`,
# and may cancel it: `report` raises `Cancelled` once the listener's `cancel` event is set. Without a listener a report
# costs a dictionary look-up. Results of single stages reach `watching` in the same way.


class ProgressEvent(NamedTuple):
    """`done` of `total` steps of a stage are finished."""

    stage: str
    """What is being done, such as "decode", "model" or "questions"."""
    done: int
    total: int


Listener = Callable[[ProgressEvent], None]
Watcher = Callable[[str, Any], None]

_watcher: ContextVar[Watcher | None] = ContextVar("gridprobe_watcher", default=None)
_listener: ContextVar[tuple[Listener, Flag | None] | None] = ContextVar("gridprobe_progress", default=None)


@contextmanager
def listening(listener: Listener, *, cancel: Flag | None = None) -> Iterator[None]:
    """Send the events of the `with` block to `listener`; setting `cancel` ends the work at its next event."""
    token = _listener.set((listener, cancel))
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def shared(stop: Flag) -> Iterator[None]:
    """Events of threads that run in copies of this context reach its listener one at a time; `stop` ends their work."""
    listener, lock = _listener.get(), RLock()

    def relay(event: ProgressEvent) -> None:
        with lock:
            _send(listener, event)

    with listening(relay, cancel=stop):
        yield


@contextmanager
def relayed(contexts: Sequence[Context]) -> Iterator[None]:
    """Events of work that is done for several contexts reach the listeners of all that are not cancelled.

    The work ends only when all of them are cancelled.
    """
    listeners = list({id(each): each for context in contexts if (each := context.get(_listener)) is not None}.values())
    if len(contexts) < 2 or not listeners:
        yield
        return
    unheard = any(context.get(_listener) is None for context in contexts)

    def relay(event: ProgressEvent) -> None:
        live = [each for each in listeners if not _is_set(each)]
        for each in live or ([] if unheard else listeners):
            _send(each, event)

    with listening(relay, cancel=None if unheard else _All(listeners)):
        yield


def check_cancelled(stage: str) -> None:
    """End the work if it was cancelled; for work within a step of a stage, of which nothing is reported."""
    listener = _listener.get()
    if listener is not None and _is_set(listener):
        raise Cancelled(f"cancelled while working on {stage}")


def is_cancelled(context: Context) -> bool:
    """Whether the work of a context was cancelled."""
    listener = context.get(_listener)
    return listener is not None and _is_set(listener)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Send the results of single stages in the `with` block to `watcher`, with the name of the stage."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def announce(stage: str, result: Any) -> None:
    """Say what a stage, such as "overview" or "look", has found."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(stage, result)


def report(stage: str, done: int, total: int) -> None:
    """Say that `done` of `total` steps of `stage` are finished."""
    _send(_listener.get(), ProgressEvent(stage, done, total))


def has_listener() -> bool:
    """Whether reports reach anyone."""
    return _listener.get() is not None


class _All(Flag):
    """Set when the flags of all these listeners are."""

    def __init__(self, listeners: Sequence[tuple[Listener, Flag | None]]) -> None:
        super().__init__()
        self._listeners = listeners

    def is_set(self) -> bool:
        """Whether all are cancelled."""
        return all(map(_is_set, self._listeners))


def _is_set(found: tuple[Listener, Flag | None]) -> bool:
    return found[1] is not None and found[1].is_set()


def _send(found: tuple[Listener, Flag | None] | None, event: ProgressEvent) -> None:
    if found is None:
        return
    if _is_set(found):
        raise Cancelled(f"cancelled while working on {event.stage} ({event.done} of {event.total} done)")
    found[0](event)
