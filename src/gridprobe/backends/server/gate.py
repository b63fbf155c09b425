"""Gate: how many requests are under way, and when the next may start. Clock: time that tests can replace."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Event

from gridprobe.errors import Cancelled

__all__ = ["Clock", "Gate"]

SLICE_SECONDS = 1.0
"""A wait is cut into pieces of this length, so that it can be cancelled."""


@dataclass(frozen=True)
class Clock:
    """Seconds, and a way to wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait, unless `stop` is set meanwhile."""
        end = self.now() + seconds
        while (left := end - self.now()) > 0 and not stop.is_set():
            self.sleep(min(left, SLICE_SECONDS))
        if stop.is_set():
            raise Cancelled("cancelled while waiting for the server")


class Gate:
    """Limits requests: half as many after the server was busy, one more after as many successes as the limit."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.limit = most
        self._most, self._clock = most, clock
        self._running = self._successes = 0
        self._not_before = 0.0
        self._changed = Condition()

    def enter(self, stop: Event) -> None:
        """Wait for a place, and for the time that the server asked for."""
        with self._changed:
            while self._running >= self.limit and not stop.is_set():
                self._changed.wait(SLICE_SECONDS)
            self._running += 1
            pause = self._not_before - self._clock.now()
        try:
            self._clock.wait(pause, stop)
        except Cancelled:
            self._leave()
            raise

    def succeed(self) -> None:
        """A request is done."""
        with self._changed:
            self._successes += 1
            if self._successes >= self.limit and self.limit < self._most:
                self.limit, self._successes = self.limit + 1, 0
        self._leave()

    def fail(self) -> None:
        """A request is over, and its failure says nothing about the load."""
        self._leave()

    def slow_down(self, seconds: float) -> None:
        """The server was too busy for a request; none starts for so many seconds."""
        with self._changed:
            self.limit, self._successes = max(1, self.limit // 2), 0
            self._not_before = max(self._not_before, self._clock.now() + seconds)
        self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
