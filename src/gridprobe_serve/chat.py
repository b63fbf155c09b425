"""POST /v1/chat/completions and GET /v1/models, as OpenAI's clients expect them."""

import json
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from gridprobe._util import printable
from gridprobe.models.base import about_tokens
from gridprobe.question import Question
from gridprobe.video import NATIVE, FrameSize
from gridprobe_serve.errors import ApiError, Json
from gridprobe_serve.jobs import LAST, Job, Jobs
from gridprobe_serve.routes import Service, event_stream, until_over, user_of
from gridprobe_serve.schemas import ChatBody, MessageBody, ProcessorKwargs, VideoKwargs, check_length, make_question
from gridprobe_serve.service import VideoQuestion, VideoService
from gridprobe_serve.sources import Frames, data_of

MARKER = re.compile(r"\s*<?\s*(\d+(?:\.\d+)?)\s*(?:s|sec|seconds?)\s*>?\s*:?\s*")
"""A text that says when the next picture is shown, such as "<12.5 seconds>"."""
OPTION_A = re.compile(r"^[ \t]*\(?A[).:]\s", re.MULTILINE)
LONGEST_MARKER = 64
PICTURES = re.compile(r"data:(?:video|image)/(?:jpeg|jpg|png|webp)\b", re.IGNORECASE)


@dataclass(frozen=True)
class ChatQuestion:
    """What a chat asks."""

    video: str | Frames
    question: Question
    parsed: bool
    """Whether the options were read from the text."""


PlacedVideo = tuple[str | list[str], float | None]
"""A video, or a list of pictures with its frame rate, if it has one."""
PlacedPicture = tuple[str, float | None]
"""A picture and its time, if a text before it says so."""


def read_chat(body: ChatBody) -> ChatQuestion:
    """The video and the question of a chat; an unknown part is an error, nothing is left out in silence."""
    videos: list[PlacedVideo] = []
    pictures: list[PlacedPicture] = []
    texts = [
        (message.role, _read_message(message, f"messages[{number}]", videos, pictures))
        for number, message in enumerate(body.messages)
    ]
    role, text = texts.pop()
    if role != "user":
        raise ApiError("the last message must be the user's question", param="messages")
    if not text.strip():
        raise ApiError("the last message has no text; ask a question", param="messages")
    question, parsed = _question(text, _history(texts), body.gridprobe.options)
    return ChatQuestion(_video(videos, pictures, body.media_io_kwargs.video), question, parsed)


def _question(text: str, history: str, options: Sequence[str] | None) -> tuple[Question, bool]:
    """The question, and whether its options were read from its text."""
    check_length("question", history + text, param="messages")
    whole = f"{history}{text}".strip()
    if options:
        return make_question(whole, options), False
    if options is None and len(OPTION_A.findall(text)) == 1:
        lines = [line for line in text.splitlines() if re.match(r"\s*\(?B[).:]\s", line)]
        if len(lines) == 1:
            return Question.from_prompt(whole), True
    return Question(whole), False


def _history(texts: Sequence[tuple[str, str]]) -> str:
    """System messages and earlier turns, as text before the question."""
    names = {"user": "Earlier question: ", "assistant": "Earlier answer: "}
    lines = [f"{names.get(role, '')}{text.strip()}" for role, text in texts if text.strip()]
    return "\n".join(lines) + "\n\n" if lines else ""


def _read_message(message: MessageBody, where: str, videos: list[PlacedVideo], pictures: list[PlacedPicture]) -> str:
    """The text of a message; its media are added to the lists."""
    if isinstance(message.content, str) or message.content is None:
        return message.content or ""
    texts: list[str] = []
    marker: str | None = None  # a text that is a time, if a picture comes next
    for number, part in enumerate(message.content):
        place = f"{where}.content[{number}]"
        kind, read = _part(part, place)
        if kind != "text" and message.role != "user":
            raise ApiError(f"only messages of the user can have media ({place})", param=place)
        if kind == "picture":
            match = MARKER.fullmatch(marker or "")
            pictures.append((read, float(match[1]) if match else None))
            marker = None
            continue
        texts += [] if marker is None else [marker]
        marker = None
        if kind == "video":
            videos.append(read)
        elif len(read) <= LONGEST_MARKER and MARKER.fullmatch(read):
            marker = read
        else:
            texts.append(read)
    return "\n".join(texts if marker is None else [*texts, marker])


def _part(part: Mapping[str, Any], place: str) -> tuple[str, Any]:
    """What a part is (text, picture or video), and its text, address or `PlacedVideo`."""
    name = part.get("type", "video_url" if set(part) <= {"video_url", "uuid"} and part else None)
    if not isinstance(name, str) or name not in _READERS:
        shown = printable(name)[:60] if isinstance(name, str) else "without a type"
        raise ApiError(f"unknown content part {shown!r} in {place}; known types: {', '.join(_READERS)}", param=place)
    kind, read, fields = _READERS[name]
    if extra := sorted(str(name) for name in set(part) - {"type", *fields}):
        raise ApiError(f"unknown field {printable(extra[0])[:60]!r} in {place}", param=place)
    return kind, read(part, place)


def _text(part: Mapping[str, Any], place: str) -> str:
    return _string(part.get("text"), place)


def _image(part: Mapping[str, Any], place: str) -> str:
    url = _url(part.get("image_url"), place, more={"detail"})
    if not url[:5].lower() == "data:":
        raise ApiError(f"pictures must be sent as data: addresses ({place})", param=place)
    return url


def _video_part(part: Mapping[str, Any], place: str) -> PlacedVideo:
    value = part.get("video_url", part.get("input_video", part.get("video")))
    if part.get("type") == "video" and isinstance(value, list):
        return [_url(each, place) for each in value], _rate(part, place)
    return _url(value, place), _rate(part, place)


def _file(part: Mapping[str, Any], place: str) -> PlacedVideo:
    value = part.get("file")
    if not isinstance(value, Mapping) or not set(value) <= {"file_data", "file_id", "filename", "format"}:
        raise ApiError(f'"file" in {place} must be an object with file_data or file_id', param=place)
    if "file_id" in value and "file_data" not in value:
        return f"upload://{_string(value['file_id'], place)}", None
    url = _string(value.get("file_data"), place)
    if not data_of(url)[0].startswith("video/"):
        raise ApiError(f"the file in {place} is not video; its data: address must begin with data:video/", param=place)
    return url, None


_READERS: dict[str, tuple[str, Callable[[Mapping[str, Any], str], Any], tuple[str, ...]]] = {
    "text": ("text", _text, ("text",)),
    "video_url": ("video", _video_part, ("video_url", "uuid", "fps", "sample_fps")),
    "input_video": ("video", _video_part, ("input_video", "video_url", "video", "uuid", "fps", "sample_fps")),
    "video": ("video", _video_part, ("video", "fps", "sample_fps", "uuid")),
    "file": ("video", _file, ("file",)),
    "image_url": ("picture", _image, ("image_url", "uuid")),
}
"""Types of parts: what each is, what reads it, and its fields."""


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
    rates = [each[name] for each in (part, inner) for name in ("sample_fps", "fps") if each.get(name) is not None]
    rate = rates[0] if rates else None
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6 or not math.isfinite(rate):
        raise ApiError(f"fps in {place} must be a number above 0 and at most 1e6", param=place)
    return float(rate)


def _video(videos: Sequence[PlacedVideo], pictures: Sequence[PlacedPicture], kwargs: VideoKwargs) -> str | Frames:
    """The one video of a chat."""
    if len(videos) > 1 or (videos and pictures):
        raise ApiError("a request is about one video; ask about others in requests of their own", param="messages")
    if not videos and len(pictures) < 2:
        message = "there is no video in the messages; add a part of type video_url, or two pictures"
        raise ApiError(message, param="messages")
    if not videos:
        return Frames([url for url, _ in pictures], _times([time for _, time in pictures], kwargs, None))
    video, rate = videos[0]
    if isinstance(video, str) and PICTURES.match(video):
        video = [f"data:image;base64,{each}" for each in data_of(video, many=True)[1]]
    if isinstance(video, list):
        return Frames(video, _times([None] * len(video), kwargs, rate))
    if rate is not None or kwargs.model_dump(exclude_none=True):
        message = "fps and media_io_kwargs.video say when pictures are shown; for a video use mm_processor_kwargs or k"
        raise ApiError(message, param="media_io_kwargs")
    return video


def _times(markers: Sequence[float | None], kwargs: VideoKwargs, rate: float | None) -> list[float]:
    """Seconds of each picture: from texts, from the numbers of frames, from a rate, or one a second."""
    count = len(markers)
    if known := [time for time in markers if time is not None]:
        if None in markers:
            message = "some pictures have a time and others do not; give all of them one, or none"
            raise ApiError(message, param="messages")
        return _rising(known)
    if kwargs.num_frames not in (None, -1, count):
        raise ApiError(f"num_frames is {kwargs.num_frames}, but there are {count} pictures", param="media_io_kwargs")
    rate = kwargs.fps or rate
    if kwargs.frames_indices is not None:
        if len(kwargs.frames_indices) != count or rate is None:
            message = f"frames_indices needs fps and one number for each of the {count} pictures"
            raise ApiError(message, param="media_io_kwargs")
        if kwargs.total_num_frames is not None and max(kwargs.frames_indices) >= kwargs.total_num_frames:
            raise ApiError("frames_indices must be below total_num_frames", param="media_io_kwargs")
        return _rising([number / rate for number in kwargs.frames_indices])
    if kwargs.duration is not None and rate is None:
        return [kwargs.duration * number / count for number in range(count)]
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
    about = {"object": "model", "created": int(request.app.state.started), "owned_by": "gridprobe"}
    return Json({"object": "list", "data": [{"id": name, **about} for name in request.app.state.names]})


@router.post("/chat/completions", summary="Ask about a video, as an OpenAI client does")
async def chat(body: ChatBody, request: Request, service: Service) -> Response:
    """The answer is in the message, everything else in the object `gridprobe`."""
    user = user_of(request, body.user)
    _check(body, request.app.state.names)
    service.jobs.check_room(user)
    question = read_chat(body)
    job = await _submit(body, question, service, user)
    if not body.stream:
        return Json(_completion(body, question, await until_over(job, service.jobs, request)))
    await _until_open(job, service.jobs, request)
    return event_stream(_chunks(body, question, job, service.jobs))


def _check(body: ChatBody, names: tuple[str, ...]) -> None:
    """Refuse what the pydantic model lets through and we cannot do."""
    if body.model not in names:
        message = f"there is no such model; known: {', '.join(names)}"
        raise ApiError(message, status=404, code="model_not_found", param="model")
    if body.response_format not in (None, {"type": "text"}):
        raise ApiError("response_format can only be text", param="response_format")
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError("top_logprobs needs logprobs", param="top_logprobs")


async def _submit(body: ChatBody, question: ChatQuestion, service: VideoService, user: str) -> Job:
    settings, selector = body.gridprobe.changes()
    pictures = len(question.video.pictures) if isinstance(question.video, Frames) else None
    limits = service.limits
    sampling = _sampling(body.mm_processor_kwargs, pictures, limits.max_k, limits.max_side)
    if body.media_io_kwargs.video.do_sample_frames is False and pictures:
        sampling.setdefault("k", _side(pictures, limits.max_k))
    fps = sampling.pop("fps", None)
    settings = {**sampling, **settings}
    await run_in_threadpool(service.plan_for, settings, selector, private=True)  # a refusal costs no fetching
    source = await run_in_threadpool(service.sources.find, question.video)
    video_question = VideoQuestion(source, question.question, settings, selector, body.gridprobe.map, fps)
    return service.submit(video_question, user)


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


async def _chunks(body: ChatBody, question: ChatQuestion, job: Job, jobs: Jobs) -> AsyncIterator[str]:
    """Progress as comments, then the answer; a client that goes away cancels the job."""
    try:
        async for message in job.stream():
            if message is None or message.name not in LAST:
                yield f": {json.dumps({message.name: message.data}) if message else 'waiting'}\n\n"
                continue
            try:
                result = job.outcome()
            except ApiError as error:
                yield f"data: {json.dumps({'error': error.to_dict()})}\n\n"
                return
            for chunk in _answer_chunks(body, _completion(body, question, result)):
                yield f"data: {json.dumps(chunk, allow_nan=False)}\n\n"
            yield "data: [DONE]\n\n"
    finally:
        if not job.over:
            jobs.cancel(job)


def _answer_chunks(body: ChatBody, whole: dict[str, Any]) -> list[dict[str, Any]]:
    (choice,) = whole.pop("choices")
    usage, extra = whole.pop("usage"), whole.pop("gridprobe")
    head = {**whole, "object": "chat.completion.chunk"}
    first = {"index": 0, "delta": choice["message"], "logprobs": choice["logprobs"], "finish_reason": None}
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    chunks = [{**head, "choices": [first]}, {**head, "choices": [last], "gridprobe": extra}]
    if body.stream_options and body.stream_options.include_usage:
        chunks.append({**head, "choices": [], "usage": usage})
    return chunks


def _completion(body: ChatBody, question: ChatQuestion, result: Mapping[str, Any]) -> dict[str, Any]:
    """A chat.completion."""
    answer = result["answer"]
    label, content = answer["choice"], answer["answer"]
    if label is not None:
        content = {"label": label, "text": content, "both": f"{label}. {content}"}[body.gridprobe.content]
    warnings = [*answer["warnings"], *body.without_influence()]
    if body.logprobs and label is None:
        warnings.append("logprobs are those of options; this question has none")
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": _logprobs(body, answer), "finish_reason": "stop"}
    options = {"options": list(question.question.options), "parsed_options": question.parsed, "warnings": warnings}
    return {
        "id": f"chatcmpl-{result['job']}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [choice],
        "usage": _usage(answer["cost"], content),
        "gridprobe": {**result, **options},
    }


def _usage(cost: Mapping[str, Any], content: str) -> dict[str, Any]:
    completion = max(1, about_tokens(content))
    prompt = max(0, cost["tokens"] - completion)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cost["cached_tokens"], "video_tokens": cost["visual_tokens"]},
    }


def _logprobs(body: ChatBody, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options' letters, likeliest first."""
    if not body.logprobs or answer["choice"] is None:
        return None
    listed = [
        {"token": label, "logprob": math.log(max(LEAST, probability)), "bytes": list(label.encode())}
        for label, probability in answer["posterior"].items()
    ]
    listed.sort(key=lambda each: -each["logprob"])
    chosen = next(each for each in listed if each["token"] == answer["choice"])
    return {"content": [{**chosen, "top_logprobs": listed[: body.top_logprobs or 0]}], "refusal": None}
