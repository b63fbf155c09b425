"""Progress reports, without threading a callback through every signature.

Code that takes time calls `report("decode", 3, 144)`; whoever wants to show it wraps the call in `listening(callback)`.
With nobody listening a report costs a dictionary look-up.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Listener", "listening", "report"]

Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("gridprobe_progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the reports made inside the `with` block to `listener(stage, done, total)`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(stage: str, done: int, total: int) -> None:
    """Say that `done` of `total` steps of `stage` are finished."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)
