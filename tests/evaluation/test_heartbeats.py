"""Pulses while a model loads: sent for as long as the loader is at work, and not when it waits for ever."""

from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

from gridprobe.errors import ModelError
from gridprobe.models import LazyModel, Model
from gridprobe_eval.tasks import Method
from gridprobe_eval.worker import WORK_SECONDS, WorkerJob, WorkerMessage, heartbeats, serve, watch
from toy_runs import toy_setup


def sent(*used: float) -> int:
    """How many pulses there are, if that much processor time was used in all at each look."""
    looks, count = iter(used), list[int]()
    ends = iter([False] * (len(used) - 1) + [True])
    watch(lambda: count.append(1), ended=lambda: next(ends), used=lambda: next(looks))
    return len(count)


def test_a_pulse_is_sent_whenever_work_was_done() -> None:
    assert sent(5.0, 5.3, 5.6, 9.0) == 3


def test_none_is_sent_while_the_loader_waits() -> None:
    assert sent(5.0, *[5.0] * 100) == 0
    assert sent(5.0, 5.3, *[5.3] * 100) == 1


def test_slow_work_is_counted_until_it_is_enough() -> None:
    assert sent(*[number * WORK_SECONDS * 0.26 for number in range(17)]) == 4


def test_a_loader_that_computes_sends_pulses_from_another_thread_which_ends_with_it() -> None:
    sent = Event()
    pulse = Mock(side_effect=sent.set)
    with heartbeats(pulse):
        while not sent.is_set():
            sum(range(1000))
    total = pulse.call_count

    assert total >= 1
    sum(range(10**6))
    assert pulse.call_count == total


def test_a_worker_pulses_while_its_model_loads(tmp_path: Path) -> None:
    told: list[WorkerMessage] = []

    class Slow(LazyModel):
        def load(self, **options: Any) -> Model:
            while not told:
                sum(range(1000))
            raise ModelError("no such model")

    job = WorkerJob(tmp_path, Method(toy_setup(Slow("slow"))))
    serve(job, name="w0", place=0, take=lambda wait: None, tell=told.append)

    assert told[0] == WorkerMessage("heartbeat") and told[-1] == WorkerMessage("unfit", "no such model")
