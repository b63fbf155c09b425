"""POST /v1/chat/completions and GET /v1/models, as OpenAI's clients expect them."""

import json
import math
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from gridprobe._util import printable
from gridprobe.models.base import about_tokens
from gridprobe.question import Question
from gridprobe.video import NATIVE, FrameSize
from gridprobe_serve.jobs import ApiError, Job, Jobs
from gridprobe_serve.routes import found_source, service_of, user_of
from gridprobe_serve.schemas import ChatBody, MessageBody, ProcessorKwargs, VideoKwargs, check_length, make_question
from gridprobe_serve.service import Json, VideoQuestion, VideoService, messages, result_of, until_over
from gridprobe_serve.sources import Frames, data_of

__all__ = ["Meant", "read_chat", "router"]

# Messages of a chat → one video and one question. An unknown part is an error; nothing is left out in silence.

MARKER = re.compile(r"\s*<?\s*(\d+(?:\.\d+)?)\s*(?:s|sec|seconds?)\s*>?\s*:?\s*")
"""A text that says when the next picture is shown, such as "<12.5 seconds>"."""
OPTION_A = re.compile(r"^[ \t]*\(?A[).:]\s", re.MULTILINE)
LONGEST_MARKER = 64
PICTURES = re.compile(r"data:(?:video|image)/(?:jpeg|jpg|png|webp)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Meant:
    """What a chat asks."""

    video: str | Frames
    question: Question
    parsed: bool
    """Whether the options were read from the text."""


@dataclass
class _Read:
    """What was found so far."""

    videos: list[tuple[str | list[str], float | None]] = field(default_factory=list)
    """Each with its frame rate, if it is a list of pictures that has one."""
    pictures: list[str] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Role and text of each message."""


def read_chat(body: ChatBody) -> Meant:
    """The video and the question of a chat."""
    found = _Read()
    for number, message in enumerate(body.messages):
        _read_message(found, message, f"messages[{number}]")
    if body.messages[-1].role != "user":
        raise ApiError("the last message must be the user's question", param="messages")
    text = found.texts[-1][1]
    if not text.strip():
        raise ApiError("the last message has no text; ask a question", param="messages")
    question, parsed = _question(text, _before(found.texts[:-1]), body.gridprobe.options)
    return Meant(_video(found, body.media_io_kwargs.video), question, parsed)


def _question(text: str, before: str, options: Sequence[str] | None) -> tuple[Question, bool]:
    """The question, and whether its options were read from its text."""
    check_length("question", before + text, param="messages")
    whole = f"{before}{text}".strip()
    if options:
        return make_question(whole, options), False
    if options is None and len(OPTION_A.findall(text)) == 1:
        lines = [line for line in text.splitlines() if re.match(r"\s*\(?B[).:]\s", line)]
        if len(lines) == 1:
            return Question.from_prompt(whole), True
    return Question(whole), False


def _before(texts: Sequence[tuple[str, str]]) -> str:
    """System messages and earlier turns, as text before the question."""
    names = {"user": "Earlier question: ", "assistant": "Earlier answer: "}
    lines = [f"{names.get(role, '')}{text.strip()}" for role, text in texts if text.strip()]
    return "\n".join(lines) + "\n\n" if lines else ""


def _read_message(found: _Read, message: MessageBody, where: str) -> None:
    if isinstance(message.content, str) or message.content is None:
        found.texts.append((message.role, message.content or ""))
        return
    texts: list[str] = []
    marker: tuple[str, float] | None = None
    for number, part in enumerate(message.content):
        place = f"{where}.content[{number}]"
        text, media = _part(part, place)
        if media is not None and message.role != "user":
            raise ApiError(f"only messages of the user can have media ({place})", param=place)
        if isinstance(media, _Picture):
            found.pictures.append(media.url)
            found.times.append(marker[1] if marker else None)
            marker = None
            continue
        if marker is not None:
            texts.append(marker[0])
        marker = None
        if media is not None:
            found.videos.append(media)
        elif len(text) <= LONGEST_MARKER and (match := MARKER.fullmatch(text)):
            marker = (text, float(match[1]))
        else:
            texts.append(text)
    if marker is not None:
        texts.append(marker[0])
    found.texts.append((message.role, "\n".join(texts)))


@dataclass(frozen=True)
class _Picture:
    url: str


Media = _Picture | tuple[str | list[str], float | None]


def _part(part: Mapping[str, Any], place: str) -> tuple[str, Media | None]:
    """The text of a part, or its media."""
    kind = part.get("type", "video_url" if set(part) <= {"video_url", "uuid"} and part else None)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        known = ", ".join(_READERS)
        given = printable(kind)[:60] if isinstance(kind, str) else "without a type"
        raise ApiError(f"unknown content part {given!r} in {place}; known types: {known}", param=place)
    allowed = {"type", *_FIELDS[str(kind)]}
    if extra := sorted(str(name) for name in set(part) - allowed):
        raise ApiError(f"unknown field {printable(extra[0])[:60]!r} in {place}", param=place)
    found: tuple[str, Media | None] = read(part, place)
    return found


def _text(part: Mapping[str, Any], place: str) -> tuple[str, None]:
    return _string(part.get("text"), place), None


def _image(part: Mapping[str, Any], place: str) -> tuple[str, Media]:
    url = _url(part.get("image_url"), place, more={"detail"})
    if not url[:5].lower() == "data:":
        raise ApiError(f"pictures must be sent as data: addresses ({place})", param=place)
    return "", _Picture(url)


def _video_url(part: Mapping[str, Any], place: str) -> tuple[str, Media]:
    value = part.get("video_url", part.get("input_video", part.get("video")))
    return "", (_url(value, place), _rate(part, place))


def _video_part(part: Mapping[str, Any], place: str) -> tuple[str, Media]:
    value = part.get("video")
    if not isinstance(value, list):
        return "", (_url(value, place), _rate(part, place))
    return "", ([_url(each, place) for each in value], _rate(part, place))


def _file(part: Mapping[str, Any], place: str) -> tuple[str, Media]:
    value = part.get("file")
    if not isinstance(value, Mapping) or not set(value) <= {"file_data", "file_id", "filename", "format"}:
        raise ApiError(f'"file" in {place} must be an object with file_data or file_id', param=place)
    if "file_id" in value and "file_data" not in value:
        return "", (f"upload://{_string(value['file_id'], place)}", None)
    url = _string(value.get("file_data"), place)
    if not data_of(url)[0].startswith("video/"):
        raise ApiError(f"the file in {place} is not video; its data: address must begin with data:video/", param=place)
    return "", (url, None)


_READERS: dict[str, Any] = {
    "text": _text,
    "video_url": _video_url,
    "input_video": _video_url,
    "video": _video_part,
    "file": _file,
    "image_url": _image,
}
_FIELDS: dict[str, set[str]] = {
    "text": {"text"},
    "video_url": {"video_url", "uuid", "fps", "sample_fps"},
    "input_video": {"input_video", "video_url", "video", "uuid", "fps", "sample_fps"},
    "video": {"video", "fps", "sample_fps", "uuid"},
    "file": {"file"},
    "image_url": {"image_url", "uuid"},
}


def _url(value: Any, place: str, *, more: frozenset[str] | set[str] = frozenset()) -> str:
    """An address: a text, or an object with `url`, or with base64 `data` as OpenAI's input_audio has it."""
    if isinstance(value, Mapping):
        if set(value) <= {"data", "format"} and "data" in value:
            name = value.get("format", "mp4")
            return f"data:video/{_string(name, place)};base64,{_string(value['data'], place)}"
        if not set(value) <= {"url", "fps", "sample_fps", *more}:
            raise ApiError(f"unknown field in the address of {place}; an object with url is expected", param=place)
        value = value.get("url")
    return _string(value, place)


def _string(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise ApiError(f"{place} must have a text that is not empty", param=place)
    return value


def _rate(part: Mapping[str, Any], place: str) -> float | None:
    """Pictures a second, if a part says so."""
    inner = next((each for each in part.values() if isinstance(each, Mapping)), {})
    given = [each[name] for each in (part, inner) for name in ("sample_fps", "fps") if each.get(name) is not None]
    if not given:
        return None
    rate = given[0]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6 or not math.isfinite(rate):
        raise ApiError(f"fps in {place} must be a number above 0 and at most 1e6", param=place)
    return float(rate)


def _video(found: _Read, given: VideoKwargs) -> str | Frames:
    """The one video of a chat."""
    if len(found.videos) > 1 or (found.videos and found.pictures):
        raise ApiError("a request is about one video; ask about others in requests of their own", param="messages")
    if not found.videos and len(found.pictures) < 2:
        raise ApiError(
            "there is no video in the messages; add a part of type video_url, or two pictures", param="messages"
        )
    if not found.videos:
        return Frames(found.pictures, _times(found.times, given, None))
    video, rate = found.videos[0]
    if isinstance(video, list):
        return Frames(video, _times([None] * len(video), given, rate))
    if PICTURES.match(video):
        parts = data_of(video, many=True)[1]
        return Frames([f"data:image;base64,{part}" for part in parts], _times([None] * len(parts), given, rate))
    if rate is not None or given.model_dump(exclude_none=True):
        message = "fps and media_io_kwargs.video say when pictures are shown; for a video use mm_processor_kwargs or k"
        raise ApiError(message, param="media_io_kwargs")
    return video


def _times(marked: Sequence[float | None], given: VideoKwargs, rate: float | None) -> list[float]:
    """Seconds of each picture: from texts, from the numbers of frames, from a rate, or one a second."""
    count = len(marked)
    if any(time is not None for time in marked):
        if None in marked:
            raise ApiError(
                "some pictures have a time and others do not; give all of them one, or none", param="messages"
            )
        return _rising([time for time in marked if time is not None])
    if given.num_frames not in (None, -1, count):
        raise ApiError(f"num_frames is {given.num_frames}, but there are {count} pictures", param="media_io_kwargs")
    rate = given.fps or rate
    if given.frames_indices is not None:
        if len(given.frames_indices) != count or rate is None:
            message = f"frames_indices needs fps and one number for each of the {count} pictures"
            raise ApiError(message, param="media_io_kwargs")
        if given.total_num_frames is not None and max(given.frames_indices) >= given.total_num_frames:
            raise ApiError("frames_indices must be below total_num_frames", param="media_io_kwargs")
        return _rising([number / rate for number in given.frames_indices])
    if given.duration is not None and rate is None:
        return [given.duration * number / count for number in range(count)]
    return [number / (rate or 1.0) for number in range(count)]


def _rising(times: Sequence[float]) -> list[float]:
    if any(not one < other for one, other in pairwise(times)):
        raise ApiError("the times of the pictures must rise", param="messages")
    return list(times)


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
    service = service_of(request)
    user = user_of(request, body.user)
    _check(body, request.app.state.names)
    service.jobs.check_room(user)
    meant = read_chat(body)
    job = await _begin(body, meant, service, user)
    if not body.stream:
        return Json(_completion(body, meant, await until_over(job, service.jobs, request)))
    await _opened(job, service.jobs, request)
    stream = _chunks(body, meant, job, service.jobs)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _check(body: ChatBody, names: tuple[str, ...]) -> None:
    """Refuse what the pydantic model lets through and we cannot do."""
    if body.model not in names:
        raise ApiError(
            f"there is no such model; known: {', '.join(names)}", status=404, code="model_not_found", param="model"
        )
    if body.response_format not in (None, {"type": "text"}):
        raise ApiError("response_format can only be text", param="response_format")
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError("top_logprobs needs logprobs", param="top_logprobs")


async def _begin(body: ChatBody, meant: Meant, service: VideoService, user: str) -> Job:
    settings, selector = body.gridprobe.changes()
    pictures = len(meant.video.pictures) if isinstance(meant.video, Frames) else None
    wanted = _processor(body.mm_processor_kwargs, pictures, service.bounds.max_k, service.bounds.max_side)
    if body.media_io_kwargs.video.do_sample_frames is False and pictures:
        wanted.setdefault("k", _side(pictures, service.bounds.max_k))
    fps = wanted.pop("fps", None)
    settings = {**wanted, **settings}
    await run_in_threadpool(service.check, settings, selector)
    source = await found_source(service, meant.video)
    return service.submit(VideoQuestion(source, meant.question, settings, selector, body.gridprobe.map, fps), user)


def _processor(given: ProcessorKwargs, pictures: int | None, max_k: int, max_side: int) -> dict[str, Any]:
    """Sampling and sizes, as our settings, within the server's limits."""
    if given.fps is not None and given.num_frames is not None:
        raise ApiError("fps and num_frames exclude each other", param="mm_processor_kwargs")
    if given.do_sample_frames is False and pictures is None:
        raise ApiError("do_sample_frames=false is for pictures; a video is always sampled", param="mm_processor_kwargs")
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
            raise ApiError("min_pixels must not be above max_pixels", param="mm_processor_kwargs")
        found["full"] = FrameSize(max_pixels=most, min_pixels=given.min_pixels)
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
                error = job.error or ApiError("the job was cancelled", status=499, code="cancelled")
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
