"""Several questions at the same time, each in a thread, so that a `Batcher` can merge what they ask the models."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event, Lock
from typing import TypeVar

from gridprobe.backends.batcher import Batcher
from gridprobe.errors import UsageError
from gridprobe.progress import shared
from gridprobe.setup import Setup

__all__ = ["TOGETHER", "check_together", "in_sequence", "in_threads", "merged"]

Job = TypeVar("Job")
Result = TypeVar("Result")

TOGETHER = 8
"""How many questions are asked at the same time."""


def check_together(count: int) -> None:
    """Refuse a number of questions at the same time that makes no sense."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"together must be a whole number of at least 1, got {count!r}")


def merged(setup: Setup, batcher: Batcher) -> Setup:
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
                    if (following := next(left, None)) is not None:
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
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for number in list(seats):
            batcher.leave(seats.pop(number))


def in_sequence(outcomes: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Numbered outcomes in the order of their numbers, each as soon as all before it are there."""
    found: dict[int, Result] = {}
    following = 0
    for number, outcome in outcomes:
        found[number] = outcome
        while following in found:
            yield found.pop(following)
            following += 1
