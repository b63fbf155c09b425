"""Qwen3VL: scores requests with a transformers model and reuses what it has computed.

    encode once   a frame's vision features are used by every request that shows it at this size
    prefixes      the keys and values of a sequence's first part are used by every request that begins alike: the same
                  frames with another question, or the same text with other frames
    batches       the rest runs in as few passes as memory allows

What is kept is limited in bytes and can be dropped at any moment without changing an answer. No call leaves state on
the model object.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from gridprobe._util import parse_json, report
from gridprobe.errors import ModelError, TooLarge
from gridprobe.models.base import (
    Capabilities,
    Completions,
    Cost,
    FrameGroup,
    Posterior,
    Request,
    Response,
    SamplingParams,
    by_task,
)
from gridprobe.models.local.checkpoint import first_line
from gridprobe.models.local.generate import (
    MIN_MASS,
    GrowingText,
    TextGenerator,
    check_mass,
    end_tokens,
    letter_logprobs,
    letter_tokens,
    write_all,
)
from gridprobe.models.local.kv_cache import DeviceMemory, Store, batches, steady_attention
from gridprobe.models.local.loading import LoadOptions, opened
from gridprobe.models.qwen3vl.blocks import (
    PatchSpec,
    compiled,
    plain_cached,
    plain_logits,
    plain_weights,
    text_block,
    upload,
    vision_block,
)
from gridprobe.models.qwen3vl.language import Branches, LanguageModel, Piece, Prefix
from gridprobe.models.qwen3vl.pricing import (
    attention_flops,
    cache_bytes,
    dims_of,
    head_flops,
    prefill_flops,
    token_bytes,
)
from gridprobe.models.qwen3vl.prompt import (
    Layout,
    Layouts,
    PreparedRequest,
    Span,
    SpecialTokens,
    encoder,
    price_job,
    price_prompt,
    price_text_of,
)
from gridprobe.models.qwen3vl.vision import Features, VisionTower
from gridprobe.video import FrameSize

# What runs in one pass: whole sequences, and texts that follow kept prefixes, sized by what is computed for them.

LEAST_ROW = 512
"""Texts of that many tokens together share a row after any prefix; after a long one, half as many tokens as it has."""
WATCHED_SCORES = 2**26
"""The most attention scores of one layer that are looked at together."""


class Room(NamedTuple):
    """How much a pass may hold."""

    tokens: int
    """Tokens that are computed."""
    copies: int
    """Tokens whose keys and values are copied, because the texts that follow them differ in what they see of them."""


def passes(
    jobs: Sequence[PreparedRequest], room: Room, *, kept: Container[Hashable], copying: bool
) -> Iterator[list[PreparedRequest]]:
    """The jobs in batches; those that share a prefix are together, and it is counted once.

    Args:
        jobs: what to run.
        room: the most that a batch may hold; a single job may exceed it.
        kept: the prefixes that need not be computed.
        copying: whether each text gets keys and values of its own, as texts do that the model goes on writing.
    """
    shared = [job for job in jobs if job.shared]
    often = Counter(job.prefix for job in shared)
    order = {prefix: place for place, prefix in enumerate(often)}
    batch, prefixes, tokens, copies = list[PreparedRequest](), set[Hashable](), 0, 0
    for job in sorted(shared, key=lambda job: (order[job.prefix], -job.rest)):
        copied = len(job.columns) if copying or job.narrow or often[job.prefix] == 1 else 0
        while True:
            new = job.rest + (0 if job.prefix in prefixes or job.prefix in kept else job.layout.prefix)
            if not batch or (tokens + new <= room.tokens and copies + copied <= room.copies):
                break
            yield batch
            batch, prefixes, tokens, copies = [], set(), 0, 0
        batch.append(job)
        prefixes.add(job.prefix)
        tokens, copies = tokens + new, copies + copied
    if batch:
        yield batch
    yield from batches([job for job in jobs if not job.shared], room=room.tokens)


def rows_of(spans: Sequence[Span], *, heads: int) -> Iterator[list[Span]]:
    """Texts that follow the same prefix and can stand side by side, so that its keys and values are not copied.

    A token's attention is computed over the whole row, so a row is short in comparison with its prefix. One that is
    watched is shorter still, because its attention is held in memory; `heads` is the number of rows of scores a token
    has.
    """
    groups: dict[tuple[Hashable, bool], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.job.prefix, span.job.request.attention), []).append(span)
    for (_, watched), group in groups.items():
        most = max(LEAST_ROW, group[0].known // 2)
        if watched:
            most = min(most, WATCHED_SCORES // (heads * (group[0].known + most)))
        row: list[Span] = []
        for span in group:
            if row and sum(map(len, row)) + len(span) > most:
                yield row
                row = []
            row.append(span)
        yield row


def side_by_side(span: Span, often: int) -> bool:
    """Whether a text stands in one row with others that follow its prefix, `often` of them, instead of copying it."""
    job = span.job
    return job.request.attention or (often > 1 and not job.narrow and not span.shows_frames)


def narrowed(span: Span) -> Span:
    """The span with none but the keys and values that it may attend to."""
    if span.job.request.visible_frames is None or span.past is None:
        return span
    return replace(span, past=span.past[..., upload(span.job.columns, span.past.device), :])


T = TypeVar("T")

SMALLEST = 64
"""Frames are not shrunk below this side to make a pass fit into memory."""
TEXT_SHARE = 3
"""A pass that texts follow holds 1/this of the tokens of another one: the keys and values of all layers stay."""


class Qwen3VL:
    """A Qwen3-VL model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        spec: PatchSpec,
        identity: str,
        min_letter_mass: float = MIN_MASS,
        compile: bool = False,
        plain: bool | None = None,
    ) -> None:
        self.identity = identity
        self.dims = dims_of(model.config)
        self.plain = not plain_weights(model) if plain is None else plain
        """Whether every request goes through transformers' own modules and nothing is kept."""
        self._model = model
        self._tokenizer = tokenizer
        self._special = SpecialTokens.of(tokenizer)
        self._encode_text = encoder(tokenizer)
        self._letters = lru_cache(partial(letter_tokens, tokenizer))
        self._spec = spec
        self._layouts = Layouts(self._encode_text, self._special, patch=spec.patch, merge=spec.merge)
        self._min_mass = min_letter_mass
        self._context = int(model.config.text_config.max_position_embeddings)
        self._scribe = TextGenerator(tokenizer, end_tokens(model, tokenizer, self._special.im_end), self._context)
        self._kept_bytes = cache_bytes(self.dims, model.dtype.itemsize)
        self._language = LanguageModel(model, block=compiled(text_block) if compile else text_block)
        size = model.dtype.itemsize
        self._memory = DeviceMemory.of(
            model, token_bytes=token_bytes(self.dims, size), cache_bytes=cache_bytes(self.dims, size)
        )
        tower = VisionTower(model.model.visual, block=compiled(vision_block) if compile else vision_block)
        self._features = Features(tower, spec, self.dims.vision, self._memory, model.dtype)
        self.kept = Store(self._memory.keep, host_limit=self._memory.keep_on_host)
        """Vision features and prefixes that may be reused."""

    @cached_property
    def capabilities(self) -> Capabilities:
        """Only its own path through the model can question the KV cache of frames."""
        return Capabilities(
            kv_reuse=not self.plain,
            attention_map=not self.plain,
            generates=True,
            frame_multiple=self._spec.multiple,
            context_tokens=self._context,
            weight_bytes=self._memory.weights,
            pass_bytes=self._memory.pass_bytes,
        )

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests in as few forward passes as memory allows; each prompt is read once for all its texts."""
        return by_task(
            self,
            requests,
            lambda some: self._each(some, self._score),
            lambda some, params: self._each(some, partial(self._write, writing=params), share=TEXT_SHARE),
        )

    def _each(
        self, requests: Sequence[Request], work: Callable[[Sequence[PreparedRequest]], dict[int, T]], *, share: int = 1
    ) -> list[T]:
        """What some work gives for each request, in batches that hold 1/share of what memory allows."""
        most = self._memory.most() // share
        jobs = [PreparedRequest(place, request, self._layout(request)) for place, request in enumerate(requests)]
        jobs = [self._fitting(job, most) for job in jobs]
        for job in jobs:
            self._memory.check(len(job.layout), _frames(job.request, job.layout))
        often = Counter(job.prefix for job in jobs)
        jobs = [replace(job, shared=self._shares(job, often[job.prefix])) for job in jobs]
        results: dict[int, T] = {}
        room = Room(min(most, self._memory.worthwhile), self._memory.copies(most) // self._kept_bytes)
        for batch in passes(jobs, room, kept=self.kept, copying=share > 1):
            results.update(self._run(batch, work))
            report("model", len(results), len(jobs))
        return [results[place] for place in range(len(jobs))]

    def _shares(self, job: PreparedRequest, often: int) -> bool:
        """Whether a job's prefix is read by itself: another job begins alike, now, later or before."""
        return not self.plain and (job.needs_kv or job.request.keep_kv or often > 1 or job.prefix in self.kept)

    def cost(self, request: Request) -> Cost:
        """The cost of the request, from its exact token count."""
        return price_job(self.dims, PreparedRequest(0, request, self._layouts.of(request)))

    def _layout(self, request: Request) -> Layout:
        layout = self._layouts.of(request)
        if len(layout) > self._context:
            raise TooLarge(
                f"{_frames(request, layout)} and the question need {len(layout):,} tokens, "
                f"but the model reads at most {self._context:,}; use fewer or smaller frames"
            )
        return layout

    def _fitting(self, job: PreparedRequest, most: int) -> PreparedRequest:
        """The job, with smaller frames if its sequence alone would not fit into memory."""
        while len(job.layout) > most and (smaller := self._smaller(job)) is not None:
            job = smaller
        return job

    def _smaller(self, job: PreparedRequest) -> PreparedRequest | None:
        """The same with frames of half the area, and a note that says so; None if they are small already."""
        width, height = job.layout.largest
        if min(width, height) < 2 * SMALLEST:
            return None
        smaller = FrameSize(max_pixels=width * height // 2)
        places = {
            u.group for u, size in zip(job.request.units, job.layout.sizes, strict=True) if size == (width, height)
        }
        groups = tuple(
            FrameGroup(group.frames, replace(group.view, pixels=smaller)) if place in places else group
            for place, group in enumerate(job.request.groups)
        )
        request = replace(job.request, groups=groups)
        layout = self._layout(request)
        shown = "{}×{}".format(*layout.sizes[job.layout.sizes.index((width, height))])
        note = f"frames were shown at {shown} pixels, because larger ones do not fit memory"
        return replace(job, request=request, layout=layout, notes=(note,))

    @torch.inference_mode()
    def _run(
        self, batch: Sequence[PreparedRequest], work: Callable[[Sequence[PreparedRequest]], dict[int, T]]
    ) -> dict[int, T]:
        """Do some work on a batch; when memory runs out, on less at once."""
        try:
            with steady_attention(self._memory.device, tokens=max(len(job.layout) for job in batch)):
                return work(batch)
        except torch.OutOfMemoryError:
            pass  # inside this handler the error would keep tensors alive
        self.kept.clear()
        torch.cuda.empty_cache()
        return self._run_with_less(batch, work)

    def _run_with_less(
        self, batch: Sequence[PreparedRequest], work: Callable[[Sequence[PreparedRequest]], dict[int, T]]
    ) -> dict[int, T]:
        """Work in halves; on a single job with smaller frames; after that it is an error."""
        if len(batch) > 1:
            middle = len(batch) // 2
            return self._run(batch[:middle], work) | self._run(batch[middle:], work)
        smaller = self._smaller(batch[0])
        if smaller is None:
            raise _out_of_memory(batch[0])
        return self._run([smaller], work)

    def _score(self, batch: Sequence[PreparedRequest]) -> dict[int, Posterior]:
        return self._posteriors(batch, self._plain(batch) if self.plain else self._fast(batch))

    def _write(self, batch: Sequence[PreparedRequest], *, writing: SamplingParams) -> dict[int, Completions]:
        spent: Counter[int] = Counter()
        drafts = {job.place: self._scribe.drafts(job.layout.ids, writing) for job in batch}
        every, count = [draft for some in drafts.values() for draft in some], writing.samples
        if self.plain:
            logits, cached = plain_cached(*self._plain_inputs(batch, spent), filler=self._special.im_end)
            cached.copies([count] * len(batch))
            step = cached.step
        else:
            prefixes = self._prefixes(batch, spent)
            logits = torch.stack([prefix.logits for prefix in prefixes])
            steps = max(draft.limit for draft in every) - 1
            step = Branches(self._language, prefixes, texts=count, steps=steps).step
        write_all(self._scribe, every, logits.repeat_interleave(count, 0), step)
        return {job.place: self._written(job, drafts[job.place], spent[job.place]) for job in batch}

    def _written(self, job: PreparedRequest, drafts: Sequence[GrowingText], spent: int) -> Completions:
        first, *more = (price_text_of(self.dims, job, len(draft.ids)) for draft in drafts)
        costs = [self._prompt_cost(job, spent) + first, *more]
        return tuple(self._scribe.written(draft, cost, job.notes) for draft, cost in zip(drafts, costs, strict=True))

    def _prompt_cost(self, job: PreparedRequest, spent: int) -> Cost:
        return replace(price_prompt(self.dims, job), flops_computed=float(spent))

    def _prefixes(self, batch: Sequence[PreparedRequest], spent: Counter[int]) -> list[Prefix]:
        """The jobs' sequences, read to their ends."""
        prefixes: dict[int, Prefix] = {}
        alone, rests = self._spans(batch, spent)
        for part in (alone, [narrowed(span) for span in rests]):
            if part:
                logits, caches = self._language.read(self._pieces(part, spent))
                for span, row, new in zip(part, logits, caches, strict=True):
                    parts = (new,) if span.past is None else (span.past, new)
                    prefixes[span.job.place] = Prefix(parts, int(span.job.layout.positions[0, -1]) + 1, row)
        for job in batch:
            spent[job.place] += int(head_flops(self.dims))
        return [prefixes[job.place] for job in batch]

    def _spans(self, batch: Sequence[PreparedRequest], spent: Counter[int]) -> tuple[list[Span], list[Span]]:
        """Sequences that are read as a whole, and the rests of those whose prefixes are kept."""
        shared = [job for job in batch if job.shared]
        prefixes = self._prefix_caches(shared, spent)
        alone = [Span(job, 0, len(job.layout)) for job in batch if not job.shared]
        return alone, [Span(job, job.layout.prefix, len(job.layout), prefixes[job.prefix]) for job in shared]

    def _plain_inputs(
        self, batch: Sequence[PreparedRequest], spent: Counter[int]
    ) -> tuple[Any, list[Layout], list[Tensor | None]]:
        """What the plain path takes: the model, layouts and patches."""
        if any(job.needs_kv for job in batch):
            raise ModelError(
                "this model runs through transformers' own modules, which cannot question the memory of frames; "
                "use probes=fresh"
            )
        for job in batch:
            spent[job.place] += int(price_job(self.dims, job).flops)
        return self._model, [job.layout for job in batch], [self._features.patches(job) for job in batch]

    def _plain(self, batch: Sequence[PreparedRequest]) -> "_Found":
        results = _Found()
        rows = plain_logits(*self._plain_inputs(batch, results.spent), filler=self._special.im_end)
        results.logits.update({job.place: row for job, row in zip(batch, rows, strict=True)})
        return results

    def _fast(self, batch: Sequence[PreparedRequest]) -> "_Found":
        results = _Found()
        alone, rests = self._spans(batch, results.spent)
        often = Counter(span.job.prefix for span in rests if not span.job.request.attention)
        apart = [span for span in rests if not side_by_side(span, often[span.job.prefix])]
        for part in (alone, [narrowed(span) for span in apart]):
            if part:
                rows = self._language.logits(self._pieces(part, results.spent))
                results.logits.update({span.job.place: row for span, row in zip(part, rows, strict=True)})
        beside = [span for span in rests if side_by_side(span, often[span.job.prefix])]
        for row in rows_of(beside, heads=self.dims.heads):
            self._beside(row, results)
        for job in batch:
            results.spent[job.place] += int(head_flops(self.dims))
        return results

    def _beside(self, row: Sequence[Span], results: "_Found") -> None:
        """Run texts that follow one prefix, side by side; note how much each attends to each unit if that is asked."""
        device, layout = self._memory.device, row[0].job.layout
        seen = [torch.zeros(layout.prefix, dtype=torch.bool, device=device) for _ in row]
        for mine, span in zip(seen, row, strict=True):
            mine[upload(span.job.columns, device)] = True
        pieces = self._pieces(row, results.spent)
        if row[0].job.request.attention:
            owners = upload(layout.owners, device)
            logits, watched = self._language.watched(pieces, seen, owners, len(layout.sizes))
            for span, shares in zip(row, watched.tolist(), strict=True):
                results.attention[span.job.place] = tuple(shares)
                flops = attention_flops(self.dims, len(span), known=len(span.job.columns))
                results.spent[span.job.place] += int(flops)
        else:
            logits = self._language.beside(pieces, seen)
        results.logits.update({span.job.place: mine for span, mine in zip(row, logits, strict=True)})

    def _prefix_caches(self, jobs: Sequence[PreparedRequest], spent: Counter[int]) -> dict[Hashable, Tensor]:
        """Keys and values of the jobs' prefixes: kept ones, and the others computed in one pass."""
        prefixes: dict[Hashable, Tensor] = {}
        missing: dict[Hashable, PreparedRequest] = {}
        for job in jobs:
            kept = self.kept.get(job.prefix, self._memory.device)
            if kept is None:
                missing.setdefault(job.prefix, job)
            else:
                prefixes[job.prefix] = kept
        if missing:
            spans = [Span(job, 0, job.layout.prefix) for job in missing.values()]
            for span, cache in zip(spans, self._language.keys_and_values(self._pieces(spans, spent)), strict=True):
                prefixes[span.job.prefix] = cache
                self.kept.put(span.job.prefix, cache)
        return prefixes

    def _pieces(self, spans: Sequence["Span"], spent: Counter[int]) -> list[Piece]:
        """The spans with the features of their frames, ready for the language model."""
        features = self._features.of([span.job for span in spans if span.shows_frames], self.kept, spent)
        pieces = []
        for span in spans:
            layout, cut = span.job.layout, slice(span.start, span.end)
            seen = torch.cat([features[unit] for unit in span.job.units], dim=1) if span.shows_frames else None
            pieces.append(Piece(layout.ids[cut], layout.positions[:, cut], layout.visual[cut], seen, span.past))
            past_tokens = len(span.job.columns) if span.past is not None else 0
            spent[span.job.place] += int(prefill_flops(self.dims, past_tokens + len(span), known=past_tokens))
        return pieces

    def _posteriors(self, batch: Sequence[PreparedRequest], results: "_Found") -> dict[int, Posterior]:
        rows = torch.stack([results.logits[job.place] for job in batch])
        letters = letter_logprobs(rows, [list(self._letters(job.request.labels).values()) for job in batch])
        return {
            job.place: self._posterior(job, logprobs, mass, results)
            for job, (logprobs, mass) in zip(batch, letters, strict=True)
        }

    def _posterior(
        self, job: PreparedRequest, logprobs: tuple[float, ...], mass: float, results: "_Found"
    ) -> Posterior:
        labels = job.request.labels
        check_mass(mass, labels, least=self._min_mass)
        cost = replace(price_job(self.dims, job), flops_computed=float(results.spent[job.place]))
        attention = job.request.by_frame(results.attention.get(job.place))
        return Posterior(labels, logprobs, cost, mass, job.notes, attention)


@dataclass(frozen=True)
class _Found:
    """What a batch gave, by the place of each job."""

    logits: dict[int, Tensor] = field(default_factory=dict)
    spent: Counter[int] = field(default_factory=Counter)
    """FLOPs that were computed."""
    attention: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """How much the question attends to each unit, where that was asked for."""


def _frames(request: Request, layout: Layout) -> str:
    count = sum(len(group.frames) for group in request.groups)
    upto = "up to " if len(set(layout.sizes)) > 1 else ""
    return f"{count} frames of {upto}{layout.largest[0]}×{layout.largest[1]}"


def _out_of_memory(job: PreparedRequest) -> TooLarge:
    return TooLarge(
        f"out of memory on one sequence of {len(job.layout):,} tokens ({_frames(job.request, job.layout)}); "
        "lower --frames, --k or the pixels per frame, or use a smaller or quantized model"
    )


# Qwen3-VL checkpoints: from a folder on disk to an engine.


def load_engine(
    name: str, folder: Path, *, min_letter_mass: float = MIN_MASS, compile: bool = False, **options: Any
) -> Qwen3VL:
    """Load a checkpoint.

    Args:
        name: what it is called in its identity.
        folder: the checkpoint.
        min_letter_mass: if the option letters get less than this share of the probability, it is an error.
        compile: fuse the model's blocks with torch.compile; pays after about a minute of questions on a GPU.
        **options: `device`, `dtype`, `attn_implementation`, `device_map`, `quantization`; see
            `gridprobe.models.local.loading.LoadOptions`.
    """
    checkpoint = opened(name, folder, LoadOptions(**options))
    return Qwen3VL(
        checkpoint.model,
        checkpoint.tokenizer,
        spec=_patch_spec(folder, checkpoint.config),
        identity=checkpoint.identity,
        min_letter_mass=min_letter_mass,
        compile=compile,
    )


def _patch_spec(folder: Path, config: Any) -> PatchSpec:
    """Mean and deviation come from the checkpoint's own files; transformers' defaults are another model's."""
    values: dict[str, Any] = {}
    for file in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        if (folder / file).is_file():
            values |= _processor_values(folder / file)
    vision = config.vision_config
    return PatchSpec(
        patch=vision.patch_size,
        merge=vision.spatial_merge_size,
        temporal=vision.temporal_patch_size,
        mean=_colours(values, "image_mean", folder),
        std=_colours(values, "image_std", folder),
    )


def _processor_values(file: Path) -> dict[str, Any]:
    try:
        values = parse_json(file.read_bytes())
        return dict(values.get("video_processor", values))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"cannot read {file}: {first_line(error)}; download the checkpoint again") from error


def _colours(values: dict[str, Any], name: str, folder: Path) -> tuple[float, ...]:
    channels = values.get(name, (0.5, 0.5, 0.5))
    numbers = isinstance(channels, list | tuple) and all(type(each) in (int, float) for each in channels)
    if not numbers or len(channels) != 3 or (name == "image_std" and min(channels) <= 0):
        rule = "three positive numbers" if name == "image_std" else "three numbers"
        raise ModelError(f"{name} in the processor's files of {folder} must be {rule}, got {channels!r:.80}")
    return tuple(channels)
