"""An OpenAI-compatible server in a thread, with the abilities and faults that a test gives it.

Its model is a function of what arrived: texts and decoded pictures in order. Unless a test brings another, it answers
by a hash of all of that, so that anything that gets lost or changes its place changes the answer.
"""

import base64
import hashlib
import io
import json
import math
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import ascii_uppercase
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
from PIL import Image

from gridprobe.models import Choose, FrameGroup, Model, Request, View, choose, generate
from gridprobe.models.base import Completion, SamplingParams
from gridprobe.models.openai import Server, load
from gridprobe.models.openai.client import RateClock
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.frames import Pixels

__all__ = [
    "KEY",
    "Fake",
    "FakeClock",
    "Fault",
    "Heard",
    "Open",
    "Prose",
    "Voice",
    "as_request",
    "by_eye",
    "by_hash",
    "opener",
    "serving",
    "spoken_by",
    "written_by",
]

Heard = list[str | Pixels]
"""A message: texts and pictures in order."""
Prose = Callable[[Heard, Mapping[str, Any]], Sequence[Completion] | None]
"""The texts for a message and the body it came in; None if it is to be answered with a letter."""
Voice = Callable[[Heard, Sequence[str]], Mapping[str, float]]
"""The probability of every letter, which may sum to less than 1."""
KEY = "sk-secret-0123456789"


def by_hash(heard: Heard, letters: Sequence[str]) -> dict[str, float]:
    """A different answer for every message."""
    digest = hashlib.sha256()
    for part in heard:
        digest.update(part.encode() if isinstance(part, str) else repr(part.shape).encode() + part.tobytes())
    numbers = np.random.default_rng(list(digest.digest())).random(26) + 0.01
    return {letter: 0.9 * float(numbers[ascii_uppercase.index(letter)] / numbers.sum()) for letter in letters}


@dataclass(frozen=True)
class Fault:
    """What one request gets in place of an answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    """Close the connection without a reply."""
    cut: bool = False
    """Announce more bytes than are sent."""

    @classmethod
    def error(cls, status: int, message: str, **headers: str) -> "Fault":
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, json.dumps({"error": {"message": message, "type": "x"}}).encode(), named)


class FakeClock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.time, self.slept = 0.0, 0.0
        self.on_sleep: Callable[[], None] = lambda: None
        self._lock = Lock()

    def sleep(self, seconds: float, stop: Event) -> None:
        with self._lock:
            self.time += seconds
            self.slept += seconds
        self.on_sleep()

    @property
    def clock(self) -> RateClock:
        return RateClock(lambda: self.time, self.sleep)


@dataclass
class Fake:
    """What the server does."""

    voice: Voice = by_hash
    prose: Prose = lambda heard, body: None
    models: tuple[str, ...] = ("fake",)
    key: str | None = None
    ids: bool = True
    """Whether it returns the probabilities of given token ids, and has /tokenize."""
    top: int = 20
    """How many likely tokens it lists at most; 0 is none, without an error."""
    many: bool = True
    """Whether it returns n choices; otherwise one."""
    batches: bool = True
    names: bool = True
    counts: bool = True
    """Whether it counts tokens."""
    fingerprint: str | None = "fake-1"
    most_pictures: int = 999
    keeps: int = 999
    """It reads so many pictures and drops the others in silence."""
    shuffles: Callable[[Heard], Heard] = lambda heard: heard
    """What its chat template makes of a message."""
    per_part: int = 0
    """Tokens around every part."""
    cached: int = 0
    """Tokens that it claims to have in its cache."""
    caches: bool = False
    """Whether it has those in its cache that an earlier message began with."""
    smallest: int = 0
    """Tokens of a picture at least."""
    count: Callable[[Heard], int] | None = None
    """Tokens of a message; by default four characters, or 32×32 pixels, are one."""
    faults: list[Fault] = field(default_factory=list)
    """For the next requests to the chat endpoints."""
    choose: Callable[[Mapping[str, Any]], Fault | None] = lambda body: None
    """A fault for some requests."""
    down: Callable[[], bool] = lambda: False
    """Whether it drops all connections."""

    def __post_init__(self) -> None:
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.keys: list[str | None] = []
        self.pictures: dict[str, Pixels] = {}
        self.read: list[Heard] = []
        """The messages that it has read, if it has a cache."""
        self.sent = 0
        """Pictures that arrived with their bytes."""
        self.url = ""
        self._lock = Lock()

    @property
    def asked(self) -> int:
        """How many requests went to the chat endpoints."""
        return sum("chat" in path for path, _ in self.requests)

    def get(self, path: str) -> tuple[int, Any]:
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}
        return 404, {"detail": "Not Found"}

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any] | Fault:
        with self._lock:
            self.requests.append((path, body))
            if "chat" in path:
                fault = self.faults.pop(0) if self.faults else self.choose(body)
                if fault is not None:
                    return fault
        if path == "/tokenize" and self.ids:
            return 200, {"tokens": _tokenize(body["prompt"])}
        if path == "/v1/chat/completions":
            return self._chat([body["messages"]], body)
        if path == "/v1/chat/completions/batch" and self.batches:
            return self._chat(body["messages"], body)
        return 404, {"detail": "Not Found"}

    def _chat(self, conversations: Sequence[Any], body: Mapping[str, Any]) -> tuple[int, Any]:
        choices: list[Any] = []
        tokens = written = 0
        cached = self.cached
        for messages in conversations:
            try:
                heard = self._hear(messages[0]["content"])
            except LookupError:
                return 400, {"error": {"message": "Cache miss for image at index 0 but data is not provided."}}
            pictures = [part for part in heard if not isinstance(part, str)]
            if len(pictures) > self.most_pictures:
                return 400, {
                    "error": {"message": f"At most {self.most_pictures} image(s) may be provided in one prompt."}
                }
            heard = self.shuffles(_limited(heard, self.keeps))
            tokens += (self.count or self._count)(heard)
            if self.caches:
                cached += max((self._count(shared(heard, earlier)) for earlier in self.read), default=0)
                self.read.append(heard)
            wanted = body.get("n", 1) if self.many else 1
            texts = self.prose(heard, {**body, "n": wanted})
            for number in range(wanted):
                found = self._choice(heard, body, len(choices)) if texts is None else self._told(texts[number], body)
                choices.append({"index": len(choices), **found})
            written += wanted if texts is None else sum(text.tokens for text in texts)
        usage = {"prompt_tokens": tokens, "completion_tokens": written}
        if cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
        reply = {"object": "chat.completion", "choices": choices, "system_fingerprint": self.fingerprint}
        return 200, reply | ({"usage": usage} if self.counts else {})

    def _told(self, text: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
        choice: dict[str, Any] = {"message": {"role": "assistant", "content": text.text}, "logprobs": None}
        choice["finish_reason"] = "stop" if text.finished else "length"
        if body.get("logprobs") and self.top:
            each = {"token": "?", "logprob": (text.logprob or 0.0) / text.tokens}
            choice["logprobs"] = {"content": [each] * text.tokens}
        return choice

    def _choice(self, heard: Heard, body: Mapping[str, Any], number: int) -> dict[str, Any]:
        letters = self.voice(heard, ascii_uppercase)
        rng = np.random.default_rng(number + body.get("seed", 0))
        shares = np.array(list(letters.values()))
        drawn = list(letters)[rng.choice(len(shares), p=shares / shares.sum())]
        text = drawn if body.get("temperature") else max(letters, key=lambda letter: letters[letter])
        choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}, "logprobs": None}
        if not body.get("logprobs"):
            return choice
        if self.ids and body.get("logprob_token_ids"):
            found = {f"token_id:{i}": _log(letters.get(chr(i), 0.0)) for i in body["logprob_token_ids"]}
        else:
            ranked = sorted(letters.items(), key=lambda item: -item[1])[: min(self.top, body.get("top_logprobs", 0))]
            found = {letter: _log(share) for letter, share in ranked}
        if found:
            entries = [{"token": token, "logprob": value} for token, value in found.items()]
            choice["logprobs"] = {"content": [{**entries[0], "top_logprobs": entries}]}
        return choice

    def _hear(self, content: Any) -> Heard:
        heard: Heard = []
        for part in content:
            if part["type"] == "text":
                heard.append(part["text"])
                continue
            name = part.get("uuid") if self.names else None
            if part["image_url"] is None:
                heard.append(self.pictures[name or ""])
                continue
            data = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
            pixels = np.asarray(Image.open(io.BytesIO(data), formats=["PNG"]))
            with self._lock:
                self.sent += 1
            if name:
                self.pictures[name] = pixels
            heard.append(pixels)
        return heard

    def _count(self, heard: Heard) -> int:
        tokens = 10 + sum(len(part) for part in heard if isinstance(part, str)) // 4 + self.per_part * len(heard)
        for part in heard:
            if not isinstance(part, str):
                tokens += max(self.smallest, part.shape[0] * part.shape[1] // 1024) + 2
        return tokens


def by_eye(heard: Heard, letters: Sequence[str]) -> dict[str, float]:
    """A model that knows the colour of the first picture."""
    first = next((part for part in heard if not isinstance(part, str)), None)
    red = first is not None and first[..., 0].mean() > first[..., 2].mean()
    return {letter: 0.98 if letter == ("A" if red else "B") else 0.02 / 25 for letter in letters}


def shared(heard: Heard, earlier: Heard) -> Heard:
    """The parts that two messages begin with, and what the first texts that differ begin with."""
    alike: Heard = []
    for one, other in zip(heard, earlier, strict=False):
        if isinstance(one, str) and isinstance(other, str) and one != other:
            length = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
            return [*alike, one[:length]]
        if isinstance(one, str) != isinstance(other, str) or not np.array_equal(one, other):
            break
        alike.append(one)
    return alike


def _limited(heard: Heard, most: int) -> Heard:
    kept, seen = [], 0
    for part in heard:
        seen += not isinstance(part, str)
        if isinstance(part, str) or seen <= most:
            kept.append(part)
    return kept


def _tokenize(text: str) -> list[int]:
    """Letters are tokens of their own; " A" and "(A" are two."""
    return [ord(letter) for letter in text]


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -9999.0


def as_request(heard: Heard) -> Request:
    """The request that our own engine would have got: every picture as it is, at the time before it."""
    texts, times, pictures = [], [], []
    before = ""
    for part in heard:
        if isinstance(part, str):
            before += part
            continue
        found = re.fullmatch(r"(?s)(.*)<(\d+\.\d) seconds>", before)
        texts.append((found[1] if found else before).removesuffix("\n"))
        times.append(float(found[2]) if found else 0.0)
        pictures.append(part)
        before = ""
    groups = []
    for shape in dict.fromkeys(picture.shape for picture in pictures):
        places = [i for i, picture in enumerate(pictures) if picture.shape == shape]
        pool = FramePool(np.stack([pictures[i] for i in places]), tuple(times[i] for i in places), source="sent")
        groups.append(FrameGroup(pool, View(FrameSize(), timestamps="true" if any(times) else "none")))
    between = (*texts, "") if any(texts) else ()
    return Request(before, Choose(tuple(ascii_uppercase)), tuple(groups), between=between)


def spoken_by(model: Model) -> Voice:
    """The voice of a real model."""

    def voice(heard: Heard, letters: Sequence[str]) -> dict[str, float]:
        (posterior,) = choose(model, [as_request(heard)])
        return {letter: share * posterior.mass for letter, share in posterior.probabilities.items()}

    return voice


def written_by(model: Model, marker: str = "Describe") -> Prose:
    """The texts of a real model after messages with this word in them."""

    def prose(heard: Heard, body: Mapping[str, Any]) -> Sequence[Completion] | None:
        if not any(isinstance(part, str) and marker in part for part in heard):
            return None
        stop = tuple(body.get("stop", ()))
        writing = SamplingParams(body["max_tokens"], body["temperature"], body["n"], body.get("seed", 0), stop)
        return generate(model, [replace(as_request(heard), task=Choose(()))], writing)[0]

    return prose


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Http"

    def do_GET(self) -> None:
        self._serve(lambda fake: fake.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._serve(lambda fake: fake.post(self.path, body))

    def _serve(self, act: Callable[[Fake], tuple[int, Any] | Fault]) -> None:
        fake = self.server.fake
        key = self.headers.get("Authorization")
        fake.keys.append(key)
        if fake.down():
            found: tuple[int, Any] | Fault = Fault(drop=True)
        elif fake.key and key != f"Bearer {fake.key}":
            found = 401, {"error": {"message": f"Incorrect API key provided: {(key or '').removeprefix('Bearer ')}"}}
        else:
            found = act(fake)
        fault = found if isinstance(found, Fault) else Fault(found[0], json.dumps(found[1]).encode())
        if fault.drop:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(fault.body) + (100 if fault.cut else 0)))
        self.end_headers()
        self.wfile.write(fault.body)
        if fault.cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    fake: Fake

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


@contextmanager
def serving(fake: Fake) -> Iterator[str]:
    """Run it on a free port; the value is its address."""
    http = _Http(("127.0.0.1", 0), _Handler)
    http.fake = fake
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield fake.url
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


Open = Callable[..., Server]
"""A fake, a model's name such as "#two", a clock and options -> the loaded server."""


@contextmanager
def opener() -> Iterator[Open]:
    """Loads fakes, and closes them in the end."""
    with ExitStack() as stack:

        def open_one(fake: Fake, name: str = "", *, clock: FakeClock | None = None, **options: Any) -> Server:
            url = stack.enter_context(serving(fake))
            server = load(f"{url}{name}", clock=(clock or FakeClock()).clock, **options)
            stack.callback(server.close)
            return server

        yield open_one
