"""Memo: a backend that remembers what another one answered.

Several selectors on one question send the same probes, and an adaptive selector may keep every frame. With a memo each
of these requests is computed once.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from gridprobe.backends.base import Backend, Posterior, ScoreRequest, fuses, recalls
from gridprobe.backends.writing import Writing, Written, writer, writes
from gridprobe.errors import UsageError
from gridprobe.flops import Cost

__all__ = ["Memo"]


@dataclass(frozen=True)
class _Entry:
    answer: Any
    seconds: float
    """The answer's time: an equal share of its call."""


class Memo:
    """The same model, but each request is computed once; the least recently used answers are dropped first.

    A remembered answer keeps its cost, so compute is reported as if the model had been asked again.
    """

    def __init__(self, backend: Backend, *, capacity: int = 4096) -> None:
        if capacity < 1:
            raise UsageError(f"a memo needs room for at least 1 answer, got {capacity}")
        self._backend = backend
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.hits = 0
        """How many requests were answered without asking the model."""
        self.saved = 0.0
        """Seconds the model took for these when it was first asked; add them to a measured time to get the true one."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def identity(self) -> str:
        """That of the model behind it."""
        return self._backend.identity

    @property
    def multiple(self) -> int:
        """That of the model behind it."""
        return self._backend.multiple

    @property
    def recalls(self) -> bool:
        """That of the model behind it."""
        return recalls(self._backend)

    @property
    def fuses(self) -> bool:
        """That of the model behind it."""
        return fuses(self._backend)

    @property
    def writes(self) -> bool:
        """That of the model behind it."""
        return writes(self._backend)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """One posterior for each request, in order; all new ones go to the model in one call."""
        keys = [self._key(request) for request in requests]
        return self._answers(keys, lambda new: self._backend.score([requests[place] for place in new]))

    def write(self, requests: Sequence[ScoreRequest], writing: Writing) -> list[tuple[Written, ...]]:
        """Texts for each request, in order; all new ones are written in one call."""
        model = writer(self._backend)
        keys = [(self._key(request), writing) for request in requests]
        return self._answers(keys, lambda new: model.write([requests[place] for place in new], writing))

    def _answers(self, keys: Sequence[Hashable], ask: Callable[[Sequence[int]], Sequence[Any]]) -> list[Any]:
        """What is remembered by these keys; `ask` is called once with the places of all others."""
        found = {key: self._entries[key] for key in keys if key in self._entries}
        places: dict[Hashable, int] = {}
        for place, key in enumerate(keys):
            if key not in found:
                places.setdefault(key, place)
        fresh = self._ask(places, ask)
        for place, key in enumerate(keys):
            if key in found or key in keys[:place]:
                self.hits += 1
                self.saved += (found.get(key) or fresh[key]).seconds
        entries = {**found, **fresh}
        self._remember(entries)
        return [entries[key].answer for key in keys]

    def estimate(self, request: ScoreRequest) -> Cost:
        """What the model says."""
        return self._backend.estimate(request)

    def estimate_texts(self, request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        """What the model says."""
        return writer(self._backend).estimate_texts(request, tokens)

    def _key(self, request: ScoreRequest) -> Hashable:
        """Everything an answer depends on. Equal frame keys mean equal pixels."""
        asked = (request.prompt, request.prompt_order, request.labels, request.between, request.sees, request.attention)
        return self.identity, asked, tuple((group.frames.keys, group.view) for group in request.groups)

    def _ask(
        self, places: dict[Hashable, int], ask: Callable[[Sequence[int]], Sequence[Any]]
    ) -> dict[Hashable, _Entry]:
        if not places:
            return {}
        start = time.perf_counter()
        answers = ask(list(places.values()))
        each = (time.perf_counter() - start) / len(places)
        return {key: _Entry(answer, each) for key, answer in zip(places, answers, strict=True)}

    def _remember(self, entries: dict[Hashable, _Entry]) -> None:
        for key, entry in entries.items():
            self._entries[key] = entry
            self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
