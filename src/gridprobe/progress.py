"""Progress events, without threading a callback through every signature.

Code that takes time calls `report("decode", 3, 144)`; whoever wants to show it wraps the call in `listening(callback)`,
and may cancel it: `report` raises `Cancelled` once the listener's `cancel` event is set. Without a listener a report
costs a dictionary look-up. Results of single stages reach `watching` in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from threading import Event as Flag
from threading import RLock
from typing import Any, NamedTuple

from gridprobe.errors import Cancelled

__all__ = [
    "Event",
    "Listener",
    "Watcher",
    "announce",
    "has_listener",
    "is_cancelled",
    "listening",
    "relayed",
    "report",
    "shared",
    "watching",
]


class Event(NamedTuple):
    """`done` of `total` steps of a stage are finished."""

    stage: str
    """What is being done, such as "decode", "model" or "questions"."""
    done: int
    total: int


Listener = Callable[[Event], None]
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
    found, lock = _listener.get(), RLock()

    def relay(event: Event) -> None:
        with lock:
            _send(found, event)

    with listening(relay, cancel=stop):
        yield


@contextmanager
def relayed(contexts: Sequence[Context]) -> Iterator[None]:
    """Events of work that is done for several contexts reach the listeners of all that are not cancelled.

    The work ends only when all of them are cancelled.
    """
    found = list({id(each): each for context in contexts if (each := context.get(_listener)) is not None}.values())
    if len(contexts) < 2 or not found:
        yield
        return
    unheard = any(context.get(_listener) is None for context in contexts)

    def relay(event: Event) -> None:
        live = [each for each in found if not _is_set(each)]
        for each in live or ([] if unheard else found):
            _send(each, event)

    with listening(relay):
        yield


def is_cancelled(context: Context) -> bool:
    """Whether the work of a context was cancelled."""
    found = context.get(_listener)
    return found is not None and _is_set(found)


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
    _send(_listener.get(), Event(stage, done, total))


def has_listener() -> bool:
    """Whether reports reach anyone."""
    return _listener.get() is not None


def _is_set(found: tuple[Listener, Flag | None]) -> bool:
    return found[1] is not None and found[1].is_set()


def _send(found: tuple[Listener, Flag | None] | None, event: Event) -> None:
    if found is None:
        return
    if _is_set(found):
        raise Cancelled(f"cancelled while working on {event.stage} ({event.done} of {event.total} done)")
    found[0](event)
