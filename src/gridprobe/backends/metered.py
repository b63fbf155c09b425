"""Metered: a model or an encoder that refuses calls for which an allowance leaves too little.

Every call is priced before it is made. Costs of local models equal their estimates. A server's bill may differ from
the estimate, so its calls are reserved with the backend's `slack`, and with the largest excess seen so far.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from gridprobe.allowance import Allowance
from gridprobe.backends.base import Backend, Posterior, ScoreRequest, fuses, recalls
from gridprobe.backends.writing import Writing, Written, writer, writes
from gridprobe.encoders import Encoder, Vectors
from gridprobe.errors import OverBudget, UsageError
from gridprobe.flops import Cost
from gridprobe.pace import Pace
from gridprobe.video import FramePool, FrameSize

__all__ = ["Claim", "Meter", "Metered", "MeteredEncoder"]

T = TypeVar("T")

TIME_MARGIN = 1.25
"""Work is planned to take this many times what the measured pace says."""
ROUNDING = 1 + 1e-12
"""A sum of floating-point numbers may be so much larger if it is added up in another order."""


@dataclass(frozen=True)
class Claim:
    """What something may take of an allowance."""

    tokens: float = 0.0
    tflops: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0
    """Gigabytes while it runs."""

    def __add__(self, other: "Claim") -> "Claim":
        return Claim(
            self.tokens + other.tokens,
            self.tflops + other.tflops,
            self.seconds + other.seconds,
            max(self.memory, other.memory),
        )


class Meter:
    """What one question has spent, and what its allowance leaves."""

    def __init__(self, allowance: Allowance, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.allowance, self.clock = allowance, clock
        self.spent = Cost()
        self.reserved = Claim()
        """What calls must leave for later."""
        self.last = False
        """Whether an answer depends on the next call, so that it is made however long it takes."""
        self._started = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the question was asked."""
        return self.clock() - self._started

    def lacking(self, claim: Claim) -> str | None:
        """The limit that a claim would break; None if it fits."""
        total = Claim(self.spent.tokens, self.spent.tflops, self.elapsed) + self.reserved + claim
        taken = {
            "max_tokens": total.tokens,
            "max_tflops": total.tflops,
            "max_gpu_memory": claim.memory,
            "max_seconds": total.seconds,
        }
        limits = {name: getattr(self.allowance, name) for name in taken}
        broken = (name for name, most in limits.items() if most is not None and taken[name] > most * ROUNDING)
        return next(broken, None)

    def require(self, claim: Claim) -> None:
        """Refuse a claim that does not fit."""
        limit = self.lacking(claim)
        if limit is None or (limit == "max_seconds" and self.last):
            return
        raise OverBudget(f"the next call of a model would exceed {self.allowance.flag(limit)}; raise it", limit=limit)

    def pay(self, cost: Cost) -> None:
        """Add what was spent."""
        self.spent += cost

    @contextmanager
    def reserving(self, claim: Claim) -> Iterator[None]:
        """Calls in this context must leave so much for later."""
        before, self.reserved = self.reserved, self.reserved + claim
        try:
            yield
        finally:
            self.reserved = before


@dataclass
class Metered:
    """A model whose calls are paid from a meter."""

    backend: Backend
    meter: Meter
    pace: Pace = field(default_factory=Pace)
    beside: float = 0.0
    """Gigabytes of other models on the same device."""

    @property
    def excess(self) -> float:
        """The factor that estimates are reserved with."""
        return max(self.pace.excess, float(getattr(self.backend, "slack", 1.0)))

    @property
    def identity(self) -> str:
        """That of the model behind it."""
        return self.backend.identity

    @property
    def multiple(self) -> int:
        """That of the model behind it."""
        return self.backend.multiple

    @property
    def recalls(self) -> bool:
        """That of the model behind it."""
        return recalls(self.backend)

    @property
    def fuses(self) -> bool:
        """That of the model behind it."""
        return fuses(self.backend)

    @property
    def writes(self) -> bool:
        """That of the model behind it."""
        return writes(self.backend)

    @property
    def picture_tokens(self) -> int | None:
        """That of the model behind it."""
        found: int | None = getattr(self.backend, "picture_tokens", None)
        return found

    def estimate(self, request: ScoreRequest) -> Cost:
        """What the model says."""
        return self.backend.estimate(request)

    def estimate_texts(self, request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        """What the model says."""
        return writer(self.backend).estimate_texts(request, tokens)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Score the requests, unless that would exceed the allowance."""
        costs = [self.estimate(request) for request in requests]
        self.meter.require(self._sum([self.claim(*pair) for pair in zip(requests, costs, strict=True)]))
        found: list[Posterior] = []
        for some in self._passes(requests, costs):
            part = [requests[place] for place in some]
            found += self._run(partial(self.backend.score, part), [costs[place] for place in some], _of_answers)
        return found

    def write(self, requests: Sequence[ScoreRequest], writing: Writing) -> list[tuple[Written, ...]]:
        """Write texts, unless that would exceed the allowance if all of them are as long as they may be."""
        able = writer(self.backend)
        costs = [self.most_for_texts(request, [writing.limit] * writing.samples) for request in requests]
        self.meter.require(self._sum([self.claim(*pair) for pair in zip(requests, costs, strict=True)]))
        texts: list[tuple[Written, ...]] = []
        for request, cost in zip(requests, costs, strict=True):
            texts += self._run(partial(able.write, [request], writing), [cost], _of_texts)
        return texts

    def most_for_texts(self, request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        """The most that texts cost; some servers read the request once for each."""
        if self.excess > 1.0:
            return sum((self.estimate_texts(request, [count]) for count in tokens), Cost())
        return self.estimate_texts(request, tokens)

    def claim(self, request: ScoreRequest, cost: Cost) -> Claim:
        """What a request of this cost may take."""
        if cost.unpriced and self.meter.allowance.max_tflops is not None:
            raise UsageError(
                f"what {self.identity} computes is not known, so --max-tflops cannot be kept; use --max-tokens"
            )
        seconds = TIME_MARGIN * self.pace.seconds_for(cost) if self.meter.allowance.max_seconds is not None else 0.0
        memory = self._memory(self._width(request, cost)) if self.meter.allowance.max_gpu_memory is not None else 0.0
        return Claim(math.ceil(self.excess * cost.tokens), self.excess * cost.tflops, seconds, memory)

    def _sum(self, claims: Sequence[Claim]) -> Claim:
        return sum(claims, Claim())

    def _width(self, request: ScoreRequest, cost: Cost) -> int:
        """The tokens that are in memory in a pass: a question to the memory of frames needs theirs, too."""
        return cost.tokens if request.sees is None else self.estimate(replace(request, sees=None)).tokens

    def _memory(self, tokens: int) -> float:
        measure: Callable[[int], float] | None = getattr(self.backend, "memory", None)
        if measure is None:
            raise UsageError(
                f"the model {self.identity} does not say how much memory it takes, so --max-gpu-memory cannot be kept"
            )
        return self.beside + measure(tokens)

    def _passes(self, requests: Sequence[ScoreRequest], costs: Sequence[Cost]) -> Iterator[list[int]]:
        """The places of requests that may be batched within the allowed memory: all of them, if that has no limit."""
        most = self.meter.allowance.max_gpu_memory
        if most is None:
            yield list(range(len(requests)))
            return
        some: list[int] = []
        longest = width = 0
        for place, (request, cost) in enumerate(zip(requests, costs, strict=True)):
            longest, width = max(longest, cost.tokens), max(width, self._width(request, cost))
            if some and self._memory(width + len(some) * longest) > most:
                yield some
                some, longest, width = [], cost.tokens, self._width(request, cost)
            some.append(place)
        yield some

    def _run(self, work: Callable[[], list[T]], expected: Sequence[Cost], cost_of: Callable[[T], Cost]) -> list[T]:
        """Do what was granted; pay for it, and learn from it."""
        start = self.meter.clock()
        found = work()
        spent = sum(map(cost_of, found), Cost())
        self.meter.pay(spent)
        self.pace.note(spent, self.meter.clock() - start)
        if self.excess > 1.0:
            ratios = (
                cost_of(each).tokens / cost.tokens for each, cost in zip(found, expected, strict=True) if cost.tokens
            )
            self.pace.excess = max([self.pace.excess, *ratios])
        return found


def _of_answers(answer: Posterior) -> Cost:
    return answer.cost


def _of_texts(texts: tuple[Written, ...]) -> Cost:
    return sum((text.cost for text in texts), Cost())


@dataclass(frozen=True)
class MeteredEncoder(Encoder):
    """An encoder whose calls are paid from a meter; its seconds are not planned."""

    encoder: Encoder
    meter: Meter

    @property
    def identity(self) -> str:
        """That of the encoder behind it."""
        return self.encoder.identity

    @property
    def image_size(self) -> FrameSize:
        """That of the encoder behind it."""
        return self.encoder.image_size

    @property
    def scale(self) -> float:
        """That of the encoder behind it."""
        return self.encoder.scale

    @property
    def bias(self) -> float:
        """That of the encoder behind it."""
        return self.encoder.bias

    def images(self, frames: FramePool) -> Vectors:
        """Encode the frames, unless that would exceed the allowance."""
        return self._paid(self.image_cost(frames), lambda: self.encoder.images(frames))

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Encode the texts, unless that would exceed the allowance."""
        return self._paid(self.text_cost(texts), lambda: self.encoder.texts(texts))

    def image_cost(self, frames: FramePool) -> Cost:
        """What the encoder says."""
        return self.encoder.image_cost(frames)

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """What the encoder says."""
        return self.encoder.text_cost(texts)

    def notes(self, text: str) -> tuple[str, ...]:
        """What the encoder says."""
        return self.encoder.notes(text)

    def loaded(self, **options: Any) -> "MeteredEncoder":
        """The same with its encoder loaded."""
        return replace(self, encoder=self.encoder.loaded(**options))

    def _paid(self, cost: Cost, work: Callable[[], Vectors]) -> Vectors:
        self.meter.require(Claim(cost.tokens, cost.tflops))
        found = work()
        self.meter.pay(cost)
        return found
