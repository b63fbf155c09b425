"""Work in threads that never keep the caller waiting: after an error or Ctrl-C, what is under way is left to itself."""

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from gridprobe.errors import GridProbeError, ServerError

__all__ = ["in_threads"]

Job = TypeVar("Job")
Result = TypeVar("Result")
POLL_SECONDS = 1.0


def in_threads(
    work: Callable[[Job], Result], jobs: Sequence[Job], *, threads: int, stop: Event
) -> Iterator[tuple[int, Result] | None]:
    """The number and the result of each job as it is done, and None after every second without one.

    Args:
        work: what to do with a job.
        jobs: the jobs; they are begun in this order.
        threads: how many are done at the same time.
        stop: is set when the caller wants no more results; no job is begun after that.
    """
    todo: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, list[Result], GridProbeError | None]] = SimpleQueue()
    for number in range(len(jobs)):
        todo.put(number)

    def loop() -> None:
        while not stop.is_set():
            try:
                number = todo.get_nowait()
            except Empty:
                return
            result: list[Result] = []
            error: GridProbeError | None = ServerError("a request ended by a bug of gridprobe; see the traceback above")
            try:
                result, error = [work(jobs[number])], None
            except GridProbeError as caught:
                error = caught
            finally:
                done.put((number, result, error))

    for _ in range(min(threads, len(jobs))):
        Thread(target=loop, name="gridprobe-server", daemon=True).start()
    left = len(jobs)
    while left:
        try:
            number, result, error = done.get(timeout=POLL_SECONDS)
        except Empty:
            yield None
            continue
        if error is not None:
            raise error
        left -= 1
        yield number, result[0]
