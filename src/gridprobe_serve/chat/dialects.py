"""How a reply is written in each API: OpenAI's chat completions and responses, and Anthropic's messages."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gridprobe_serve.chat.replies import Reply
from gridprobe_serve.errors import ApiError
from gridprobe_serve.schemas import ChatBody

StreamEvent = tuple[str | None, Mapping[str, Any] | str]
"""The name of a server-sent event, if it has one, and its data."""


@dataclass(frozen=True)
class Dialect:
    """An API."""

    whole: Callable[[ChatBody, Reply], dict[str, Any]]
    events: Callable[[ChatBody, Reply], Iterator[StreamEvent]]
    error: Callable[[ApiError], StreamEvent]
    """How a stream that has begun says that it failed."""


def as_text(event: StreamEvent) -> str:
    """A server-sent event."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data, allow_nan=False)
    return f"data: {text}\n\n" if name is None else f"event: {name}\ndata: {text}\n\n"


def _named(data: Mapping[str, Any]) -> StreamEvent:
    return data["type"], data


# Chat completions.


def _completion(body: ChatBody, reply: Reply) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.content, "refusal": None}
    finish = "length" if reply.cut else "stop"
    choice = {"index": 0, "message": message, "logprobs": reply.logprobs, "finish_reason": finish}
    return {**_completion_head(reply, "chat.completion"), "choices": [choice], **_completion_end(reply)}


def _completion_head(reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": reply.created, "model": reply.model}


def _completion_end(reply: Reply) -> dict[str, Any]:
    prompt, completion, cached, video = reply.usage
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    details = {"prompt_tokens_details": {"cached_tokens": cached, "video_tokens": video}}
    return {"usage": {**usage, **details}, "gridprobe": reply.extra}


def _completion_chunks(body: ChatBody, reply: Reply) -> Iterator[StreamEvent]:
    head, end = _completion_head(reply, "chat.completion.chunk"), _completion_end(reply)

    def chunk(delta: Mapping[str, Any], logprobs: Any = None, finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]}

    yield None, chunk({"role": "assistant", "content": ""})
    for number, piece in enumerate(reply.pieces):
        yield None, chunk({"content": piece}, None if number else reply.logprobs)
    yield None, chunk({}, finish="length" if reply.cut else "stop") | {"gridprobe": reply.extra}
    if body.stream_options and body.stream_options.include_usage:
        yield None, {**head, "choices": [], "usage": end["usage"]}
    yield None, "[DONE]"


COMPLETIONS = Dialect(_completion, _completion_chunks, lambda error: (None, {"error": error.to_dict()}))


# Bodies of the other two APIs, each translated to a chat.

Parts = str | Annotated[list[dict[str, Any]], Field(max_length=10_000)]


class _WireMessage(BaseModel):
    """A message whose parts have other names."""

    model_config = ConfigDict(extra="allow")
    type: Literal["message"] = "message"
    role: str = Field(default="user", max_length=20)
    content: Parts | None = None


class _WireBody(BaseModel):
    """Fields of a chat completion that this body does not name itself mean the same here."""

    model_config = ConfigDict(extra="allow")
    model: str = Field(max_length=500)
    stream: bool | None = None

    def chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> ChatBody:
        """The chat that means the same."""
        more = {name: value for name, value in fields.items() if value is not None}
        try:
            return ChatBody.model_validate(
                {**(self.model_extra or {}), "model": self.model, "stream": self.stream, "messages": messages, **more}
            )
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from None


def _translated(message: _WireMessage, part: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    content = message.content
    parts = content if isinstance(content, str) or content is None else [part(dict(each)) for each in content]
    return {**(message.model_extra or {}), "role": message.role, "content": parts}


# Responses.


class ResponsesBody(_WireBody):
    """A request for a response."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "gridprobe",
                    "input": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "input_video", "video_url": "file:///videos/talk.mp4"},
                                {"type": "input_text", "text": "Which colour is the ball?"},
                            ],
                        }
                    ],
                }
            ]
        }
    )
    input: str | Annotated[list[_WireMessage], Field(min_length=1, max_length=1000)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    text: dict[str, Any] | None = None
    previous_response_id: str | None = None

    def to_chat(self) -> ChatBody:
        """The chat that means the same."""
        if self.previous_response_id is not None:
            message = "this server keeps no conversations; leave out previous_response_id and send the earlier messages"
            raise ApiError(message, param="previous_response_id")
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        inputs = [_WireMessage(content=self.input)] if isinstance(self.input, str) else self.input
        messages = [_translated(each, _input_part) for each in inputs]
        wanted = (self.text or {}).get("format")
        if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
            wanted = {"type": "json_schema", "json_schema": wanted}
        return self.chat([*system, *messages], max_tokens=self.max_output_tokens, response_format=wanted)


def _input_part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a chat, where input_video has the same name."""
    names = {"input_text": "text", "output_text": "text", "input_image": "image_url", "input_file": "file"}
    part["type"] = name = names.get(str(part.get("type")), part.get("type"))
    if name == "file":
        inner = {key: part.pop(key) for key in ("file_data", "file_id", "filename") if part.get(key) is not None}
        part["file"] = inner
    return part


def _response(body: ChatBody, reply: Reply) -> dict[str, Any]:
    prompt, completion, cached, _ = reply.usage
    reason = {"reason": "max_output_tokens"} if reply.cut else None
    return {
        **_response_head(reply, "incomplete" if reply.cut else "completed"),
        "incomplete_details": reason,
        "output": [_output(reply)],
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        },
        "gridprobe": reply.extra,
    }


def _response_head(reply: Reply, status: str) -> dict[str, Any]:
    none = dict.fromkeys(("error", "incomplete_details", "instructions", "temperature", "top_p", "usage"))
    head = {"id": f"resp_{reply.id}", "object": "response", "created_at": reply.created, "model": reply.model}
    fixed = {"output": [], "parallel_tool_calls": False, "tool_choice": "none", "tools": [], "metadata": {}}
    return {**none, **head, **fixed, "status": status, "store": False}


def _output(reply: Reply, text: str | None = None) -> dict[str, Any]:
    content = [_output_text(reply.content)] if text is None else []
    status = "completed" if text is None else "in_progress"
    return {"id": f"msg_{reply.id}", "type": "message", "status": status, "role": "assistant", "content": content}


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response_events(body: ChatBody, reply: Reply) -> Iterator[StreamEvent]:
    for number, event in enumerate(_response_parts(body, reply)):
        yield _named({**event, "sequence_number": number})


def _response_parts(body: ChatBody, reply: Reply) -> Iterator[dict[str, Any]]:
    item = {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}
    begun = _response_head(reply, "in_progress")
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    yield {"type": "response.output_item.added", "output_index": 0, "item": _output(reply, "")}
    yield {"type": "response.content_part.added", **item, "part": _output_text("")}
    for piece in reply.pieces:
        yield {"type": "response.output_text.delta", **item, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **item, "text": reply.content, "logprobs": []}
    yield {"type": "response.content_part.done", **item, "part": _output_text(reply.content)}
    yield {"type": "response.output_item.done", "output_index": 0, "item": _output(reply)}
    whole = _response(body, reply)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _response_error(error: ApiError) -> StreamEvent:
    return _named({"type": "error", "code": error.code, "message": str(error), "param": None, "sequence_number": 0})


RESPONSES = Dialect(_response, _response_events, _response_error)


# Messages.


class MessagesBody(_WireBody):
    """A request for a message."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "gridprobe",
                    "max_tokens": 100,
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "video", "source": {"type": "url", "url": "file:///videos/talk.mp4"}},
                                {"type": "text", "text": "Which colour is the ball?"},
                            ],
                        }
                    ],
                }
            ]
        }
    )
    messages: list[_WireMessage] = Field(min_length=1, max_length=1000)
    max_tokens: int = Field(ge=1)
    system: Parts | None = None
    stop_sequences: list[str] | None = None

    def to_chat(self) -> ChatBody:
        """The chat that means the same."""
        system = _WireMessage(role="system", content=self.system)
        messages = [_translated(each, _message_part) for each in ([system] if self.system else []) + self.messages]
        return self.chat(messages, max_tokens=self.max_tokens, stop=self.stop_sequences)


def _message_part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a chat; a video or picture has a source: base64 with a type, a URL, or the id of an upload."""
    name, source = part.get("type"), part.get("source")
    if name not in ("image", "video", "document") or not isinstance(source, dict):
        return part
    url, rest = source.get("url"), {key: value for key, value in part.items() if key not in ("type", "source")}
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    elif source.get("type") == "file":
        url = f"upload://{source.get('file_id')}"
    kind = "image_url" if name == "image" else "video_url"
    return {**rest, "type": kind, kind: {"url": url}}


def _message(body: ChatBody, reply: Reply) -> dict[str, Any]:
    return {
        **_message_head(reply),
        "content": [{"type": "text", "text": reply.content}],
        "stop_reason": "max_tokens" if reply.cut else "end_turn",
        "usage": _message_usage(reply),
        "gridprobe": reply.extra,
    }


def _message_head(reply: Reply) -> dict[str, Any]:
    head = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": reply.model, "content": []}
    return {**head, "stop_reason": None, "stop_sequence": None}


def _message_usage(reply: Reply) -> dict[str, int]:
    prompt, completion, cached, _ = reply.usage
    return {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": completion}


def _message_events(body: ChatBody, reply: Reply) -> Iterator[StreamEvent]:
    whole = _message(body, reply)
    yield _named({"type": "message_start", "message": {**_message_head(reply), "usage": whole["usage"]}})
    yield _named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for piece in reply.pieces:
        yield _named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    yield _named({"type": "content_block_stop", "index": 0})
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": end, "usage": whole["usage"], "gridprobe": reply.extra})
    yield _named({"type": "message_stop"})


MESSAGES = Dialect(_message, _message_events, lambda error: _named({"type": "error", "error": error.to_dict()}))
