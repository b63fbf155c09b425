"""The self-test: what a server can do, found by what its replies contain and never by their status.

It takes about fifteen small requests. Pictures of coloured noise in two orders must give two readings, and so must two
times, so a server that drops pictures, sorts them or detaches the times from them is found before a run.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from gridprobe.errors import ModelError, ServerError, ServerUnavailable
from gridprobe.models.base import CostModel, Request, SamplingParams
from gridprobe.models.cost import Cost
from gridprobe.models.openai.client import Client, Refused
from gridprobe.models.openai.logprobs import Ids, Rung, Samples, Top
from gridprobe.models.openai.options import ServerOptions
from gridprobe.models.openai.requests import Asker, Part, Picture, Query, Said, Usage, picture_of

__all__ = ["CANARY", "Ability", "Bill", "TokenRule", "examine", "near"]

# What requests to a server cost: tokens, money, and floating-point operations where the model is known.

CHARACTERS = 4
"""Characters of a token, roughly."""
MARKER = "<1234.5 seconds>"


@dataclass(frozen=True)
class TokenRule:
    """How many tokens a server makes of a message, fitted to what it reported in the self-test."""

    turn: float = 10.0
    """Tokens around the message."""
    least: float = 1.0
    """Tokens of the smallest picture."""
    fixed: float = 2.0
    """Tokens of a larger picture: these, and so many for each pixel."""
    per_pixel: float = 1 / 1024

    @classmethod
    def fitted(cls, turn: float, seen: Sequence[tuple[int, float]]) -> "TokenRule":
        """From the pixels and tokens of a small picture and of two larger ones, in rising order."""
        (_, least), (pixels, tokens), (most_pixels, most) = seen
        slope = max(0.0, (most - tokens) / (most_pixels - pixels))
        return cls(turn, least, most - slope * most_pixels, slope)

    def picture(self, pixels: int) -> int:
        """Tokens of a picture."""
        return round(max(self.least, self.fixed + self.per_pixel * pixels))

    def visual(self, request: Request, multiple: int) -> int:
        """Tokens of all pictures of a request."""
        sizes = [group.size(multiple) for group in request.groups]
        return sum(self.picture(sizes[unit.group][0] * sizes[unit.group][1]) for unit in request.units)

    def total(self, request: Request, multiple: int) -> int:
        """Tokens of a request."""
        texts = [request.prompt, *request.texts]
        characters = sum(map(len, texts)) + len(MARKER) * len(request.units)
        return round(self.turn + characters / CHARACTERS) + self.visual(request, multiple)


@dataclass(frozen=True)
class Bill:
    """Prices requests to one server."""

    options: ServerOptions
    rule: TokenRule
    gauge: CostModel | None
    """Counts the floating-point operations of the model, if it is known."""

    @property
    def multiple(self) -> int:
        """Sides of pictures are multiples of this: the model's own, or what most models like."""
        return self.gauge.capabilities.frame_multiple if self.gauge else 32

    def estimate(self, request: Request) -> Cost:
        """The cost of a request before it is sent."""
        if self.gauge is not None:
            cost = self.gauge.cost(request.prompt_only)
        else:
            tokens, visual = (count(request, self.multiple) for count in (self.rule.total, self.rule.visual))
            cost = Cost(calls=1, tokens=tokens, visual_tokens=visual, unpriced=1)
        return replace(cost, money=self._money(Usage(cost.tokens, 0, 1)))

    def spent(self, request: Request, usage: Usage, calls: int = 1) -> Cost:
        """The cost of a request with the tokens that the server counted.

        Floating-point operations are those of the known model, in proportion if the server counts other tokens. What
        was computed is in proportion to the tokens that were not in its cache.
        """
        expected = self.estimate(request)
        if usage.prompt is None:
            return replace(expected, calls=calls)
        if not usage.prompt or not expected.tokens:
            return replace(expected, calls=calls, tokens=usage.prompt, money=self._money(usage))
        ratio, fresh = usage.prompt / expected.tokens, 1 - usage.cached / usage.prompt
        return replace(
            expected,
            calls=calls,
            tokens=usage.prompt,
            cached_tokens=usage.cached,
            flops=expected.flops * ratio,
            flops_paper=expected.flops_paper * ratio,
            flops_computed=expected.flops * ratio * fresh,
            unpriced=calls if self.gauge is None else 0,
            money=self._money(usage),
        )

    def estimate_texts(self, request: Request, tokens: Sequence[int]) -> Cost:
        """The cost of texts of so many tokens each, with the request read once, before it is sent."""
        return sum(self._texts(request, tokens), self._unanswered(self.estimate(request)))

    def spent_on_texts(self, request: Request, usage: Usage, tokens: Sequence[int], calls: int = 1) -> list[Cost]:
        """The cost of every text; the first one has that of reading the request as the server counted it."""
        first, *more = self._texts(request, tokens)
        return [self._unanswered(self.spent(request, usage, calls)) + first, *more]

    def _texts(self, request: Request, tokens: Sequence[int]) -> list[Cost]:
        """What texts cost besides their request."""
        found = []
        for count in tokens:
            cost = Cost(tokens=count, money=self._money(Usage(completion=count)))
            if self.gauge is not None and self.gauge.capabilities.generates:
                text = replace(request, task=SamplingParams(limit=max(1, count)))
                both, alone = self.gauge.cost(text), self.gauge.cost(request.prompt_only)
                flops, paper = both.flops - alone.flops, both.flops_paper - alone.flops_paper
                cost = replace(cost, flops=flops, flops_paper=paper, flops_computed=flops)
            found.append(cost)
        return found

    def _unanswered(self, cost: Cost) -> Cost:
        """The cost of reading a request alone."""
        return replace(cost, money=self._money(Usage(cost.tokens, cost.cached_tokens)))

    def shared(self, requests: Sequence[Request], usage: Usage) -> list[Cost]:
        """The costs of requests whose tokens were counted together: each has its part of what was expected."""
        expected = [self.estimate(request).tokens for request in requests]
        whole = sum(expected)
        if usage.prompt is None or not whole:
            return [self.spent(request, Usage()) for request in requests]
        parts = _parts(usage.prompt, expected)
        return [
            self.spent(request, Usage(part, usage.cached * part // usage.prompt, 1))
            for request, part in zip(requests, parts, strict=True)
        ]

    def _money(self, usage: Usage) -> float:
        options, prompt = self.options, usage.prompt or 0
        cached = options.price_in if options.price_cached is None else options.price_cached
        return (
            (prompt - usage.cached) * options.price_in + usage.cached * cached + usage.completion * options.price_out
        ) / 1e6


def _parts(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to the weights that add up to the total."""
    whole, ends, parts = sum(weights), 0, []
    done = 0
    for weight in weights:
        ends += weight
        end = round(total * ends / whole)
        parts.append(end - done)
        done = end
    return parts


LABELS = ("A", "B")
PROMPT = (
    "Which picture has more red?\nA. the first\nB. the second\nAnswer with the option's letter from the given choices."
)
TOPS = (20, 5)
"""Lengths of the list of likely tokens that are tried."""
FEW, MANY, MANY_TOKENS = 40, 144, 16_000
"""How many pictures are sent at once: as many as a grid of 12×12, or fewer if they take more tokens than this."""
SIZES = ((64, 64), (448, 448), (640, 448))
"""Pictures that the number of tokens is fitted to: a small one, and two that no model enlarges."""
SMALL, WASTE = (224, 128), 1.5
"""A small frame; a note says so if it takes so many times the tokens that its size would need."""
NOISE = 4.0
"""Two replies are different if they differ by more than so many times what a repeated request differs by."""
TOLERANCE = 0.05
"""After a restart no letter's probability may differ by more than this."""
START = (
    "start it with vLLM, as in: vllm serve MODEL --max-logprobs 20 "
    "--limit-mm-per-prompt '{\"image\": 160}' (see docs/models.md)"
)


def _noise(seed: int, size: tuple[int, int] = SIZES[0]) -> Picture:
    """Large coloured blocks, different for every seed."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    rows, columns = (np.arange(side) * 8 // side for side in (size[1], size[0]))
    return picture_of(blocks[rows][:, columns])


def _shown(pictures: Sequence[Picture], times: Sequence[float]) -> list[Part]:
    parts = [part for pair in zip((f"<{time:.1f} seconds>" for time in times), pictures, strict=True) for part in pair]
    return [*parts, PROMPT]


FIRST, SECOND = _noise(1), _noise(2)
CANARY = Query(_shown((FIRST, SECOND), (1.0, 2.0)), LABELS)
"""The request that shows whether a server is still the same."""


@dataclass(frozen=True)
class Ability:
    """What a server can do."""

    rung: Rung
    rule: TokenRule
    pictures: int
    """How many pictures it took at once."""
    fingerprint: str
    canary: Said
    """Its reply to the canary."""
    batches: bool = False
    """Whether it has an endpoint for many conversations."""
    names: bool = False
    """Whether it finds pictures by their names."""
    notes: tuple[str, ...] = ()


def examine(client: Client, model: str, *, samples: int) -> Ability:
    """Test a server."""
    asker, canary = _climb(client, model, samples)
    notes: list[str] = []
    if isinstance(asker.rung, Samples):
        _check_by_eye(asker)
    else:
        notes += _check_by_numbers(asker, canary)
    rule, more = _count_tokens(asker)
    pictures = _count_pictures(asker, rule)
    ability = Ability(asker.rung, rule, pictures, canary.fingerprint, canary, notes=(*notes, *more))
    if not isinstance(asker.rung, Ids):
        return ability
    return replace(ability, batches=_has_batches(asker, canary), names=_has_names(asker, canary))


def _climb(client: Client, model: str, samples: int) -> tuple[Asker, Said]:
    """The best way to get letter probabilities, and the first reply got that way."""
    reasons = []
    ways: list[Rung] = [*_ids(client, model), *map(Top, TOPS), Samples(samples)]
    for rung in ways:
        asker = Asker(client, model, rung)
        try:
            return asker, asker.ask(CANARY)
        except ServerUnavailable:
            raise
        except ModelError as error:
            reasons.append(f"{rung.name}: {str(error).removeprefix(client.address.host).lstrip(': ')}")
    raise ServerError(f"{client.address.host} gives no letter probabilities ({'; '.join(reasons)}); {START}")


def _ids(client: Client, model: str) -> list[Rung]:
    """The way by token ids, if the server has a tokenizer to ask."""

    @lru_cache(maxsize=1024)
    def encode(text: str) -> tuple[int, ...]:
        reply = client.post("//tokenize", {"model": model, "prompt": text, "add_special_tokens": False})
        return _tokens(reply)

    try:
        return [Ids(encode)] if encode("A") else []
    except ServerUnavailable:
        raise
    except ServerError:
        return []


def _tokens(reply: Mapping[str, Any]) -> tuple[int, ...]:
    tokens = reply.get("tokens")
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise ServerError("the server's /tokenize returns no token ids")
    return tuple(tokens)


def _far_apart(one: Said, other: Said) -> float:
    """The largest difference between the log-probabilities of two replies; tokens of only one count for 1."""
    a, b = one.reading.raw, other.reading.raw
    shared = [abs(a[token] - b[token]) for token in a.keys() & b.keys()]
    return max([*shared, 1.0 if a.keys() != b.keys() else 0.0])


def _check_by_numbers(asker: Asker, canary: Said) -> list[str]:
    """Pictures, their order and their times must change the reading; returns notes."""
    noise = _far_apart(canary, asker.ask(CANARY))
    texts = [part for part in CANARY.parts if isinstance(part, str)]
    variants: dict[str, list[Part]] = {
        "ignores pictures": list(texts),
        "does not keep the order of pictures": _shown((SECOND, FIRST), (1.0, 2.0)),
        "does not show the times before pictures": _shown((FIRST, SECOND), (37.5, 98.0)),
        "moves times away from their pictures": [*texts[:2], FIRST, SECOND, PROMPT],
    }
    for complaint, parts in variants.items():
        if _far_apart(canary, asker.ask(Query(parts, LABELS))) <= NOISE * noise:
            raise ServerError(f"{asker.client.address.host} {complaint}, so its answers would be useless; {START}")
    return _check_parts(asker)


def _check_parts(asker: Asker) -> list[str]:
    """A server that makes a message of every part needs more tokens for the same text in pieces."""
    whole = asker.ask(Query([PROMPT], LABELS)).usage.prompt
    pieces = PROMPT.split(" ")
    split = [*(f"{piece} " for piece in pieces[:-1]), pieces[-1]]
    parted = asker.ask(Query(split, LABELS)).usage.prompt
    if whole is None or parted is None:
        return ["the server counts no tokens, so they are estimated, and dropped frames cannot be noticed"]
    if parted - whole > 2 * (len(split) - 1):
        raise ServerError(
            f"{asker.client.address.host} makes a message of every part ({parted} tokens instead of {whole}), "
            f"so times and pictures do not belong together; {START}"
        )
    return []


def _check_by_eye(asker: Asker) -> None:
    """Without numbers to compare: a model that sees pictures in order can name their colours."""
    red, blue = (np.full((64, 64, 3), colour, np.uint8) for colour in ((220, 20, 20), (20, 20, 220)))
    question = "Which colour has the first picture?\nA. red\nB. blue\nAnswer with the option's letter."
    for pixels, right in (((red, blue), 0), ((blue, red), 1)):
        parts = _shown([picture_of(each) for each in pixels], (1.0, 2.0))
        logprobs = asker.ask(Query([*parts[:-1], question], LABELS)).reading.logprobs
        if logprobs[right] <= logprobs[1 - right]:
            raise ServerError(
                f"{asker.client.address.host} gives no probabilities and does not name the colour of the first of two "
                f"pictures, so it cannot be used; {START}"
            )


def _count_tokens(asker: Asker) -> tuple[TokenRule, list[str]]:
    """Fit the rule for tokens; a note if small pictures cost as much as larger ones."""
    text = asker.ask(Query([PROMPT], LABELS)).usage.prompt
    seen = []
    for number, size in enumerate(SIZES):
        used = asker.ask(Query([_noise(10 + number, size), PROMPT], LABELS)).usage.prompt
        if used is None or text is None:
            return TokenRule(), []
        seen.append((size[0] * size[1], used - text))
    rule = TokenRule.fitted((text or 0) - len(PROMPT) / 4, seen)
    used = asker.ask(Query([_noise(20, SMALL), PROMPT], LABELS)).usage.prompt or 0
    taken, fair = used - (text or 0), seen[1][1] * SMALL[0] * SMALL[1] / seen[1][0]
    if taken <= WASTE * fair:
        return rule, []
    note = (
        f"a frame of {SMALL[0]}×{SMALL[1]} takes {taken} tokens and not {fair:.0f} as its size would need, so small "
        "frames save less; for Qwen3-VL start vLLM with --mm-processor-kwargs '{\"min_pixels\": 4096}'"
    )
    return rule, [note]


def _count_pictures(asker: Asker, rule: TokenRule) -> int:
    """Send many pictures at once: all must be read, as their tokens show. Returns how many it took."""
    count = int(min(MANY, max(FEW, MANY_TOKENS // max(1.0, rule.least))))
    pictures = [_noise(100 + number) for number in range(count)]
    one = asker.ask(Query([pictures[0], PROMPT], LABELS)).usage.prompt
    try:
        many = asker.ask(Query([*pictures, PROMPT], LABELS)).usage.prompt
    except Refused as error:
        limit = re.search(r"[Aa]t most (\d+) image", error.reply.error)
        if limit is None:
            raise
        return int(limit[1])
    text = asker.ask(Query([PROMPT], LABELS)).usage.prompt
    if one is None or many is None or text is None:
        return count
    read = round((many - text) / max(1, one - text))
    if read < count:
        raise ServerError(
            f"{asker.client.address.host} reads {read} of {count} pictures and says nothing about the others; {START}"
        )
    return count


def _has_batches(asker: Asker, canary: Said) -> bool:
    """Whether two conversations in one call give what each gives alone."""
    other = Query(_shown((SECOND, FIRST), (1.0, 2.0)), LABELS)
    try:
        readings, _ = asker.ask_together([CANARY, other])
    except ServerUnavailable:
        raise
    except ServerError:
        return False
    alone = (canary, asker.ask(other))
    return all(near(said, replace(said, reading=each)) for said, each in zip(alone, readings, strict=True))


def _has_names(asker: Asker, canary: Said) -> bool:
    """Whether pictures can be sent once and named later."""
    named = Asker(asker.client, asker.model, asker.rung)
    named.names = True
    try:
        first = named.ask(CANARY)
        return near(canary, first) and near(canary, replace(first, reading=named.ask_by_name(CANARY)))
    except ServerUnavailable:
        raise
    except ServerError:
        return False


def near(one: Said, other: Said) -> bool:
    """Whether two replies give every letter about the same probability."""
    pairs = zip(one.reading.logprobs, other.reading.logprobs, strict=True)
    return all(abs(math.exp(a) - math.exp(b)) < TOLERANCE for a, b in pairs)
