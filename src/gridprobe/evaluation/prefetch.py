"""Prefetch: the next video is opened and decoded in a thread while the model is busy with the present one."""

import time
from threading import Thread

from gridprobe.evaluation.identity import Identity, identity_of
from gridprobe.evaluation.method import Attempt, Method
from gridprobe.evaluation.tasks import Task
from gridprobe.pipeline import Session

__all__ = ["Prefetch"]


class Prefetch:
    """A task whose video is being opened and decoded."""

    def __init__(self, task: Task, method: Method) -> None:
        self.task = task
        self.attempt = Attempt()
        self.seconds = 0.0
        """What opening and decoding took, for the first question that asks; then 0."""
        self.identity: Identity | None = None
        """Of the video, from just before it was opened; None if it is not a file, or not one yet."""
        self._session: Session | None = None
        # A daemon: a decoder that hangs must not keep a stopped program alive.
        self._thread = Thread(target=self._open, args=(method,), name="gridprobe-decode", daemon=True)
        self._thread.start()

    def _open(self, method: Method) -> None:
        start = time.perf_counter()
        with self.attempt:
            self.identity = identity_of(self.task.items[0].video)
            session = method.session(self.task)
            session.open()
            self._session = session
        self.seconds = time.perf_counter() - start

    def wait(self) -> None:
        """Return when the thread is done."""
        self._thread.join()

    @property
    def session(self) -> Session:
        """The opened session; what went wrong with the video is raised for each of its questions."""
        self.wait()
        if self.attempt.error is not None:
            raise self.attempt.error
        assert self._session is not None
        return self._session
