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
from gridprobe.errors import RunError, UsageError
from gridprobe.record import Record
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.disk import remove
from gridprobe_eval.folder import Timeouts
from gridprobe_eval.records import RecordWriter, of_run, read_file
from gridprobe_eval.tasks import Account, Taken, Task
from gridprobe_eval.worker import Inbox, WorkerJob, WorkerMessage, serve

# Workers as child processes: a crash or a hang in one of them costs the work on one question.

JOIN_SECONDS = 10.0
"""The longest wait for a killed process to end; one that waits for a dead disk does not."""


class _Process(SpawnProcess):
    """A process with a limited `join`; multiprocessing joins without a limit at the end of the program."""

    def join(self, timeout: float | None = None) -> None:
        super().join(JOIN_SECONDS if timeout is None else timeout)


class ProcessPool:
    """A pool of child processes, spawned, so that each can have its own GPU."""

    def __init__(self, job: WorkerJob, *, workers: int) -> None:
        self._job = job
        # Otherwise each would use all cores: on 2 cores, 2 workers took 1.5 times as long.
        self.threads = max(1, usable_cores() // workers)
        self._context = get_context("spawn")
        self._processes: dict[str, BaseProcess] = {}
        self._pipes: dict[str, Connection[Task | None, WorkerMessage]] = {}

    def start(self, name: str, place: int) -> None:
        """Start a process."""
        self._pipes[name], there = self._context.Pipe()
        arguments = (there, self._job, name, place, self.threads)
        self._processes[name] = _Process(target=_child, args=arguments, name=name, daemon=True)
        self._processes[name].start()
        there.close()  # now only the child holds its end, which closes with it

    def send(self, name: str, task: Task | None) -> None:
        """Write to its pipe."""
        with suppress(OSError, KeyError):  # it is dead, and its pipe reports that
            self._pipes[name].send(task)

    def kill(self, name: str) -> None:
        """Kill the process; a thread collects it."""
        process = self._processes[name]
        process.kill()
        Thread(target=process.join, args=(JOIN_SECONDS,), name="gridprobe-join", daemon=True).start()

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Read the pipes; the end of a pipe is a death."""
        messages: list[tuple[str, WorkerMessage | None]] = []
        names = {pipe: name for name, pipe in self._pipes.items()}
        for pipe in wait(list(names), seconds):
            assert isinstance(pipe, Connection)
            name = names[pipe]
            try:
                messages.append((name, pipe.recv()))
                while pipe.poll():
                    messages.append((name, pipe.recv()))
            except (EOFError, OSError):
                messages.append((name, None))
                self._pipes.pop(name).close()
        return messages


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
        options = {"name": name, "place": place, "take": self._inbox, "tell": self._outbox.put}
        Thread(target=serve, args=(job,), kwargs=options, name="gridprobe-worker", daemon=True).start()

    def send(self, task: Task | None) -> None:
        self._inbox.put(task)

    def receive(self) -> list[WorkerMessage]:
        """The pending messages, after a short wait for the first."""
        messages: list[WorkerMessage] = []
        try:
            messages.append(self._outbox.get(timeout=LISTEN_SECONDS))
            while True:
                messages.append(self._outbox.get_nowait())
        except Empty:
            return messages


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
        self._pending: dict[Any, str] = {}

    @property
    def places(self) -> int:
        """The number of workers that fit: one per GPU, or without GPUs one per processor core."""
        return max(1, self.gpus or self.cpus)

    def start(self, name: str, place: int) -> None:
        """Request an actor from Ray; it starts as soon as resources are free."""
        needs = {"num_gpus": 1, "num_cpus": 1} if self.gpus else {"num_cpus": 1}
        actor = self._remote.options(max_concurrency=2, max_restarts=0, **needs).remote(self._job, name, place)
        self._actors[name] = actor
        self._pending[actor.receive.remote()] = name

    def send(self, name: str, task: Task | None) -> None:
        """Call the actor; the death of one is noticed in `receive`."""
        self._actors[name].send.remote(task)

    def kill(self, name: str) -> None:
        """Kill the actor for good."""
        self._ray.kill(self._actors[name], no_restart=True)

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Collect the actors' new messages."""
        messages: list[tuple[str, WorkerMessage | None]] = []
        if not self._pending:
            return messages
        ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        for reference in ready:
            name = self._pending.pop(reference)
            try:
                messages += [(name, message) for message in self._ray.get(reference)]
            except self._ray.exceptions.RayError:
                messages.append((name, None))
                continue
            self._pending[self._actors[name].receive.remote()] = name
        return messages

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
        self.assigned: dict[str, list[Task]] = {}
        self.begun: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """The number of unfinished questions that can be asked."""
        assigned = [task for tasks in self.assigned.values() for task in tasks]
        if self.account is not None and not assigned and self.account.lacking is not None:
            return 0
        return sum(len(task.items) for task in (*self.waiting, *assigned))

    def take(self, worker: str) -> Task | None:
        """The next task for a worker; None if it should not get one now."""
        mine = self.assigned.setdefault(worker, [])
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
        self.assigned[worker] = _without(self.assigned.get(worker, []), {name})
        if self.begun.get(worker) == name:
            del self.begun[worker]

    def refuse(self, worker: str, name: str, granted: Taken) -> None:
        """A question needs more than was granted to it, so the run stops at that total."""
        assert self.account is not None
        (task,) = [task for task in self.assigned.get(worker, []) if name in {item.id for item in task.items}]
        self.assigned[worker] = _without(self.assigned[worker], {name})
        self.begun.pop(worker, None)
        self.account.close(name, next(iter(granted)))
        self.waiting.appendleft(replace(task, items=tuple(i for i in task.items if i.id == name), grants={}))

    def lost(self, worker: str, *, written: Collection[str] = ()) -> list[tuple[Item, int]]:
        """A worker has died: put its questions back in the queue, except those whose records it had written.

        Returns the questions that are given up, with the number of attempts at each.
        """
        assigned = self.assigned.pop(worker, [])
        tasks = _without(assigned, written)
        name = self.begun.pop(worker, None)
        self._take_back(assigned, begun={name, *written})
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


class WorkerPool(Protocol):
    """A way to run workers, each of which has a name."""

    def start(self, name: str, place: int) -> None:
        """Start a worker in a place, counted from 0; each place has one worker at a time."""

    def send(self, name: str, task: Task | None) -> None:
        """Send a worker a task; None is the last. A dead worker is no error."""

    def kill(self, name: str) -> None:
        """Kill a worker without waiting for its death; a dead worker is no error."""

    def receive(self, seconds: float) -> list[tuple[str, WorkerMessage | None]]:
        """Messages of workers, waiting this long for the first; None means that a worker died and is its last."""


@dataclass
class _Worker:
    name: str
    place: int
    heard_at: float
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
            clock: returns seconds, to measure silence.
        """
        self._folder, self._queue, self._pool = folder, queue, pool
        self._prefix, self._timeouts, self._note, self._clock = prefix, timeouts, note, clock
        self._workers: dict[str, _Worker] = {}
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
                self._assign()
                if not self._workers and self._queue.left:
                    raise RunError(f"no worker is left: {self._reason}; the same command resumes the run")
            self._finish()
        finally:
            self._stop()
            if self._writer is not None:
                self._writer.close()

    def _start(self, place: int) -> None:
        name = f"{self._prefix}w{self._started}"
        self._started += 1
        self._pool.start(name, place)
        self._workers[name] = _Worker(name, place, self._clock())

    def _listen(self) -> None:
        for name, message in self._pool.receive(POLL_SECONDS):
            worker = self._workers.get(name)
            if worker is not None:
                worker.heard_at = self._clock()
                self._handle(worker, message)
            if message is None:
                self._dying.discard(name)

    def _handle(self, worker: _Worker, message: WorkerMessage | None) -> None:
        if message is None:
            self._replace(worker, worker.killed_for or "it died")
        elif message.kind == "ready":
            worker.file = message.text
            self._note(message)
        elif message.kind == "begun":
            self._queue.begin(worker.name, message.text)
            self._note(message)
        elif message.kind in ("answered", "failed"):
            self._queue.finish(worker.name, message.text, message.taken)
            self._note(message)
        elif message.kind == "refused":
            self._queue.refuse(worker.name, message.text, message.taken or {})
        elif message.kind == "broken":
            raise RunError(message.text)
        elif message.kind == "unfit":
            self._drop(worker, message.text)
        elif message.kind == "ended":
            self._drop(worker, "it ended")

    def _drop(self, worker: _Worker, reason: str) -> None:
        self._reason = f"worker {worker.name}: {reason}"
        del self._workers[worker.name]
        self._pool.kill(worker.name)
        self._dying.add(worker.name)

    def _replace(self, worker: _Worker, reason: str) -> None:
        """Take back a dead worker's questions, except those in its record file, and start another worker."""
        self._drop(worker, reason)
        written = self._written(worker)
        if question := self._question_of(worker):
            self._queue.begin(worker.name, question)
        unheard = {
            item.id for task in self._queue.assigned.get(worker.name, ()) for item in task.items
        } & written.keys()
        moved = bool(written) or worker.name in self._queue.begun  # otherwise the next one would fail, too
        for item, attempt in self._queue.lost(worker.name, written=written):
            self._give_up(item, attempt, reason)
        for name in unheard:
            self._note(written[name])
        if moved and self._queue.left:
            self._start(worker.place)

    def _written(self, worker: _Worker) -> dict[str, WorkerMessage]:
        if worker.file is None or not (self._folder / worker.file).is_file():
            return {}
        records = read_file(self._folder / worker.file, floats=False)
        return {
            each["id"]: WorkerMessage(
                each["outcome"], each["id"], right=each.get("right"), transient=each.get("transient") is True
            )
            for each in records
            if not isinstance(each, str)
        }

    def _question_of(self, worker: _Worker) -> str | None:
        """The question in a worker's heartbeat, because a dead Ray actor's last messages are lost."""
        try:
            beat = parse_json((self._folder / f"heartbeat-{worker.name}.json").read_bytes())
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
        for worker in list(self._workers.values()):
            silent = self._clock() - worker.heard_at
            if worker.killed_for and silent > LAST_SECONDS:
                self._replace(worker, worker.killed_for)
                self._dying.discard(worker.name)
            elif not worker.killed_for and (reason := self._hangs(worker, silent)):
                worker.killed_for, worker.heard_at = reason, self._clock()
                self._pool.kill(worker.name)

    def _hangs(self, worker: _Worker, silent: float) -> str | None:
        """Why a worker that was silent for this many seconds counts as hung; None if it does not."""
        if worker.file is None and silent > self._timeouts.start:
            rule = "raise --start-timeout if its models take longer to load"
            return f"it was silent for {self._timeouts.start:g} s while starting; {rule}"
        if worker.file is not None and self._queue.assigned.get(worker.name) and silent > self._timeouts.question:
            return f"it was silent for {self._timeouts.question:g} s; raise --timeout if a question may take longer"
        return None

    def _assign(self) -> None:
        """Give tasks to idle workers first, then tasks in advance."""
        ready = [worker for worker in self._workers.values() if worker.file is not None and not worker.killed_for]
        for worker in sorted(ready, key=lambda each: len(self._queue.assigned.get(each.name, ()))):
            task = self._queue.take(worker.name)
            if task is not None:
                if len(self._queue.assigned[worker.name]) == 1:
                    worker.heard_at = self._clock()
                self._pool.send(worker.name, task)

    def _finish(self) -> None:
        """Let the workers close their files, without waiting long."""
        deadline = self._clock() + LAST_SECONDS
        for worker in [worker for worker in self._workers.values() if worker.file is None]:
            self._drop(worker, "it was not needed")
        for worker in self._workers.values():
            self._pool.send(worker.name, None)
        while self._workers and self._clock() < deadline:
            self._listen()

    def _stop(self) -> None:
        """Kill the remaining workers and wait briefly for their deaths: a resumed run refuses living writers."""
        deadline = self._clock() + LAST_SECONDS
        stopped = list(self._workers.values())
        for worker in stopped:
            self._drop(worker, "the run ended")
        while self._dying and self._clock() < deadline:
            self._dying -= {name for name, message in self._pool.receive(POLL_SECONDS) if message is None}
        for name in {worker.name for worker in stopped} - self._dying:  # it did not die, it was stopped
            remove(self._folder / f"heartbeat-{name}.json")
