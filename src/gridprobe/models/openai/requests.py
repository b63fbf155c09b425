"""ChatClient: messages in, label probabilities or texts out; images that the server has are not sent again."""

import base64
import hashlib
import io
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count, pairwise
from threading import Event, Lock
from typing import Any, ClassVar, NamedTuple, TypeVar

from PIL import Image
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from gridprobe.errors import ServerError, UsageError
from gridprobe.models.base import (
    SURFACE_FORMS,
    Completion,
    Request,
    SamplingParams,
    Unit,
    about_tokens,
    cut_at,
    single_tokens,
)
from gridprobe.models.openai.client import ATTEMPTS, Client, InvalidReply, RequestRejected
from gridprobe.video.frames import Pixels

# A request as one user message: texts, and an image after the time of every unit, as our own engine lays them out.

SPECIAL = re.compile(r"<(?=[|/]?[A-Za-z_]+\|?>)")
"""The beginning of what a server might read as a special token, such as <|im_end|> or <image>."""
IMAGE_CACHE_BYTES = 256 * 2**20


class EncodedImage(NamedTuple):
    """A PNG file, with an id made from its content."""

    png: bytes
    uuid: str


Part = str | EncodedImage


def encode_image(pixels: Pixels, size: tuple[int, int] | None = None) -> EncodedImage:
    """Encode a frame, at another size (width, height) if one is given."""
    image = Image.fromarray(pixels)
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=3)
    png = content.getvalue()
    return EncodedImage(png, hashlib.sha256(png).hexdigest())


class ImageCache:
    """Encoded frames by their identity; the least recently used are dropped first. Threads may share it."""

    def __init__(self, capacity: int = IMAGE_CACHE_BYTES) -> None:
        self._capacity, self._bytes = capacity, 0
        self._images: OrderedDict[Hashable, EncodedImage] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, encode: Callable[[], EncodedImage]) -> EncodedImage:
        """The image of that key; encoded if it is not there."""
        with self._lock:
            if key in self._images:
                self._images.move_to_end(key)
                return self._images[key]
        image = encode()
        with self._lock:
            if key not in self._images:
                self._images[key] = image
                self._bytes += len(image.png)
            while self._bytes > self._capacity and len(self._images) > 1:
                self._bytes -= len(self._images.popitem(last=False)[1].png)
        return image


def message_parts(request: Request, images: ImageCache, *, multiple: int) -> list[Part]:
    """The parts of the message; texts between two images are one part."""
    *texts, ending = (f"{_harmless(text)}\n" if text else "" for text in request.texts)
    frames: list[Part] = []
    for unit, text in zip(request.units, texts, strict=True):
        times = ", ".join(f"{time:.1f}" for time in request.times_of(unit))
        frames += [text + (f"<{times} seconds>" if times else ""), _image(request, unit, images, multiple)]
    prompt = _harmless(request.prompt)
    first = request.prompt_order == "frames_first"
    return _joined([*frames, ending, prompt] if first else [f"{prompt}\n", *frames, ending])


def _image(request: Request, unit: Unit, images: ImageCache, multiple: int) -> EncodedImage:
    group = request.groups[unit.group]
    if group.view.packing != "single":
        raise UsageError("frames cannot be sent to a server in pairs; use packing=single")
    size = group.size(multiple)
    key = (request.frames_of(unit).keys, size, group.view.sheet)
    return images.get(key, lambda: encode_image(group.pictures([unit])[0], size))


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


def with_pictures_first(parts: Sequence[Part]) -> list[Part]:
    """All pictures before one text, in which their numbers stand where they stood.

    For a server that moves pictures away from the times before them.
    """
    images = [part for part in parts if isinstance(part, EncodedImage)]
    number = count(1)
    return [*images, "".join(part if isinstance(part, str) else f" picture {next(number)}\n" for part in parts)]


def chat_messages(parts: Sequence[Part], *, uuids: bool = False, known: Collection[str] = ()) -> list[dict[str, Any]]:
    """The messages of a chat. With `uuids` the server caches images by these, and `known` ones need no bytes."""
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
            continue
        url = f"data:image/png;base64,{base64.b64encode(part.png).decode()}" if part.uuid not in known else None
        image = {"type": "image_url", "image_url": {"url": url} if url else None}
        content.append(image | ({"uuid": part.uuid} if uuids else {}))
    return [{"role": "user", "content": content}]


# How letter probabilities are read from a reply: three strategies, the best first.

TOKEN_ID = re.compile(r"token_id:(\d+)")
ANSWER_TOKENS = 16
PRIOR = 0.5
"""Added to every count of answers, so that a letter that was never drawn is unlikely and not impossible."""


@dataclass(frozen=True)
class ServerUsage:
    """What replies say about themselves: tokens, as the server counts them, and its configuration."""

    prompt: int | None = None
    """None if it does not say."""
    cached: int = 0
    completion: int = 0
    calls: int = 0
    fingerprint: str = ""
    """The server's own name for its configuration, if it has one."""

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> "ServerUsage":
        """From a reply; anything that is no count is left out."""
        usage = reply.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        details = usage.get("prompt_tokens_details")
        cached = token_count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        prompt = token_count(usage.get("prompt_tokens"))
        completion, fingerprint = token_count(usage.get("completion_tokens")), reply.get("system_fingerprint")
        return cls(prompt, min(cached or 0, prompt or 0), completion or 0, 1, str(fingerprint or ""))

    def __add__(self, other: "ServerUsage") -> "ServerUsage":
        prompts = [each for each in (self.prompt, other.prompt) if each is not None]
        return ServerUsage(
            sum(prompts) if prompts else None,
            self.cached + other.cached,
            self.completion + other.completion,
            self.calls + other.calls,
            other.fingerprint,
        )


def token_count(value: Any) -> int | None:
    """A value that is a whole number of at least 0, else None."""
    return value if type(value) is int and value >= 0 else None


@dataclass(frozen=True)
class LabelLogprobs:
    """Log-probabilities of the labels, which sum to 1, and the share of all probability that they have."""

    logprobs: tuple[float, ...]
    mass: float
    raw: Mapping[str, float] = field(default_factory=dict)
    """The numbers that the server gave, to compare two replies with."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenIdLogprobs:
    """Requests the log-probabilities of the letters' own tokens, at any rank, from vLLM."""

    encode: Callable[[str], Sequence[int]] = field(repr=False)
    """The server's tokenizer."""
    samples: ClassVar[int] = 1
    name: ClassVar[str] = "ids"
    summary: ClassVar[str] = "exact letter probabilities (by token ids)"

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """What a request's body says about it."""
        ids = [token for tokens in single_tokens(self.encode, labels).values() for token in tokens]
        extensions = {"logprob_token_ids": ids, "return_tokens_as_token_ids": True}
        return {"max_tokens": 1, "temperature": 0, "logprobs": True, **extensions}

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> LabelLogprobs:
        """All forms of a letter together."""
        matches = ((TOKEN_ID.fullmatch(token), value) for token, value in _first_tokens(choices[0]))
        raw = {match[1]: value for match, value in matches if match}
        letters = []
        for label, tokens in single_tokens(self.encode, labels).items():
            if any(str(token) not in raw for token in tokens):
                raise InvalidReply(f"the reply lacks the probability of the letter {label}")
            letters.append(_log_sum([raw[str(token)] for token in tokens]))
        return _normalised(letters, raw)


@dataclass(frozen=True)
class TopLogprobs:
    """Requests the likeliest tokens; a letter that is not among them has a stated bound."""

    count: int = 20
    samples: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """For identities."""
        return f"top{self.count}"

    @property
    def summary(self) -> str:
        """For people."""
        return (
            f"letter probabilities from the {self.count} likeliest tokens; a letter that is not among them has a bound"
        )

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """What a request's body says about it."""
        return {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": self.count}

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> LabelLogprobs:
        """A letter that is missing counts as likely as the least likely token that is there, which is its bound."""
        raw = dict(_first_tokens(choices[0]))
        if len(raw) < 2:
            raise InvalidReply("the reply has no list of likely tokens")
        listed = {re.sub("^[Ġ▁]", " ", token): value for token, value in raw.items()}
        rest = 1.0 - math.fsum(map(math.exp, raw.values()))
        bound = min(min(raw.values()), math.log(max(rest, 1e-12)))
        forms = {label: [form.format(label) for form in SURFACE_FORMS] for label in labels}
        values = {label: [listed[form] for form in forms[label] if form in listed] for label in labels}
        missing = ", ".join(label for label in labels if not values[label])
        lacks = (
            f"the server's list of likely tokens lacks {missing}: counted as {math.exp(bound):.1g} each, their bound"
        )
        letters = [_log_sum(values[label] or [bound]) for label in labels]
        return _normalised(letters, raw, (lacks,) if missing else ())


@dataclass(frozen=True)
class SampledLogprobs:
    """Draws answers and counts how often each letter is among them."""

    samples: int
    at_once: bool = True
    """Whether one request may ask for several answers."""

    @property
    def name(self) -> str:
        """For identities."""
        return f"samples{self.samples}"

    @property
    def summary(self) -> str:
        """For people."""
        return f"no letter probabilities, so {self.samples} answers are drawn for each request and counted"

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """What a request's body says about it."""
        return {"max_tokens": ANSWER_TOKENS, "temperature": 1.0}

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> LabelLogprobs:
        """The share of each letter; an answer without a letter lowers the mass."""
        pattern = re.compile(rf"(?<![A-Za-z])([{''.join(labels)}])(?![A-Za-z])")
        texts = [_text(choice) for choice in choices]
        answers = [match[1] for text in texts if (match := pattern.search(text))]
        if not answers:
            raise InvalidReply(f"none of {len(texts)} answers is an option letter, such as {texts[0][:60]!r}")
        letters = _normalised([math.log(answers.count(label) + PRIOR) for label in labels], {})
        note = f"probabilities are counts of {len(answers)} sampled answers"
        raw = {label: float(answers.count(label)) for label in labels}
        return LabelLogprobs(letters.logprobs, len(answers) / len(texts), raw, (note,))


Strategy = TokenIdLogprobs | TopLogprobs | SampledLogprobs


def _first_tokens(choice: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Tokens and log-probabilities of the first position, the chosen one among them."""
    content = (choice.get("logprobs") or {}).get("content") or []
    try:
        entries = [*(content[0].get("top_logprobs") or []), content[0]]
        return [(str(each["token"]), float(each["logprob"])) for each in entries]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        raise InvalidReply("the reply has no log-probabilities") from None


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    return str(message.get("content") or "") if isinstance(message, Mapping) else ""


def _log_sum(values: Sequence[float]) -> float:
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))


def _normalised(letters: Sequence[float], raw: Mapping[str, float], notes: tuple[str, ...] = ()) -> LabelLogprobs:
    total = _log_sum(letters)
    if not math.isfinite(total):
        raise InvalidReply("the letters' log-probabilities are not numbers")
    return LabelLogprobs(tuple(value - total for value in letters), min(1.0, math.exp(total)), raw, notes)


# Requests to the chat endpoints.

T = TypeVar("T")
Choice = Mapping[str, Any]

CHAT, BATCH = "/chat/completions", "/chat/completions/batch"
CACHE_MISS = "Cache miss"
"""What vLLM says if an image was sent by its id only and is no longer in its cache."""
MOST_UUIDS = 100_000
"""After that many ids of images, they are forgotten."""


class ChatClient:
    """Sends messages to one model; a reply that cannot be used is requested once more."""

    def __init__(
        self, client: Client, model: str, strategy: Strategy, *, uuids: bool = False, pictures_first: bool = False
    ) -> None:
        self.client, self.model, self.strategy = client, model, strategy
        self.pictures_first = pictures_first
        """Whether pictures come before all text; see `with_pictures_first`."""
        self._uuids = uuids
        """Whether the server finds images by their ids."""
        self._sent: set[str] = set()

    def choose(
        self, messages: Sequence[Sequence[Part]], labels: Sequence[str], *, stop: Event | None = None
    ) -> tuple[list[LabelLogprobs], ServerUsage]:
        """The probabilities of the labels after each message, in one call; tokens are counted for all of them."""
        fields, samples = self.strategy.fields(labels), self.strategy.samples

        def once() -> tuple[list[LabelLogprobs], ServerUsage]:
            if len(messages) == 1:
                seed = 0 if samples > 1 else None
                choices, usage = self._complete(messages[0], fields, samples=samples, seed=seed, stop=stop)
                return [self.strategy.read(choices, labels)], usage
            reply = self._post(BATCH, messages, fields, stop)
            choices = _choices(reply)
            if len(choices) != len(messages):
                raise InvalidReply(f"the server answers {len(choices)} of {len(messages)} conversations")
            return [self.strategy.read([choice], labels) for choice in choices], ServerUsage.of(reply)

        return self._read_again(once)

    def choose_by_uuid(self, parts: Sequence[Part], labels: Sequence[str]) -> LabelLogprobs:
        """Send ids of images that were sent before, without their bytes; an error if the server lacks them."""
        image_ids = {part.uuid for part in parts if isinstance(part, EncodedImage)}
        reply = self._send(CHAT, [parts], self.strategy.fields(labels), image_ids, None)
        return self.strategy.read(_choices(reply), labels)

    def generate(
        self, parts: Sequence[Part], params: SamplingParams, *, stop: Event | None = None
    ) -> tuple[list[Completion], ServerUsage]:
        """Texts after one message, without costs."""
        fields: dict[str, Any] = {"max_tokens": params.limit, "temperature": params.temperature}
        if not isinstance(self.strategy, SampledLogprobs):
            fields["logprobs"] = True
        if params.stop:
            fields["stop"] = list(params.stop)
        seed = params.seed if params.temperature else None

        def once() -> tuple[list[Completion], ServerUsage]:
            choices, usage = self._complete(parts, fields, samples=params.samples, seed=seed, stop=stop)
            return _completions(choices, params, usage.completion), usage

        return self._read_again(once)

    def forget(self) -> None:
        """Send all images again: the server was restarted."""
        self._sent = set()

    @property
    def _at_once(self) -> bool:
        return not isinstance(self.strategy, SampledLogprobs) or self.strategy.at_once

    def _complete(
        self, parts: Sequence[Part], fields: Mapping[str, Any], *, samples: int, seed: int | None, stop: Event | None
    ) -> tuple[list[Choice], ServerUsage]:
        """That many choices; a server that gives fewer at once gets another request, with the next seed."""
        choices: list[Choice] = []
        usage = ServerUsage()
        while len(choices) < samples:
            more = {"n": samples - len(choices)} if samples > 1 and self._at_once else {}
            more |= {} if seed is None else {"seed": seed + usage.calls}
            reply = self._post(CHAT, [parts], {**fields, **more}, stop)
            choices += _choices(reply)
            usage += ServerUsage.of(reply)
        return choices[:samples], usage

    def _post(
        self, path: str, messages: Sequence[Sequence[Part]], fields: Mapping[str, Any], stop: Event | None
    ) -> Mapping[str, Any]:
        """Send images by id where the server should have them; if it has not, send them after all."""
        image_ids = frozenset(self._sent)
        try:
            reply = self._send(path, messages, fields, image_ids, stop)
        except RequestRejected as error:
            if not image_ids or CACHE_MISS not in error.reason:
                raise
            reply = self._send(path, messages, fields, (), stop)
        if self._uuids:
            if len(self._sent) > MOST_UUIDS:
                self._sent = set()
            self._sent |= {part.uuid for parts in messages for part in parts if isinstance(part, EncodedImage)}
        return reply

    def _send(
        self,
        path: str,
        messages: Sequence[Sequence[Part]],
        fields: Mapping[str, Any],
        image_ids: Collection[str],
        stop: Event | None,
    ) -> Mapping[str, Any]:
        ordered = map(with_pictures_first, messages) if self.pictures_first else messages
        chats = [chat_messages(parts, uuids=self._uuids, known=image_ids) for parts in ordered]
        body = {"model": self.model, "messages": chats if path == BATCH else chats[0], **fields}
        return self.client.post(path, body, stop=stop)

    def _read_again(self, once: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception_type(InvalidReply), stop=stop_after_attempt(ATTEMPTS["invalid"]), reraise=True
        )
        try:
            return retrying(once)
        except InvalidReply as error:
            raise ServerError(f"{self.client.address.host}: {error}") from None


def _choices(reply: Mapping[str, Any]) -> list[Choice]:
    """The choices in the order of their index."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(each, Mapping) for each in choices):
        raise InvalidReply("the reply has no choices")
    return sorted(choices, key=lambda choice: token_count(choice.get("index")) or 0)


def _completions(choices: Sequence[Choice], params: SamplingParams, tokens: int) -> list[Completion]:
    """The texts in the choices, in which the server counted that many tokens, or 0.

    A server that lists the tokens of each text is taken at its word; otherwise each has its part of what was counted.
    """
    texts = [_completion(choice, params) for choice in choices]
    if not tokens or all(text.logprob is not None for text in texts):
        return texts
    return [
        replace(text, tokens=share)
        for text, share in zip(texts, proportional(tokens, [text.tokens for text in texts]), strict=True)
    ]


def proportional(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to the weights that add up to the total."""
    ends = [round(total * end / sum(weights)) for end in accumulate(weights, initial=0)]
    return [end - start for start, end in pairwise(ends)]


def _completion(choice: Choice, params: SamplingParams) -> Completion:
    """A text; without a list of its tokens, their number is estimated."""
    message, content = choice.get("message"), (choice.get("logprobs") or {}).get("content")
    text = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(text, str):
        raise InvalidReply("the reply has no text")
    try:
        logprobs = [float(each["logprob"]) for each in content or ()]
    except (KeyError, TypeError, ValueError):
        raise InvalidReply("the reply's log-probabilities are not numbers") from None
    tokens = len(logprobs) or min(params.limit, about_tokens(text))
    before, stopped = cut_at(text, params.stop)
    reason = choice.get("finish_reason")
    finished = stopped or (tokens < params.limit if reason is None else reason == "stop")
    return Completion(before.strip(), tokens, math.fsum(logprobs) if logprobs else None, finished)
