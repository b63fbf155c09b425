"""What requests to a server cost: tokens, money, and floating-point operations where the model is known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gridprobe.backends.base import ScoreRequest
from gridprobe.backends.gauge import Gauge
from gridprobe.backends.server.asking import Usage
from gridprobe.backends.server.options import ServerOptions
from gridprobe.flops import Cost

__all__ = ["Bill", "TokenRule"]

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

    def visual(self, request: ScoreRequest, multiple: int) -> int:
        """Tokens of all pictures of a request."""
        sizes = [group.size(multiple) for group in request.groups]
        return sum(self.picture(sizes[unit.group][0] * sizes[unit.group][1]) for unit in request.units)

    def total(self, request: ScoreRequest, multiple: int) -> int:
        """Tokens of a request."""
        texts = [request.prompt, *request.texts]
        characters = sum(map(len, texts)) + len(MARKER) * len(request.units)
        return round(self.turn + characters / CHARACTERS) + self.visual(request, multiple)


@dataclass(frozen=True)
class Bill:
    """Prices requests to one server."""

    options: ServerOptions
    rule: TokenRule
    gauge: Gauge | None
    """Counts the floating-point operations of the model, if it is known."""

    @property
    def multiple(self) -> int:
        """Sides of pictures are multiples of this: the model's own, or what most models like."""
        return self.gauge.multiple if self.gauge else 32

    def estimate(self, request: ScoreRequest) -> Cost:
        """The cost of a request before it is sent."""
        if self.gauge is not None:
            cost = self.gauge.estimate(request)
        else:
            tokens, visual = (count(request, self.multiple) for count in (self.rule.total, self.rule.visual))
            cost = Cost(calls=1, tokens=tokens, visual_tokens=visual, unpriced=1)
        return replace(cost, money=self._money(Usage(cost.tokens, 0, 1)))

    def spent(self, request: ScoreRequest, usage: Usage, calls: int = 1) -> Cost:
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

    def estimate_texts(self, request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        """The cost of texts of so many tokens each, with the request read once, before it is sent."""
        return sum(self._texts(request, tokens), self._unanswered(self.estimate(request)))

    def spent_on_texts(self, request: ScoreRequest, usage: Usage, tokens: Sequence[int], calls: int = 1) -> list[Cost]:
        """The cost of every text; the first one has that of reading the request as the server counted it."""
        first, *more = self._texts(request, tokens)
        return [self._unanswered(self.spent(request, usage, calls)) + first, *more]

    def _texts(self, request: ScoreRequest, tokens: Sequence[int]) -> list[Cost]:
        """What texts cost besides their request."""
        found = []
        for count in tokens:
            cost = Cost(tokens=count, money=self._money(Usage(completion=count)))
            if self.gauge is not None and self.gauge.writes:
                both, alone = self.gauge.estimate_texts(request, [count]), self.gauge.estimate(request)
                flops, paper = both.flops - alone.flops, both.flops_paper - alone.flops_paper
                cost = replace(cost, flops=flops, flops_paper=paper, flops_computed=flops)
            found.append(cost)
        return found

    def _unanswered(self, cost: Cost) -> Cost:
        """The cost of reading a request alone."""
        return replace(cost, money=self._money(Usage(cost.tokens, cost.cached_tokens)))

    def shared(self, requests: Sequence[ScoreRequest], usage: Usage) -> list[Cost]:
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
