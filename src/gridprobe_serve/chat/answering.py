"""The routes of chats: OpenAI's completions, responses and models, and Anthropic's messages."""

import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from gridprobe.models.base import SamplingParams
from gridprobe.video import NATIVE, FrameSize
from gridprobe_serve.chat.dialects import (
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Dialect,
    MessagesBody,
    ResponsesBody,
    as_text,
)
from gridprobe_serve.chat.reading import ChatQuestion, read_chat
from gridprobe_serve.chat.replies import AskedVideo, ChatTurn, form_of, make_reply
from gridprobe_serve.errors import ApiError, Json
from gridprobe_serve.jobs import LAST, Job, Jobs
from gridprobe_serve.routes import Service, event_stream, until_over, user_of
from gridprobe_serve.schemas import ChatBody, ProcessorKwargs
from gridprobe_serve.service import VideoQuestion, VideoService
from gridprobe_serve.sources import Frames, MediaSource, display_name

router = APIRouter(prefix="/v1")
MOST_WRITTEN = 1024
"""Tokens of a text about no video."""
MODALITIES = {"input_modalities": ["text", "image", "video"], "output_modalities": ["text"]}


@router.get("/models", tags=["OpenAI"], summary="The names that requests may use")
async def models(request: Request) -> Response:
    """The server's model, and the models behind it."""
    about = {"object": "model", "created": int(request.app.state.started), "owned_by": "gridprobe"}
    about |= {**MODALITIES, "architecture": MODALITIES}
    return Json({"object": "list", "data": [{"id": name, **about} for name in request.app.state.names]})


@router.post("/chat/completions", tags=["OpenAI"], summary="Ask about videos, as an OpenAI client does")
async def chat(body: ChatBody, request: Request, service: Service) -> Response:
    """The answer is in the message, everything else in the object `gridprobe`. Without a video the model chats."""
    return await _answer(body, request, service, COMPLETIONS)


@router.post("/responses", tags=["OpenAI"], summary="Ask about videos by OpenAI's newer API")
async def responses(body: ResponsesBody, request: Request, service: Service) -> Response:
    """As a chat completion; nothing is kept for a later response."""
    return await _answer(body.to_chat(), request, service, RESPONSES)


@router.post("/messages", tags=["Anthropic"], summary="Ask about videos, as an Anthropic client does")
async def messages(body: MessagesBody, request: Request, service: Service) -> Response:
    """As a chat completion, with parts of the type `video`."""
    return await _answer(body.to_chat(), request, service, MESSAGES)


async def _answer(body: ChatBody, request: Request, service: VideoService, dialect: Dialect) -> Response:
    user = user_of(request, body.user)
    _check(body, request.app.state.names)
    service.jobs.check_room(user)
    question = read_chat(body, history=service.converses)
    asked = await _ask_all(body, question, service, user)
    if body.stream:
        if len(question.videos) == 1 and asked[0].job:
            await _until_open(asked[0].job, service.jobs, request)
        return event_stream(_events(ChatTurn(body, question, asked), service.jobs, dialect))
    try:
        for each in asked:
            with suppress(ApiError):  # the reply says what failed; it may be about other videos, too
                if each.job and not await request.is_disconnected():
                    await until_over(each.job, service.jobs, request)
        return Json(dialect.whole(body, make_reply(ChatTurn(body, question, asked))))
    finally:
        _cancel(asked, service.jobs)


def _cancel(asked: Sequence[AskedVideo], jobs: Jobs) -> None:
    """Cancel what is not over."""
    for each in asked:
        if each.job and not each.job.over:
            jobs.cancel(each.job)


def _check(body: ChatBody, names: tuple[str, ...]) -> None:
    """Refuse what the pydantic model lets through and we cannot do."""
    if body.model not in names:
        message = f"there is no such model; known: {', '.join(names)}"
        raise ApiError(message, status=404, code="model_not_found", param="model")
    if (body.response_format or {}).get("type", "text") not in ("text", "json_object", "json_schema"):
        raise ApiError("response_format can be text, json_object or json_schema", param="response_format")
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError("top_logprobs needs logprobs", param="top_logprobs")


# Asking: a job for each video, or one that writes.


async def _ask_all(body: ChatBody, question: ChatQuestion, service: VideoService, user: str) -> list[AskedVideo]:
    """A job for each video; of several, one that cannot be had is an error of its own."""
    if not question.videos:
        return [AskedVideo("", service.write(question.question.text, _params(body), user))]
    if len(question.videos) > (most := service.limits.max_videos):
        message = f"a request may be about {most} videos, got {len(question.videos)}; ask about the others in another"
        raise ApiError(message, status=413, code="too_many", param="messages")
    asked: list[AskedVideo] = []
    with ExitStack() as undo:
        undo.callback(_cancel, asked, service.jobs)
        for video in question.videos:
            asked.append(await _ask_one(body, question, video, service, user))
        undo.pop_all()
    return asked


def _params(body: ChatBody) -> SamplingParams:
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    limit = min(body.most_tokens or MOST_WRITTEN, MOST_WRITTEN)
    return SamplingParams(limit, body.temperature or 0.0, seed=body.seed or 0, stop=tuple(filter(None, stop)))


async def _ask_one(
    body: ChatBody, question: ChatQuestion, video: str | Frames, service: VideoService, user: str
) -> AskedVideo:
    settings, selector = body.gridprobe.changes()
    pictures = len(video.pictures) if isinstance(video, Frames) else None
    limits = service.limits
    sampling = _sampling(body.mm_processor_kwargs, pictures, limits.max_k, limits.max_side)
    if body.media_io_kwargs.video.do_sample_frames is False and pictures:
        sampling.setdefault("k", _side(pictures, limits.max_k))
    fps = sampling.pop("fps", None)
    settings = {**sampling, **settings}
    await run_in_threadpool(service.plan_for, settings, selector, private=True)  # a refusal costs no fetching
    try:
        source = await run_in_threadpool(service.sources.find, video)
    except ApiError as error:
        if len(question.videos) == 1:
            raise
        return AskedVideo(_name_of(video), error=error)
    name = source.name if isinstance(source, MediaSource) else _name_of(video)
    wanted = body.gridprobe.map
    show_map = service.maps_cheaply and form_of(body, question) in ("json", "sentence") if wanted is None else wanted
    video_question = VideoQuestion(source, question.question, settings, selector, show_map, fps)
    return AskedVideo(name, service.submit(video_question, user))


def _name_of(video: str | Frames) -> str:
    """What a video is called that is not here."""
    if isinstance(video, Frames):
        return "pictures"
    return "video" if video[:5].lower() == "data:" else display_name(video.partition("?")[0])


def _sampling(kwargs: ProcessorKwargs, pictures: int | None, max_k: int, max_side: int) -> dict[str, Any]:
    """Sampling and sizes, as our settings, within the server's limits."""
    if kwargs.fps is not None and kwargs.num_frames is not None:
        raise ApiError("fps and num_frames exclude each other", param="mm_processor_kwargs")
    if kwargs.do_sample_frames is False and pictures is None:
        raise ApiError("do_sample_frames=false is for pictures; a video is always sampled", param="mm_processor_kwargs")
    settings: dict[str, Any] = {}
    if kwargs.num_frames is not None:
        settings["k"] = _side(kwargs.num_frames, max_k)
    if kwargs.fps is not None:
        settings["fps"] = kwargs.fps
    if kwargs.do_sample_frames is False and pictures:
        settings["k"] = _side(pictures, max_k)
    if kwargs.max_pixels is not None or kwargs.min_pixels is not None:
        most = min(kwargs.max_pixels or NATIVE.max_pixels or max_side**2, max_side**2)
        if kwargs.min_pixels is not None and kwargs.min_pixels > most:
            raise ApiError("min_pixels must not be above max_pixels", param="mm_processor_kwargs")
        settings["full"] = FrameSize(max_pixels=most, min_pixels=kwargs.min_pixels)
    return settings


def _side(frames: int, max_k: int) -> int:
    return min(max_k, math.isqrt(frames - 1) + 1)


# Streams.


async def _until_open(job: Job, jobs: Jobs, request: Request) -> None:
    """Wait until the video is open, so that a bad one is an error and not a stream."""
    async for message in job.stream():
        if message is None:
            if await request.is_disconnected():
                jobs.cancel(job)
        elif message.name in ("opened", "answer"):
            return
        elif message.name in ("error", "cancelled"):
            job.outcome()


async def _events(turn: ChatTurn, jobs: Jobs, dialect: Dialect) -> AsyncIterator[str]:
    """Progress as comments, then the reply; a client that goes away cancels the jobs."""
    try:
        for job in filter(None, (each.job for each in turn.asked)):
            async for message in job.stream():
                if message is None or message.name not in LAST:
                    yield f": {json.dumps({message.name: message.data}) if message else 'waiting'}\n\n"
        for event in dialect.events(turn.body, make_reply(turn)):
            yield as_text(event)
    except ApiError as error:
        yield as_text(dialect.error(error))
    finally:
        _cancel(turn.asked, jobs)
