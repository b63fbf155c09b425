"""What routes reply with: JSON that is always valid, errors in OpenAI's form, jobs, and streams of events."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from copy import copy
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gridprobe.serving.jobs import Job, Jobs, Message
from gridprobe.serving.refusals import Refusal
from gridprobe.text import printable

__all__ = ["Json", "as_event", "job_dict", "log_line", "messages", "refused", "result_of", "until_over"]

HEARTBEAT_SECONDS = 10.0
LAST = ("answer", "error", "cancelled")
LOG = logging.getLogger("gridprobe.serving")


class Json(JSONResponse):
    """JSON in ASCII, so that no text of a client can fail to be encoded."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def refused(refusal: Refusal) -> Response:
    """An error body of OpenAI's form."""
    return Json({"error": refusal.to_dict()}, refusal.status, refusal.headers)


def job_dict(job: Job, jobs: Jobs) -> dict[str, Any]:
    """A job as plain values."""
    return {
        "id": job.id,
        "state": job.state,
        "position": jobs.position(job),
        "progress": job.progress and job.progress._asdict(),
        "session": job.session,
        "result": job.result,
        "error": job.error and job.error.to_dict(),
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
    }


async def until_over(job: Job, jobs: Jobs, request: Request) -> Mapping[str, Any]:
    """The result of a job. It is cancelled if the client goes away; its error is raised."""
    over = _noticed(job)
    waits = [asyncio.ensure_future(each) for each in (over.wait(), _gone(request))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        if not job.over:
            jobs.cancel(job)
    return result_of(job)


def result_of(job: Job) -> Mapping[str, Any]:
    """The result of a job that is over, or its error."""
    if job.error is not None:
        raise copy(job.error)  # the job's own gets no traceback, which would keep the request
    if job.result is None:
        raise Refusal("the job was cancelled", status=499, code="cancelled")
    return job.result


async def messages(job: Job, after: int = 0) -> AsyncIterator[Message | None]:
    """What happened in a job, and what happens, until it ends; None now and then while nothing does."""
    changed = asyncio.Event()
    end = job.subscribe(_setter(changed))
    try:
        while True:
            changed.clear()
            for message in job.after(after):
                after = message.number
                yield message
                if message.name in LAST:
                    return
            if any(each.name in LAST for each in job.after(0)) and not job.after(after):
                return
            try:
                await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                yield None
    finally:
        end()


def as_event(message: Message | None) -> str:
    """A message as a named server-sent event; None is a comment, which keeps the connection open."""
    if message is None:
        return ": waiting\n\n"
    data = json.dumps(message.data, allow_nan=False)
    return f"id: {message.number}\nevent: {message.name}\ndata: {data}\n\n"


def log_line(text: str) -> str:
    """A text that cannot forge lines of a log."""
    return printable(text)[:500]


def _noticed(job: Job) -> asyncio.Event:
    """An event that is set when a job is over."""
    over = asyncio.Event()
    job.when_over(_setter(over))
    return over


def _setter(event: asyncio.Event) -> Any:
    """What sets an event of this loop from any thread."""
    loop = asyncio.get_running_loop()

    def set_it() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(event.set)

    return set_it


async def _gone(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
