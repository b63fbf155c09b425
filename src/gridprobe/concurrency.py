"""Batcher: many threads ask models, and what they ask at the same time is merged into one call.

    batcher = Batcher()
    model = batcher.merging(load_model("embedded"))         # a model like the one behind it

    def work():                                             # in a thread of its own
        with batcher.taking_part():
            choose(model, [request])                        # waits for the others

A call runs as soon as every participant waits for an answer, or has left. So what is merged depends on what the
participants ask, and not on how fast they are. A thread that takes part only while it waits, as a server's does, is
merged with whoever waits when the model is free. The models run in one thread, one call at a time. An error reaches the
participant whose request it is about: after a merged call has failed, the parts are tried one by one. A participant
that is cancelled (`gridprobe._util`) leaves the others' call running.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Event, Lock, get_ident, local
from typing import TYPE_CHECKING, Any, TypeVar

from gridprobe._util import is_cancelled, relayed, shared
from gridprobe.errors import Cancelled, ServerUnavailable, UsageError
from gridprobe.models.base import Model, Request, Response, SamplingParams
from gridprobe.models.wrappers import ModelWrapper
from gridprobe.plan import Plan

if TYPE_CHECKING:
    pass

T = TypeVar("T")
Run = Callable[[Sequence[Any]], Sequence[Any]]

LONG = 4000
"""Where calls are limited, as in a server, a participant's prompts of more characters run in calls of their own: once
they are cancelled, such a call ends in the middle, which a merged one that others wait for cannot."""
CHECK_SECONDS = 0.2
"""How often those who wait look whether they were cancelled."""
FOR_ALL = (Cancelled, ServerUnavailable)
"""Errors after which no part of a call can succeed."""

_mine = local()


def own_seconds() -> float:
    """A clock of this thread that does not count waiting for others; of a merged call it counts an equal share."""
    waited: float = getattr(_mine, "waited", 0.0)
    return time.perf_counter() - waited


class Participant:
    """Someone at work, for whom the others wait; `with` binds it to the thread and leaves at the end."""

    def __init__(self, batcher: "Batcher", number: int) -> None:
        self.number = number
        """Requests of participants with lower numbers stand before those of others in a merged call."""
        self._batcher = batcher

    def __enter__(self) -> "Participant":
        self._batcher.bind(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._batcher.leave(self)


@dataclass(eq=False)
class _Call:
    """What one participant waits for."""

    participant: Participant
    key: Hashable
    """Calls with the same key can be merged."""
    parts: Sequence[Any]
    """One for each request."""
    run: Run
    """Asks the model about parts of calls with this key."""
    context: Context
    changed: Condition
    """Wakes the participant."""
    answers: dict[int, Any] = field(default_factory=dict)
    error: BaseException | None = None
    seconds: float = 0.0
    """Its share of the time that the model took."""

    @property
    def todo(self) -> list[int]:
        """The parts that were not asked yet."""
        return [] if self.error else [place for place in range(len(self.parts)) if place not in self.answers]


Part = tuple[_Call, int]


class Batcher:
    """Who takes part, and what they wait for."""

    def __init__(self, *, most: int | None = None, in_turns: bool = False) -> None:
        """A batcher without participants.

        Args:
            most: the most requests in a merged call; None is any number. What is left over runs in the next calls, one
                request of each participant in turn, so that none waits for another's many.
            in_turns: whether participants at work take turns, so that they may share what is not safe for threads.
        """
        if most is not None and most < 1:
            raise UsageError(f"a merged call needs room for at least 1 request, got most={most}")
        self._most = most
        self._floor = Lock() if in_turns else None
        self._lock = Lock()
        self._working: set[Participant] = set()
        """Those who do not wait for an answer."""
        self._bound: dict[int, Participant] = {}
        self._waiting: list[_Call] = []
        self._round: set[_Call] = set()
        """Calls that waited when all did; all of them run before anyone is waited for again."""
        self._joined = 0
        self._served = -1
        """The number of the participant that was served last."""
        self._running = False
        self.calls, self.parts = 0, 0
        """How often the models were called, and about how many requests in all."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gridprobe-model")

    def merging(self, model: Model) -> "BatchedModel":
        """The same model; its calls are merged with those of other threads."""
        return BatchedModel(self, model)

    def join(self) -> Participant:
        """A participant that counts as at work from now on, even if its thread begins later."""
        with self._lock:
            participant = Participant(self, self._joined)
            self._joined += 1
            self._working.add(participant)
        return participant

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """Let the others wait for this thread; a thread that takes part already is counted once."""
        if get_ident() in self._bound:
            yield
            return
        with self.join():
            yield

    def close(self) -> None:
        """End the thread that the models run in, after what it is doing."""
        self._thread.shutdown(wait=False)

    def ask(self, key: Hashable, parts: Sequence[Any], run: Run) -> list[Any]:
        """The answers to some parts, in order; `run` gets parts of all calls with this key."""
        if not parts:
            return []
        start = time.perf_counter()
        with self.taking_part():
            changed = Condition(self._lock)
            call = _Call(self._bound[get_ident()], key, parts, run, copy_context(), changed)
            self._give_way()
            try:
                self._wait(call)
            finally:
                self._take_turn()
        _mine.waited = getattr(_mine, "waited", 0.0) + time.perf_counter() - start - call.seconds
        if call.error is not None:
            raise call.error
        return [call.answers[place] for place in range(len(parts))]

    def apart(self, requests: Sequence[Request]) -> int | None:
        """A part of the key of a call, which no other participant's call has if a prompt is long."""
        long = any(len(request.prompt) > LONG for request in requests)
        return get_ident() if long and self._most is not None else None

    def bind(self, participant: Participant) -> None:
        """This thread is the participant now."""
        with self._lock:
            self._bound[get_ident()] = participant
        self._take_turn()

    def leave(self, participant: Participant) -> None:
        """Nobody waits for the participant any more."""
        if self._bound.get(get_ident()) is participant:
            self._give_way()
            del self._bound[get_ident()]
        with self._lock:
            self._working.discard(participant)
            self._wake_leader()

    def _take_turn(self) -> None:
        if self._floor is not None:
            self._floor.acquire()

    def _give_way(self) -> None:
        if self._floor is not None:
            self._floor.release()

    def _wait(self, call: _Call) -> None:
        """Wait until a call is answered; whoever notices that all wait runs what they wait for."""
        with self._lock:
            self._working.discard(call.participant)
            self._waiting.append(call)
            try:
                while call.todo:
                    if not self._running and self._ready():
                        self._lead()
                    elif not call.changed.wait(CHECK_SECONDS) and is_cancelled(call.context):
                        raise Cancelled("cancelled while waiting for the model")
            finally:
                self._done([call])

    def _ready(self) -> bool:
        """Whether the next call can run: everybody waits, or those who did have not all been answered."""
        if not self._round and not self._working:
            self._round = set(self._waiting)
        return bool(self._round)

    def _lead(self) -> None:
        """Run one merged call, without the lock."""
        self._drop_cancelled()
        chosen = self._choose()
        if not chosen:
            return
        self._running = True
        self._lock.release()
        try:
            self._run(chosen)
        finally:
            self._lock.acquire()
            self._running = False
            self._done([call for call in self._waiting if not call.todo])
            self._wake_leader()

    def _drop_cancelled(self) -> None:
        """Calls that nobody wants any more get no model."""
        dropped = [call for call in self._waiting if is_cancelled(call.context)]
        for call in dropped:
            call.error = Cancelled("cancelled while waiting for the model")
        self._done(dropped)

    def _done(self, calls: Sequence[_Call]) -> None:
        """Those who waited for these calls are at work again."""
        for call in calls:
            if call in self._waiting:
                self._waiting.remove(call)
                self._working.add(call.participant)
                call.changed.notify()
            self._round.discard(call)

    def _wake_leader(self) -> None:
        """Wake one of those who wait if the next call can run; waking all of them would cost more than a small call."""
        if self._waiting and not self._running and self._ready():
            self._waiting[0].changed.notify()

    def _choose(self) -> list[Part]:
        """The parts that come next: of all calls like the first one, one part of each in turn."""
        waiting = sorted(self._waiting, key=self._turn)
        first = next((call for call in waiting if call in self._round), None)
        if first is None:
            return []
        calls = [(call, call.todo) for call in waiting if call.key == first.key]
        longest = max(len(todo) for _, todo in calls)
        turns = [(call, todo[turn]) for turn in range(longest) for call, todo in calls if turn < len(todo)]
        chosen = turns[: self._most]
        self._served = chosen[-1][0].participant.number
        return chosen

    def _turn(self, call: _Call) -> tuple[bool, int]:
        """Those after the one that was served last come first."""
        number = call.participant.number
        return self._most is not None and number <= self._served, number

    def _run(self, chosen: Sequence[Part]) -> None:
        """Ask the model; if that fails, ask it about the parts of each call by themselves."""
        error = self._try(chosen)
        if error is None:
            return
        calls = list(dict.fromkeys(call for call, _ in chosen))
        again = len(calls) > 1 and isinstance(error, Exception) and not isinstance(error, FOR_ALL)
        for call in calls:
            call.error = self._try([part for part in chosen if part[0] is call]) if again else error

    def _try(self, chosen: Sequence[Part]) -> BaseException | None:
        """One call of the model; returns its error."""
        call, start = chosen[0][0], time.perf_counter()
        parts = [each.parts[place] for each, place in chosen]
        contexts = [each.context for each in dict.fromkeys(each for each, _ in chosen)]
        self.calls, self.parts = self.calls + 1, self.parts + len(parts)

        def run() -> Sequence[Any]:
            with relayed(contexts):
                return call.run(parts)

        outcome = self._thread.submit(call.context.run, run)
        error = outcome.exception()
        share = (time.perf_counter() - start) / len(chosen)
        for each, _ in chosen:
            each.seconds += share
        if error is None:
            for (each, place), answer in zip(chosen, outcome.result(), strict=True):
                each.answers[place] = answer
        return error


class BatchedModel(ModelWrapper):
    """A model whose calls are merged."""

    def __init__(self, batcher: Batcher, model: Model) -> None:
        super().__init__(model)
        self._batcher = batcher

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """A response to each request, in order; choices are merged, and texts with the same parameters."""
        params = frozenset(each.task for each in requests if isinstance(each.task, SamplingParams))
        return self._batcher.ask((id(self._model), params, self._batcher.apart(requests)), requests, self._model.run)


# Several questions at the same time, each in a thread, so that a `Batcher` can merge what they ask the models.

Job = TypeVar("Job")
Result = TypeVar("Result")

TOGETHER = 8
"""How many questions are asked at the same time."""


def check_together(count: int) -> None:
    """Refuse a number of questions at the same time that makes no sense."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"together must be a whole number of at least 1, got {count!r}")


def merged(setup: Plan, batcher: Batcher) -> Plan:
    """The same setup; calls of its models are merged with those of other threads."""
    model = batcher.merging(setup.model)
    return setup.using(model, model if setup.answerer is setup.model else batcher.merging(setup.answerer))


def in_threads(
    work: Callable[[Job], Result], jobs: Sequence[Job], batcher: Batcher, *, at_once: int
) -> Iterator[tuple[int, "Future[Result]"]]:
    """The number and the outcome of each job as soon as it is done. An error stays in the outcome of its job.

    Args:
        work: what to do with a job; its calls of models go through the batcher.
        jobs: the jobs; they are begun in this order.
        batcher: merges the calls. The next job counts as at work before one that is done leaves, so that what is
            merged does not depend on how fast threads are.
        at_once: how many are at work at the same time.
    """
    seats = {number: batcher.join() for number in range(min(at_once, len(jobs)))}
    done: SimpleQueue[tuple[int, Future[Result]]] = SimpleQueue()
    stop, lock, left = Event(), Lock(), iter(range(len(seats), len(jobs)))

    def begin(number: int) -> Result:
        with seats.pop(number):
            try:
                return work(jobs[number])
            finally:
                with lock:
                    if not stop.is_set() and (following := next(left, None)) is not None:
                        seats[following] = batcher.join()

    pool = ThreadPoolExecutor(max(1, len(seats)), thread_name_prefix="gridprobe-question")
    try:
        with shared(stop):
            contexts = [copy_context() for _ in jobs]
        for number, context in enumerate(contexts):
            future = pool.submit(context.run, begin, number)
            future.add_done_callback(lambda outcome, number=number: done.put((number, outcome)))  # type: ignore[misc]
        for _ in jobs:
            yield done.get()
    finally:
        with lock:  # from here on nobody takes a seat, which would never be left
            stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for number in list(seats):
            if (seat := seats.pop(number, None)) is not None:
                batcher.leave(seat)


def in_sequence(outcomes: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Numbered outcomes in the order of their numbers, each as soon as all before it are there."""
    results: dict[int, Result] = {}
    following = 0
    for number, outcome in outcomes:
        results[number] = outcome
        while following in results:
            yield results.pop(following)
            following += 1
