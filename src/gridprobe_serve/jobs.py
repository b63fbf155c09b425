"""Jobs: a bounded queue in which users take turns, a few threads, events that can be read again, and cancelling."""

import errno
import json
import logging
import math
import os
import re
import secrets
import stat
import sys
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag
from threading import Lock, RLock
from typing import Any, Literal

from gridprobe._util import ProgressEvent, listening, parse_json, printable, write_whole
from gridprobe.errors import (
    Cancelled,
    DataError,
    DecoderKilled,
    GridProbeError,
    ModelError,
    ServerUnavailable,
    TooLarge,
    UsageError,
    VideoError,
)
from gridprobe.evaluation.tasks import Attempt

__all__ = [
    "ApiError",
    "Job",
    "JobMessage",
    "Jobs",
    "Journal",
    "Left",
    "as_api_error",
    "check_descriptors",
    "left_in",
    "mark_ids",
    "new_id",
    "not_found",
]

# Journal: the jobs that a server has not ended, beside its uploads, so that the next server can report them.
#
# It is a file of JSON lines. A line gives a job's id and a state; a job whose last state is `queued` or `interrupted`
# was
# never ended. Questions, answers and users are not written.

LOG = logging.getLogger("gridprobe_serve")
NAME = "jobs.jsonl"
MOST_LINES = 4096
"""Lines after which the file is written anew, with the jobs that have not ended."""
LONGEST_LINE = 300
MOST_BYTES = 4 << 20
"""What is read of a journal; many times what `MOST_LINES` take."""
ID = re.compile(r"[0-9a-f]{32,64}")
NUMBERS = {"queued": ("created",), "interrupted": ("created", "ended")}
"""States of jobs that have not ended, and the times that their lines have."""


@dataclass(frozen=True)
class Left:
    """A job that a server did not end."""

    id: str
    created: float
    ended: float | None = None
    """When a later server marked it as interrupted."""

    def line(self) -> bytes:
        """Its line in a journal."""
        if self.ended is None:
            return _line(id=self.id, state="queued", created=self.created)
        return _line(id=self.id, state="interrupted", created=self.created, ended=self.ended)


class Journal:
    """The journal of a running server. A disk that is full or fails is logged once and fails no job."""

    def __init__(self, folder: Path, left: Sequence[Left] = ()) -> None:
        """A journal that is written from `start` on.

        Args:
            folder: where the file is.
            left: jobs of servers that died.
        """
        self._path = folder / NAME
        self._left = left
        self._lock = Lock()
        self._unfinished: dict[str, Left] = {}
        self._handle: int | None = None
        self._lines = 0
        self._closed = self._failed = False

    def start(self, *, now: float, since: float, most: int) -> list[Left]:
        """Begin to write; returns the jobs that are interrupted: the latest ones, marked not before `since`."""
        marked = [replace(each, ended=now if each.ended is None else min(each.ended, now)) for each in self._left]
        marked.sort(key=lambda each: (each.ended or 0.0, each.created))
        kept = [each for each in marked if (each.ended or 0.0) >= since][-most:]
        if kept:
            LOG.warning("%d jobs of a server that was killed are marked as interrupted", len(kept))
        with self._lock:
            self._unfinished = {each.id: each for each in kept}
            self._write(None)
        return kept

    def begin(self, id: str, created: float) -> None:
        """A job was accepted."""
        with self._lock:
            self._unfinished[id] = Left(id, created)
            self._write(self._unfinished[id].line())

    def end(self, id: str, state: str) -> None:
        """A job has ended, or nobody may ask for it any more."""
        with self._lock:
            if self._unfinished.pop(id, None) is not None:
                self._write(_line(id=id, state=state))

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self._closed = True
            self._release()

    def _write(self, line: bytes | None) -> None:
        """Append a line; write the file anew if there is none, if it is long, or after a failure."""
        if self._closed:
            return
        try:
            if line is None or self._handle is None or self._lines >= MOST_LINES + len(self._unfinished):
                self._write_anew()
            else:
                while line:
                    line = line[os.write(self._handle, line) :]
                self._lines += 1
            self._failed = False
        except OSError as error:
            self._release()
            if not self._failed:
                LOG.warning("the journal of jobs cannot be written: %s; after a crash they are unknown", error.strerror)
            self._failed = True

    def _write_anew(self) -> None:
        self._release()
        write_whole(self._path, b"".join(each.line() for each in self._unfinished.values()))
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(self._unfinished)

    def _release(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with suppress(OSError):  # nothing is written to it any more
                os.close(handle)


def left_in(folder: Path) -> list[Left]:
    """The jobs that the journal in a folder does not end; none if there is no journal or it is not this user's."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return []
        try:
            content = file.read(MOST_BYTES)
        except OSError:
            return []
    left: dict[str, Left] = {}
    for line in content.splitlines():
        with suppress(ValueError, TypeError, KeyError):  # a crash or a full disk may leave a part of a line
            entry = parse_json(line) if len(line) <= LONGEST_LINE else {}
            left.pop(entry["id"], None)
            if entry["state"] in NUMBERS:
                left[entry["id"]] = _left(entry)
    return list(left.values())


def _left(entry: dict[str, Any]) -> Left:
    """The job of a line; a ValueError if it is not one of ours."""
    numbers = {name: entry[name] for name in NUMBERS[entry["state"]]}
    if not ID.fullmatch(entry["id"]) or not all(map(_is_time, numbers.values())):
        raise ValueError("a line of a journal is damaged")
    return Left(entry["id"], **numbers)


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _line(**values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


# Refusal: an error with an HTTP status; and which status every other error has.

INTERNAL = "the server made a mistake; its log has the details under the request's X-Request-ID"


class ApiError(GridProbeError):
    """A request that is not answered."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request",
        param: str | None = None,
        **headers: str,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def to_dict(self) -> dict[str, Any]:
        """The object inside an error body of OpenAI's form."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"message": str(self), "type": kind, "param": self.param, "code": self.code}


STATUSES: tuple[tuple[type[GridProbeError], int, str], ...] = (
    (Cancelled, 499, "cancelled"),
    (UsageError, 400, "invalid_request"),
    (DataError, 400, "invalid_request"),
    (DecoderKilled, 503, "decoder_killed"),
    (VideoError, 422, "unusable_video"),
    (ServerUnavailable, 503, "model_unavailable"),
    (TooLarge, 413, "too_long"),
    (ModelError, 502, "model_error"),
)
"""The first that fits counts."""


def as_api_error(error: BaseException) -> ApiError:
    """How an error is told to a client; what we did not raise on purpose is not told."""
    if isinstance(error, ApiError):
        return error
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return ApiError(str(error), status=status, code=code)
    return ApiError(INTERNAL, status=500, code="internal_error")


def not_found(what: str) -> ApiError:
    """There is nothing with this id; the same text whether there ever was or not."""
    return ApiError(
        f"there is no such {what}; it may have ended, or the server was restarted", status=404, code="not_found"
    )


def check_descriptors(error: OSError) -> None:
    """Refuse with 503 if a file could not be opened because too many are; nothing is wrong with that file."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        message = "the server has too many files open; try again soon"
        raise ApiError(message, status=503, code="busy", Retry_After="5") from None


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
        self.cancel = Flag()
        self._work = work
        self._clock = clock
        self._journal = journal
        self._lock = RLock()
        self._messages: list[JobMessage] = []
        self._count = 0
        self._callbacks: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []

    @classmethod
    def interrupted(cls, left: Left) -> "Job":
        """A job that a server which was killed did not end."""
        job = cls(lambda job: {}, "", lambda: left.ended or 0.0)
        job.id, job.created, job._count = left.id, left.created, AFTER_ALL
        message = "the server was restarted before this question was answered; ask again"
        job.end(None, ApiError(message, status=503, code="interrupted"))
        return job

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None

    def add(self, name: str, data: Mapping[str, Any]) -> None:
        """Say that something happened; of many progress messages the oldest are dropped."""
        with self._lock:
            self._count += 1
            self._messages.append(JobMessage(self._count, name, data))
            progress = [each for each in self._messages if each.name == "progress"] if name == "progress" else []
            if len(progress) > MOST_PROGRESS:
                self._messages.remove(progress[0])
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            callback()

    def after(self, number: int) -> list[JobMessage]:
        """What happened after the message with this number."""
        with self._lock:
            return [each for each in self._messages if each.number > number]

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call something after every message, from any thread; returns what ends that."""
        with self._lock:
            self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def report(self, event: ProgressEvent) -> None:
        """Listen to `gridprobe._util`."""
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

    def _told(self, error: Exception) -> ApiError:
        """How an error is told. It keeps no traceback, whose frames would keep videos; a mistake of ours is logged."""
        refusal = as_api_error(error)
        if refusal.status == 500:
            LOG.error("job %s failed: %s", self.id, _trace(error))
            return ApiError(
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
            raise ApiError(message, status=503, code="shutting_down", Retry_After="10")
        mine = len(self._waiting.get(user, ()))
        idle = self.running + self.waiting < self.at_once
        if idle or (self.waiting < self.most_waiting and mine < max(1, self.most_waiting * SHARE)):
            return
        self.counts["refused"] += 1
        raise ApiError(
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
            job.end(None, ApiError("the server is shutting down; ask again", status=503, code="interrupted"))
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
