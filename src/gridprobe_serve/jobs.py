"""Jobs: a bounded queue in which users take turns, a few threads, events that can be read again, and cancelling."""

import asyncio
import os
import re
import sys
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, RLock
from typing import Any, Literal

from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import Attempt, Cancelled
from gridprobe_serve.errors import LOG, ApiError, as_api_error, log_line, new_id, not_found

JOURNAL = "jobs"
JOURNAL_NAME = re.compile(r"([0-9a-f]{32,64})_(\d{1,12}\.\d{1,9})(?:_(\d{1,12}\.\d{1,9}))?")


@dataclass(frozen=True)
class UnfinishedJob:
    """A job that a server did not end."""

    id: str
    created: float
    ended: float | None = None
    """When a later server marked it as interrupted."""

    @property
    def file_name(self) -> str:
        """Its file in a journal."""
        return "_".join([self.id, *(f"{each:.6f}" for each in (self.created, self.ended) if each is not None)])


class Journal:
    """The jobs that a server has not ended, as empty files next to its uploads, for the next server to report.

    A file's name has the job's id and times; questions, answers and users are not written. A disk that is full or fails
    is logged once and fails no job: what it missed is done again with the next job.
    """

    def __init__(self, folder: Path, unfinished: Sequence[UnfinishedJob] = ()) -> None:
        """A journal in a folder, written from `start` on; `unfinished` are jobs of servers that died."""
        self._folder = folder / JOURNAL
        self._inherited = unfinished
        self._lock = Lock()
        self._names: dict[str, str] = {}
        """Of the files that there should be, by job."""
        self._files: set[str] = set()
        self._closed = self._failed = False

    def start(self, *, now: float, since: float, most: int) -> list[UnfinishedJob]:
        """Begin to write; returns the jobs that are interrupted: the latest ones, marked not before `since`."""
        marked = [replace(each, ended=now if each.ended is None else min(each.ended, now)) for each in self._inherited]
        marked.sort(key=lambda each: (each.ended or 0.0, each.created))
        latest = [each for each in marked if (each.ended or 0.0) >= since][-most:]
        if latest:
            LOG.warning("%d jobs of a server that was killed are marked as interrupted", len(latest))
        with self._lock:
            self._names = {each.id: each.file_name for each in latest}
            self._write()
        return latest

    def begin(self, id: str, created: float) -> None:
        """A job was accepted."""
        with self._lock:
            self._names[id] = UnfinishedJob(id, created).file_name
            self._write()

    def end(self, id: str) -> None:
        """A job has ended, or nobody may ask for it any more."""
        with self._lock:
            if self._names.pop(id, None) is not None:
                self._write()

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self._write()
            self._closed = True

    def _write(self) -> None:
        """Make the files that are missing, and delete those that should not be there."""
        if self._closed:
            return
        names = set(self._names.values())
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._failed:  # a file may exist although making it failed
                self._files = set(os.listdir(self._folder))
            missing = names - self._files
            for name in missing:
                os.close(os.open(self._folder / name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                self._files.add(name)
            for name in self._files - names:
                (self._folder / name).unlink(missing_ok=True)
                self._files.discard(name)
            self._failed &= not missing  # a full disk still deletes
        except OSError as error:
            if not self._failed:
                LOG.warning("the journal of jobs cannot be written: %s; after a crash they are unknown", error.strerror)
            self._failed = True


def unfinished_in(folder: Path) -> list[UnfinishedJob]:
    """The jobs that the journal in a folder does not end; none if there is no journal or it is not this user's."""
    try:
        handle = os.open(folder / JOURNAL, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        names = os.listdir(handle) if os.fstat(handle).st_uid == os.geteuid() else []
    except OSError:
        return []
    finally:
        os.close(handle)
    matches = filter(None, map(JOURNAL_NAME.fullmatch, sorted(names)))
    return [UnfinishedJob(each[1], float(each[2]), float(each[3]) if each[3] else None) for each in matches]


State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
Work = Callable[["Job"], Mapping[str, Any]]

HEARTBEAT_SECONDS = 10.0
LAST = ("answer", "error", "cancelled")
MOST_PROGRESS = 200
"""Progress messages of a job that are kept."""
KEPT, KEPT_SECONDS = 256, 3600.0
"""Ended jobs that are kept, and for how long."""
SHARE = 0.75
"""The part of the queue that one user can fill."""
LONGEST_RETRY = 60.0
AFTER_ALL = 10**9
"""Messages about a restart are numbered from here: after every number that a client may have seen before."""


@dataclass(frozen=True)
class JobMessage:
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
        self.error: ApiError | None = None
        self.progress: ProgressEvent | None = None
        self.cancel = Event()
        self.finished: Future[None] = Future()
        """Done when the job is over, however it ended."""
        self.finished.set_running_or_notify_cancel()  # who stops waiting for it does not cancel it
        self._work = work
        self._clock = clock
        self._journal = journal
        self._lock = RLock()
        self._messages: list[JobMessage] = []
        self._count = 0
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    def interrupted(cls, unfinished: UnfinishedJob) -> "Job":
        """A job that a server which was killed did not end."""
        job = cls(lambda job: {}, "", lambda: unfinished.ended or 0.0)
        job.id, job.created, job._count = unfinished.id, unfinished.created, AFTER_ALL
        message = "the server was restarted before this question was answered; ask again"
        job.end(None, ApiError(message, status=503, code="interrupted"))
        return job

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None

    def to_dict(self, position: int | None) -> dict[str, Any]:
        """Plain values; `position` is how many jobs wait before it."""
        return {
            "id": self.id,
            "state": self.state,
            "position": position,
            "progress": self.progress and self.progress._asdict(),
            "session": self.session,
            "result": self.result,
            "error": self.error and self.error.to_dict(),
            "created": self.created,
            "started": self.started,
            "ended": self.ended,
        }

    def outcome(self) -> Mapping[str, Any]:
        """The result of a job that is over, or its error."""
        if self.error is not None:
            raise copy(self.error)  # the job's own gets no traceback, which would keep the request
        if self.result is None:
            raise ApiError("the job was cancelled", status=499, code="cancelled")
        return self.result

    def add(self, name: str, data: Mapping[str, Any]) -> None:
        """Say that something happened; of many progress messages the oldest are dropped, and all after the end."""
        with self._lock:
            if self._messages and self._messages[-1].name in LAST:
                return
            self._count += 1
            self._messages.append(JobMessage(self._count, name, data))
            progress = [each for each in self._messages if each.name == "progress"] if name == "progress" else []
            if len(progress) > MOST_PROGRESS:
                self._messages.remove(progress[0])
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def after(self, number: int) -> list[JobMessage]:
        """What happened after the message with this number."""
        with self._lock:
            return [each for each in self._messages if each.number > number]

    async def stream(self, number: int = 0) -> AsyncIterator[JobMessage | None]:
        """What happened after a message, and what happens until the end; None now and then while nothing does."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._listeners.append(wake)
        try:
            while True:
                changed.clear()
                for message in self.after(number):
                    number = message.number
                    yield message
                last = self._messages[-1] if self._messages else None
                if last and last.name in LAST and last.number <= number:
                    return
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                except asyncio.TimeoutError:
                    yield None
        finally:
            self._listeners.remove(wake)

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
            with attempt, listening(self._report, cancel=self.cancel):
                result = self._work(self)
            finished = True
        finally:
            if not finished:  # a panic of Rust code, such as a tokenizer's, is no Exception
                attempt.error = RuntimeError("the work panicked")
                attempt.error.__cause__ = sys.exc_info()[1]
            self.end(result, attempt.error)

    def _report(self, event: ProgressEvent) -> None:
        self.progress = event
        self.add("progress", event._asdict())

    def end(self, result: Mapping[str, Any] | None, error: Exception | None) -> None:
        """Note the outcome, unless there is one; the journal has it before anybody can see it."""
        state: State = "done" if error is None else "cancelled"
        public = None
        with self._lock:
            if self.over:
                return
            if error is not None and not isinstance(error, Cancelled):
                public = self._public_error(error)
                state = "interrupted" if public.code == "interrupted" else "failed"
            if self._journal and state != "interrupted":
                self._journal.end(self.id)
            self.state, self.error, self.result = state, public, result if state == "done" else None
            self.ended = self._clock()
        name = {"done": "answer", "cancelled": "cancelled"}.get(state, "error")
        self.add(name, public.to_dict() if public else dict(self.result or {}))
        self.finished.set_result(None)

    def _public_error(self, error: Exception) -> ApiError:
        """The error without its traceback, whose frames would keep videos; a mistake of ours is logged."""
        public = as_api_error(error)
        if public.status == 500:
            LOG.error("job %s failed: %s", self.id, _trace(error))
            message = f"the server made a mistake; its log has the details of job {self.id}"
            return ApiError(message, status=500, code=public.code)
        public.__cause__ = public.__context__ = None
        return public.with_traceback(None)


def _trace(error: BaseException) -> str:
    """Where an error and its causes were raised; a text of a client in them forges no line of the log."""
    cause = error.__cause__ or error.__context__
    places = "".join(traceback.format_tb(error.__traceback__))
    return f"{log_line(repr(error))}\n{places}{f'because of {_trace(cause)}' if cause else ''}"


class Jobs:
    """All jobs of a server."""

    def __init__(
        self, *, concurrency: int, queue: int, clock: Callable[[], float] = time.time, journal: Journal | None = None
    ) -> None:
        """No jobs yet, except those that a server which was killed did not end.

        Args:
            concurrency: how many run at the same time; their calls of the models are merged.
            queue: how many may wait.
            clock: seconds, for ages.
            journal: notes which jobs have not ended.
        """
        self.concurrency = concurrency
        self.queue = queue
        self._clock = clock
        self._lock = Lock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        """By user; the first one's turn is next."""
        self.closing = False
        """Whether the server is shutting down."""
        self._seconds = 1.0
        """How long a job took, smoothed."""
        self.counts = {"done": 0, "failed": 0, "cancelled": 0, "refused": 0}
        self.running = 0
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="gridprobe-job")
        self._futures: set[Any] = set()
        self._journal = journal
        now = clock()
        for unfinished in journal.start(now=now, since=now - KEPT_SECONDS, most=KEPT) if journal else ():
            self._jobs[unfinished.id] = Job.interrupted(unfinished)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

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
        if self.running + self.waiting >= max(self.concurrency, 1) and self.waiting >= self.queue:
            self.check_room("")

    def check_room(self, user: str) -> None:
        """Refuse what `submit` would refuse now."""
        with self._lock:
            self._check_room(user)

    def _check_room(self, user: str) -> None:
        if self.closing:
            message = "the server is shutting down; try again soon"
            raise ApiError(message, status=503, code="shutting_down", Retry_After="10")
        own = len(self._waiting.get(user, ()))
        idle = self.running + self.waiting < self.concurrency
        if idle or (self.waiting < self.queue and own < max(1, self.queue * SHARE)):
            return
        self.counts["refused"] += 1
        seconds = min(LONGEST_RETRY, max(1.0, self._seconds * (1 + self.waiting / self.concurrency)))
        message = f"{self.waiting} jobs wait already, {own} of them yours; try again later"
        raise ApiError(message, status=429, code="queue_full", Retry_After=str(round(seconds)))

    def get(self, id: str) -> Job:
        """The job with this id."""
        job = self._jobs.get(id)
        if job is None:
            raise not_found("job")
        return job

    def to_dict(self, job: Job) -> dict[str, Any]:
        """A job as plain values, with its place in the queue."""
        with self._lock:
            queues = [list(each) for each in self._waiting.values()]
        longest = max(map(len, queues), default=0)
        order = [each[turn] for turn in range(longest) for each in queues if turn < len(each)]
        return job.to_dict(order.index(job) if job in order else None)

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
        """Refuse new jobs, and wait that many seconds for those that run or wait."""
        with self._lock:
            self.closing = True
        wait(set(self._futures), timeout=grace)

    def close(self, grace: float) -> None:
        """Drain, then end the jobs that still wait and cancel those that still run."""
        self.drain(grace)
        with self._lock:
            queued = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
        for job in queued:
            job.end(None, ApiError("the server is shutting down; ask again", status=503, code="interrupted"))
        for job in list(self._jobs.values()):
            if not job.over:
                self.cancel(job)
        self._threads.shutdown(wait=True)
        if self._journal:
            self._journal.close()

    def _run_next(self) -> None:
        job = self._next()
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

    def _next(self) -> Job | None:
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

    def _forget(self) -> None:
        """Drop ended jobs that are old or too many."""
        over = [job for job in self._jobs.values() if job.ended is not None]
        for place, job in enumerate(over):
            if len(over) - place > KEPT or (job.ended or 0) < self._clock() - KEPT_SECONDS:
                del self._jobs[job.id]
                if self._journal:
                    self._journal.end(job.id)
