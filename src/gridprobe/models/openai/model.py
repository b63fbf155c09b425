"""Server: an OpenAI-compatible server as a backend."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Event
from typing import TypeVar

from gridprobe._util import report
from gridprobe.errors import ServerError, ServerUnavailable
from gridprobe.models.base import (
    Capabilities,
    Choose,
    Completions,
    Posterior,
    Request,
    Response,
    SamplingParams,
    by_task,
    require_plain,
)
from gridprobe.models.cost import Cost
from gridprobe.models.openai.client import Client, in_threads
from gridprobe.models.openai.logprobs import Reading, Samples
from gridprobe.models.openai.requests import Album, Asker, Picture, Query, Said, lay_out
from gridprobe.models.openai.selftest import CANARY, Ability, Bill, near

__all__ = ["Server"]

T = TypeVar("T")

BATCH_BYTES = 32 * 2**20
"""A batch is closed when its pictures have so many bytes."""
BATCH_SIZE = 64
SLACK = 1.25
"""A bill may be this much larger than its estimate; see docs/asking.md."""


class Server:
    """A model on a server. It keeps no KV cache that requests could question."""

    def __init__(self, client: Client, model: str, ability: Ability, bill: Bill) -> None:
        self.ability = ability
        """What the self-test found."""
        self._client, self._model, self._bill = client, model, bill
        self._asker = Asker(client, model, ability.rung)
        self._asker.names = ability.names
        self._album = Album()
        client.on_return = weakref.WeakMethod(self._check_same)  # the client outlives it
        self.close = weakref.finalize(self, client.close)
        """Closes its connections, at the latest when nobody uses it any more."""

    def __repr__(self) -> str:
        return f"Server({self.identity!r})"

    @property
    def identity(self) -> str:
        """Address, model, what the server says about its configuration, and how probabilities are read."""
        mark = self.ability.fingerprint or "unversioned"
        return f"{self._client.address.base}#{self._model}@{mark};{self.ability.rung.name}"

    @cached_property
    def capabilities(self) -> Capabilities:
        """What the self-test found. It takes no memory on this machine."""
        rule, rung = self.ability.rule, self.ability.rung
        return Capabilities(
            generates=True,
            frame_pairs=False,
            frame_multiple=self._bill.multiple,
            tokens_per_image=rule.picture(1) if rule.per_pixel == 0 else None,
            cost_slack=SLACK * (rung.count if isinstance(rung, Samples) else 1),  # each sample may be billed by itself
            weight_bytes=0,
            summary=self._summary(),
        )

    def _summary(self) -> str:
        """One sentence about what the server can do."""
        ability = self.ability
        calls = "batches" if ability.batches else f"up to {self._client.concurrency} requests at a time"
        once = ", each frame sent once" if ability.names else ""
        found = f"{self._model} on {self._client.address.host}: {ability.rung.summary}; {calls}{once}"
        return "; ".join((found, *ability.notes))

    def cost(self, request: Request) -> Cost:
        """The expected cost: exact for models whose tokenizer is here, else fitted to the self-test."""
        require_plain(request)
        task = request.task
        if isinstance(task, Choose):
            return self._bill.estimate(request)
        return self._bill.estimate_texts(request, [task.limit] * task.samples)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Send all requests, many at a time, and wait. Whether a seed gives the same texts is up to the server."""
        for request in requests:
            require_plain(request)
        return by_task(self, requests, self._choose, self._generate)

    def _choose(self, requests: Sequence[Request]) -> list[Posterior]:
        return self._all(requests, list(self._jobs(requests)), self._run)

    def _generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completions]:
        jobs = [[place] for place in range(len(requests))]
        return self._all(requests, jobs, lambda some, stop: [self._write(each, params, stop) for each in some])

    def _all(
        self,
        requests: Sequence[Request],
        jobs: Sequence[list[int]],
        work: Callable[[Sequence[Request], Event], list[T]],
    ) -> list[T]:
        """What some work gives for each request, in order; a job is the places of requests that are done together."""
        stop, found = Event(), dict[int, T]()

        def run(job: list[int]) -> list[T]:
            return work([requests[place] for place in job], stop)

        try:
            for done in in_threads(run, jobs, threads=self._client.concurrency, stop=stop):
                if done is not None:
                    found.update(zip(jobs[done[0]], done[1], strict=True))
                self._report(len(found), len(requests))
        finally:
            stop.set()
        return [found[place] for place in range(len(requests))]

    def _write(self, request: Request, writing: SamplingParams, stop: Event) -> Completions:
        query = Query(lay_out(request, self._album, multiple=self._bill.multiple), ())
        texts, got = self._asker.write(query.parts, writing, stop)
        self._check_read([query], got.usage.prompt, got.calls)
        costs = self._bill.spent_on_texts(request, got.usage, [text.tokens for text in texts], got.calls)
        notes = self._changes(got.fingerprint)
        return tuple(replace(text, cost=cost, notes=notes) for text, cost in zip(texts, costs, strict=True))

    def _report(self, done: int, total: int) -> None:
        """Report progress or, while the server is down, how long that has been so."""
        since = self._client.waiting_since
        if since is None:
            report("model", done, total)
        else:
            report("server", round(self._client.clock.now() - since), round(self._client.patience))

    def _jobs(self, requests: Sequence[Request]) -> Iterator[list[int]]:
        """The places of requests that are sent in one call: those with the same labels, if the server has batches."""
        batches: dict[tuple[str, ...], list[list[int]]] = {}
        sizes: dict[tuple[str, ...], int] = {}
        for place, request in enumerate(requests):
            size = sum(3 * group.frames.width * group.frames.height * len(group.frames) for group in request.groups)
            full = not self.ability.batches or sizes.get(request.labels, 0) + size > BATCH_BYTES
            if request.labels not in batches or full or len(batches[request.labels][-1]) >= BATCH_SIZE:
                batches.setdefault(request.labels, []).append([])
                sizes[request.labels] = 0
            batches[request.labels][-1].append(place)
            sizes[request.labels] += size
        for jobs in batches.values():
            yield from jobs

    def _run(self, requests: Sequence[Request], stop: Event) -> list[Posterior]:
        queries = [Query(lay_out(each, self._album, multiple=self._bill.multiple), each.labels) for each in requests]
        together = self._ask_together(requests, queries, stop) if len(requests) > 1 else None
        return together or [self._ask(*each, stop) for each in zip(requests, queries, strict=True)]

    def _ask_together(
        self, requests: Sequence[Request], queries: Sequence[Query], stop: Event
    ) -> list[Posterior] | None:
        """The answers in one call; None if one of them cannot be answered, which only single calls can find out."""
        try:
            readings, usage = self._asker.ask_together(queries, stop)
        except ServerUnavailable:
            raise
        except ServerError:
            return None
        self._check_read(queries, usage.prompt)
        costs = self._bill.shared(requests, usage)
        return [self._posterior(*each) for each in zip(requests, readings, costs, strict=True)]

    def _ask(self, request: Request, query: Query, stop: Event) -> Posterior:
        said = self._asker.ask(query, stop)
        self._check_read([query], said.usage.prompt, calls=said.calls)
        posterior = self._posterior(request, said.reading, self._bill.spent(request, said.usage, said.calls))
        return self._with_change(posterior, said)

    def _posterior(self, request: Request, reading: Reading, cost: Cost) -> Posterior:
        return Posterior(request.labels, reading.logprobs, cost, reading.mass, reading.notes)

    def _with_change(self, posterior: Posterior, said: Said) -> Posterior:
        return replace(posterior, notes=(*posterior.notes, *self._changes(said.fingerprint)))

    def _changes(self, fingerprint: str) -> tuple[str, ...]:
        """A note if the server says that its configuration is not what it was."""
        if fingerprint in ("", self.ability.fingerprint):
            return ()
        return (f"the server's configuration changed from {self.ability.fingerprint or 'none'} to {fingerprint}",)

    def _check_read(self, queries: Sequence[Query], tokens: int | None, calls: int = 1) -> None:
        """A server that drops pictures in silence counts fewer tokens than the smallest pictures would take."""
        pictures = sum(isinstance(part, Picture) for query in queries for part in query.parts)
        if tokens is not None and tokens < 0.95 * calls * pictures * self.ability.rule.least:
            raise ServerError(
                f"{self._client.address.host} read {tokens} tokens for {pictures} frames, so it dropped some; "
                "use fewer frames with --k, or raise the server's limits"
            )

    def _check_same(self) -> None:
        """After the server was away: it must answer as before."""
        self._asker.forget()
        asker = Asker(self._client, self._model, self.ability.rung)
        if not near(asker.ask(CANARY), self.ability.canary) and not isinstance(asker.rung, Samples):
            raise ServerUnavailable(
                f"{self._client.address.host} answers differently since it came back: it serves other weights as "
                f"{self._model}; start the first ones again, or begin a new run"
            )
