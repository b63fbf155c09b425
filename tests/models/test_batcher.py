"""Calls that wait at the same time are one call; who waits is counted, never timed."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gridprobe import MockModel
from gridprobe._util import ProgressEvent, check_cancelled, listening, report
from gridprobe.concurrency import LONG, BatchedModel, Batcher, own_seconds
from gridprobe.errors import Cancelled, ModelError, ServerUnavailable, UsageError
from gridprobe.models import Choose, Posterior, Request, Response, choose, generate
from gridprobe.models.base import SamplingParams
from scoring import cost_of_texts

LABELS = ("A", "B")


class Model(MockModel):
    """Sure of A in proportion to the number in the prompt; notes what came in each call, and from which thread."""

    def __init__(self, fails: Callable[[Sequence[str]], Exception | None] = lambda prompts: None) -> None:
        weights = {"yes": 1.0, "no": 0.5}
        super().__init__(lambda asked: {"A": float(asked.prompt), "B": 1.0}, text=lambda asked: weights)
        self.calls: list[list[str]] = []
        self.threads: set[int] = set()
        self._fails = fails
        self._busy = threading.Lock()

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        assert self._busy.acquire(blocking=False), "two threads call the model at the same time"
        try:
            prompts = [request.prompt for request in requests]
            self.calls.append(prompts)
            self.threads.add(threading.get_ident())
            if error := self._fails(prompts):
                raise error
            return super().run(requests)
        finally:
            self._busy.release()


def asked(*numbers: int) -> list[Request]:
    return [Request(str(number), Choose(LABELS)) for number in numbers]


def numbers(posteriors: Sequence[Posterior]) -> list[int]:
    """The numbers that the model was asked about, from its answers."""
    return [round(each.probabilities["A"] / each.probabilities["B"]) for each in posteriors]


def all_at_once(batcher: Batcher, *works: Callable[[], Any]) -> list[Any]:
    """What each of some work gives, or its error; all take part before any begins."""
    seats = [batcher.join() for _ in works]

    def begin(number: int) -> Any:
        with seats[number]:
            return works[number]()

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(begin, number) for number in range(len(works))]
        return [future.exception() or future.result() for future in futures]


@pytest.fixture
def batcher() -> Batcher:
    return Batcher()


def test_calls_of_all_participants_are_one_call(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)
    found = all_at_once(batcher, *(lambda n=n: numbers(choose(merged, asked(n, n + 10))) for n in range(1, 6)))
    assert found == [[n, n + 10] for n in range(1, 6)]
    assert len(model.calls) == 1 and sorted(model.calls[0], key=int) == [str(n) for n in (*range(1, 6), *range(11, 16))]


def test_those_who_work_longer_are_waited_for_and_those_who_left_are_not(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)

    def several(*counts: int) -> None:
        for count in counts:
            choose(merged, asked(count))

    all_at_once(batcher, lambda: several(1, 2, 3), lambda: several(4), lambda: several(5, 6))
    assert [sorted(call, key=int) for call in model.calls] == [["1", "4", "5"], ["2", "6"], ["3"]]


def test_someone_at_work_is_waited_for(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)
    waits, leaves = threading.Event(), threading.Event()
    late = batcher.join()

    def early() -> list[int]:
        with batcher.taking_part():
            waits.set()
            return numbers(choose(merged, asked(7)))

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(early)
        assert waits.wait()
        assert not model.calls
        with late:
            assert not future.done()
            leaves.set()
        assert future.result(60) == [7]


def test_a_thread_that_does_not_take_part_is_answered_at_once(batcher: Batcher) -> None:
    merged = batcher.merging(Model())
    assert numbers(choose(merged, asked(3, 4))) == [3, 4]
    assert choose(merged, []) == []


def test_the_model_runs_in_one_thread(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)
    all_at_once(batcher, *(lambda n=n: [choose(merged, asked(n)) for _ in range(5)] for n in range(1, 9)))
    assert len(model.threads) == 1
    assert len(model.calls) == 5


def test_an_error_reaches_only_its_own_request(batcher: Batcher) -> None:
    model = Model(lambda prompts: ModelError("3 is bad") if "3" in prompts else None)
    merged = batcher.merging(model)
    found = all_at_once(batcher, *(lambda n=n: numbers(choose(merged, asked(n))) for n in range(1, 6)))
    assert [str(each) if isinstance(each, ModelError) else each for each in found] == [[1], [2], "3 is bad", [4], [5]]
    assert len(model.calls) == 1 + 5


@pytest.mark.parametrize("error", [ServerUnavailable("gone"), Cancelled("stop")], ids=lambda error: str(error))
def test_what_nobody_can_survive_is_not_tried_again(batcher: Batcher, error: Exception) -> None:
    model = Model(lambda prompts: error)
    merged = batcher.merging(model)
    assert all_at_once(batcher, *(lambda n=n: choose(merged, asked(n)) for n in range(1, 4))) == [error] * 3
    assert len(model.calls) == 1


def test_a_bug_reaches_everyone_it_concerns(batcher: Batcher) -> None:
    merged = batcher.merging(Model(lambda prompts: ZeroDivisionError("a bug")))
    found = all_at_once(batcher, *(lambda n=n: choose(merged, asked(n)) for n in range(1, 4)))
    assert all(isinstance(each, ZeroDivisionError) for each in found)


def test_a_bounded_call_takes_one_request_of_each_in_turn() -> None:
    batcher, model = Batcher(most=4), Model()
    merged = batcher.merging(model)
    many, few = (11, 12, 13, 14, 15, 16), (21,)
    found = all_at_once(
        batcher,
        lambda: numbers(choose(merged, asked(*many))),
        lambda: numbers(choose(merged, asked(*few))),
        lambda: numbers(choose(merged, asked(31, 32))),
    )
    assert found == [list(many), list(few), [31, 32]]
    assert [len(call) for call in model.calls] == [4, 4, 1]
    assert {"21", "31", "11"} < set(model.calls[0])
    assert "32" in model.calls[0] + model.calls[1]


def test_what_is_left_of_a_bounded_call_waits_for_nobody() -> None:
    batcher, model = Batcher(most=1), Model()
    merged = batcher.merging(model)
    released = threading.Event()

    def first() -> list[int]:
        found = numbers(choose(merged, asked(1)))
        assert released.wait(600), "the second participant waits for this one"
        return found

    def second() -> list[int]:
        found = numbers(choose(merged, asked(2)))
        released.set()
        return found

    def either() -> list[list[int]]:
        return all_at_once(batcher, first, second)

    assert either() == [[1], [2]]


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 request, got most=0"):
        Batcher(most=0)


def test_two_models_and_several_kinds_of_calls_do_not_wait_for_each_other(batcher: Batcher) -> None:
    """Half of the participants wait for one model and half for another; neither half is all of them."""
    small, large = Model(), Model()
    models = [batcher.merging(small), batcher.merging(large)]
    works: list[Callable[[], Any]] = [
        lambda: numbers(choose(models[0], asked(1))),
        lambda: numbers(choose(models[1], asked(2))),
        lambda: generate(models[0], [Request("3")], SamplingParams(limit=4))[0][0].text,
        lambda: generate(models[0], [Request("4")], SamplingParams(limit=5))[0][0].text,
        lambda: generate(models[1], [Request("5")], SamplingParams(limit=4))[0][0].text,
        lambda: numbers(choose(models[1], asked(6))),
    ]
    assert all_at_once(batcher, *works) == [[1], [2], "yes", "yes", "yes", [6]]
    assert (small.calls, [sorted(call) for call in large.calls]) == ([["1"], ["3"], ["4"]], [["2", "6"], ["5"]])


def test_participants_that_take_turns_are_never_at_work_together() -> None:
    batcher, model = Batcher(in_turns=True), Model()
    merged = batcher.merging(model)
    at_work = threading.Lock()

    def careful(number: int) -> list[int]:
        found = []
        for _ in range(20):
            assert at_work.acquire(blocking=False)
            at_work.release()
            found += numbers(choose(merged, asked(number)))
        return found

    found = all_at_once(batcher, *(lambda n=n: careful(n) for n in range(1, 7)))
    assert found == [[n] * 20 for n in range(1, 7)]
    assert [len(call) for call in model.calls] == [6] * 20


def test_whatever_else_a_model_has_is_passed_through(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)
    assert (merged.identity, merged.capabilities) == (model.identity, model.capabilities)
    assert merged.capabilities.kv_reuse and merged.capabilities.generates
    assert merged.cost(asked(1)[0]) == model.cost(asked(1)[0])
    assert cost_of_texts(merged, asked(1)[0], [2]) == cost_of_texts(model, asked(1)[0], [2])


def test_progress_of_the_model_reaches_a_participants_listener(batcher: Batcher) -> None:
    events: list[ProgressEvent] = []
    merged = batcher.merging(Model())
    with listening(events.append):
        choose(merged, asked(1, 2))
    assert events == [ProgressEvent("model", 1, 2), ProgressEvent("model", 2, 2)]


def test_a_clock_does_not_count_what_the_model_does_for_others(
    batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model takes 8 seconds, by the clock, for requests of four participants; each counts 2."""
    now = [100.0]
    monkeypatch.setattr("gridprobe.concurrency.time.perf_counter", lambda: now[0])

    class Slow(Model):
        def run(self, requests: Sequence[Request]) -> Sequence[Response]:
            now[0] += 2.0 * len(requests)
            return super().run(requests)

    merged = batcher.merging(Slow())

    def timed() -> float:
        start = own_seconds()
        choose(merged, asked(1))
        return own_seconds() - start

    assert all_at_once(batcher, *[timed] * 4) == pytest.approx([2.0] * 4)


def test_an_interrupted_participant_holds_nobody_up(batcher: Batcher) -> None:
    """Its own thread leaves in the middle of a call; the others are answered."""
    model = Model()
    merged = batcher.merging(model)
    found = all_at_once(batcher, lambda: 1 / 0, lambda: numbers(choose(merged, asked(2))))
    assert isinstance(found[0], ZeroDivisionError)
    assert found[1] == [2]


def test_a_model_is_merged_by_what_stands_behind_the_wrapper(batcher: Batcher) -> None:
    model = Model()
    first, second = BatchedModel(batcher, model), BatchedModel(batcher, model)
    all_at_once(batcher, lambda: choose(first, asked(1)), lambda: choose(second, asked(2)))
    assert [len(call) for call in model.calls] == [2]


def test_a_listener_can_cancel_a_merged_call(batcher: Batcher) -> None:
    class Reporting(Model):
        def run(self, requests: Sequence[Request]) -> Sequence[Response]:
            report("model", 0, len(requests))
            return super().run(requests)

    merged, stop = batcher.merging(Reporting()), threading.Event()
    stop.set()
    with listening(lambda event: None, cancel=stop), pytest.raises(Cancelled):
        choose(merged, asked(1))


def test_progress_of_a_merged_call_reaches_all_and_a_cancelled_one_leaves_the_others(batcher: Batcher) -> None:
    merged = batcher.merging(Model())
    heard: dict[int, list[ProgressEvent]] = {1: [], 2: []}
    flags = {1: threading.Event(), 2: threading.Event()}

    def ask(number: int) -> list[int]:
        def hear(event: ProgressEvent) -> None:
            heard[number].append(event)
            flags[1].set()  # at the first event the first one is cancelled

        with listening(hear, cancel=flags[number]):
            return numbers(choose(merged, asked(number, number)))

    found = all_at_once(batcher, lambda: ask(1), lambda: ask(2))
    assert found[1] == [2, 2]
    assert [event.done for event in heard[2]] == [1, 2, 3, 4]
    assert [event.done for event in heard[1]] == [1], "a cancelled one hears no more"


def test_a_merged_call_ends_when_all_are_cancelled(batcher: Batcher) -> None:
    merged = batcher.merging(Model())
    cancel = threading.Event()

    def ask(number: int) -> list[int]:
        with listening(lambda event: cancel.set(), cancel=cancel):
            return numbers(choose(merged, asked(number, number)))

    assert [type(each) for each in all_at_once(batcher, lambda: ask(1), lambda: ask(2))] == [Cancelled, Cancelled]
    assert (batcher.calls, batcher.parts) == (1, 4)


def test_a_call_that_was_cancelled_while_it_waited_is_not_asked(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)
    cancelled = threading.Event()
    cancelled.set()

    def ask(number: int, cancel: threading.Event) -> list[int]:
        with listening(lambda event: None, cancel=cancel):
            return numbers(choose(merged, asked(number)))

    found = all_at_once(batcher, lambda: ask(1, cancelled), lambda: ask(2, threading.Event()))
    assert isinstance(found[0], Cancelled) and found[1] == [2]
    assert model.calls == [["2"]]


def test_a_server_asks_long_prompts_apart_so_that_a_cancelled_one_ends_at_once() -> None:
    entered, cancel, together = threading.Event(), threading.Event(), list[int]()

    class Long(Model):
        def run(self, requests: Sequence[Request]) -> Sequence[Response]:
            if any(len(request.prompt) > LONG for request in requests):
                together.append(len(requests))
                entered.set()
                assert cancel.wait(60)
                check_cancelled("model")
                raise AssertionError("it was not cancelled")
            return super().run(requests)

    batcher, model = Batcher(most=8), Long()
    merged = batcher.merging(model)
    long = [Request("1".rjust(LONG + 1, "0"), Choose(LABELS))]

    def ask_long() -> Any:
        with listening(lambda event: None, cancel=cancel):
            return choose(merged, long)

    def leave() -> None:
        assert entered.wait(60)
        cancel.set()

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(leave)
        found = all_at_once(batcher, ask_long, lambda: numbers(choose(merged, asked(2))))
        left.result()
    assert isinstance(found[0], Cancelled) and found[1] == [2]
    assert model.calls == [["2"]] and together == [1]


def test_where_calls_are_not_limited_long_prompts_are_merged(batcher: Batcher) -> None:
    model = Model()
    merged = batcher.merging(model)
    long = [Request("3".rjust(LONG + 1, "0"), Choose(LABELS))]
    found = all_at_once(batcher, lambda: numbers(choose(merged, long)), lambda: numbers(choose(merged, asked(2))))
    assert found == [[3], [2]] and len(model.calls) == 1


def test_work_within_a_merged_call_ends_when_all_are_cancelled(batcher: Batcher) -> None:
    class Checking(Model):
        def run(self, requests: Sequence[Request]) -> Sequence[Response]:
            flags["1"].set()
            check_cancelled("model")
            self.calls.append(["one is not cancelled"])
            flags["2"].set()
            check_cancelled("model")
            raise AssertionError("all are cancelled")

    flags = {"1": threading.Event(), "2": threading.Event()}
    model = Checking()
    merged = batcher.merging(model)

    def ask(number: str) -> Any:
        with listening(lambda event: None, cancel=flags[number]):
            return choose(merged, asked(int(number)))

    found = all_at_once(batcher, lambda: ask("1"), lambda: ask("2"))
    assert [type(each) for each in found] == [Cancelled, Cancelled]
    assert model.calls == [["one is not cancelled"]]
