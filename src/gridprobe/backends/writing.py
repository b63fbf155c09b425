"""Text from a backend: `write` lets the model write an answer. It is optional; `writes(backend)` says who has it."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard

from gridprobe.backends.base import Backend, ScoreRequest
from gridprobe.errors import UsageError
from gridprobe.flops import Cost

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "Writer",
    "Writing",
    "Written",
    "about_tokens",
    "check_requests",
    "cut_at",
    "seed_of",
    "writer",
    "writes",
]

CHARACTERS_PER_TOKEN = 4
"""Roughly, where no tokenizer can be asked."""


@dataclass(frozen=True)
class Writing:
    """How text is written. No token is excluded or penalised, whatever a checkpoint recommends."""

    limit: int = 64
    """The most tokens of a text, with the one that ends it."""
    temperature: float = 0.0
    """0 takes the likeliest token each time."""
    samples: int = 1
    """How many texts are written for each request."""
    seed: int = 0
    """The same seed gives the same texts for a request, whatever other requests come with it."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these."""

    def __post_init__(self) -> None:
        if self.limit < 1 or self.samples < 1:
            raise UsageError(f"limit and samples must be at least 1, got {self.limit} and {self.samples}")
        if not 0.0 <= self.temperature < math.inf:
            raise UsageError(f"the temperature must be a number from 0 up, got {self.temperature}")
        if self.temperature == 0.0 and self.samples > 1:
            raise UsageError(f"{self.samples} samples at temperature 0 would be the same text; raise the temperature")
        if isinstance(self.stop, str) or not all(self.stop):
            raise UsageError(f"stop must be a tuple of texts that are not empty, got {self.stop!r}")


@dataclass(frozen=True)
class Written:
    """A text that a model wrote."""

    text: str
    """Without special tokens, the stop text, and white space around it."""
    tokens: int
    """How many tokens the model wrote, with the one that ended the text and with those of a stop text."""
    logprob: float | None
    """The log-probability of these tokens at temperature 1, a sum; None if a server does not say. The end counts with
    the probability of all tokens that would end the text."""
    finished: bool
    """Whether the model ended the text, or a stop text did; otherwise the limit cut it off."""
    cost: Cost = field(default_factory=Cost)
    """The first text of a request has the cost of reading the prompt; the costs of all texts add up to the whole."""
    notes: tuple[str, ...] = ()
    """Warnings of the backend, as in `Posterior`."""
    ids: tuple[int, ...] = field(default=(), repr=False)
    """The tokens, where the backend knows them."""
    windows: int = 1
    """In how many windows the frames were shown; see `gridprobe.backends.windows`."""


class Writer(Backend, Protocol):
    """A backend that writes."""

    def write(self, requests: Sequence[ScoreRequest], writing: Writing) -> list[tuple[Written, ...]]:
        """For each request, in order, as many texts as there are samples."""
        ...

    def estimate_texts(self, request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        """What texts of so many tokens each would cost, with the prompt read once for all of them."""
        ...


def writes(backend: Backend) -> TypeGuard[Writer]:
    """Whether a backend has `write`: its attribute `writes` says so."""
    return bool(getattr(backend, "writes", False))


def writer(backend: Backend) -> Writer:
    """The backend, if it writes."""
    if not writes(backend):
        raise UsageError(f"the model {backend.identity} cannot write text; give the question options")
    return backend


def check_requests(requests: Sequence[ScoreRequest]) -> None:
    """Refuse what no text comes with."""
    if any(request.attention for request in requests):
        raise UsageError("a text comes without its attention to frames; score the request for that")


def cut_at(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop text, and whether there was one."""
    places = [place for place in map(text.find, stop) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def about_tokens(text: str) -> int:
    """How many tokens a text has, with its end, where no tokenizer can be asked."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN) + 1


def seed_of(writing: Writing, prompt: bytes, sample: int) -> int:
    """The seed of one text of a request, which is known by its prompt."""
    digest = hashlib.sha256(f"{writing.seed}/{sample}/".encode() + prompt)
    return int.from_bytes(digest.digest()[:8], "big")
