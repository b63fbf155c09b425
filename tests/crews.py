"""A clock that stands still, and a pool of real workers that moves it when one of them hangs."""

import toy_runs
from gridprobe_eval.supervisor import WorkerPool
from gridprobe_eval.tasks import Task
from gridprobe_eval.worker import WorkerMessage


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class WatchedPool:
    """A pool of one worker. However slow the machine is, no time passes but while that worker hangs.

    It is known to hang once the supervisor_of was told that it has begun the question and the question's text was met.
    """

    def __init__(self, pool: WorkerPool, clock: Clock, hangs: str) -> None:
        self.started: list[str] = []
        self._pool, self._clock = pool, clock
        self._sign, self._begun, self._ended = WorkerMessage("begun", hangs), False, 0

    def start(self, name: str, place: int) -> None:
        self.started.append(name)
        self._pool.start(name, place)

    def send(self, name: str, task: Task | None) -> None:
        self._pool.send(name, task)

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        heard = self._pool.receive(seconds)
        self._begun |= any(message == self._sign for _, message in heard)
        if self._begun and toy_runs.hangs() > self._ended:
            self._clock.now += 100.0
        return heard

    def kill(self, name: str) -> None:
        self._begun, self._ended = False, toy_runs.hangs()
        self._pool.kill(name)
