"""Jobs: a bounded queue, turns, cancelling, shutting down. Nothing here waits for a clock."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gridprobe._util import report
from gridprobe.errors import Cancelled, DecoderKilled, ModelError, UsageError, VideoError
from gridprobe_serve.errors import ApiError
from gridprobe_serve.jobs import KEPT, MOST_PROGRESS, Job, Jobs
from waiting import wait_until


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Gate:
    """Work that waits for a gate, reporting now and then."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[str] = []

    def __call__(self, job: Job) -> dict[str, Any]:
        self.begun.append(job.user)
        while not self.gate.wait(0.01):
            report("model", 0, 1)
        return {"user": job.user}


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.gate.set()


def names(job: Job) -> list[str]:
    return [each.name for each in job.after(0)]


def ended(job: Job) -> Job:
    wait_until(lambda: job.over and names(job)[-1] in ("answer", "error", "cancelled"))
    return job


def test_a_job_has_a_result_and_says_what_happened() -> None:
    jobs = Jobs(concurrency=1, queue=4)

    def work(job: Job) -> dict[str, Any]:
        report("decode", 1, 2)
        return {"value": 1}

    job = ended(jobs.submit(work, "anna"))
    assert (job.state, job.result, job.error) == ("done", {"value": 1}, None)
    assert names(job) == ["queued", "started", "progress", "answer"]
    assert [each.number for each in job.after(2)] == [3, 4]
    assert jobs.get(job.id) is job and len(job.id) == 32
    jobs.close(60)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("no"), 400, "invalid_request"),
        (VideoError("no"), 422, "unusable_video"),
        (DecoderKilled("no"), 503, "decoder_killed"),
        (ModelError("no"), 502, "model_error"),
        (ApiError("no", status=409, code="changed"), 409, "changed"),
        (ZeroDivisionError("secret"), 500, "internal_error"),
    ],
)
def test_an_error_of_a_job_has_a_status_and_the_next_job_runs(error: Exception, status: int, code: str) -> None:
    jobs = Jobs(concurrency=1, queue=4)

    def fail(job: Job) -> dict[str, Any]:
        raise error

    job = ended(jobs.submit(fail, "anna"))
    assert job.error is not None and (job.error.status, job.error.code) == (status, code)
    assert "secret" not in str(job.error)
    assert job.error.__traceback__ is None and job.error.__context__ is None, "frames would keep videos in memory"
    assert ended(jobs.submit(lambda job: {}, "anna")).state == "done"
    jobs.close(60)


def test_a_panic_ends_its_job_and_the_next_job_runs(caplog: pytest.LogCaptureFixture) -> None:
    class Panic(BaseException):
        """As tokenizers raise."""

    def fail(job: Job) -> dict[str, Any]:
        raise Panic("index out of limits")

    jobs = Jobs(concurrency=1, queue=4)
    job = ended(jobs.submit(fail, "anna"))
    assert (job.state, job.result, names(job)[-1]) == ("failed", None, "error")
    assert job.error is not None and job.error.status == 500 and "index" not in str(job.error)
    assert "index out of limits" in caplog.text
    assert ended(jobs.submit(lambda job: {}, "anna")).state == "done"
    jobs.close(60)
    assert jobs.counts["failed"] == 1


def test_a18_texts_of_clients_forge_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Exception):
        def __repr__(self) -> str:
            return "Odd(\x1b[2J\nERROR all is lost\r\u2028x)"

    def fail(job: Job) -> dict[str, Any]:
        try:
            raise Odd
        except Odd as error:
            raise ZeroDivisionError("a\nERROR forged") from error

    jobs = Jobs(concurrency=1, queue=4)
    ended(jobs.submit(fail, "anna"))
    jobs.close(60)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    text = record.getMessage()
    assert record.exc_info is None and "in fail" in text and "because of Odd(" in text
    assert not [line for line in text.splitlines() if line.startswith("ERROR")] and "\x1b" not in text


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(gate: Gate) -> None:
    jobs = Jobs(concurrency=1, queue=3)
    jobs.submit(gate, "first")
    wait_until(lambda: gate.begun)
    waiting = [jobs.submit(gate, f"user {number}") for number in range(3)]
    with pytest.raises(ApiError, match="3 jobs wait already") as refusal:
        jobs.submit(gate, "late")
    assert refusal.value.status == 429 and int(refusal.value.headers["Retry-After"]) >= 1
    with pytest.raises(ApiError):
        jobs.check_room("late")
    assert [jobs.to_dict(job)["position"] for job in waiting] == [0, 1, 2]
    gate.gate.set()
    jobs.close(60)


def test_one_user_cannot_fill_the_queue(gate: Gate) -> None:
    jobs = Jobs(concurrency=1, queue=8)
    jobs.submit(gate, "greedy")
    wait_until(lambda: gate.begun)
    for _ in range(6):
        jobs.submit(gate, "greedy")
    with pytest.raises(ApiError, match="6 of them yours"):
        jobs.submit(gate, "greedy")
    assert jobs.submit(gate, "modest").state == "queued"
    gate.gate.set()
    jobs.close(60)


def test_users_take_turns(gate: Gate) -> None:
    jobs = Jobs(concurrency=1, queue=16)
    jobs.submit(gate, "first")
    wait_until(lambda: gate.begun)
    for user in ("anna", "anna", "anna", "ben", "cleo", "ben"):
        last = jobs.submit(gate, user)
    gate.gate.set()
    wait_until(lambda: jobs.running == 0 and jobs.waiting == 0)
    assert gate.begun == ["first", "anna", "ben", "cleo", "anna", "ben", "anna"]
    assert ended(last).state == "done"
    jobs.close(60)


def test_a_job_that_waits_is_cancelled_at_once_and_one_that_runs_at_its_next_step(gate: Gate) -> None:
    jobs = Jobs(concurrency=1, queue=4)
    running, waiting = jobs.submit(gate, "anna"), jobs.submit(gate, "anna")
    wait_until(lambda: gate.begun)
    over = []
    waiting.finished.add_done_callback(lambda _: over.append("waiting"))
    jobs.cancel(waiting)
    jobs.cancel(running)
    assert (running.state, waiting.state, over) == ("cancelled", "cancelled", ["waiting"])
    wait_until(lambda: jobs.running == 0)
    assert not gate.gate.is_set(), "the work ended although its gate is closed"
    assert gate.begun == ["anna"]
    assert jobs.counts["cancelled"] == 2
    jobs.cancel(running)
    assert jobs.counts["cancelled"] == 2
    jobs.close(60)


def test_closing_finishes_what_runs_and_waits_and_refuses_the_rest(gate: Gate) -> None:
    jobs = Jobs(concurrency=1, queue=4)
    running, waiting = jobs.submit(gate, "anna"), jobs.submit(gate, "anna")
    wait_until(lambda: gate.begun)
    closing = threading.Thread(target=jobs.close, args=(600,))
    closing.start()
    wait_until(lambda: jobs.closing)
    with pytest.raises(ApiError, match="shutting down") as refusal:
        jobs.submit(gate, "anna")
    assert refusal.value.status == 503
    gate.gate.set()
    closing.join()
    assert running.state == waiting.state == "done"


def test_closing_ends_what_takes_longer_than_the_grace(gate: Gate) -> None:
    jobs = Jobs(concurrency=1, queue=4)
    running, waiting = jobs.submit(gate, "anna"), jobs.submit(gate, "anna")
    wait_until(lambda: gate.begun)
    jobs.close(0)
    assert running.state == "cancelled"
    assert waiting.error is not None and waiting.error.code == "interrupted"


def test_ended_jobs_are_forgotten_by_age_and_number() -> None:
    clock = Clock()
    jobs = Jobs(concurrency=1, queue=4, clock=clock)
    old = ended(jobs.submit(lambda job: {}, "anna"))
    clock.now += 4000
    ended(jobs.submit(lambda job: {}, "anna"))
    with pytest.raises(ApiError) as refusal:
        jobs.get(old.id)
    assert refusal.value.status == 404
    first = ended(jobs.submit(lambda job: {}, "anna"))
    for _ in range(KEPT + 2):
        ended(jobs.submit(lambda job: {}, "anna"))
    with pytest.raises(ApiError):
        jobs.get(first.id)
    jobs.close(60)


# S09 of tests/reliability.md
def test_of_much_progress_the_oldest_is_dropped_and_nothing_else() -> None:
    def work(job: Job) -> dict[str, Any]:
        for done in range(1000):
            report("decode", done, 1000)
        return {}

    jobs = Jobs(concurrency=1, queue=1)
    job = ended(jobs.submit(work, "anna"))
    kept = [each for each in job.after(0) if each.name == "progress"]
    assert len(kept) == MOST_PROGRESS and kept[-1].data["done"] == 999
    assert [name for name in names(job) if name != "progress"] == ["queued", "started", "answer"]
    jobs.close(60)


def test_a_stream_has_every_message_from_any_thread_and_ends_with_the_job() -> None:
    job = Job(lambda job: {}, "anna")

    async def listen() -> list[str]:
        heard = []
        async for message in job.stream():
            assert message is not None
            heard.append(message.name)
            step = {"opened": lambda: job.add("map", {}), "map": lambda: job.end(None, Cancelled("cancelled"))}
            if message.name in step:
                threading.Thread(target=step[message.name]).start()
        return heard

    job.add("opened", {})
    assert asyncio.run(listen()) == ["opened", "map", "cancelled"] and job._listeners == []
    job.add("progress", {})
    assert names(job) == ["opened", "map", "cancelled"], "nothing comes after the end"
    job.finished.result()
    over: list[str] = []
    job.finished.add_done_callback(lambda _: over.append("now"))
    assert over == ["now"] and job.state == "cancelled"
