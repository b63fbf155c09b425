"""Worker: takes videos, asks their questions, writes records. The same in this process, in a child and on Ray.

It reports its progress in `WorkerMessage`s and gets its tasks from `take`. Only its record file decides what is done.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Literal, NamedTuple

from gridprobe._util import ProgressEvent, listening
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.concurrency import TOGETHER
from gridprobe.errors import Attempt, GridProbeError, OverLimit, RunError, ServerUnavailable
from gridprobe.limits import learn_from
from gridprobe.models.base import Cost
from gridprobe.models.profile import Profile
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.record import Record
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.disk import remove, write_whole
from gridprobe_eval.folder import RunFolder
from gridprobe_eval.records import RecordWriter, now, of_run
from gridprobe_eval.tasks import Identity, Method, Taken, Task, identity_of, taken_by

# Prefetch: the next video is opened and decoded in a thread while the model is busy with the present one.


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


# Messages from a worker during one long call that reports no progress, such as loading a model.
#
# Another thread cannot see how far the call is, but it can see that it works: a call that reads, downloads or computes
# uses processor time, and one that waits for a lock, a disk or a network uses none. Ray's own threads use some, so on
# Ray
# a hanging call is not detected.

HEARTBEAT_SECONDS = 1.0
WORK_SECONDS = 0.1
"""Processor time that counts as work. An idle process with torch, transformers and tqdm's thread used 1 ms a minute;
one that waited for another process's download, at the lock of huggingface_hub, used 250 ms a minute."""


@contextmanager
def heartbeats(send: Callable[[], object]) -> Iterator[None]:
    """Call `send` from another thread, about once a second, as long as the code inside is working."""
    end = Event()
    options = {"ended": lambda: end.wait(HEARTBEAT_SECONDS), "used": _used_by_others}
    thread = Thread(target=watch, args=(send,), kwargs=options, name="gridprobe-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def watch(send: Callable[[], object], *, ended: Callable[[], bool], used: Callable[[], float]) -> None:
    """Call `send` whenever `used`, in processor seconds, has grown; `ended` waits until the next check."""
    counted = used()
    while not ended():
        total = used()
        if total - counted >= WORK_SECONDS:
            counted = total
            send()


def _used_by_others() -> float:
    """Processor seconds of this process, without the calling thread."""
    return time.process_time() - time.thread_time()


class WorkerMessage(NamedTuple):
    """A message from a worker."""

    kind: Literal["ready", "begun", "heartbeat", "answered", "failed", "refused", "broken", "unfit", "ended"]
    text: str = ""
    """The record file, a question's id, or a sentence."""
    taken: Taken | None = None
    """What a question took; of one that was refused, what it was granted of the total that was too small."""
    right: bool | None = None
    """Whether a question was answered rightly; None if that is not known."""
    transient: bool = False
    """Whether a question failed for a reason that may be gone when it is asked again."""


Take = Callable[[bool], Task | None]
"""The next task: `take(True)` waits for one and returns None after the last, `take(False)` never waits."""


def load(setup: Plan, place: int) -> Plan:
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
class WorkerJob:
    """What all workers of a run have in common."""

    folder: Path
    method: Method
    names: tuple[str, str] = ("", "")
    """What the models were loaded by."""

    def loaded(self, place: int) -> "WorkerJob":
        """The same with the models loaded, which must be those the run was started with."""
        setup = load(self.method.setup, place)
        limit = [f"an exit at {setup.exit.threshold}"] if setup.effort == "auto" and setup.exit else []
        profile = [f"a profile ({setup.profile})"] if isinstance(setup.profile, Profile) else []
        RunFolder(self.folder).claim([*setup.models, setup.answerer.identity, *limit, *profile])
        named = self.method.setup
        names = (named.model.identity, named.answerer.identity)
        return replace(self, method=replace(self.method, setup=setup), names=names)


def serve(job: WorkerJob, *, name: str, place: int, take: Take, tell: Callable[[WorkerMessage], None]) -> None:
    """Load the models and work until there are no more tasks; errors are reported, not raised."""
    start = Attempt()
    with start:
        with heartbeats(lambda: tell(WorkerMessage("heartbeat"))):
            loaded = job.loaded(place)
        worker = Worker(loaded, name=name, tell=tell)
    if start.error is not None:
        tell(WorkerMessage("unfit", _sentence(start.error)))
        return
    end = Attempt()
    with end:
        worker.work(take)
    worker.close()
    tell(WorkerMessage("ended") if end.error is None else WorkerMessage("broken", _sentence(end.error)))


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

    def __init__(self, job: WorkerJob, *, name: str, tell: Callable[[WorkerMessage], None]) -> None:
        self._job, self._name, self._tell = job, name, tell
        self._writer = RecordWriter(job.folder, name)
        self._counts = {"answered": 0, "failed": 0}
        self._reported = 0.0
        self._started = now()
        try:
            self._beat(None)
        except RunError:
            self._writer.close()
            raise
        tell(WorkerMessage("ready", self._writer.path.name))

    def close(self) -> None:
        """Close the record file and remove the heartbeat."""
        self._writer.close()
        remove(self._job.folder / f"heartbeat-{self._name}.json")

    def work(self, take: Take) -> None:
        """Ask task after task; while the model works on one video the next is decoded."""
        ahead: Prefetch | None = None
        while (current := ahead or self._open(take(True))) is not None:
            ahead = None
            for items in _groups(current.task):
                self._beat(items[0])
                self._tell(WorkerMessage("begun", items[0].id))
                current.wait()  # first, so that two videos are not decoded at the same time
                ahead = ahead or self._open(take(False))
                self._ask(items, current)

    def _open(self, task: Task | None) -> Prefetch | None:
        return None if task is None else Prefetch(task, self._job.method)

    def _ask(self, items: Sequence[Item], opened: Prefetch) -> None:
        """Ask some questions together; each is recorded as soon as it is answered."""
        pairs: list[tuple[Item, Question]] = []
        start = time.perf_counter()
        for item in items:
            trial = Attempt()
            with trial:
                self._limit(opened.session, opened.task.grants.get(item.id, {}))  # a broken video breaks each question
                pairs.append((item, self._job.method.question(item)))
            if trial.error is not None:
                self._record(item, opened, trial.error, start)
        if not pairs:
            return
        questions = [question for _, question in pairs]
        with (
            listening(self._report_progress),
            closing(opened.session.ask_each(questions, together=len(pairs))) as outcomes,
        ):
            for number, outcome in outcomes:
                trial = Attempt()
                with trial:
                    answer = outcome.result()
                self._record(pairs[number][0], opened, trial.error or answer, start)

    def _record(self, item: Item, opened: Prefetch, outcome: Answer | Exception, start: float) -> None:
        if isinstance(outcome, ServerUnavailable):  # the other questions would fail, too; this one stays open
            raise outcome
        if isinstance(outcome, OverLimit) and (short := self._short(outcome, opened.task.grants.get(item.id, {}))):
            self._tell(WorkerMessage("refused", item.id, short))
            return
        trial, usage = Attempt(), None
        if isinstance(outcome, Answer):
            with trial:
                opening, opened.seconds = opened.seconds, 0.0
                record = Record.of(outcome, opening=opening)
        if (error := trial.error or outcome) and isinstance(error, Exception):
            usage = self._taken(opened, start)
            reason = (type(error).__name__, str(error))
            record = Record.failed(reason, transient=getattr(error, "transient", False))
        attempt = opened.task.attempts.get(item.id, 0) + 1
        record = of_run(record, item, attempt=attempt, worker=self._name, identity=opened.identity)
        line = record.to_line()
        self._writer.write(line)
        self._counts[record.outcome] += 1
        right = None if item.question.answer is None else bool(record.right)
        self._tell(WorkerMessage(line["outcome"], item.id, usage or taken_by(line), right, record.transient))
        if isinstance(outcome, Answer) and item is opened.task.items[-1]:
            learn_from(outcome, names=self._job.names)

    def _limit(self, session: Session, grant: Taken) -> None:
        """Limit what the next question may take to what it was granted of the totals."""
        if grant:
            own, limits = self._job.method.setup.usage_limits, {f"max_{name}": value for name, value in grant.items()}
            session.setup = replace(session.setup, usage_limits=own.tightened(limits))

    def _short(self, error: OverLimit, grant: Taken) -> Taken:
        """The part of a grant that was too small for a question, unless the question's own limit was as small."""
        name = error.limit.removeprefix("max_")
        own = getattr(self._job.method.setup.usage_limits, error.limit, None) if error.limit else None
        return {name: grant[name]} if name in grant and (own is None or own > grant[name]) else {}

    def _taken(self, opened: Prefetch, start: float) -> Taken:
        """What a question took that failed."""
        spent = opened.session.spent if opened.attempt.error is None else Cost()
        return {"tokens": spent.tokens, "tflops": spent.tflops, "seconds": time.perf_counter() - start}

    def _report_progress(self, event: ProgressEvent) -> None:
        """Report that work on a question continues: it is slow, but does not hang."""
        if time.monotonic() - self._reported >= HEARTBEAT_SECONDS:
            self._reported = time.monotonic()
            self._tell(WorkerMessage("heartbeat"))

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
    """The questions that are asked together.

    They are asked one by one after a worker died, so that the right one is blamed, and where each has its own limit.
    """
    size = 1 if task.alone or task.grants else TOGETHER
    return (task.items[start : start + size] for start in range(0, len(task.items), size))


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, GridProbeError) else f"{type(error).__name__}: {error}"
