"""What a chat asks: the videos and pictures in its messages, and the question in the last one."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gridprobe._util import printable
from gridprobe.question import Question
from gridprobe_serve.errors import ApiError
from gridprobe_serve.schemas import ChatBody, MessageBody, VideoKwargs, check_length, make_question
from gridprobe_serve.sources import Frames, data_of

MARKER = re.compile(r"\s*<?\s*(\d+(?:\.\d+)?)\s*(?:s|sec|seconds?)\s*>?\s*:?\s*")
"""A text that says when the next picture is shown, such as "<12.5 seconds>"."""
OPTION_A = re.compile(r"^[ \t]*\(?A[).:]\s", re.MULTILINE)
OPTION = re.compile(r"\s*\(?[A-Z][).:]\s")
LETTER = re.compile(r"\bletter\b", re.IGNORECASE)
LONGEST_MARKER = 64
PICTURES = re.compile(r"data:(?:video|image)/(?:jpeg|jpg|png|webp)\b", re.IGNORECASE)


PlacedVideo = tuple[str | list[str], float | None]
"""A video, or a list of pictures with its frame rate, if it has one."""
PlacedPicture = tuple[str, float | None]
"""A picture and its time, if a text before it says so."""


@dataclass(frozen=True)
class ChatQuestion:
    """What a chat asks."""

    videos: tuple[str | Frames, ...]
    """None in a turn of text."""
    question: Question
    parsed: bool
    """Whether the options were read from the text."""
    letters: bool
    """Whether that text asks for the letter of an option."""
    unknown: tuple[str, ...]
    """Fields of content parts that were not read."""


@dataclass
class _Media:
    """What the messages have besides their texts."""

    videos: list[PlacedVideo] = field(default_factory=list)
    pictures: list[PlacedPicture] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)


def read_chat(body: ChatBody, *, history: bool = True) -> ChatQuestion:
    """The videos and the question of a chat; an unknown kind of part is an error, an unknown field is named.

    Args:
        body: the chat.
        history: whether texts before the last one are part of the question.
    """
    media = _Media()
    texts = [
        (message.role, _read_message(message, f"messages[{number}]", media))
        for number, message in enumerate(body.messages)
    ]
    role, text = texts.pop()
    if role != "user":
        raise ApiError("the last message must be the user's question", param="messages")
    if not text.strip():
        raise ApiError("the last message has no text; ask a question", param="messages")
    earlier = _history(texts)
    question, parsed = _question(text, earlier if history else "", body.gridprobe.options)
    if earlier and not history:
        media.unknown["what was said before"] = None
    letters = parsed and LETTER.search(text) is not None
    videos = _videos(media, body.media_io_kwargs.video)
    return ChatQuestion(videos, question, parsed, letters, tuple(media.unknown))


def _question(text: str, history: str, options: Sequence[str] | None) -> tuple[Question, bool]:
    """The question, and whether its options were read from its text."""
    check_length("question", history + text, param="messages")
    whole = f"{history}{text}".strip()
    if options:
        return make_question(whole, options), False
    if options is None and len(OPTION_A.findall(text)) == 1:
        lines = [line for line in text.splitlines() if re.match(r"\s*\(?B[).:]\s", line)]
        if len(lines) == 1:
            asked = Question.from_prompt(whole)
            bare = OPTION.match(text.rstrip().rpartition("\n")[2])  # no program told the model what to do with them
            return Question(asked.text, asked.options) if bare else asked, True
    return Question(whole), False


def _history(texts: Sequence[tuple[str, str]]) -> str:
    """System messages and earlier turns, as text before the question."""
    names = {"user": "Earlier question: ", "assistant": "Earlier answer: ", "tool": "Result of a tool: "}
    lines = [f"{names.get(role, '')}{text.strip()}" for role, text in texts if text.strip()]
    return "\n".join(lines) + "\n\n" if lines else ""


def _read_message(message: MessageBody, where: str, media: _Media) -> str:
    """The text of a message; its media are added to the others."""
    if isinstance(message.content, str) or message.content is None:
        return message.content or ""
    texts: list[str] = []
    marker: str | None = None  # a text that is a time, if a picture comes next
    for number, part in enumerate(message.content):
        place = f"{where}.content[{number}]"
        kind, read = _part(part, place, media)
        if kind != "text" and message.role != "user":
            raise ApiError(f"only messages of the user can have media ({place})", param=place)
        if kind == "picture":
            match = MARKER.fullmatch(marker or "")
            media.pictures.append((read, float(match[1]) if match else None))
            marker = None
            continue
        texts += [] if marker is None else [marker]
        marker = None
        if kind == "video":
            media.videos.append(read)
        elif len(read) <= LONGEST_MARKER and MARKER.fullmatch(read):
            marker = read
        else:
            texts.append(read)
    return "\n".join(texts if marker is None else [*texts, marker])


def _part(part: Mapping[str, Any], place: str, media: _Media) -> tuple[str, Any]:
    """What a part is (text, picture or video), and its text, address or `PlacedVideo`."""
    name = part.get("type", "video_url" if "video_url" in part else None)
    if not isinstance(name, str) or name not in _READERS:
        shown = printable(name)[:60] if isinstance(name, str) else "without a type"
        raise ApiError(f"unknown content part {shown!r} in {place}; known types: {', '.join(_READERS)}", param=place)
    kind, read, fields = _READERS[name]
    value = part.get(name)
    inner = value if isinstance(value, Mapping) else {}
    for extra in sorted((set(part) - {"type", *HINTS, *fields}) | (set(inner) - VALUES)):
        media.unknown[f"{extra} of a part {name}"] = None
    return kind, read(part, place)


def _text(part: Mapping[str, Any], place: str) -> str:
    return _string(part.get("text"), place)


def _image(part: Mapping[str, Any], place: str) -> str:
    url = _url(part.get("image_url"), place)
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
    if not isinstance(value, Mapping):
        raise ApiError(f'"file" in {place} must be an object with file_data or file_id', param=place)
    if "file_id" in value and "file_data" not in value:
        return f"upload://{_string(value['file_id'], place)}", None
    url = _string(value.get("file_data"), place)
    if not data_of(url)[0].startswith("video/"):
        raise ApiError(f"the file in {place} is not video; its data: address must begin with data:video/", param=place)
    return url, None


_READERS: dict[str, tuple[str, Callable[[Mapping[str, Any], str], Any], tuple[str, ...]]] = {
    "text": ("text", _text, ("text",)),
    "video_url": ("video", _video_part, ("video_url",)),
    "input_video": ("video", _video_part, ("input_video", "video_url", "video")),
    "video": ("video", _video_part, ("video",)),
    "file": ("video", _file, ("file",)),
    "image_url": ("picture", _image, ("image_url",)),
}
"""Types of parts: what each is, what reads it, and its fields."""
HINTS = ("uuid", "fps", "sample_fps", "detail", "annotations", "logprobs")
"""Fields of any part; a frame rate is read where there are pictures."""
VALUES = {"url", "fps", "sample_fps", "detail", "data", "format", "file_data", "file_id", "filename"}
"""Fields of the object in a part."""


def _url(value: Any, place: str) -> str:
    """An address: a text, or an object with `url`, or with base64 `data` as OpenAI's input_audio has it."""
    if isinstance(value, Mapping):
        if "data" in value and "url" not in value:
            name = value.get("format", "mp4")
            return f"data:video/{_string(name, place)};base64,{_string(value['data'], place)}"
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


def _videos(media: _Media, kwargs: VideoKwargs) -> tuple[str | Frames, ...]:
    """The videos of a chat, each once though every turn may name it; its pictures are the frames of another."""
    videos = [_video(video, rate, kwargs) for video, rate in media.videos]
    if media.pictures:
        times = _times([time for _, time in media.pictures], kwargs, None)
        videos.append(Frames([url for url, _ in media.pictures], times))
    return tuple({each if isinstance(each, str) else tuple(each.pictures): each for each in videos}.values())


def _video(video: str | list[str], rate: float | None, kwargs: VideoKwargs) -> str | Frames:
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
