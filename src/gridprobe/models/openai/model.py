"""Server: a model on an OpenAI-compatible server."""

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
    Cost,
    Posterior,
    Request,
    Response,
    SamplingParams,
    by_task,
    require_plain,
)
from gridprobe.models.openai.client import Client, map_unordered
from gridprobe.models.openai.requests import (
    ChatClient,
    EncodedImage,
    ImageCache,
    Part,
    SampledLogprobs,
    ServerUsage,
    message_parts,
)
from gridprobe.models.openai.selftest import CANARY, ServerFeatures, ServerPricing, letters, near

T = TypeVar("T")

BATCH_BYTES = 32 * 2**20
"""A batch is closed when its pictures have so many bytes."""
BATCH_SIZE = 64
SLACK = 1.25
"""A bill may be this much larger than its estimate; see docs/asking.md."""


class Server:
    """A model on a server. It keeps no KV cache that requests could question."""

    def __init__(self, client: Client, model: str, features: ServerFeatures, pricing: ServerPricing) -> None:
        self.features = features
        """What the self-test found."""
        self._client, self._model, self._pricing = client, model, pricing
        self._chat = ChatClient(
            client, model, features.strategy, uuids=features.uuids, pictures_first=features.pictures_first
        )
        self._images = ImageCache()
        client.on_return = weakref.WeakMethod(self._check_same)  # the client outlives it
        self.close = weakref.finalize(self, client.close)
        """Closes its connections, at the latest when nobody uses it any more."""

    def __repr__(self) -> str:
        return f"Server({self.identity!r})"

    @property
    def identity(self) -> str:
        """Address, model, what the server says about its configuration, and how probabilities are read."""
        mark = self.features.fingerprint or "unversioned"
        layout = ";pictures-first" if self.features.pictures_first else ""
        return f"{self._client.address.base}#{self._model}@{mark};{self.features.strategy.name}{layout}"

    @cached_property
    def capabilities(self) -> Capabilities:
        """What the self-test found. It takes no memory on this machine."""
        rule, strategy = self.features.rule, self.features.strategy
        return Capabilities(
            generates=True,
            close_ups=True,
            logprobs=not isinstance(strategy, SampledLogprobs),
            frame_pairs=False,
            frame_multiple=self._pricing.multiple,
            tokens_per_image=rule.image(1) if rule.per_pixel == 0 else None,
            cost_slack=SLACK * strategy.samples,  # each sample may be billed by itself
            weight_bytes=0,
            summary=self._summary(),
        )

    def _summary(self) -> str:
        """One sentence about what the server can do."""
        features = self.features
        calls = "batches" if features.batches else f"up to {self._client.concurrency} requests at a time"
        once = ", each frame sent once" if features.uuids else ""
        summary = f"{self._model} on {self._client.address.host}: {features.strategy.summary}; {calls}{once}"
        return "; ".join((summary, *features.notes))

    def cost(self, request: Request) -> Cost:
        """The expected cost: exact for models whose tokenizer is here, else fitted to the self-test."""
        require_plain(request)
        task = request.task
        if isinstance(task, Choose):
            return self._pricing.estimate(request)
        return self._pricing.estimate_texts(request, [task.limit] * task.samples)

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
        stop, results = Event(), dict[int, T]()

        def run(job: list[int]) -> Iterator[tuple[int, T]]:
            return zip(job, work([requests[place] for place in job], stop), strict=True)

        try:
            for pairs in map_unordered(run, jobs, threads=self._client.concurrency):
                results.update(pairs or ())
                self._report(len(results), len(requests))
        finally:
            stop.set()
        return [results[place] for place in range(len(requests))]

    def _write(self, request: Request, params: SamplingParams, stop: Event) -> Completions:
        parts = message_parts(request, self._images, multiple=self._pricing.multiple)
        texts, usage = self._chat.generate(parts, params, stop=stop)
        self._check_read(parts, usage)
        costs = self._pricing.spent_on_texts(request, usage, [text.tokens for text in texts])
        notes = self._changes(usage)
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
            full = not self.features.batches or sizes.get(request.labels, 0) + size > BATCH_BYTES
            if request.labels not in batches or full or len(batches[request.labels][-1]) >= BATCH_SIZE:
                batches.setdefault(request.labels, []).append([])
                sizes[request.labels] = 0
            batches[request.labels][-1].append(place)
            sizes[request.labels] += size
        for jobs in batches.values():
            yield from jobs

    def _run(self, requests: Sequence[Request], stop: Event) -> list[Posterior]:
        messages = [message_parts(each, self._images, multiple=self._pricing.multiple) for each in requests]
        labels = requests[0].labels
        try:
            replies, usage = self._chat.choose(messages, labels, stop=stop)
        except ServerUnavailable:
            raise
        except ServerError:
            if len(requests) == 1:
                raise
            return [posterior for each in requests for posterior in self._run([each], stop)]  # to find the one at fault
        self._check_read([part for parts in messages for part in parts], usage)
        changes, costs = self._changes(usage), self._pricing.spent(requests, usage)
        return [
            Posterior(labels, reply.logprobs, cost, reply.mass, (*reply.notes, *changes))
            for reply, cost in zip(replies, costs, strict=True)
        ]

    def _changes(self, usage: ServerUsage) -> tuple[str, ...]:
        """A note if the server says that its configuration is not what it was."""
        before = self.features.fingerprint
        if usage.fingerprint in ("", before):
            return ()
        return (f"the server's configuration changed from {before or 'none'} to {usage.fingerprint}",)

    def _check_read(self, parts: Sequence[Part], usage: ServerUsage) -> None:
        """A server that drops images in silence counts fewer tokens than the smallest images would take."""
        images, tokens = sum(isinstance(part, EncodedImage) for part in parts), usage.prompt
        if tokens is not None and tokens < 0.95 * usage.calls * images * self.features.rule.least:
            raise ServerError(
                f"{self._client.address.host} read {tokens} tokens for {images} frames, so it dropped some; "
                "use fewer frames with --k, or raise the server's limits"
            )

    def _check_same(self) -> None:
        """After the server was away: it must answer as before."""
        self._chat.forget()
        chat = ChatClient(
            self._client, self._model, self.features.strategy, pictures_first=self.features.pictures_first
        )
        if not near(letters(chat, CANARY), self.features.canary) and self.capabilities.logprobs:
            raise ServerUnavailable(
                f"{self._client.address.host} answers differently since it came back: it serves other weights as "
                f"{self._model}; start the first ones again, or begin a new run"
            )
