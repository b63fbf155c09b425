"""AsyncSession: the answers of Session, merged, cancellable, without blocking the loop."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe._util import ProgressEvent, listening, report
from gridprobe.errors import UsageError
from gridprobe.models import Request, Response
from videos_of_arrays import gray_pool
from waiting import wait_until

QUESTIONS = [gp.Question(f"Is it {number}?", ["yes", "no"]) for number in range(4)]


class Slow(MockModel):
    """Waits at a gate before each call."""

    def __init__(self) -> None:
        super().__init__(lambda request: {"A": 0.999, "B": 0.001}, text=lambda request: {"a ball": 1.0})
        self.gate, self.waiting, self.calls = threading.Event(), threading.Event(), 0
        self.gate.set()

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        self.calls += 1
        self.waiting.set()
        while not self.gate.wait(0.01):
            report("model", 0, len(requests))
        return super().run(requests)


def test_answers_are_those_of_a_session_and_the_loop_stays_free() -> None:
    expected = gp.Session(gray_pool(9), model=Slow(), k=3).ask(QUESTIONS[0])
    model = Slow()
    model.gate.clear()

    async def run() -> gp.Answer:
        async with gp.AsyncSession(gray_pool(9), model=model, k=3) as session:
            task = asyncio.create_task(session.ask(QUESTIONS[0]))
            while not model.waiting.is_set():
                await asyncio.sleep(0)
            model.gate.set()
            return await task

    answer = asyncio.run(run())
    assert (answer.choice, answer.posterior.probabilities) == (expected.choice, expected.posterior.probabilities)


def test_questions_at_the_same_time_are_merged() -> None:
    model = Slow()
    model.gate.clear()

    async def run() -> list[gp.Answer]:
        async with gp.AsyncSession(gray_pool(9), model=model, k=3) as session:
            first = asyncio.create_task(session.ask(QUESTIONS[0]))
            while not model.waiting.is_set():
                await asyncio.sleep(0)
            others = asyncio.create_task(session.ask_all(QUESTIONS[1:]))
            while len(session._batcher._waiting) < 4:
                await asyncio.sleep(0)
            model.gate.set()
            return [await first, *await others]

    assert [answer.question for answer in asyncio.run(run())] == QUESTIONS
    assert model.calls == 2


def test_a_cancelled_task_frees_the_model_and_the_next_question_is_answered() -> None:
    model = Slow()
    model.gate.clear()

    async def run() -> gp.Answer:
        async with gp.AsyncSession(gray_pool(9), model=model, k=3) as session:
            task = asyncio.create_task(session.ask(QUESTIONS[0]))
            while not model.waiting.is_set():
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            wait_until(lambda: not session._batcher._waiting)
            model.gate.set()
            return await session.ask("What is it?")

    assert asyncio.run(run()).text == "a ball"


def test_aask_answers_one_question_and_tells_progress() -> None:
    heard: list[ProgressEvent] = []
    with listening(heard.append):
        answer = asyncio.run(gp.aask(gray_pool(9), QUESTIONS[1], model=Slow(), k=3, show_map=True))
    assert answer.choice == "A" and answer.selection.evidence is not None
    assert {event.stage for event in heard} == {"model"}


def test_errors_are_raised_and_together_is_checked() -> None:
    with pytest.raises(UsageError, match="name the model"):
        asyncio.run(gp.AsyncSession(gray_pool(9)).ask("What is it?"))
    with pytest.raises(UsageError, match="together"):
        gp.AsyncSession(gray_pool(9), together=0)
