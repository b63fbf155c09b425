"""Supervisor: keeps a pool of workers busy, replaces those that die or hang, and never waits for one of them.

The pool may be child processes or Ray actors.
"""

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import RLock, Thread
from typing import Any, Protocol

from gridprobe._util import parse_json, usable_cores
from gridprobe.benchmarks import Item
from gridprobe.errors import RunError, UsageError
from gridprobe.evaluation.disk import remove
from gridprobe.evaluation.folder import Timeouts
from gridprobe.evaluation.records import Damage, RecordWriter, of_run, read_file
from gridprobe.evaluation.tasks import Account, Taken, Task
from gridprobe.evaluation.worker import Inbox, WorkerJob, WorkerMessage, serve
from gridprobe.record import Record

__all__ = [
    "MOST_DEATHS",
    "ProcessPool",
    "RayPool",
    "Supervisor",
    "TaskQueue",
    "WorkerHandle",
    "WorkerPool",
]

# Workers as child processes: a crash or a hang in one of them costs the work on one question.

JOIN_SECONDS = 10.0
"""The longest wait for a killed process to end; one that waits for a dead disk does not."""


class _Process(SpawnProcess):
    """A process with a limited `join`; multiprocessing joins without a limit at the end of the program."""

    def join(self, timeout: float | None = None) -> None:
        super().join(JOIN_SECONDS if timeout is None else timeout)


class _ProcessHandle:
    def __init__(self, process: BaseProcess, pipe: "Connection[Task | None, WorkerMessage]") -> None:
        self._process, self._pipe = process, pipe

    def give(self, task: Task | None) -> None:
        with suppress(OSError):  # it is dead, and its pipe reports that
            self._pipe.send(task)

    def kill(self) -> None:
        self._process.kill()
        Thread(target=self._process.join, args=(JOIN_SECONDS,), name="gridprobe-join", daemon=True).start()


class ProcessPool:
    """A pool of child processes, spawned, so that each can have its own GPU."""

    def __init__(self, job: WorkerJob, *, workers: int) -> None:
        self._job = job
        # Otherwise each would use all cores: on 2 cores, 2 workers took 1.5 times as long.
        self.threads = max(1, usable_cores() // workers)
        self._context = get_context("spawn")
        self._pipes: dict[Connection[Task | None, WorkerMessage], str] = {}

    def start(self, name: str, place: int) -> _ProcessHandle:
        """Start a process."""
        here, there = self._context.Pipe()
        given = (there, self._job, name, place, self.threads)
        process = _Process(target=_child, args=given, name=name, daemon=True)
        process.start()
        there.close()  # now only the child holds its end, which closes with it
        self._pipes[here] = name
        return _ProcessHandle(process, here)

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Read the pipes; the end of a pipe is a death."""
        heard: list[tuple[str, WorkerMessage | None]] = []
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


def _child(pipe: "Connection[WorkerMessage, Task | None]", job: WorkerJob, name: str, place: int, threads: int) -> None:
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


def _listen(pipe: "Connection[WorkerMessage, Task | None]", inbox: Inbox) -> None:
    """Pass tasks on; exit at once when the parent is gone, or a resumed run would meet an old worker."""
    while True:
        try:
            inbox.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)


# Workers as Ray actors, one per GPU, on all machines of a cluster that see the run's folder under the same path.
#
# Ray places and starts them. The supervisor assigns the work and reassigns a dead worker's questions, as with child
# processes.

LISTEN_SECONDS = 1.0


class _Actor:
    """The Ray actor: a thread that works, and two methods to communicate with it."""

    def __init__(self, job: WorkerJob, name: str, place: int) -> None:
        self._inbox = Inbox()
        self._outbox: SimpleQueue[WorkerMessage] = SimpleQueue()
        told = {"name": name, "place": place, "take": self._inbox, "tell": self._outbox.put}
        Thread(target=serve, args=(job,), kwargs=told, name="gridprobe-worker", daemon=True).start()

    def give(self, task: Task | None) -> None:
        self._inbox.put(task)

    def receive(self) -> list[WorkerMessage]:
        """The pending messages, after a short wait for the first."""
        heard: list[WorkerMessage] = []
        try:
            heard.append(self._outbox.get(timeout=LISTEN_SECONDS))
            while True:
                heard.append(self._outbox.get_nowait())
        except Empty:
            return heard


class _RayHandle:
    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def give(self, task: Task | None) -> None:
        self._actor.give.remote(task)

    def kill(self) -> None:
        self._ray.kill(self._actor, no_restart=True)


class RayPool:
    """A pool of actors on a running cluster (RAY_ADDRESS, or one on this machine), else on one started here."""

    def __init__(self, job: WorkerJob) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError(
                "--engine ray needs Ray, which is not installed; run: pip install 'gridprobe[ray]'"
            ) from None
        self._ray, self._job = ray, job
        self._mine = not ray.is_initialized()
        if self._mine:
            try:
                ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise RunError(f"cannot reach or start Ray: {error}") from error
        resources = ray.cluster_resources()
        self.gpus, self.cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        self._remote = ray.remote(_Actor)
        self._actors: dict[str, Any] = {}
        self._heard: dict[Any, str] = {}

    @property
    def places(self) -> int:
        """The number of workers that fit: one per GPU, or without GPUs one per processor core."""
        return max(1, self.gpus or self.cpus)

    def start(self, name: str, place: int) -> _RayHandle:
        """Request an actor from Ray; it starts as soon as resources are free."""
        needs = {"num_gpus": 1, "num_cpus": 1} if self.gpus else {"num_cpus": 1}
        actor = self._remote.options(max_concurrency=2, max_restarts=0, **needs).remote(self._job, name, place)
        self._actors[name] = actor
        self._heard[actor.receive.remote()] = name
        return _RayHandle(self._ray, actor)

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Collect the actors' new messages."""
        heard: list[tuple[str, WorkerMessage | None]] = []
        if not self._heard:
            return heard
        ready, _ = self._ray.wait(list(self._heard), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._heard), num_returns=len(self._heard), timeout=0)
        for reference in ready:
            name = self._heard.pop(reference)
            try:
                heard += [(name, message) for message in self._ray.get(reference)]
            except self._ray.exceptions.RayError:
                heard.append((name, None))
                del self._actors[name]
                continue
            self._heard[self._actors[name].receive.remote()] = name
        return heard

    def close(self) -> None:
        """Disconnect from Ray, unless the caller had connected before."""
        if self._mine:
            self._ray.shutdown()


# TaskQueue: which worker has which questions, and what happens to them when it dies. Bookkeeping only, no processes.
#
# A worker holds the video it works on and, if enough are left for all workers, the next one, to decode it in advance.
# When a worker dies, its tasks return to the front of the queue and are then done alone, without a second video. So a
# video that crashes the decoder cannot cause another video's question to be blamed twice. A question that was in
# progress at two deaths is given up.

MOST_DEATHS = 2


class TaskQueue:
    """The questions of a run that are still to be asked."""

    def __init__(self, tasks: Sequence[Task], *, workers: int, account: Account | None = None) -> None:
        self.workers = workers
        self.account = account
        self.waiting = deque(tasks)
        self.held: dict[str, list[Task]] = {}
        self.begun: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """The number of unfinished questions that can be asked."""
        held = [task for tasks in self.held.values() for task in tasks]
        if self.account is not None and not held and self.account.lacking is not None:
            return 0
        return sum(len(task.items) for task in (*self.waiting, *held))

    def take(self, worker: str) -> Task | None:
        """The next task for a worker; None if it should not get one now."""
        mine = self.held.setdefault(worker, [])
        if not self.waiting or len(mine) > 1 or (mine and not self._may_look_ahead(mine[0])):
            return None
        task = self._granted(self.waiting.popleft())
        if task is not None:
            mine.append(task)
        return task

    @property
    def unasked(self) -> int:
        """How many questions nobody has."""
        return sum(len(task.items) for task in self.waiting)

    def _granted(self, task: Task) -> Task | None:
        """The part of a task that the totals allow for now; the rest goes back to the front of the queue."""
        if self.account is None:
            return task
        grants = {}
        for item in task.items:
            grant = self.account.grant(item.id)
            if grant is None:
                break
            grants[item.id] = grant
        if len(grants) < len(task.items):
            self.waiting.appendleft(replace(task, items=task.items[len(grants) :]))
        return replace(task, items=task.items[: len(grants)], grants=grants) if grants else None

    def _may_look_ahead(self, current: Task) -> bool:
        return not current.alone and not self.waiting[0].alone and len(self.waiting) >= self.workers

    def begin(self, worker: str, name: str) -> None:
        """A worker has started a question."""
        self.begun[worker] = name

    def finish(self, worker: str, name: str, taken: Taken | None = None) -> None:
        """A question's record is on disk; `taken` is what it took, if that is known."""
        if self.account is not None:
            self.account.settle(name, taken)
        self.held[worker] = _without(self.held.get(worker, []), {name})
        if self.begun.get(worker) == name:
            del self.begun[worker]

    def refuse(self, worker: str, name: str, granted: Taken) -> None:
        """A question needs more than was granted to it, so the run stops at that total."""
        assert self.account is not None
        (task,) = [task for task in self.held.get(worker, []) if name in {item.id for item in task.items}]
        self.held[worker] = _without(self.held[worker], {name})
        self.begun.pop(worker, None)
        self.account.close(name, next(iter(granted)))
        self.waiting.appendleft(replace(task, items=tuple(i for i in task.items if i.id == name), grants={}))

    def lost(self, worker: str, *, written: Collection[str] = ()) -> list[tuple[Item, int]]:
        """A worker has died: put its questions back in the queue, except those whose records it had written.

        Returns the questions that are given up, with the number of attempts at each.
        """
        held = self.held.pop(worker, [])
        tasks = _without(held, written)
        name = self.begun.pop(worker, None)
        self._take_back(held, begun={name, *written})
        if name is not None and name not in written:
            self.deaths[name] += 1
        given_up: list[tuple[Item, int]] = []
        for task in reversed(tasks):
            hopeless = [item for item in task.items if self.deaths[item.id] >= MOST_DEATHS]
            given_up += [(item, task.attempts.get(item.id, 0) + 1) for item in hopeless]
            attempts = {**task.attempts}
            if name is not None and name in {item.id for item in task.items}:
                attempts[name] = attempts.get(name, 0) + 1
            self.waiting.extendleft(_without([replace(task, alone=True, attempts=attempts)], {i.id for i in hopeless}))
        return given_up

    def _take_back(self, tasks: Sequence[Task], *, begun: Collection[str | None]) -> None:
        """Free what was granted to questions that a dead worker had not begun; the others may have taken all of it."""
        for item in (item for task in tasks for item in task.items):
            if self.account is not None and item.id in begun:
                self.account.settle(item.id, None)
            elif self.account is not None:
                self.account.release(item.id)


def _without(tasks: Sequence[Task], names: Collection[str]) -> list[Task]:
    """The tasks without these questions; tasks that become empty are left out."""
    left = [replace(task, items=tuple(item for item in task.items if item.id not in names)) for task in tasks]
    return [task for task in left if task.items]


POLL_SECONDS = 0.5
LAST_SECONDS = 30.0
"""How long the run waits for a worker that was stopped or killed to end."""


class WorkerHandle(Protocol):
    """One worker, wherever it runs."""

    def give(self, task: Task | None) -> None:
        """Send it a task; None is the last."""

    def kill(self) -> None:
        """Kill it without waiting for its death; a dead worker is no error."""


class WorkerPool(Protocol):
    """A way to run workers."""

    def start(self, name: str, place: int) -> WorkerHandle:
        """Start a worker in a place, counted from 0; each place has one worker at a time."""

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Messages of workers, waiting this long for the first; None means that a worker died and is its last."""


@dataclass
class _Member:
    name: str
    place: int
    hand: WorkerHandle
    heard: float
    """When its last message came, or when it was killed."""
    file: str | None = None
    """Its record file; None until it has loaded its models."""
    killed_for: str = ""
    """Why it was killed; empty if it was not."""


class Supervisor:
    """Lets a pool work through a queue's questions."""

    def __init__(
        self,
        folder: Path,
        queue: TaskQueue,
        pool: WorkerPool,
        *,
        prefix: str,
        timeouts: Timeouts,
        note: Callable[[WorkerMessage], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a run.

        Args:
            folder: where the records are.
            queue: the questions, and the number of workers.
            pool: runs the workers.
            prefix: of the workers' names.
            timeouts: how long a worker may be silent.
            note: called when a worker is ready, and when a question begins or is done; an exception ends the run.
            clock: returns seconds, to measure timeouts.
        """
        self._folder, self._queue, self._pool = folder, queue, pool
        self._prefix, self._timeouts, self._note, self._clock = prefix, timeouts, note, clock
        self._members: dict[str, _Member] = {}
        self._dying: set[str] = set()
        """Workers that were replaced and whose death was not reported yet."""
        self._started = 0
        self._reason = ""
        self._writer: RecordWriter | None = None

    def run(self) -> None:
        """Return when every question has a record."""
        try:
            for place in range(self._queue.workers):
                self._start(place)
            while self._queue.left:
                self._listen()
                self._kill_silent()
                self._hand_out()
                if not self._members and self._queue.left:
                    raise RunError(f"no worker is left: {self._reason}; the same command resumes the run")
            self._farewell()
        finally:
            self._stop()
            if self._writer is not None:
                self._writer.close()

    def _start(self, place: int) -> None:
        name = f"{self._prefix}w{self._started}"
        self._started += 1
        self._members[name] = _Member(name, place, self._pool.start(name, place), self._clock())

    def _listen(self) -> None:
        for name, message in self._pool.receive(POLL_SECONDS):
            member = self._members.get(name)
            if member is not None:
                member.heard = self._clock()
                self._heard(member, message)
            if message is None:
                self._dying.discard(name)

    def _heard(self, member: _Member, message: WorkerMessage | None) -> None:
        if message is None:
            self._bury(member, member.killed_for or "it died")
        elif message.kind == "ready":
            member.file = message.text
            self._note(message)
        elif message.kind == "begun":
            self._queue.begin(member.name, message.text)
            self._note(message)
        elif message.kind in ("answered", "failed"):
            self._queue.finish(member.name, message.text, message.taken)
            self._note(message)
        elif message.kind == "refused":
            self._queue.refuse(member.name, message.text, message.taken or {})
        elif message.kind == "broken":
            raise RunError(message.text)
        elif message.kind == "unfit":
            self._drop(member, message.text)
        elif message.kind == "ended":
            self._drop(member, "it ended")

    def _drop(self, member: _Member, reason: str) -> None:
        self._reason = f"worker {member.name}: {reason}"
        self._members.pop(member.name).hand.kill()
        self._dying.add(member.name)

    def _bury(self, member: _Member, reason: str) -> None:
        """Take back a dead worker's questions, except those in its record file, and start another worker."""
        self._drop(member, reason)
        written = self._written(member)
        if question := self._question_of(member):
            self._queue.begin(member.name, question)
        unheard = {item.id for task in self._queue.held.get(member.name, ()) for item in task.items} & written.keys()
        moved = bool(written) or member.name in self._queue.begun  # otherwise the next one would fail, too
        for item, attempt in self._queue.lost(member.name, written=written):
            self._give_up(item, attempt, reason)
        for name in unheard:
            self._note(written[name])
        if moved and self._queue.left:
            self._start(member.place)

    def _written(self, member: _Member) -> dict[str, WorkerMessage]:
        if member.file is None or not (self._folder / member.file).is_file():
            return {}
        records = read_file(self._folder / member.file, floats=False)
        found = [record for record in records if not isinstance(record, Damage)]
        return {
            each["id"]: WorkerMessage(
                each["outcome"], each["id"], right=each.get("right"), transient=each.get("transient") is True
            )
            for each in found
        }

    def _question_of(self, member: _Member) -> str | None:
        """The question in a worker's heartbeat, because a dead Ray actor's last messages are lost."""
        try:
            beat = parse_json((self._folder / f"heartbeat-{member.name}.json").read_bytes())
            return None if beat["question"] is None else str(beat["question"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _give_up(self, item: Item, attempt: int, reason: str) -> None:
        if self._writer is None:
            self._writer = RecordWriter(self._folder, f"{self._prefix}supervisor")
        text = f"{MOST_DEATHS} workers were lost at this question; of the last one: {reason}"
        record = of_run(Record.failed(("WorkerDied", text)), item, attempt=attempt, worker=self._writer.worker)
        self._writer.write(record.to_line())
        self._note(WorkerMessage("failed", item.id, right=None if item.question.answer is None else False))

    def _kill_silent(self) -> None:
        """Kill workers that hang. Each is replaced when its death is reported: until then it may be writing a record.

        A process that waits for a dead disk cannot be killed. After `LAST_SECONDS` another worker takes its place.
        """
        for member in list(self._members.values()):
            silent = self._clock() - member.heard
            if member.killed_for and silent > LAST_SECONDS:
                self._bury(member, member.killed_for)
                self._dying.discard(member.name)
            elif not member.killed_for and (reason := self._hangs(member, silent)):
                member.killed_for, member.heard = reason, self._clock()
                member.hand.kill()

    def _hangs(self, member: _Member, silent: float) -> str | None:
        """Why a worker that was silent for this many seconds counts as hung; None if it does not."""
        if member.file is None and silent > self._timeouts.start:
            rule = "raise --start-timeout if its models take longer to load"
            return f"it was silent for {self._timeouts.start:g} s while starting; {rule}"
        if member.file is not None and self._queue.held.get(member.name) and silent > self._timeouts.question:
            return f"it was silent for {self._timeouts.question:g} s; raise --timeout if a question may take longer"
        return None

    def _hand_out(self) -> None:
        """Give tasks to idle workers first, then tasks in advance."""
        ready = [member for member in self._members.values() if member.file is not None and not member.killed_for]
        for member in sorted(ready, key=lambda each: len(self._queue.held.get(each.name, ()))):
            task = self._queue.take(member.name)
            if task is not None:
                if len(self._queue.held[member.name]) == 1:
                    member.heard = self._clock()
                member.hand.give(task)

    def _farewell(self) -> None:
        """Let the workers close their files, without waiting long."""
        deadline = self._clock() + LAST_SECONDS
        for member in [member for member in self._members.values() if member.file is None]:
            self._drop(member, "it was not needed")
        for member in self._members.values():
            member.hand.give(None)
        while self._members and self._clock() < deadline:
            self._listen()

    def _stop(self) -> None:
        """Kill the remaining workers and wait briefly for their deaths: a resumed run refuses living writers."""
        deadline = self._clock() + LAST_SECONDS
        stopped = list(self._members.values())
        for member in stopped:
            self._drop(member, "the run ended")
        while self._dying and self._clock() < deadline:
            self._dying -= {name for name, message in self._pool.receive(POLL_SECONDS) if message is None}
        for name in {member.name for member in stopped} - self._dying:  # it did not die, it was stopped
            remove(self._folder / f"heartbeat-{name}.json")
