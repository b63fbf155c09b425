"""Asker: messages in, readings and token counts out; pictures that the server has are not sent again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, NamedTuple, TypeVar

from gridprobe.backends.server import texts
from gridprobe.backends.server.client import TRIES, Client, Refused
from gridprobe.backends.server.rungs import Reading, Rung, Samples
from gridprobe.backends.server.turn import Part, Picture, message
from gridprobe.backends.server.wire import Garbled
from gridprobe.backends.writing import Writing, Written
from gridprobe.errors import ServerError

__all__ = ["BATCH", "CHAT", "Asker", "Choices", "Query", "Said", "Usage"]

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
        self, parts: Sequence[Part], writing: Writing, stop: Event | None = None
    ) -> tuple[list[Written], Choices]:
        """Texts after one message, without costs; a reply that cannot be used is asked for once more."""
        fields = texts.fields(writing, logprobs=not isinstance(self.rung, Samples))
        seed = writing.seed if writing.temperature else None

        def once() -> tuple[list[Written], Choices]:
            got = self._choices(parts, fields, count=writing.samples, seed=seed, stop=stop)
            return texts.read(got.choices, writing, completion=got.usage.completion), got

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
