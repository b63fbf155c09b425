"""Signals that end a run in order, as Ctrl-C does: SIGTERM, SIGHUP, and the SIGUSR1 that schedulers send in advance."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "stopping"]

NAMES = ("SIGTERM", "SIGHUP", "SIGUSR1")


class Stopped(KeyboardInterrupt):
    """A signal ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def stopping() -> Iterator[None]:
    """Raise Stopped at the first of these signals; the next one ends the process at once. Ignored ones stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known if signal.getsignal(number) != signal.SIG_IGN}

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
