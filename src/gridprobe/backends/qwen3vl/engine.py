"""Qwen3VL: scores requests with a transformers model and reuses what it has computed.

    encode once   a frame's vision features are used by every request that shows it at this size
    stems         the keys and values of a sequence's first part are used by every request that begins alike: the same
                  frames with another question, or the same text with other frames
    batches       the rest runs in as few passes as memory allows

What is kept is limited in bytes and can be dropped at any moment without changing an answer. No call leaves state on
the model object.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from gridprobe.backends.base import FrameGroup, Posterior, ScoreRequest
from gridprobe.backends.local.batching import batches
from gridprobe.backends.local.letters import MIN_MASS, check_mass, letter_logprobs, letter_tokens
from gridprobe.backends.local.memory import Memory
from gridprobe.backends.local.store import Store
from gridprobe.backends.qwen3vl.blocks import compiled, plain_weights, text_block, vision_block
from gridprobe.backends.qwen3vl.features import Features
from gridprobe.backends.qwen3vl.jobs import Job, Span, price_job
from gridprobe.backends.qwen3vl.language import LanguageModel, Piece
from gridprobe.backends.qwen3vl.pixels import PatchSpec, upload
from gridprobe.backends.qwen3vl.plain import plain_logits
from gridprobe.backends.qwen3vl.pricing import (
    attention_flops,
    dims_of,
    head_flops,
    prefill_flops,
    token_bytes,
)
from gridprobe.backends.qwen3vl.prompt import Layout, SpecialTokens, build_layout, encoder
from gridprobe.backends.qwen3vl.vision import VisionTower
from gridprobe.errors import ModelError
from gridprobe.flops import Cost
from gridprobe.progress import report
from gridprobe.video import FrameSize

__all__ = ["Qwen3VL"]

SMALLEST = 64
"""Frames are not shrunk below this side to make a pass fit into memory."""


class Qwen3VL:
    """A Qwen3-VL model as a backend."""

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
        self._min_mass = min_letter_mass
        self._context = int(model.config.text_config.max_position_embeddings)
        self._language = LanguageModel(model, block=compiled(text_block) if compile else text_block)
        self._memory = Memory.of(model, token_bytes=token_bytes(self.dims, model.dtype.itemsize))
        tower = VisionTower(model.model.visual, block=compiled(vision_block) if compile else vision_block)
        self._features = Features(tower, spec, self.dims.vision, self._memory, model.dtype)
        self.kept = Store(self._memory.keep, host_limit=self._memory.keep_on_host)
        """Vision features and stems that may be reused."""

    @property
    def multiple(self) -> int:
        """Sides of frames are multiples of a merged patch."""
        return self._spec.multiple

    @property
    def recalls(self) -> bool:
        """Whether questions can be put to some of the frames in the memory of all of them."""
        return not self.plain

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Score all requests, in as few forward passes as memory allows."""
        most = self._memory.most()
        jobs = [Job(place, request, self._layout(request)) for place, request in enumerate(requests)]
        jobs = [self._fitting(job, most) for job in jobs]
        often = Counter(job.stem for job in jobs)
        jobs = [replace(job, shared=job.recalls or job.request.again or often[job.stem] > 1) for job in jobs]
        posteriors: dict[int, Posterior] = {}
        for batch in batches(jobs, room=min(most, self._memory.worthwhile)):
            posteriors.update(self._run(batch))
            report("model", len(posteriors), len(jobs))
        return [posteriors[place] for place in range(len(jobs))]

    def estimate(self, request: ScoreRequest) -> Cost:
        """The cost of scoring the request, from its exact token count."""
        return price_job(self.dims, Job(0, request, self._layout(request)))

    def _layout(self, request: ScoreRequest) -> Layout:
        layout = build_layout(request, self._encode_text, self._special, patch=self._spec.patch, merge=self._spec.merge)
        if len(layout) > self._context:
            raise ModelError(
                f"{_frames(request, layout)} and the question need "
                f"{len(layout):,} tokens, but the model reads at most {self._context:,}; use fewer or smaller frames"
            )
        return layout

    def _fitting(self, job: Job, most: int) -> Job:
        """The job, with smaller frames if its sequence alone would not fit into memory."""
        while len(job.layout) > most and (smaller := self._smaller(job)) is not None:
            job = smaller
        return job

    def _smaller(self, job: Job) -> Job | None:
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
    def _run(self, batch: Sequence[Job]) -> dict[int, Posterior]:
        """Score a batch; when memory runs out, with less at once."""
        try:
            found = self._plain(batch) if self.plain else self._fast(batch)
        except torch.OutOfMemoryError:
            pass  # inside this handler the error would keep tensors alive
        else:
            return self._posteriors(batch, found)
        self.kept.clear()
        torch.cuda.empty_cache()
        return self._run_with_less(batch)

    def _run_with_less(self, batch: Sequence[Job]) -> dict[int, Posterior]:
        """Score in halves; a single job with smaller frames; after that it is an error."""
        if len(batch) > 1:
            middle = len(batch) // 2
            return self._run(batch[:middle]) | self._run(batch[middle:])
        smaller = self._smaller(batch[0])
        if smaller is None:
            raise _out_of_memory(batch[0])
        return self._run([smaller])

    def _plain(self, batch: Sequence[Job]) -> "_Found":
        if any(job.recalls for job in batch):
            raise ModelError(
                "this model runs through transformers' own modules, which cannot question the memory of frames; "
                "use probes=fresh"
            )
        pixels = [self._features.patches(job) for job in batch]
        rows = plain_logits(self._model, [job.layout for job in batch], pixels, filler=self._special.im_end)
        spent = Counter({job.place: int(price_job(self.dims, job).flops) for job in batch})
        return _Found({job.place: row for job, row in zip(batch, rows, strict=True)}, spent)

    def _fast(self, batch: Sequence[Job]) -> "_Found":
        found = _Found()
        shared = [job for job in batch if job.shared or job.stem in self.kept]
        apart = {job.place for job in shared}
        stems = self._stems(shared, found.spent)
        alone = [Span(job, 0, len(job.layout)) for job in batch if job.place not in apart]
        rests = [self._rest(job, stems[job.stem]) for job in shared if not job.request.attention]
        for part in (alone, rests):
            if part:
                rows = self._language.logits(self._pieces(part, found.spent))
                found.logits.update({span.job.place: row for span, row in zip(part, rows, strict=True)})
        for job in shared:
            if job.request.attention:
                self._watch(self._rest(job, stems[job.stem]), found)
        for job in batch:
            found.spent[job.place] += int(head_flops(self.dims))
        return found

    def _rest(self, job: Job, stem: Tensor) -> Span:
        """What follows the stem, with the keys and values it may attend to."""
        if job.request.sees is not None:
            stem = stem[..., upload(job.columns, stem.device), :]
        return Span(job, job.layout.stem, len(job.layout), stem)

    def _watch(self, span: Span, found: "_Found") -> None:
        """Run what follows a stem and note how much it attends to each unit."""
        job = span.job
        (piece,) = self._pieces([span], found.spent)
        owners = upload(job.layout.owners[job.columns], self._memory.device)
        row, seen = self._language.watched(piece, owners, len(job.units))
        found.logits[job.place] = row[0]
        found.attention[job.place] = tuple(seen.tolist())
        found.spent[job.place] += int(attention_flops(self.dims, span.end - span.start, known=span.known))

    def _stems(self, jobs: Sequence[Job], spent: Counter[int]) -> dict[Hashable, Tensor]:
        """Keys and values of the jobs' stems: kept ones, and the others computed in one pass."""
        stems: dict[Hashable, Tensor] = {}
        missing: dict[Hashable, Job] = {}
        for job in jobs:
            kept = self.kept.get(job.stem, self._memory.device)
            if kept is None:
                missing.setdefault(job.stem, job)
            else:
                stems[job.stem] = kept
        if missing:
            spans = [Span(job, 0, job.layout.stem) for job in missing.values()]
            for span, known in zip(spans, self._language.keys_and_values(self._pieces(spans, spent)), strict=True):
                stems[span.job.stem] = known
                self.kept.put(span.job.stem, known)
        return stems

    def _pieces(self, spans: Sequence["Span"], spent: Counter[int]) -> list[Piece]:
        """The spans with the features of their frames, ready for the language model."""
        features = self._features.of([span.job for span in spans if span.sees], self.kept, spent)
        pieces = []
        for span in spans:
            layout, cut = span.job.layout, slice(span.start, span.end)
            seen = torch.cat([features[unit] for unit in span.job.units], dim=1) if span.sees else None
            pieces.append(Piece(layout.ids[cut], layout.positions[:, cut], layout.visual[cut], seen, span.past))
            tokens = span.known + span.end - span.start
            spent[span.job.place] += int(prefill_flops(self.dims, tokens, known=span.known))
        return pieces

    def _posteriors(self, batch: Sequence[Job], found: "_Found") -> dict[int, Posterior]:
        rows = torch.stack([found.logits[job.place] for job in batch])
        letters = letter_logprobs(rows, [list(self._letters(job.request.labels).values()) for job in batch])
        return {
            job.place: self._posterior(job, logprobs, mass, found)
            for job, (logprobs, mass) in zip(batch, letters, strict=True)
        }

    def _posterior(self, job: Job, logprobs: tuple[float, ...], mass: float, found: "_Found") -> Posterior:
        labels = job.request.labels
        check_mass(mass, labels, least=self._min_mass)
        cost = replace(price_job(self.dims, job), flops_computed=float(found.spent[job.place]))
        attention = job.request.by_frame(found.attention.get(job.place))
        return Posterior(labels, logprobs, cost, mass, job.notes, attention)


@dataclass(frozen=True)
class _Found:
    """What a batch gave, by the place of each job."""

    logits: dict[int, Tensor] = field(default_factory=dict)
    spent: Counter[int] = field(default_factory=Counter)
    """FLOPs that were computed."""
    attention: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """How much the question attends to each unit, where that was asked for."""


def _frames(request: ScoreRequest, layout: Layout) -> str:
    count = sum(len(group.frames) for group in request.groups)
    upto = "up to " if len(set(layout.sizes)) > 1 else ""
    return f"{count} frames of {upto}{layout.largest[0]}×{layout.largest[1]}"


def _out_of_memory(job: Job) -> ModelError:
    return ModelError(
        f"out of memory on one sequence of {len(job.layout):,} tokens ({_frames(job.request, job.layout)}); "
        "lower --frames, --k or the pixels per frame, or use a smaller or quantized model"
    )
