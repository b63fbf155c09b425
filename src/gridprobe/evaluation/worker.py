"""Worker: takes videos, asks their questions, writes records. The same in this process, in a child and on Ray.

It reports its progress in `Message`s and gets its tasks from `take`. Only its record file decides what is done.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

from gridprobe.answer import Answer
from gridprobe.benchmarks import Item
from gridprobe.errors import GridProbeError, ServerUnavailable
from gridprobe.evaluation.disk import write_whole
from gridprobe.evaluation.folder import RunFolder
from gridprobe.evaluation.method import Attempt, Method
from gridprobe.evaluation.outcomes import answered, failed, now
from gridprobe.evaluation.prefetch import Prefetch
from gridprobe.evaluation.pulse import PULSE_SECONDS, pulses
from gridprobe.evaluation.records import Writer
from gridprobe.evaluation.tasks import Task
from gridprobe.progress import Event, listening
from gridprobe.question import Question
from gridprobe.setup import Setup
from gridprobe.together import TOGETHER

__all__ = ["Inbox", "Job", "Message", "Take", "Worker", "load", "serve"]


class Message(NamedTuple):
    """A message from a worker."""

    kind: Literal["ready", "begun", "pulse", "answered", "failed", "broken", "unfit", "ended"]
    text: str = ""
    """The record file, a question's id, or a sentence."""


Take = Callable[[bool], Task | None]
"""The next task: `take(True)` waits for one and returns None after the last, `take(False)` never waits."""


def load(setup: Setup, place: int) -> Setup:
    """Load the models for the worker in the given place, counted from 0; it uses the GPU of that number."""
    gpu = _gpu(place)
    return setup.loaded(**({"device": gpu} if gpu else {}))


def _gpu(place: int) -> str | None:
    try:
        import torch
    except ModuleNotFoundError:
        return None
    if not torch.cuda.is_available():
        return None
    number = place % torch.cuda.device_count()
    torch.cuda.set_device(number)
    return f"cuda:{number}"


@dataclass(frozen=True)
class Job:
    """What all workers of a run have in common."""

    folder: Path
    method: Method

    def loaded(self, place: int) -> "Job":
        """The same with the models loaded, which must be those the run was started with."""
        setup = load(self.method.setup, place)
        limit = [f"an exit at {setup.exit.threshold}"] if setup.effort == "auto" and setup.exit else []
        RunFolder(self.folder).claim([*setup.models, setup.answerer.identity, *limit])
        return replace(self, method=replace(self.method, setup=setup))


def serve(job: Job, *, name: str, place: int, take: Take, tell: Callable[[Message], None]) -> None:
    """Load the models and work until there are no more tasks; errors are reported, not raised."""
    start = Attempt()
    with start:
        with pulses(lambda: tell(Message("pulse"))):
            loaded = job.loaded(place)
        worker = Worker(loaded, name=name, tell=tell)
    if start.error is not None:
        tell(Message("unfit", _sentence(start.error)))
        return
    end = Attempt()
    with end:
        worker.work(take)
    worker.close()
    tell(Message("ended") if end.error is None else Message("broken", _sentence(end.error)))


class Inbox:
    """Tasks that another thread puts in; None is the last."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._over = False

    def put(self, task: Task | None) -> None:
        """Add a task, or say that no more will come."""
        self._tasks.put(task)

    def __call__(self, wait: bool) -> Task | None:
        """Take the next task."""
        if self._over:
            return None
        try:
            task = self._tasks.get(block=wait)
        except Empty:
            return None
        self._over = task is None
        return task


class Worker:
    """Asks questions and writes their records to a file of its own."""

    def __init__(self, job: Job, *, name: str, tell: Callable[[Message], None]) -> None:
        self._job, self._name, self._tell = job, name, tell
        self._writer = Writer(job.folder, name)
        self._counts = {"answered": 0, "failed": 0}
        self._pulsed = 0.0
        self._started = now()
        self._beat(None)
        tell(Message("ready", self._writer.path.name))

    def close(self) -> None:
        """Close the record file and remove the heartbeat."""
        self._writer.close()
        (self._job.folder / f"heartbeat-{self._name}.json").unlink(missing_ok=True)

    def work(self, take: Take) -> None:
        """Ask task after task; while the model works on one video the next is decoded."""
        ahead: Prefetch | None = None
        while (current := ahead or self._open(take(True))) is not None:
            ahead = None
            for items in _groups(current.task):
                self._beat(items[0])
                self._tell(Message("begun", items[0].id))
                current.wait()  # first, so that two videos are not decoded at the same time
                ahead = ahead or self._open(take(False))
                self._ask(items, current)

    def _open(self, task: Task | None) -> Prefetch | None:
        return None if task is None else Prefetch(task, self._job.method)

    def _ask(self, items: Sequence[Item], opened: Prefetch) -> None:
        """Ask some questions together; each is recorded as soon as it is answered."""
        asked: list[tuple[Item, Question]] = []
        for item in items:
            trial = Attempt()
            with trial:
                _ = opened.session  # what is wrong with the video is wrong with each question
                asked.append((item, self._job.method.question(item)))
            if trial.error is not None:
                self._record(item, opened, trial.error)
        if not asked:
            return
        questions = [question for _, question in asked]
        with listening(self._pulse), closing(opened.session.ask_each(questions, together=len(asked))) as outcomes:
            for number, outcome in outcomes:
                trial = Attempt()
                with trial:
                    answer = outcome.result()
                self._record(asked[number][0], opened, trial.error or answer)

    def _record(self, item: Item, opened: Prefetch, outcome: Answer | Exception) -> None:
        if isinstance(outcome, ServerUnavailable):  # the other questions would fail, too; this one stays open
            raise outcome
        attempt, trial = opened.task.attempts.get(item.id, 0) + 1, Attempt()
        if isinstance(outcome, Answer):
            with trial:
                opening, opened.seconds = opened.seconds, 0.0
                record = answered(item, outcome, attempt=attempt, worker=self._name, opening=opening)
        if (error := trial.error or outcome) and isinstance(error, Exception):
            reason = (type(error).__name__, str(error))
            record = failed(item, reason, attempt=attempt, worker=self._name)
        self._writer.write(record)
        self._counts[record["outcome"]] += 1
        self._tell(Message(record["outcome"], item.id))

    def _pulse(self, event: Event) -> None:
        """Report that work on a question continues: it is slow, but does not hang."""
        if time.monotonic() - self._pulsed >= PULSE_SECONDS:
            self._pulsed = time.monotonic()
            self._tell(Message("pulse"))

    def _beat(self, item: Item | None) -> None:
        """Write the heartbeat for `gridprobe status`: who works on what, and since when."""
        beat = {
            "worker": self._name,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "records": self._writer.path.name,
            "started": self._started,
            "question": None if item is None else item.id,
            "since": now(),
            "done": self._counts["answered"],
            "failed": self._counts["failed"],
        }
        file = self._job.folder / f"heartbeat-{self._name}.json"
        write_whole(file, json.dumps(beat).encode(), durable=False)


def _groups(task: Task) -> Iterator[Sequence[Item]]:
    """The questions that are asked together; one by one after a worker died, so that the right one is blamed."""
    size = 1 if task.alone else TOGETHER
    return (task.items[start : start + size] for start in range(0, len(task.items), size))


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, GridProbeError) else f"{type(error).__name__}: {error}"
