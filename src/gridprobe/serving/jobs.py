"""Jobs: a bounded queue in which users take turns, a few threads, events that can be read again, and cancelling."""

import logging
import secrets
import sys
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event as Flag
from threading import Lock, RLock
from typing import Any, Literal

from gridprobe.errors import Cancelled
from gridprobe.evaluation.method import Attempt
from gridprobe.progress import Event, listening
from gridprobe.serving.journal import Journal, Left
from gridprobe.serving.refusals import Refusal, as_refusal, not_found
from gridprobe.text import printable

__all__ = ["Job", "Jobs", "Message", "mark_ids", "new_id"]

LOG = logging.getLogger("gridprobe.serving")
State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
Work = Callable[["Job"], Mapping[str, Any]]

MOST_PROGRESS = 200
"""Progress messages of a job that are kept."""
KEPT, KEPT_SECONDS = 256, 3600.0
"""Ended jobs that are kept, and for how long."""
SHARE = 0.75
"""The part of the queue that one user can fill."""
LONGEST_RETRY = 60.0
AFTER_ALL = 10**9
"""Messages about a restart are numbered from here: after every number that a client may have seen before."""


_marks = [""]


def mark_ids(mark: str) -> None:
    """Begin all further ids of this process with a mark, so that a router of several servers knows whose they are."""
    _marks[0] = mark


def new_id() -> str:
    """An id that cannot be guessed."""
    return _marks[0] + secrets.token_hex(16)


@dataclass(frozen=True)
class Message:
    """Something that happened in a job."""

    number: int
    name: str
    data: Mapping[str, Any]


class Job:
    """A piece of work for a user: its state, what happened, and its result."""

    def __init__(
        self, work: Work, user: str, clock: Callable[[], float] = time.time, journal: Journal | None = None
    ) -> None:
        self.id = new_id()
        self.user = user
        self.state: State = "queued"
        self.created = clock()
        self.started: float | None = None
        self.ended: float | None = None
        self.session: str | None = None
        self.result: Mapping[str, Any] | None = None
        self.error: Refusal | None = None
        self.progress: Event | None = None
        self.cancel = Flag()
        self._work = work
        self._clock = clock
        self._journal = journal
        self._lock = RLock()
        self._messages: list[Message] = []
        self._count = 0
        self._callbacks: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []

    @classmethod
    def interrupted(cls, left: Left) -> "Job":
        """A job that a server which was killed did not end."""
        job = cls(lambda job: {}, "", lambda: left.ended or 0.0)
        job.id, job.created, job._count = left.id, left.created, AFTER_ALL
        message = "the server was restarted before this question was answered; ask again"
        job.end(None, Refusal(message, status=503, code="interrupted"))
        return job

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None

    def add(self, name: str, data: Mapping[str, Any]) -> None:
        """Say that something happened; of many progress messages the oldest are dropped."""
        with self._lock:
            self._count += 1
            self._messages.append(Message(self._count, name, data))
            progress = [each for each in self._messages if each.name == "progress"] if name == "progress" else []
            if len(progress) > MOST_PROGRESS:
                self._messages.remove(progress[0])
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            callback()

    def after(self, number: int) -> list[Message]:
        """What happened after the message with this number."""
        with self._lock:
            return [each for each in self._messages if each.number > number]

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call something after every message, from any thread; returns what ends that."""
        with self._lock:
            self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def report(self, event: Event) -> None:
        """Listen to `gridprobe.progress`."""
        self.progress = event
        self.add("progress", event._asdict())

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call something once, when it ends, or now if it has ended."""
        with self._lock:
            if not self.over:
                self._at_end.append(callback)
                return
        callback()

    def run(self) -> None:
        """Do the work in this thread."""
        with self._lock:
            if self.over:
                return
            self.state, self.started = "running", self._clock()
        self.add("started", {})
        result: Mapping[str, Any] | None = None
        attempt, finished = Attempt(), False
        try:
            with attempt, listening(self.report, cancel=self.cancel):
                result = self._work(self)
            finished = True
        finally:
            if not finished:  # a panic of Rust code, such as a tokenizer's, is no Exception
                attempt.error = RuntimeError("the work panicked")
                attempt.error.__cause__ = sys.exc_info()[1]
            self.end(result, attempt.error)

    def end(self, result: Mapping[str, Any] | None, error: Exception | None) -> None:
        """Note the outcome, unless there is one; the journal has it before anybody can see it."""
        state: State
        data: Mapping[str, Any]
        with self._lock:
            if self.over:
                return
            refusal = None if error is None or isinstance(error, Cancelled) else self._told(error)
            if refusal is not None:
                state = "interrupted" if refusal.code == "interrupted" else "failed"
                name, data = "error", refusal.to_dict()
            elif error is not None:
                state, name, data = "cancelled", "cancelled", {}
            else:
                state, name, data = "done", "answer", dict(result or {})
            if self._journal and state != "interrupted":
                self._journal.end(self.id, state)
            self.state, self.error, self.result = state, refusal, result if state == "done" else None
            self.ended = self._clock()
        self.add(name, data)
        for callback in self._at_end:
            callback()

    def _told(self, error: Exception) -> Refusal:
        """How an error is told. It keeps no traceback, whose frames would keep videos; a mistake of ours is logged."""
        refusal = as_refusal(error)
        if refusal.status == 500:
            LOG.error("job %s failed: %s", self.id, _trace(error))
            return Refusal(
                f"the server made a mistake; its log has the details of job {self.id}", status=500, code=refusal.code
            )
        refusal.__cause__ = refusal.__context__ = None
        return refusal.with_traceback(None)


def _trace(error: BaseException) -> str:
    """Where an error and its causes were raised; a text of a client in them forges no line of the log."""
    cause = error.__cause__ or error.__context__
    places = "".join(traceback.format_tb(error.__traceback__))
    return f"{printable(repr(error))[:500]}\n{places}{f'because of {_trace(cause)}' if cause else ''}"


class Jobs:
    """All jobs of a server."""

    def __init__(
        self, *, at_once: int, waiting: int, clock: Callable[[], float] = time.time, journal: Journal | None = None
    ) -> None:
        """No jobs yet, but those that a server which was killed did not end.

        Args:
            at_once: how many run at the same time; their calls of the models are merged.
            waiting: how many may wait.
            clock: seconds, for ages.
            journal: notes which jobs have not ended.
        """
        self.at_once = at_once
        self.most_waiting = waiting
        self._clock = clock
        self._lock = Lock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self._closing = False
        self._seconds = 1.0
        """How long a job took, smoothed."""
        self.counts = {"done": 0, "failed": 0, "cancelled": 0, "refused": 0}
        self.running = 0
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="gridprobe-job")
        self._futures: set[Any] = set()
        self._journal = journal
        now = clock()
        for left in journal.start(now=now, since=now - KEPT_SECONDS, most=KEPT) if journal else ():
            self._jobs[left.id] = Job.interrupted(left)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    @property
    def closing(self) -> bool:
        """Whether the server is shutting down."""
        return self._closing

    def submit(self, work: Work, user: str) -> Job:
        """Queue work, or refuse it: 429 if too much waits, 503 when shutting down."""
        with self._lock:
            self._check_room(user)
            self._forget()
            job = Job(work, user, self._clock, self._journal)
            if self._journal:
                self._journal.begin(job.id, job.created)
            self._jobs[job.id] = job
            self._waiting.setdefault(user, deque()).append(job)
            position = self.waiting - 1
        job.add("queued", {"position": position})
        future = self._threads.submit(self._run_next)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return job

    def check_any_room(self) -> None:
        """Refuse what `submit` would refuse from any user now; cheap enough for a crowd."""
        if self.running + self.waiting >= max(self.at_once, 1) and self.waiting >= self.most_waiting:
            self.check_room("")

    def check_room(self, user: str) -> None:
        """Refuse what `submit` would refuse now."""
        with self._lock:
            self._check_room(user)

    def _check_room(self, user: str) -> None:
        if self._closing:
            message = "the server is shutting down; try again soon"
            raise Refusal(message, status=503, code="shutting_down", Retry_After="10")
        mine = len(self._waiting.get(user, ()))
        idle = self.running + self.waiting < self.at_once
        if idle or (self.waiting < self.most_waiting and mine < max(1, self.most_waiting * SHARE)):
            return
        self.counts["refused"] += 1
        raise Refusal(
            f"{self.waiting} jobs wait already, {mine} of them yours; try again later",
            status=429,
            code="queue_full",
            Retry_After=str(self._retry_after()),
        )

    def get(self, id: str) -> Job:
        """The job with this id."""
        job = self._jobs.get(id)
        if job is None:
            raise not_found("job")
        return job

    def position(self, job: Job) -> int | None:
        """How many jobs wait before one that waits; None if it does not."""
        with self._lock:
            turns = [list(each) for each in self._waiting.values()]
        longest = max(map(len, turns), default=0)
        order = [each[turn] for turn in range(longest) for each in turns if turn < len(each)]
        return order.index(job) if job in order else None

    def cancel(self, job: Job) -> None:
        """End a job: at once if it waits, else at its next step; what it waits for of the models is not computed."""
        job.cancel.set()
        with self._lock:
            queue = self._waiting.get(job.user, deque())
            if job in queue:
                queue.remove(job)
            if not queue:
                self._waiting.pop(job.user, None)
        if not job.over:
            self.counts["cancelled"] += 1
            job.end(None, Cancelled("cancelled"))

    def drain(self, grace: float) -> None:
        """Refuse new jobs, and wait so many seconds for those that run or wait."""
        with self._lock:
            self._closing = True
        wait(set(self._futures), timeout=grace)

    def close(self, grace: float) -> None:
        """Drain, then end the jobs that still wait and cancel those that still run."""
        self.drain(grace)
        with self._lock:
            queued = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
        for job in queued:
            job.end(None, Refusal("the server is shutting down; ask again", status=503, code="interrupted"))
        for job in list(self._jobs.values()):
            if not job.over:
                self.cancel(job)
        self._threads.shutdown(wait=True)
        if self._journal:
            self._journal.close()

    def _run_next(self) -> None:
        job = self._take()
        if job is None:
            return
        try:
            job.run()
        finally:
            with self._lock:
                self.running -= 1
                if job.state in ("done", "failed"):
                    self.counts[job.state] += 1
                if job.state == "done" and job.started and job.ended:
                    self._seconds += 0.2 * (job.ended - job.started - self._seconds)

    def _take(self) -> Job | None:
        """The next job of the user whose turn it is; then it is the others' turn."""
        with self._lock:
            if not self._waiting:
                return None
            user, queue = next(iter(self._waiting.items()))
            job = queue.popleft()
            if queue:
                self._waiting.move_to_end(user)
            else:
                del self._waiting[user]
            self.running += 1
            return job

    def _retry_after(self) -> int:
        return round(min(LONGEST_RETRY, max(1.0, self._seconds * (1 + self.waiting / self.at_once))))

    def _forget(self) -> None:
        """Drop ended jobs that are old or too many."""
        over = [job for job in self._jobs.values() if job.ended is not None]
        for place, job in enumerate(over):
            if len(over) - place > KEPT or (job.ended or 0) < self._clock() - KEPT_SECONDS:
                del self._jobs[job.id]
                if self._journal:
                    self._journal.end(job.id, "forgotten")
