"""Progress events, without threading a callback through every signature.

Code that takes time calls `report("decode", 3, 144)`; whoever wants to show it wraps the call in `listening(callback)`,
and may cancel it: `report` raises `Cancelled` once the listener's `cancel` event is set. Without a listener a report
costs a dictionary look-up.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event as Flag
from threading import RLock
from typing import NamedTuple

from gridprobe.errors import Cancelled

__all__ = ["Event", "Listener", "listening", "report", "shared"]


class Event(NamedTuple):
    """`done` of `total` steps of a stage are finished."""

    stage: str
    """What is being done, such as "decode", "model" or "questions"."""
    done: int
    total: int


Listener = Callable[[Event], None]

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


def report(stage: str, done: int, total: int) -> None:
    """Say that `done` of `total` steps of `stage` are finished."""
    _send(_listener.get(), Event(stage, done, total))


def _send(found: tuple[Listener, Flag | None] | None, event: Event) -> None:
    if found is None:
        return
    listener, cancel = found
    if cancel is not None and cancel.is_set():
        raise Cancelled(f"cancelled while working on {event.stage} ({event.done} of {event.total} done)")
    listener(event)
