"""POST /v1/chat/completions and GET /v1/models, as OpenAI's clients expect them."""

import json
import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from gridprobe.backends.writing import about_tokens
from gridprobe.serving.chat_wire import ChatBody, ProcessorKwargs
from gridprobe.serving.content import Meant, read_chat
from gridprobe.serving.desk import Asked, Desk
from gridprobe.serving.jobs import Job, Jobs
from gridprobe.serving.native import desk_of, found_source, user_of
from gridprobe.serving.refusals import Refusal
from gridprobe.serving.replies import Json, messages, result_of, until_over
from gridprobe.serving.sources import Frames
from gridprobe.video import NATIVE, FrameSize

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["OpenAI"])
LEAST = 1e-30
"""A probability of 0 has no logarithm."""


@router.get("/models", summary="The names that requests may use")
async def models(request: Request) -> Response:
    """The server's model, and the models behind it."""
    names = request.app.state.names
    made = int(request.app.state.started)
    data = [{"id": name, "object": "model", "created": made, "owned_by": "gridprobe"} for name in names]
    return Json({"object": "list", "data": data})


@router.post("/chat/completions", summary="Ask about a video, as an OpenAI client does")
async def chat(body: ChatBody, request: Request) -> Response:
    """The answer is in the message, everything else in the object `gridprobe`."""
    desk = desk_of(request)
    user = user_of(request, body.user)
    _check(body, request.app.state.names)
    desk.jobs.check_room(user)
    meant = read_chat(body)
    job = await _begin(body, meant, desk, user)
    if not body.stream:
        return Json(_completion(body, meant, await until_over(job, desk.jobs, request)))
    await _opened(job, desk.jobs, request)
    stream = _chunks(body, meant, job, desk.jobs)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _check(body: ChatBody, names: tuple[str, ...]) -> None:
    """Refuse what the pydantic model lets through and we cannot do."""
    if body.model not in names:
        raise Refusal(
            f"there is no such model; known: {', '.join(names)}", status=404, code="model_not_found", param="model"
        )
    if body.response_format not in (None, {"type": "text"}):
        raise Refusal("response_format can only be text", param="response_format")
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal("top_logprobs needs logprobs", param="top_logprobs")


async def _begin(body: ChatBody, meant: Meant, desk: Desk, user: str) -> Job:
    settings, selector = body.gridprobe.changes()
    pictures = len(meant.video.pictures) if isinstance(meant.video, Frames) else None
    wanted = _processor(body.mm_processor_kwargs, pictures, desk.bounds.max_k, desk.bounds.max_side)
    if body.media_io_kwargs.video.do_sample_frames is False and pictures:
        wanted.setdefault("k", _side(pictures, desk.bounds.max_k))
    fps = wanted.pop("fps", None)
    settings = {**wanted, **settings}
    await run_in_threadpool(desk.check, settings, selector)
    source = await found_source(desk, meant.video)
    return desk.submit(Asked(source, meant.question, settings, selector, body.gridprobe.map, fps), user)


def _processor(given: ProcessorKwargs, pictures: int | None, max_k: int, max_side: int) -> dict[str, Any]:
    """Sampling and sizes, as our settings, within the server's limits."""
    if given.fps is not None and given.num_frames is not None:
        raise Refusal("fps and num_frames exclude each other", param="mm_processor_kwargs")
    if given.do_sample_frames is False and pictures is None:
        raise Refusal("do_sample_frames=false is for pictures; a video is always sampled", param="mm_processor_kwargs")
    found: dict[str, Any] = {}
    if given.num_frames is not None:
        found["k"] = _side(given.num_frames, max_k)
    if given.fps is not None:
        found["fps"] = given.fps
    if given.do_sample_frames is False and pictures:
        found["k"] = _side(pictures, max_k)
    if given.max_pixels is not None or given.min_pixels is not None:
        most = min(given.max_pixels or NATIVE.max_pixels or max_side**2, max_side**2)
        if given.min_pixels is not None and given.min_pixels > most:
            raise Refusal("min_pixels must not be above max_pixels", param="mm_processor_kwargs")
        found["native_pixels"] = FrameSize(max_pixels=most, min_pixels=given.min_pixels)
    return found


def _side(frames: int, max_k: int) -> int:
    return min(max_k, math.isqrt(frames - 1) + 1)


async def _opened(job: Job, jobs: Jobs, request: Request) -> None:
    """Wait until the video is open, so that a bad one is an error and not a stream."""
    async for message in messages(job):
        if message is not None and message.name in ("opened", "answer"):
            return
        if message is not None and message.name in ("error", "cancelled"):
            result_of(job)
        if message is None and await request.is_disconnected():
            jobs.cancel(job)


async def _chunks(body: ChatBody, meant: Meant, job: Job, jobs: Jobs) -> AsyncIterator[str]:
    """Progress as comments, then the answer; a client that goes away cancels the job."""
    try:
        async for message in messages(job):
            if message is None or message.name not in ("answer", "error", "cancelled"):
                yield f": {json.dumps({message.name: message.data}) if message else 'waiting'}\n\n"
                continue
            if job.result is None:
                error = job.error or Refusal("the job was cancelled", status=499, code="cancelled")
                yield f"data: {json.dumps({'error': error.to_dict()})}\n\n"
                return
            for chunk in _answer_chunks(body, _completion(body, meant, job.result)):
                yield f"data: {json.dumps(chunk, allow_nan=False)}\n\n"
            yield "data: [DONE]\n\n"
    finally:
        if not job.over:
            jobs.cancel(job)


def _answer_chunks(body: ChatBody, whole: dict[str, Any]) -> list[dict[str, Any]]:
    (choice,) = whole.pop("choices")
    usage, extra = whole.pop("usage"), whole.pop("gridprobe")
    head = {**whole, "object": "chat.completion.chunk"}
    said = {"index": 0, "delta": choice["message"], "logprobs": choice["logprobs"], "finish_reason": None}
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    chunks = [{**head, "choices": [said]}, {**head, "choices": [last], "gridprobe": extra}]
    if body.stream_options and body.stream_options.include_usage:
        chunks.append({**head, "choices": [], "usage": usage})
    return chunks


def _completion(body: ChatBody, meant: Meant, result: Mapping[str, Any]) -> dict[str, Any]:
    """A chat.completion."""
    answer = result["answer"]
    label, content = answer["choice"], answer["answer"]
    if label is not None:
        forms = {"label": label, "text": content, "both": f"{label}. {content}"}
        content = forms[body.gridprobe.content]
    warnings = [*answer["warnings"], *body.without_influence()]
    if body.logprobs and label is None:
        warnings.append("logprobs are those of options; this question has none")
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": _logprobs(body, answer), "finish_reason": "stop"}
    return {
        "id": f"chatcmpl-{result['job']}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [choice],
        "usage": _usage(answer["cost"], content),
        "gridprobe": {
            **result,
            "options": list(meant.question.options),
            "parsed_options": meant.parsed,
            "warnings": warnings,
        },
    }


def _usage(cost: Mapping[str, Any], content: str) -> dict[str, Any]:
    written = max(1, about_tokens(content))
    asked = max(0, cost["tokens"] - written)
    return {
        "prompt_tokens": asked,
        "completion_tokens": written,
        "total_tokens": asked + written,
        "prompt_tokens_details": {"cached_tokens": cost["cached_tokens"], "video_tokens": cost["visual_tokens"]},
    }


def _logprobs(body: ChatBody, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options' letters, likeliest first."""
    if not body.logprobs or answer["choice"] is None:
        return None
    listed = [_logprob(label, probability) for label, probability in answer["posterior"].items()]
    listed.sort(key=lambda each: -each["logprob"])
    chosen = next(each for each in listed if each["token"] == answer["choice"])
    return {"content": [{**chosen, "top_logprobs": listed[: body.top_logprobs or 0]}], "refusal": None}


def _logprob(label: str, probability: float) -> dict[str, Any]:
    return {"token": label, "logprob": math.log(max(LEAST, probability)), "bytes": list(label.encode())}
