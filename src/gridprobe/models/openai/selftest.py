"""The self-test: what a server can do, found by what its replies contain and never by their status.

It takes about fifteen small requests. Images of coloured noise in two orders must give two replies, and so must two
times, so a server that drops images, sorts them or detaches the times from them is found before a run. One that
detaches them, as Ollama does, gets pictures before all text, if their order and the times in the text then count.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gridprobe.errors import ModelError, ServerError, ServerUnavailable
from gridprobe.models.base import Cost, CostModel, Request, SamplingParams
from gridprobe.models.openai.client import Client, RequestRejected, ServerOptions
from gridprobe.models.openai.requests import (
    ChatClient,
    EncodedImage,
    LabelLogprobs,
    Part,
    SampledLogprobs,
    ServerUsage,
    Strategy,
    TokenIdLogprobs,
    TopLogprobs,
    encode_image,
    proportional,
)

# What requests cost: tokens, money, and floating-point operations where the model is known.

CHARACTERS = 4
"""Characters of a token, roughly."""
MARKER = "<1234.5 seconds>"


@dataclass(frozen=True)
class TokenRule:
    """How many tokens a server makes of a message, fitted to what it reported in the self-test."""

    overhead: float = 10.0
    """Tokens around the message."""
    least: float = 1.0
    """Tokens of the smallest image."""
    fixed: float = 2.0
    """Tokens of a larger image: these, and `per_pixel` for each pixel."""
    per_pixel: float = 1 / 1024

    @classmethod
    def fitted(cls, overhead: float, images: Sequence[tuple[int, float]]) -> "TokenRule":
        """From the pixels and tokens of a small image and of two larger ones, in rising order."""
        (_, least), (pixels, tokens), (most_pixels, most) = images
        slope = max(0.0, (most - tokens) / (most_pixels - pixels))
        return cls(overhead, least, most - slope * most_pixels, slope)

    def image(self, pixels: int) -> int:
        """Tokens of an image."""
        return round(max(self.least, self.fixed + self.per_pixel * pixels))

    def visual(self, request: Request, multiple: int) -> int:
        """Tokens of all images of a request."""
        sizes = [group.size(multiple) for group in request.groups]
        return sum(self.image(sizes[unit.group][0] * sizes[unit.group][1]) for unit in request.units)

    def total(self, request: Request, multiple: int) -> int:
        """Tokens of a request."""
        texts = [request.prompt, *request.texts]
        characters = sum(map(len, texts)) + len(MARKER) * len(request.units)
        return round(self.overhead + characters / CHARACTERS) + self.visual(request, multiple)


def sent_whole(request: Request) -> Request:
    """The request as it is billed: close-ups come with their overview, whatever the server's cache holds of that."""
    return replace(request, close_ups=False)


@dataclass(frozen=True)
class ServerPricing:
    """What requests to one server cost, before and after they are sent."""

    options: ServerOptions
    rule: TokenRule
    cost_model: CostModel | None
    """Counts the floating-point operations of the model, if it is known."""

    @property
    def multiple(self) -> int:
        """Sides of images are multiples of this: the model's own, or what most models like."""
        return self.cost_model.capabilities.frame_multiple if self.cost_model else 32

    def estimate(self, request: Request) -> Cost:
        """The cost of a request before it is sent."""
        if self.cost_model is not None:
            cost = self.cost_model.cost(sent_whole(request.prompt_only))
        else:
            tokens, visual = (count(request, self.multiple) for count in (self.rule.total, self.rule.visual))
            cost = Cost(calls=1, tokens=tokens, visual_tokens=visual, unpriced=1)
        return replace(cost, money=self._money(ServerUsage(cost.tokens, completion=1)))

    def spent(self, requests: Sequence[Request], usage: ServerUsage) -> list[Cost]:
        """The costs of requests whose tokens were counted together: each has its part of what was expected."""
        expected = [self.estimate(request).tokens for request in requests]
        if len(requests) == 1:
            return [self._spent(requests[0], usage)]
        if not usage.prompt or not sum(expected):
            return [self._spent(request, ServerUsage(calls=1)) for request in requests]
        return [
            self._spent(request, ServerUsage(tokens, usage.cached * tokens // usage.prompt, completion=1, calls=1))
            for request, tokens in zip(requests, proportional(usage.prompt, expected), strict=True)
        ]

    def _spent(self, request: Request, usage: ServerUsage) -> Cost:
        """The cost of a request with the tokens that the server counted.

        Floating-point operations are those of the known model, in proportion if the server counts other tokens. What
        was computed is in proportion to the tokens that were not in its cache.
        """
        expected = replace(self.estimate(request), calls=usage.calls)
        if usage.prompt is None:
            return expected
        cost = replace(expected, tokens=usage.prompt, money=self._money(usage))
        if not usage.prompt or not expected.tokens:
            return cost
        ratio, fresh = usage.prompt / expected.tokens, 1 - usage.cached / usage.prompt
        return replace(
            cost,
            cached_tokens=usage.cached,
            flops=expected.flops * ratio,
            flops_paper=expected.flops_paper * ratio,
            flops_computed=expected.flops * ratio * fresh,
            unpriced=usage.calls if self.cost_model is None else 0,
        )

    def estimate_texts(self, request: Request, tokens: Sequence[int]) -> Cost:
        """The cost of texts of that many tokens each, with the request read once, before it is sent."""
        return sum(self._texts(request, tokens), self._prompt_only(self.estimate(request)))

    def spent_on_texts(self, request: Request, usage: ServerUsage, tokens: Sequence[int]) -> list[Cost]:
        """The cost of every text; the first one has that of reading the request as the server counted it."""
        first, *more = self._texts(request, tokens)
        return [self._prompt_only(self._spent(request, usage)) + first, *more]

    def _texts(self, request: Request, tokens: Sequence[int]) -> list[Cost]:
        """What texts cost in addition to their request."""
        costs = []
        for count in tokens:
            cost = Cost(tokens=count, money=self._money(ServerUsage(completion=count)))
            if self.cost_model is not None and self.cost_model.capabilities.generates:
                text = replace(sent_whole(request), task=SamplingParams(limit=max(1, count)))
                both, alone = self.cost_model.cost(text), self.cost_model.cost(text.prompt_only)
                flops, paper = both.flops - alone.flops, both.flops_paper - alone.flops_paper
                cost = replace(cost, flops=flops, flops_paper=paper, flops_computed=flops)
            costs.append(cost)
        return costs

    def _prompt_only(self, cost: Cost) -> Cost:
        return replace(cost, money=self._money(ServerUsage(cost.tokens, cost.cached_tokens)))

    def _money(self, usage: ServerUsage) -> float:
        options, prompt = self.options, usage.prompt or 0
        cached = options.price_in if options.price_cached is None else options.price_cached
        fresh = (prompt - usage.cached) * options.price_in
        return (fresh + usage.cached * cached + usage.completion * options.price_out) / 1e6


# The self-test.

LABELS = ("A", "B")
PROMPT = (
    "Which picture has more red?\nA. the first\nB. the second\nAnswer with the option's letter from the given choices."
)
COLOUR_PROMPT = "Which colour has the first picture?\nA. red\nB. blue\nAnswer with the option's letter."
TOPS = (20, 5)
"""Lengths of the list of likely tokens that are tried."""
FEW, MANY, MANY_TOKENS = 40, 144, 16_000
"""How many images are sent at once: as many as a grid of 12×12, or fewer if they take more tokens than this."""
SIZES = ((64, 64), (448, 448), (640, 448))
"""Images that the number of tokens is fitted to: a small one, and two that no model enlarges."""
SMALL, WASTE = (224, 128), 1.5
"""A small frame; a note says so if it takes that many times the tokens that its size would need."""
NOISE = 4.0
"""Two replies are different if they differ by more than that many times what a repeated request differs by."""
TOLERANCE = 0.05
"""After a restart no letter's probability may differ by more than this."""
PICTURES_FIRST = "it separates pictures from the times before them, so they come first and the text counts them"
START = (
    "start it with vLLM, as in: vllm serve MODEL --max-logprobs 20 "
    "--limit-mm-per-prompt '{\"image\": 160}' (see docs/models.md)"
)


def _noise(seed: int, size: tuple[int, int] = SIZES[0]) -> EncodedImage:
    """Large coloured blocks, different for every seed."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    rows, columns = (np.arange(side) * 8 // side for side in (size[1], size[0]))
    return encode_image(blocks[rows][:, columns])


def _two_frames(images: Sequence[EncodedImage], times: tuple[float, float] = (1.0, 2.0)) -> list[Part]:
    """Two images, each after its time, and the question."""
    first, second = (f"<{time:.1f} seconds>" for time in times)
    return [first, images[0], second, images[1], PROMPT]


FIRST, SECOND = _noise(1), _noise(2)
CANARY = _two_frames((FIRST, SECOND))
"""The message that shows whether a server is still the same."""
SWAPPED = _two_frames((SECOND, FIRST))


@dataclass(frozen=True)
class ServerFeatures:
    """What a server can do."""

    strategy: Strategy
    rule: TokenRule
    images: int
    """How many images it took at once."""
    fingerprint: str
    canary: LabelLogprobs
    """Its reply to the canary."""
    batches: bool = False
    """Whether it has an endpoint for many conversations."""
    uuids: bool = False
    """Whether it finds images by their ids."""
    pictures_first: bool = False
    """Whether it gets pictures before all text, because it moves them away from their times."""
    notes: tuple[str, ...] = ()


def examine(client: Client, model: str, *, samples: int) -> ServerFeatures:
    """Test a server."""
    chat, canary, fingerprint = _best_strategy(client, model, samples)
    chat, canary, notes = _readable(chat, canary)
    rule, more = _count_tokens(chat)
    images = _count_images(chat, rule)
    by_ids = isinstance(chat.strategy, TokenIdLogprobs)
    return ServerFeatures(
        chat.strategy,
        rule,
        images,
        fingerprint,
        canary,
        batches=by_ids and _supports(_has_batches, chat, canary),
        uuids=by_ids and _supports(_has_uuids, chat, canary),
        pictures_first=chat.pictures_first,
        notes=(*notes, *more),
    )


def _readable(chat: ChatClient, canary: LabelLogprobs) -> tuple[ChatClient, LabelLogprobs, list[str]]:
    """The chat in a layout whose pictures and times the server keeps together, its reply to the canary, and notes."""
    try:
        return chat, canary, _check_reading(chat, canary)
    except ServerUnavailable:
        raise
    except ServerError as error:
        other = ChatClient(chat.client, chat.model, chat.strategy, pictures_first=True)
        try:
            canary = letters(other, CANARY)
            return other, canary, [*_check_reading(other, canary), PICTURES_FIRST]
        except ServerUnavailable:
            raise
        except ServerError:
            raise error from None


def _check_reading(chat: ChatClient, canary: LabelLogprobs) -> list[str]:
    """Raise ServerError if pictures, their order or their times get lost; returns notes."""
    if isinstance(chat.strategy, SampledLogprobs):
        _check_by_eye(chat)
    else:
        _check_by_numbers(chat, canary)
    return _check_parts(chat)


def letters(chat: ChatClient, parts: Sequence[Part]) -> LabelLogprobs:
    """The reply to a message of the self-test."""
    (reply,), _ = chat.choose([parts], LABELS)
    return reply


def _tokens(chat: ChatClient, *parts: Part) -> int | None:
    """The tokens of a message, if the server counts them; each sample may be a request of its own."""
    _, usage = chat.choose([parts], LABELS)
    return None if usage.prompt is None else usage.prompt // usage.calls


def _supports(test: Callable[..., object], *arguments: object) -> bool:
    """Whether a test succeeds; not if the server refuses it, but is still there."""
    try:
        return bool(test(*arguments))
    except ServerUnavailable:
        raise
    except ServerError:
        return False


def _best_strategy(client: Client, model: str, samples: int) -> tuple[ChatClient, LabelLogprobs, str]:
    """The best way to get letter probabilities, its reply to the canary, and the server's fingerprint."""

    @lru_cache(maxsize=1024)
    def encode(text: str) -> tuple[int, ...]:
        reply = client.post("//tokenize", {"model": model, "prompt": text, "add_special_tokens": False})
        tokens = reply.get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise ServerError("the server's /tokenize returns no token ids")
        return tuple(tokens)

    reasons = []
    strategies: list[Strategy] = [*map(TopLogprobs, TOPS)]
    strategies += [SampledLogprobs(samples), SampledLogprobs(samples, at_once=False)]
    if _supports(encode, "A"):
        strategies.insert(0, TokenIdLogprobs(encode))
    for strategy in strategies:
        chat = ChatClient(client, model, strategy)
        try:
            replies, usage = chat.choose([CANARY], LABELS)
            return chat, replies[0], usage.fingerprint
        except ServerUnavailable:
            raise
        except ModelError as error:
            reasons.append(f"{strategy.name}: {str(error).removeprefix(client.address.host).lstrip(': ')}")
    raise ServerError(f"{client.address.host} gives no letter probabilities ({'; '.join(reasons)}); {START}")


def _distance(one: LabelLogprobs, other: LabelLogprobs) -> float:
    """The largest difference between the log-probabilities of two replies; tokens of only one count for 1."""
    a, b = one.raw, other.raw
    differences = [abs(a[token] - b[token]) for token in a.keys() & b.keys()]
    return max([*differences, 1.0 if a.keys() != b.keys() else 0.0])


def _check_by_numbers(chat: ChatClient, canary: LabelLogprobs) -> None:
    """Images, their order and their times must change the reply."""
    noise = _distance(canary, letters(chat, CANARY))
    texts = [part for part in CANARY if isinstance(part, str)]
    variants: dict[str, Sequence[Part]] = {
        "ignores pictures": texts,
        "does not keep the order of pictures": SWAPPED,
        "does not show the times before pictures": _two_frames((FIRST, SECOND), (37.5, 98.0)),
        "moves times away from their pictures": [*texts[:2], FIRST, SECOND, PROMPT],
    }
    for complaint, parts in variants.items():
        if _distance(canary, letters(chat, parts)) <= NOISE * noise:
            raise ServerError(f"{chat.client.address.host} {complaint}, so its answers would be useless; {START}")


def _check_parts(chat: ChatClient) -> list[str]:
    """A server that makes a message of every part needs more tokens for the same text in pieces."""
    pieces = re.findall(r"[^ ]+ ?", PROMPT)
    whole, split = _tokens(chat, PROMPT), _tokens(chat, *pieces)
    if whole is None or split is None:
        return ["the server counts no tokens, so they are estimated, and dropped frames cannot be noticed"]
    if split - whole > 2 * (len(pieces) - 1):
        raise ServerError(
            f"{chat.client.address.host} makes a message of every part ({split} tokens instead of {whole}), "
            f"so times and pictures do not belong together; {START}"
        )
    return []


def _check_by_eye(chat: ChatClient) -> None:
    """Without numbers to compare: a model that sees images in order can name their colours."""
    red, blue = (encode_image(np.full((64, 64, 3), colour, np.uint8)) for colour in ((220, 20, 20), (20, 20, 220)))
    for images, right in (((red, blue), 0), ((blue, red), 1)):
        parts = [*_two_frames(images)[:-1], COLOUR_PROMPT]
        logprobs = letters(chat, parts).logprobs
        if logprobs[right] <= logprobs[1 - right]:
            raise ServerError(
                f"{chat.client.address.host} gives no probabilities and does not name the colour of the first of two "
                f"pictures, so it cannot be used; {START}"
            )


def _count_tokens(chat: ChatClient) -> tuple[TokenRule, list[str]]:
    """Fit the rule for tokens; a note if small images cost as much as larger ones."""
    text = _tokens(chat, PROMPT)
    images = []
    for number, size in enumerate(SIZES):
        tokens = _tokens(chat, _noise(10 + number, size), PROMPT)
        if tokens is None or text is None:
            return TokenRule(), []
        images.append((size[0] * size[1], tokens - text))
    text = text or 0
    rule = TokenRule.fitted(text - len(PROMPT) / CHARACTERS, images)
    small = (_tokens(chat, _noise(20, SMALL), PROMPT) or 0) - text
    fair = images[1][1] * SMALL[0] * SMALL[1] / images[1][0]
    if small <= WASTE * fair:
        return rule, []
    note = (
        f"a frame of {SMALL[0]}×{SMALL[1]} takes {small} tokens and not {fair:.0f} as its size would need, so small "
        "frames save less; for Qwen3-VL start vLLM with --mm-processor-kwargs '{\"min_pixels\": 4096}'"
    )
    return rule, [note]


def _count_images(chat: ChatClient, rule: TokenRule) -> int:
    """Send many images at once: all must be read, as their tokens show. Returns how many it took."""
    count = int(min(MANY, max(FEW, MANY_TOKENS // max(1.0, rule.least))))
    images = [_noise(100 + number) for number in range(count)]
    one = _tokens(chat, images[0], PROMPT)
    try:
        many = _tokens(chat, *images, PROMPT)
    except RequestRejected as error:
        limit = re.search(r"[Aa]t most (\d+) image", error.reason)
        if limit is None:
            raise
        return int(limit[1])
    text = _tokens(chat, PROMPT)
    if one is None or many is None or text is None:
        return count
    read = round((many - text) / max(1, one - text))
    if read < count:
        raise ServerError(
            f"{chat.client.address.host} reads {read} of {count} pictures and says nothing about the others; {START}"
        )
    return count


def _has_batches(chat: ChatClient, canary: LabelLogprobs) -> bool:
    """Whether two conversations in one call give what each gives alone."""
    (first, second), _ = chat.choose([CANARY, SWAPPED], LABELS)
    return near(canary, first) and near(letters(chat, SWAPPED), second)


def _has_uuids(chat: ChatClient, canary: LabelLogprobs) -> bool:
    """Whether images can be sent once and named later."""
    named = ChatClient(chat.client, chat.model, chat.strategy, uuids=True, pictures_first=chat.pictures_first)
    return near(canary, letters(named, CANARY)) and near(canary, named.choose_by_uuid(CANARY, LABELS))


def near(one: LabelLogprobs, other: LabelLogprobs) -> bool:
    """Whether two replies give every letter about the same probability."""
    pairs = zip(one.logprobs, other.logprobs, strict=True)
    return all(abs(math.exp(a) - math.exp(b)) < TOLERANCE for a, b in pairs)
