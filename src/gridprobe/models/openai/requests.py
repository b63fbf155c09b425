"""Asker: messages in, readings and token counts out; pictures that the server has are not sent again."""

import base64
import hashlib
import io
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event, Lock
from typing import Any, NamedTuple, TypeVar

from PIL import Image

from gridprobe.errors import ServerError, UsageError
from gridprobe.models.base import Completion, Request, SamplingParams, Unit, about_tokens, cut_at
from gridprobe.models.openai.client import TRIES, Client, Garbled, Refused
from gridprobe.models.openai.logprobs import Reading, Rung, Samples
from gridprobe.video.frames import Pixels

__all__ = [
    "BATCH",
    "CHAT",
    "Album",
    "Asker",
    "Choices",
    "Part",
    "Picture",
    "Query",
    "Said",
    "Usage",
    "completion_fields",
    "lay_out",
    "message",
    "picture_of",
    "read_completions",
]

# A request as one user message: texts, and a picture after the time of every unit, as our own engine lays them out.

SPECIAL = re.compile(r"<(?=[|/]?[A-Za-z_]+\|?>)")
"""The beginning of what a server might read as a special token, such as <|im_end|> or <image>."""
ALBUM_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Picture:
    """A PNG file, with a name made from its content."""

    png: bytes
    name: str
    pixels: int
    """Width × height."""


Part = str | Picture


def picture_of(pixels: Pixels, size: tuple[int, int] | None = None) -> Picture:
    """Encode a frame, at another size (width, height) if one is given."""
    image = Image.fromarray(pixels)
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=3)
    png = content.getvalue()
    return Picture(png, hashlib.sha256(png).hexdigest(), image.width * image.height)


class Album:
    """Encoded frames by their identity; the least recently used are dropped first. Threads may share it."""

    def __init__(self, capacity: int = ALBUM_BYTES) -> None:
        self._capacity, self._bytes = capacity, 0
        self._pictures: OrderedDict[Hashable, Picture] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable, make: Callable[[], Picture]) -> Picture:
        """The picture of that key; made if it is not there."""
        with self._lock:
            found = self._pictures.get(key)
            if found is not None:
                self._pictures.move_to_end(key)
                return found
        made = make()
        with self._lock:
            if key not in self._pictures:
                self._pictures[key] = made
                self._bytes += len(made.png)
            while self._bytes > self._capacity and len(self._pictures) > 1:
                _, dropped = self._pictures.popitem(last=False)
                self._bytes -= len(dropped.png)
        return made


def lay_out(request: Request, album: Album, *, multiple: int) -> list[Part]:
    """The parts of the message; texts between two pictures are one part."""
    *texts, ending = (f"{_harmless(text)}\n" if text else "" for text in request.texts)
    frames: list[Part] = []
    for unit, text in zip(request.units, texts, strict=True):
        times = ", ".join(f"{time:.1f}" for time in request.times_of(unit))
        frames += [text + (f"<{times} seconds>" if times else ""), _picture(request, unit, album, multiple)]
    prompt = _harmless(request.prompt)
    if request.prompt_order == "frames_first":
        return _joined([*frames, ending, prompt])
    return _joined([f"{prompt}\n", *frames, ending])


def _picture(request: Request, unit: Unit, album: Album, multiple: int) -> Picture:
    group = request.groups[unit.group]
    if group.view.packing != "single":
        raise UsageError("frames cannot be sent to a server in pairs; use packing=single")
    size = group.size(multiple)
    key = (request.frames_of(unit).keys, size, group.view.sheet)
    return album.find(key, lambda: picture_of(group.pictures([unit])[0], size))


def _harmless(text: str) -> str:
    """A user's text without anything that a server could read as a special token: "<|im_end|>" gets a space."""
    return SPECIAL.sub("< ", text)


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Neighbouring texts as one; empty ones are left out."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif part:
            joined.append(part)
    return joined


def message(parts: Sequence[Part], *, names: bool = False, known: Collection[str] = ()) -> list[dict[str, Any]]:
    """The messages of a chat. With `names` the server caches pictures by their name, and `known` ones need no bytes."""
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else _image(part, names=names, known=known)
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def _image(picture: Picture, *, names: bool, known: Collection[str]) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "image_url", "image_url": None}
    if names:
        part["uuid"] = picture.name
    if picture.name not in known:
        part["image_url"] = {"url": f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"}
    return part


T = TypeVar("T")

CHAT, BATCH = "/chat/completions", "/chat/completions/batch"
CACHE_MISS = "Cache miss"
"""What vLLM says if a picture was sent by name only and is no longer in its cache."""
MOST_KNOWN = 100_000
"""After so many names of pictures, they are forgotten."""


class Query(NamedTuple):
    """One message, and the labels to choose from."""

    parts: Sequence[Part]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Usage:
    """Tokens, as the server counts them."""

    prompt: int | None = None
    """None if it does not say."""
    cached: int = 0
    completion: int = 0

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> "Usage":
        """From a reply; anything that is no count is left out."""
        usage = reply.get("usage")
        if not isinstance(usage, Mapping):
            return cls()
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        prompt = _count(usage.get("prompt_tokens"))
        return cls(prompt, min(cached or 0, prompt or 0), _count(usage.get("completion_tokens")) or 0)

    def __add__(self, other: "Usage") -> "Usage":
        prompts = [each for each in (self.prompt, other.prompt) if each is not None]
        prompt = sum(prompts) if prompts else None
        return Usage(prompt, self.cached + other.cached, self.completion + other.completion)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


@dataclass(frozen=True)
class Choices:
    """The choices of one or more replies to one message."""

    choices: Sequence[Mapping[str, Any]]
    usage: Usage
    calls: int
    fingerprint: str


@dataclass(frozen=True)
class Said:
    """What a server said to one query."""

    reading: Reading
    usage: Usage
    calls: int = 1
    fingerprint: str = ""
    """The server's own name for its configuration, if it has one."""


class Asker:
    """Asks one model in one way."""

    def __init__(self, client: Client, model: str, rung: Rung) -> None:
        self.client, self.model, self.rung = client, model, rung
        self.names = False
        """Whether the server finds pictures by their names."""
        self._known: set[str] = set()

    def ask(self, query: Query, stop: Event | None = None) -> Said:
        """Ask one query; a reply that cannot be used is asked for once more."""
        return self._read_again(lambda: self._ask(query, stop))

    def ask_together(self, queries: Sequence[Query], stop: Event | None = None) -> tuple[list[Reading], Usage]:
        """Ask queries with the same labels in one call; the server counts tokens only for all of them."""

        def once() -> tuple[list[Reading], Usage]:
            messages = [query.parts for query in queries]
            reply = self._post(BATCH, messages, self.rung.fields(queries[0].labels), stop)
            choices = _choices(reply)
            if len(choices) != len(queries):
                raise Garbled(f"the server answers {len(choices)} of {len(queries)} conversations")
            return [self.rung.read([choice], queries[0].labels) for choice in choices], Usage.of(reply)

        return self._read_again(once)

    def write(
        self, parts: Sequence[Part], writing: SamplingParams, stop: Event | None = None
    ) -> tuple[list[Completion], Choices]:
        """Texts after one message, without costs; a reply that cannot be used is asked for once more."""
        body = completion_fields(writing, logprobs=not isinstance(self.rung, Samples))
        seed = writing.seed if writing.temperature else None

        def once() -> tuple[list[Completion], Choices]:
            got = self._choices(parts, body, count=writing.samples, seed=seed, stop=stop)
            return read_completions(got.choices, writing, completion=got.usage.completion), got

        return self._read_again(once)

    def _ask(self, query: Query, stop: Event | None) -> Said:
        wanted = self.rung.count if isinstance(self.rung, Samples) else 1
        seed = 0 if wanted > 1 else None
        got = self._choices(query.parts, self.rung.fields(query.labels), count=wanted, seed=seed, stop=stop)
        return Said(self.rung.read(got.choices, query.labels), got.usage, got.calls, got.fingerprint)

    def _choices(
        self, parts: Sequence[Part], fields: Mapping[str, Any], *, count: int, seed: int | None, stop: Event | None
    ) -> Choices:
        """So many choices; a server that gives fewer at once is asked again, with the next seed."""
        choices: list[Mapping[str, Any]] = []
        usage, calls, fingerprint = Usage(), 0, ""
        while len(choices) < count:
            more = {"n": count - len(choices)} if count > 1 else {}
            more |= {} if seed is None else {"seed": seed + calls}
            reply = self._post(CHAT, [parts], {**fields, **more}, stop)
            choices += _choices(reply)
            usage, calls = usage + Usage.of(reply), calls + 1
            fingerprint = str(reply.get("system_fingerprint") or "")
        return Choices(choices[:count], usage, calls, fingerprint)

    def _post(
        self, path: str, messages: Sequence[Sequence[Part]], fields: Mapping[str, Any], stop: Event | None
    ) -> Mapping[str, Any]:
        """Send pictures by name where the server should have them; if it has not, send them after all."""
        known = frozenset(self._known) if self.names else frozenset()
        try:
            reply = self._send(path, messages, fields, known, stop)
        except Refused as error:
            if not known or CACHE_MISS not in error.reply.error:
                raise
            self._known -= {part.name for parts in messages for part in parts if isinstance(part, Picture)}
            reply = self._send(path, messages, fields, frozenset(), stop)
        if self.names:
            if len(self._known) > MOST_KNOWN:
                self._known = set()
            self._known |= {part.name for parts in messages for part in parts if isinstance(part, Picture)}
        return reply

    def _send(
        self,
        path: str,
        messages: Sequence[Sequence[Part]],
        fields: Mapping[str, Any],
        known: frozenset[str],
        stop: Event | None,
    ) -> Mapping[str, Any]:
        turns = [message(parts, names=self.names, known=known) for parts in messages]
        body = {"model": self.model, "messages": turns if path == BATCH else turns[0], **fields}
        return self.client.post(path, body, stop=stop)

    def ask_by_name(self, query: Query) -> Reading:
        """Ask about pictures that were sent before, without their bytes; an error if the server does not have them."""
        names = frozenset(part.name for part in query.parts if isinstance(part, Picture))
        reply = self._send(CHAT, [query.parts], self.rung.fields(query.labels), names, None)
        return self.rung.read(_choices(reply), query.labels)

    def forget(self) -> None:
        """Send all pictures again: the server was restarted."""
        self._known = set()

    def _read_again(self, once: Callable[[], T]) -> T:
        for number in range(TRIES["garbled"]):
            try:
                return once()
            except Garbled as error:
                if number == TRIES["garbled"] - 1:
                    raise ServerError(f"{self.client.address.host}: {error}") from None
        raise AssertionError("unreachable")


def _choices(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The choices in the order of their index."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(each, Mapping) for each in choices):
        raise Garbled("the reply has no choices")
    return sorted(choices, key=lambda choice: _count(choice.get("index")) or 0)


# Texts that a server writes: what is asked for, and what is read from the choices of its reply.


def completion_fields(writing: SamplingParams, *, logprobs: bool) -> dict[str, Any]:
    """What a request's body says; the number of texts and the seed are added by whoever sends it."""
    found: dict[str, Any] = {"max_tokens": writing.limit, "temperature": writing.temperature}
    if logprobs:
        found["logprobs"] = True
    return found | ({"stop": list(writing.stop)} if writing.stop else {})


def read_completions(
    choices: Sequence[Mapping[str, Any]], writing: SamplingParams, *, completion: int
) -> list[Completion]:
    """The texts in the choices; `completion` is how many tokens the server counted in all of them, or 0.

    A server that lists the tokens of each text is taken at its word; otherwise each has its part of what was counted.
    """
    texts = [_read_completion(choice, writing) for choice in choices]
    if not completion or all(text.logprob is not None for text in texts):
        return texts
    left, whole, found = completion, sum(text.tokens for text in texts), []
    for text in texts:
        share = round(left * text.tokens / whole)
        found.append(replace(text, tokens=share))
        left, whole = left - share, whole - text.tokens
    return found


def _read_completion(choice: Mapping[str, Any], writing: SamplingParams) -> Completion:
    """A text; without a list of its tokens, their number is estimated."""
    message = choice.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, str):
        raise Garbled("the reply has no text")
    text, stopped = cut_at(content, writing.stop)
    logprobs = _logprobs(choice)
    tokens = min(writing.limit, about_tokens(content)) if logprobs is None else len(logprobs)
    reason = choice.get("finish_reason")
    finished = stopped or (tokens < writing.limit if reason is None else reason == "stop")
    return Completion(text.strip(), tokens, None if logprobs is None else math.fsum(logprobs), finished)


def _logprobs(choice: Mapping[str, Any]) -> list[float] | None:
    """The log-probability of every token; None if the server does not list them."""
    content = (choice.get("logprobs") or {}).get("content")
    if not content:
        return None
    try:
        return [float(each["logprob"]) for each in content]
    except (KeyError, TypeError, ValueError):
        raise Garbled("the reply's log-probabilities are not numbers") from None
