"""A clock that stands still, and a crew of real workers that moves it when one of them hangs."""

from types import SimpleNamespace
from typing import Any

import toy_runs
from gridprobe.evaluation.supervisor import WorkerHandle, WorkerPool
from gridprobe.evaluation.worker import WorkerMessage


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A crew of one worker. However slow the machine is, no time passes but while that worker hangs.

    It is known to hang once the foreman was told that it has begun the question and the question's text was met.
    """

    def __init__(self, crew: WorkerPool, clock: Clock, hangs: str) -> None:
        self.hired: list[str] = []
        self._crew, self._clock = crew, clock
        self._sign, self._begun, self._ended = WorkerMessage("begun", hangs), False, 0

    def hire(self, name: str, place: int) -> WorkerHandle:
        self.hired.append(name)
        hand = self._crew.hire(name, place)
        return SimpleNamespace(give=hand.give, kill=lambda: self._kill(hand))

    def hear(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        heard = self._crew.hear(seconds)
        self._begun |= any(message == self._sign for _, message in heard)
        if self._begun and toy_runs.hangs() > self._ended:
            self._clock.now += 100.0
        return heard

    def _kill(self, hand: Any) -> None:
        self._begun, self._ended = False, toy_runs.hangs()
        hand.kill()
