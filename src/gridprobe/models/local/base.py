"""What the engines of local models share: requests as jobs, passes that fit into memory, letters and texts.

    encode once   a frame's vision features are used by every request that shows it at this size
    prefixes      the keys and values of a sequence's first part are used by every request that begins alike: the same
                  frames with another question, or the same text with other frames
    passes        the rest runs in as few passes as memory allows

What is kept is limited in bytes and can be dropped at any moment without changing an answer. No call leaves state on
the model object.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from gridprobe._util import report
from gridprobe.errors import TooLarge
from gridprobe.models.base import (
    Capabilities,
    Completions,
    Cost,
    FrameGroup,
    Heads,
    Posterior,
    Request,
    Response,
    SamplingParams,
    by_task,
)
from gridprobe.models.local.generate import (
    GrowingText,
    Step,
    TextGenerator,
    check_mass,
    end_tokens,
    letter_logprobs,
    letter_tokens,
    write_all,
)
from gridprobe.models.local.kv_cache import DeviceMemory, Store, steady_attention
from gridprobe.models.local.layout import Batch, Layout, PreparedRequest, with_texts
from gridprobe.video import FrameSize

T = TypeVar("T")

SMALLEST = 64
"""Frames are not shrunk below this side to make a pass fit into memory."""
TEXT_SHARE = 3
"""A pass that texts follow holds 1/this of the tokens of another one: the keys and values of all layers stay."""


def passes(
    jobs: Batch, *, tokens: int, copies: int, kept: Container[Hashable], copying: bool
) -> Iterator[list[PreparedRequest]]:
    """The jobs in batches; those that share a prefix are together, and it is counted once.

    Args:
        jobs: what to run.
        tokens: the most tokens that a batch may compute; a single job may exceed it.
        copies: the most tokens whose keys and values a batch may copy, because texts differ in what they see of them.
        kept: the prefixes that need not be computed.
        copying: whether each text gets keys and values of its own, as texts do that the model goes on writing.
    """
    shared = [job for job in jobs if job.shared]
    often = Counter(job.prefix for job in shared)
    order = {prefix: place for place, prefix in enumerate(often)}
    batch, prefixes, computed, copied = list[PreparedRequest](), set[Hashable](), 0, 0
    for job in sorted(shared, key=lambda job: (order[job.prefix], -job.rest)):
        own = len(job.columns) if copying or job.narrow or often[job.prefix] == 1 else 0
        while True:
            new = job.rest + (0 if job.prefix in prefixes or job.prefix in kept else job.layout.prefix)
            if not batch or (computed + new <= tokens and copied + own <= copies):
                break
            yield batch
            batch, prefixes, computed, copied = [], set(), 0, 0
        batch.append(job)
        prefixes.add(job.prefix)
        computed, copied = computed + new, copied + own
    if batch:
        yield batch
    yield from batches([job for job in jobs if not job.shared], tokens=tokens)


def batches(jobs: Batch, *, tokens: int) -> Iterator[list[PreparedRequest]]:
    """Longest first, so that sequences of similar length share a batch and the worst case comes early."""
    batch: list[PreparedRequest] = []
    for job in sorted(jobs, key=lambda job: -len(job.layout)):
        if batch and (len(batch) + 1) * len(batch[0].layout) > tokens:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


@dataclass(frozen=True)
class BatchResult:
    """What a batch gave, by the place of each job."""

    logits: dict[int, Tensor] = field(default_factory=dict)
    flops: Counter[int] = field(default_factory=Counter)
    """Those that were computed."""
    heads: dict[int, Heads] = field(default_factory=dict)
    """How much each head attends from the question to each unit, where that was asked for."""


class LocalModel(ABC):
    """A model of transformers in this process."""

    capabilities: Capabilities
    copies_prefix = False
    """Whether each request that follows a prefix gets a copy of its keys and values."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        identity: str,
        min_letter_mass: float,
        context: int | None,
        token_bytes: int,
        cache_bytes: int,
        end: Sequence[int] = (),
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: the model.
            tokenizer: its tokenizer.
            identity: name, fingerprint, dtype and settings.
            min_letter_mass: if the option letters get less than this share of the probability, it is an error.
            context: the most tokens it reads at once.
            token_bytes: bytes of one token's activations at the widest place of a layer.
            cache_bytes: bytes of one token's keys and values.
            end: tokens that end a text, in addition to those of the checkpoint.
        """
        self.identity = identity
        self._model = model
        self._tokenizer = tokenizer
        self._min_mass = min_letter_mass
        self._context = context
        self._ends = tuple(end)
        self._letters = lru_cache(partial(letter_tokens, tokenizer))
        self._laying_out = Lock()
        """Tokenizers and what is kept of layouts are not safe for threads, and questions are priced during passes."""
        self._memory = DeviceMemory.of(model, token_bytes=token_bytes, cache_bytes=cache_bytes)
        self.kept = Store(self._memory.keep, host_limit=self._memory.keep_on_host)
        """Vision features and prefixes that may be reused."""

    @cached_property
    def _generator(self) -> TextGenerator:
        return TextGenerator(self._tokenizer, end_tokens(self._model, self._tokenizer, *self._ends), self._context)

    # What an engine has to say.

    @abstractmethod
    def _layout(self, request: Request) -> Layout:
        """The request as tokens."""

    @abstractmethod
    def _prompt_cost(self, job: PreparedRequest) -> Cost:
        """What reading a request costs by itself."""

    @abstractmethod
    def _text_cost(self, job: PreparedRequest, tokens: int) -> Cost:
        """What a text of that many tokens costs after a request that was read."""

    @abstractmethod
    def _scores(self, batch: Batch) -> BatchResult:
        """Logits after every request."""

    @abstractmethod
    def _begin_texts(self, batch: Batch, flops: Counter[int], *, texts: int, steps: int) -> tuple[Tensor, Step]:
        """Read the requests: logits of the first token of each, and how that many texts of each go on.

        `flops` counts what is computed; at most `steps` tokens follow the first.
        """

    # What all engines do.

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests in as few forward passes as memory allows; each prompt is read once for all its texts."""
        return by_task(
            self,
            requests,
            lambda some: self._each(some, self._choose),
            lambda some, params: self._each(some, partial(self._generate, params=params), share=TEXT_SHARE),
        )

    def cost(self, request: Request) -> Cost:
        """The cost of the request by itself, from its exact token count; its texts are as long as they may be."""
        job = self._laid_out(0, request)
        return with_texts(self._prompt_cost(job), request.task, partial(self._text_cost, job))

    def _each(self, requests: Sequence[Request], work: Callable[[Batch], dict[int, T]], *, share: int = 1) -> list[T]:
        """What some work gives for each request, in batches that hold 1/share of what memory allows."""
        most = self._memory.most() // share
        jobs = [self._prepared(place, request) for place, request in enumerate(requests)]
        jobs = [self._fitting(job, most) for job in jobs]
        for job in jobs:
            self._memory.check(len(job.layout), job.frames)
        often = Counter(job.prefix for job in jobs)
        jobs = [replace(job, shared=self._shares(job, often[job.prefix])) for job in jobs]
        results: dict[int, T] = {}
        for batch in passes(
            jobs,
            tokens=min(most, self._memory.worthwhile),
            copies=self._memory.copies(most) // self._memory.cache_bytes,
            kept=self.kept,
            copying=self.copies_prefix or share > 1,
        ):
            results.update(self._run(batch, work))
            report("model", len(results), len(jobs))
        return [results[place] for place in range(len(jobs))]

    def _laid_out(self, place: int, request: Request) -> PreparedRequest:
        with self._laying_out:
            return PreparedRequest(place, request, self._layout(request))

    def _prepared(self, place: int, request: Request) -> PreparedRequest:
        job = self._laid_out(place, request)
        if self._context is not None and len(job.layout) > self._context:
            raise TooLarge(
                f"the question with {job.frames} needs {len(job.layout):,} tokens, "
                f"but the model reads at most {self._context:,}; use fewer or smaller frames"
            )
        return job

    def _shares(self, job: PreparedRequest, often: int) -> bool:
        """Whether a job's prefix is read by itself: another job begins alike, now, later or before."""
        return job.needs_kv or job.request.keep_kv or often > 1 or job.prefix in self.kept

    def _fitting(self, job: PreparedRequest, most: int) -> PreparedRequest:
        """The job, with smaller frames if its sequence alone would not fit into memory."""
        while len(job.layout) > most and (smaller := self._smaller(job)) is not None:
            job = smaller
        return job

    def _smaller(self, job: PreparedRequest) -> PreparedRequest | None:
        """The same with frames of half the area, and a note that says so; None if that does not help."""
        width, height = job.layout.largest
        if min(width, height) < 2 * SMALLEST or self.capabilities.tokens_per_image is not None:
            return None
        smaller = FrameSize(max_pixels=width * height // 2)
        places = {
            u.group for u, size in zip(job.request.units, job.layout.sizes, strict=True) if size == (width, height)
        }
        groups = tuple(
            FrameGroup(group.frames, replace(group.view, pixels=smaller)) if place in places else group
            for place, group in enumerate(job.request.groups)
        )
        small = self._prepared(job.place, replace(job.request, groups=groups))
        shown = "{}×{}".format(*small.layout.sizes[job.layout.sizes.index((width, height))])
        note = f"frames were shown at {shown} pixels, because larger ones do not fit memory"
        return replace(small, shared=job.shared, notes=(note,))

    @torch.inference_mode()
    def _run(self, batch: Batch, work: Callable[[Batch], dict[int, T]]) -> dict[int, T]:
        """Do some work on a batch; when memory runs out, on less at once."""
        try:
            with steady_attention(self._memory.device, tokens=max(len(job.layout) for job in batch)):
                return work(batch)
        except torch.OutOfMemoryError:
            pass  # inside this handler the error would keep tensors alive
        self.kept.clear()
        torch.cuda.empty_cache()
        return self._run_with_less(batch, work)

    def _run_with_less(self, batch: Batch, work: Callable[[Batch], dict[int, T]]) -> dict[int, T]:
        """Work in halves; on a single job with smaller frames; after that it is an error."""
        if len(batch) > 1:
            middle = len(batch) // 2
            return self._run(batch[:middle], work) | self._run(batch[middle:], work)
        smaller = self._smaller(batch[0])
        if smaller is None:
            raise TooLarge(
                f"out of memory on one sequence of {len(batch[0].layout):,} tokens ({batch[0].frames}); "
                "lower --frames, --k or the pixels per frame, or use a smaller or quantized model"
            )
        return self._run([smaller], work)

    def _choose(self, batch: Batch) -> dict[int, Posterior]:
        scores = self._scores(batch)
        rows = torch.stack([scores.logits[job.place] for job in batch])
        letters = letter_logprobs(rows, [list(self._letters(job.request.labels).values()) for job in batch])
        posteriors = {}
        for job, (logprobs, mass) in zip(batch, letters, strict=True):
            labels = job.request.labels
            check_mass(mass, labels, least=self._min_mass)
            cost = replace(self._prompt_cost(job), flops_computed=float(scores.flops[job.place]))
            heads = job.request.by_frame(scores.heads.get(job.place))
            posteriors[job.place] = Posterior(labels, logprobs, cost, mass, job.notes, heads)
        return posteriors

    def _generate(self, batch: Batch, *, params: SamplingParams) -> dict[int, Completions]:
        flops: Counter[int] = Counter()
        texts = {job.place: self._generator.drafts(job.layout.ids, params) for job in batch}
        every = [text for some in texts.values() for text in some]
        steps = max(text.limit for text in every) - 1
        logits, step = self._begin_texts(batch, flops, texts=params.samples, steps=steps)
        write_all(self._generator, every, logits.repeat_interleave(params.samples, 0), step)
        return {job.place: self._completions(job, texts[job.place], flops[job.place]) for job in batch}

    def _completions(self, job: PreparedRequest, texts: Sequence[GrowingText], flops: int) -> Completions:
        prompt = replace(self._prompt_cost(job), flops_computed=float(flops))
        first, *more = (self._text_cost(job, len(text.ids)) for text in texts)
        costs = [prompt + first, *more]
        return tuple(self._generator.written(text, cost, job.notes) for text, cost in zip(texts, costs, strict=True))
