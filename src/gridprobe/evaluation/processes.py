"""Workers as child processes: a crash or a hang in one of them costs the work on one question."""

import os
import signal
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from threading import RLock, Thread

from gridprobe.cores import usable_cores
from gridprobe.evaluation.tasks import Task
from gridprobe.evaluation.worker import Inbox, Job, Message, serve

__all__ = ["Processes"]


JOIN_SECONDS = 10.0
"""The longest wait for a killed process to end; one that waits for a dead disk does not."""


class _Process(SpawnProcess):
    """A process with a limited `join`; multiprocessing joins without a limit at the end of the program."""

    def join(self, timeout: float | None = None) -> None:
        super().join(JOIN_SECONDS if timeout is None else timeout)


class _Child:
    def __init__(self, process: BaseProcess, pipe: "Connection[Task | None, Message]") -> None:
        self._process, self._pipe = process, pipe

    def give(self, task: Task | None) -> None:
        with suppress(OSError):  # it is dead, and its pipe reports that
            self._pipe.send(task)

    def kill(self) -> None:
        self._process.kill()
        Thread(target=self._process.join, args=(JOIN_SECONDS,), name="gridprobe-join", daemon=True).start()


class Processes:
    """A crew of child processes, spawned, so that each can have its own GPU."""

    def __init__(self, job: Job, *, workers: int) -> None:
        self._job = job
        # Otherwise each would use all cores: on 2 cores, 2 workers took 1.5 times as long.
        self.threads = max(1, usable_cores() // workers)
        self._context = get_context("spawn")
        self._pipes: dict[Connection[Task | None, Message], str] = {}

    def hire(self, name: str, place: int) -> _Child:
        """Start a process."""
        here, there = self._context.Pipe()
        given = (there, self._job, name, place, self.threads)
        process = _Process(target=_child, args=given, name=name, daemon=True)
        process.start()
        there.close()  # now only the child holds its end, which closes with it
        self._pipes[here] = name
        return _Child(process, here)

    def hear(self, seconds: float) -> list[tuple[str, Message | None]]:
        """Read the pipes; the end of a pipe is a death."""
        heard: list[tuple[str, Message | None]] = []
        for pipe in wait(list(self._pipes), seconds):
            assert isinstance(pipe, Connection)
            name = self._pipes[pipe]
            try:
                heard.append((name, pipe.recv()))
                while pipe.poll():
                    heard.append((name, pipe.recv()))
            except (EOFError, OSError):
                heard.append((name, None))
                del self._pipes[pipe]
                pipe.close()
        return heard


def _child(pipe: "Connection[Message, Task | None]", job: Job, name: str, place: int, threads: int) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # read by torch, which is not loaded yet
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    _share_no_lock()
    os.dup2(2, 1)  # what a library prints must not mix with the results
    inbox = Inbox()
    Thread(target=_listen, args=(pipe, inbox), name="gridprobe-inbox", daemon=True).start()
    serve(job, name=name, place=place, take=inbox, tell=pipe.send)


def _share_no_lock() -> None:
    """Keep tqdm from making a lock between processes: of a killed one it would leak, and Python would warn of that."""
    if find_spec("tqdm"):
        import_module("tqdm").tqdm.set_lock(RLock())


def _listen(pipe: "Connection[Message, Task | None]", inbox: Inbox) -> None:
    """Pass tasks on; exit at once when the parent is gone, or a resumed run would meet an old worker."""
    while True:
        try:
            inbox.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)
