"""Workers as child processes: whatever state one is in, killing it takes no time."""

import threading
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from gridprobe_eval import supervisor
from gridprobe_eval.supervisor import JOIN_SECONDS, ProcessPool
from gridprobe_eval.worker import WorkerJob


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
    process, pool = Undead(), ProcessPool(WorkerJob(Path(), None), workers=1)  # type: ignore[arg-type]
    pool._processes["w0"] = process  # type: ignore[assignment]
    try:
        pool.kill("w0")
        process.joined.wait()  # in another thread, or this line would not be reached
        assert process.killed and process.limit == JOIN_SECONDS
    finally:
        process.over.set()


def test_the_end_of_the_program_does_not_wait_for_it_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """`multiprocessing` joins every child at exit, and gives no limit."""
    limits: list[Any] = []
    monkeypatch.setattr(SpawnProcess, "join", lambda process, timeout=None: limits.append(timeout))
    process = supervisor._Process(target=print)
    process.join()
    process.join(1.5)

    assert limits == [JOIN_SECONDS, 1.5]
