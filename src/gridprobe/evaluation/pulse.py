"""Messages from a worker during one long call that reports no progress, such as loading a model.

Another thread cannot see how far the call is, but it can see that it works: a call that reads, downloads or computes
uses processor time, and one that waits for a lock, a disk or a network uses none. Ray's own threads use some, so on Ray
a hanging call is not detected.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

__all__ = ["PULSE_SECONDS", "pulses", "watch"]

PULSE_SECONDS = 1.0
WORK_SECONDS = 0.1
"""Processor time that counts as work. An idle process with torch, transformers and tqdm's thread used 1 ms a minute;
one that waited for another process's download, at the lock of huggingface_hub, used 250 ms a minute."""


@contextmanager
def pulses(send: Callable[[], object]) -> Iterator[None]:
    """Call `send` from another thread, about once a second, as long as the code inside is working."""
    end = Event()
    options = {"ended": lambda: end.wait(PULSE_SECONDS), "used": _used_by_others}
    thread = Thread(target=watch, args=(send,), kwargs=options, name="gridprobe-pulse", daemon=True)
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
