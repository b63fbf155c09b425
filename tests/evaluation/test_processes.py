"""Workers as child processes: whatever state one is in, killing it takes no time."""

import threading
from multiprocessing import Pipe
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest

from gridprobe.evaluation import supervisor
from gridprobe.evaluation.supervisor import JOIN_SECONDS


class Undead:
    """A process in uninterruptible sleep: it does not die when killed, and who joins it waits."""

    def __init__(self) -> None:
        self.killed = False
        self.limit: float | None = None
        self.joined, self.over = threading.Event(), threading.Event()

    def kill(self) -> None:
        self.killed = True

    def join(self, timeout: float | None = None) -> None:
        self.limit = timeout
        self.joined.set()
        self.over.wait()


def test_who_kills_a_process_that_cannot_die_does_not_wait_for_it() -> None:
    process, (here, there) = Undead(), Pipe()
    try:
        supervisor._ProcessHandle(process, here).kill()  # type: ignore[arg-type]
        process.joined.wait()  # in another thread, or this line would not be reached
        assert process.killed and process.limit == JOIN_SECONDS
    finally:
        process.over.set()
        here.close()
        there.close()


def test_the_end_of_the_program_does_not_wait_for_it_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """`multiprocessing` joins every child at exit, and gives no limit."""
    limits: list[Any] = []
    monkeypatch.setattr(SpawnProcess, "join", lambda process, timeout=None: limits.append(timeout))
    process = supervisor._Process(target=print)
    process.join()
    process.join(1.5)

    assert limits == [JOIN_SECONDS, 1.5]
