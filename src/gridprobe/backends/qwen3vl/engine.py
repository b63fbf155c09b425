"""Qwen3VL: scores requests with a transformers model and reuses what it has computed.

    encode once   a frame's vision features are used by every request that shows it at this size
    stems         the keys and values of a sequence's first part are used by every request that begins alike: the same
                  frames with another question, or the same text with other frames
    batches       the rest runs in as few passes as memory allows

What is kept is limited in bytes and can be dropped at any moment without changing an answer. No call leaves state on
the model object.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gridprobe.backends.base import FrameGroup, Posterior, ScoreRequest, Unit
from gridprobe.backends.local.letters import letter_logprobs, letter_tokens
from gridprobe.backends.local.memory import Memory
from gridprobe.backends.local.store import Store
from gridprobe.backends.qwen3vl.blocks import compiled, plain_weights, text_block, vision_block
from gridprobe.backends.qwen3vl.language import LanguageModel, Piece
from gridprobe.backends.qwen3vl.pixels import PatchSpec, patches
from gridprobe.backends.qwen3vl.plain import plain_logits
from gridprobe.backends.qwen3vl.pricing import dims_of, head_flops, prefill_flops, price, token_bytes, vision_flops
from gridprobe.backends.qwen3vl.prompt import Layout, SpecialTokens, build_layout, encoder
from gridprobe.backends.qwen3vl.vision import VisionTower
from gridprobe.errors import ModelError
from gridprobe.flops import Cost
from gridprobe.progress import report
from gridprobe.video import FrameSize

__all__ = ["Qwen3VL"]

MIN_MASS = 1e-3
"""A model whose option letters get less probability than this is not answering with a letter."""

SMALLEST = 64
"""Frames are not shrunk below this side to make a pass fit into memory."""


@dataclass(frozen=True, eq=False)
class _Job:
    """One request in the engine; `place` is its index in the call."""

    place: int
    request: ScoreRequest
    layout: Layout
    notes: tuple[str, ...] = ()
    shared: bool = False
    """Whether other requests begin alike, now or later."""

    @cached_property
    def units(self) -> tuple[Hashable, ...]:
        """The identity of every unit for the vision tower: which frames, at which size."""
        keys = [group.frames.keys for group in self.request.groups]
        shown = zip(self.request.units, self.layout.sizes, strict=True)
        return tuple(("unit", tuple(keys[unit.group][i] for i in unit.members), size) for unit, size in shown)

    def kind(self, number: int) -> "_Kind":
        """What must be equal for units to be encoded together."""
        unit, size = self.request.units[number], self.layout.sizes[number]
        frames = self.request.groups[unit.group].frames
        return _Kind(size, len(unit.members), (frames.height, frames.width))

    @cached_property
    def stem(self) -> Hashable:
        """The identity of the stem; frames are part of it only if they are in it."""
        layout = self.layout
        visual = bool(layout.visual[: layout.stem].any())
        return ("stem", layout.ids[: layout.stem].tobytes(), self.units if visual else ())


class _Kind(NamedTuple):
    size: tuple[int, int]
    """Width and height the unit is shown at."""
    members: int
    stored: tuple[int, int]
    """Height and width of its frames before they are resized."""


_Member = tuple[_Job, Unit]
"""Where a unit is found: a job that shows it, and which of the job's units it is."""


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
        self._dtype = model.dtype
        self._context = int(model.config.text_config.max_position_embeddings)
        self._vision = VisionTower(model.model.visual, block=compiled(vision_block) if compile else vision_block)
        self._language = LanguageModel(model, block=compiled(text_block) if compile else text_block)
        self._memory = Memory.of(model, token_bytes=token_bytes(self.dims, model.dtype.itemsize))
        self.kept = Store(self._memory.keep, host_limit=self._memory.keep_on_host)
        """Vision features and stems that may be reused."""

    @property
    def multiple(self) -> int:
        """Sides of frames are multiples of a merged patch."""
        return self._spec.multiple

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Score all requests, in as few forward passes as memory allows."""
        most = self._memory.most()
        jobs = [_Job(place, request, self._layout(request)) for place, request in enumerate(requests)]
        jobs = [self._fitting(job, most) for job in jobs]
        often = Counter(job.stem for job in jobs)
        jobs = [replace(job, shared=job.request.again or often[job.stem] > 1) for job in jobs]
        posteriors: dict[int, Posterior] = {}
        for batch in _batches(jobs, room=min(most, self._memory.worthwhile)):
            posteriors.update(self._run(batch))
            report("model", len(posteriors), len(jobs))
        return [posteriors[place] for place in range(len(jobs))]

    def estimate(self, request: ScoreRequest) -> Cost:
        """The cost of scoring the request, from its exact token count."""
        layout = self._layout(request)
        return price(self.dims, len(layout), layout.grids)

    def _layout(self, request: ScoreRequest) -> Layout:
        layout = build_layout(request, self._encode_text, self._special, patch=self._spec.patch, merge=self._spec.merge)
        if len(layout) > self._context:
            raise ModelError(
                f"{_frames(request, layout)} and the question need "
                f"{len(layout):,} tokens, but the model reads at most {self._context:,}; use fewer or smaller frames"
            )
        return layout

    def _fitting(self, job: _Job, most: int) -> _Job:
        """The job, with smaller frames if its sequence alone would not fit into memory."""
        while len(job.layout) > most and (smaller := self._smaller(job)) is not None:
            job = smaller
        return job

    def _smaller(self, job: _Job) -> _Job | None:
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
    def _run(self, batch: Sequence[_Job]) -> dict[int, Posterior]:
        """Score a batch; when memory runs out, with less at once."""
        try:
            logits, spent = self._plain(batch) if self.plain else self._fast(batch)
        except torch.OutOfMemoryError:
            pass  # inside this handler the error would keep tensors alive
        else:
            return self._posteriors(batch, logits, spent)
        self.kept.clear()
        torch.cuda.empty_cache()
        return self._run_with_less(batch)

    def _run_with_less(self, batch: Sequence[_Job]) -> dict[int, Posterior]:
        """Score in halves; a single job with smaller frames; after that it is an error."""
        if len(batch) > 1:
            middle = len(batch) // 2
            return self._run(batch[:middle]) | self._run(batch[middle:])
        smaller = self._smaller(batch[0])
        if smaller is None:
            raise _out_of_memory(batch[0])
        return self._run([smaller])

    def _plain(self, batch: Sequence[_Job]) -> tuple[dict[int, Tensor], Counter[int]]:
        pixels = [self._patches(job) for job in batch]
        logits = plain_logits(self._model, [job.layout for job in batch], pixels, filler=self._special.im_end)
        spent = Counter({job.place: int(self._price(job).flops) for job in batch})
        return {job.place: row for job, row in zip(batch, logits, strict=True)}, spent

    def _patches(self, job: _Job) -> Tensor | None:
        """The patches of every unit of a job, in the order shown; None without frames."""
        request, layout = job.request, job.layout
        parts: dict[Unit, Tensor] = {}
        for number, group in enumerate(request.groups):
            units = group.units(number)
            flat = patches(
                group.frames.pixels,
                size=layout.sizes[request.units.index(units[0])],
                packing=group.view.packing,
                spec=self._spec,
                device=self._model.model.visual.device,
            )
            parts |= zip(units, flat.chunk(len(units)), strict=True)
        return torch.cat([parts[unit] for unit in request.units]) if parts else None

    def _fast(self, batch: Sequence[_Job]) -> tuple[dict[int, Tensor], Counter[int]]:
        """Logits by place, and the FLOPs that each one took."""
        spent: Counter[int] = Counter()
        shared = [job for job in batch if job.shared or job.stem in self.kept]
        apart = {job.place for job in shared}
        alone = [job for job in batch if job.place not in apart]
        stems = self._stems(shared, spent)
        spans = [_Span(job, 0, len(job.layout)) for job in alone]
        rests = [_Span(job, job.layout.stem, len(job.layout), stems[job.stem]) for job in shared]
        logits: dict[int, Tensor] = {}
        for part in (spans, rests):
            if part:
                rows = self._language.logits(self._pieces(part, spent))
                logits |= {span.job.place: row for span, row in zip(part, rows, strict=True)}
        for job in batch:
            spent[job.place] += int(head_flops(self.dims))
        return logits, spent

    def _stems(self, jobs: Sequence[_Job], spent: Counter[int]) -> dict[Hashable, Tensor]:
        """Keys and values of the jobs' stems: kept ones, and the others computed in one pass."""
        stems: dict[Hashable, Tensor] = {}
        missing: dict[Hashable, _Job] = {}
        for job in jobs:
            kept = self.kept.get(job.stem, self._memory.device)
            if kept is None:
                missing.setdefault(job.stem, job)
            else:
                stems[job.stem] = kept
        if missing:
            spans = [_Span(job, 0, job.layout.stem) for job in missing.values()]
            for span, known in zip(spans, self._language.keys_and_values(self._pieces(spans, spent)), strict=True):
                stems[span.job.stem] = known
                self.kept.put(span.job.stem, known)
        return stems

    def _pieces(self, spans: Sequence["_Span"], spent: Counter[int]) -> list[Piece]:
        """The spans with the features of their frames, ready for the language model."""
        features = self._features([span.job for span in spans if span.sees], spent)
        pieces = []
        for span in spans:
            layout, cut = span.job.layout, slice(span.start, span.end)
            seen = torch.cat([features[unit] for unit in span.job.units], dim=1) if span.sees else None
            pieces.append(Piece(layout.ids[cut], layout.positions[:, cut], layout.visual[cut], seen, span.past))
            spent[span.job.place] += int(prefill_flops(self.dims, span.end, known=span.start))
        return pieces

    def _features(self, jobs: Sequence[_Job], spent: Counter[int]) -> dict[Hashable, Tensor]:
        """Vision features of every unit of the jobs, levels × tokens × width, each encoded once."""
        features: dict[Hashable, Tensor] = {}
        missing: dict[_Kind, dict[Hashable, _Member]] = {}
        for job in jobs:
            new: Counter[tuple[int, int]] = Counter()
            for number, unit in enumerate(job.units):
                kind = job.kind(number)
                if unit in features or unit in missing.get(kind, {}):
                    continue
                kept = self.kept.get(unit, self._memory.device)
                if kept is not None:
                    features[unit] = kept
                    continue
                missing.setdefault(kind, {})[unit] = job, job.request.units[number]
                new[kind.size] += 1
            grids = [(count, *self._grid(size)) for size, count in new.items()]
            spent[job.place] += int(vision_flops(self.dims.vision, grids))
        for kind, units in missing.items():
            features |= self._encode(units, *self._grid(kind.size))
        return features

    def _grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of patches."""
        return size[1] // self._spec.patch, size[0] // self._spec.patch

    def _encode(self, units: dict[Hashable, _Member], rows: int, columns: int) -> dict[Hashable, Tensor]:
        """Units of one size through the vision tower."""
        features: dict[Hashable, Tensor] = {}
        names = list(units)
        parts = math.ceil(len(names) * rows * columns / self._memory.patches)
        step = math.ceil(len(names) / parts)
        for start in range(0, len(names), step):
            some = names[start : start + step]
            frames = _pixels([units[name] for name in some])
            apart = sum(map(len, frames)) == len(some)
            flat = patches(
                frames,
                size=(columns * self._spec.patch, rows * self._spec.patch),
                packing="single" if apart else "pairs",
                spec=replace(self._spec, temporal=1) if apart else self._spec,
                device=self._memory.device,
            )
            levels = self._vision(flat.view(len(some), rows * columns, -1).to(self._dtype), rows, columns)
            for place, name in enumerate(some):
                features[name] = levels[:, place]
                self.kept.put(name, levels[:, place].clone())  # a view would keep the whole batch alive
        return features

    def _price(self, job: _Job) -> Cost:
        return price(self.dims, len(job.layout), job.layout.grids)

    def _posteriors(
        self, batch: Sequence[_Job], logits: dict[int, Tensor], spent: Counter[int]
    ) -> dict[int, Posterior]:
        rows = torch.stack([logits[job.place] for job in batch])
        found = letter_logprobs(rows, [list(self._letters(job.request.labels).values()) for job in batch])
        return {
            job.place: self._posterior(job, logprobs, mass, spent[job.place])
            for job, (logprobs, mass) in zip(batch, found, strict=True)
        }

    def _posterior(self, job: _Job, logprobs: tuple[float, ...], mass: float, spent: int) -> Posterior:
        labels = job.request.labels
        if mass < self._min_mass:
            raise ModelError(
                f"the model puts only {mass:.2g} of its probability on the option letters {labels[0]}–{labels[-1]}: "
                "it does not answer with a letter here; use an Instruct checkpoint, not a Thinking or base one"
            )
        cost = replace(self._price(job), flops_computed=float(spent))
        return Posterior(labels, logprobs, cost, mass, job.notes)


def _batches(jobs: Sequence[_Job], *, room: int) -> Iterator[list[_Job]]:
    """Longest first, so that sequences of similar length share a batch and the worst case comes early."""
    batch: list[_Job] = []
    for job in sorted(jobs, key=lambda job: -len(job.layout)):
        if batch and (len(batch) + 1) * len(batch[0].layout) > room:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def _pixels(members: Sequence[_Member]) -> list[npt.NDArray[np.uint8]]:
    """The frames of some units, in pieces of one group each; adjacent frames are not copied."""
    pieces = []
    for _, some in groupby(members, key=lambda member: (member[0].place, member[1].group)):
        found = list(some)
        job, first = found[0]
        rows = [i for _, unit in found for i in unit.members]
        run = rows == list(range(rows[0], rows[-1] + 1))
        pieces.append(job.request.groups[first.group].frames.pixels[slice(rows[0], rows[-1] + 1) if run else rows])
    return pieces


@dataclass(frozen=True, eq=False)
class _Span:
    """A part of a job's sequence, and the keys and values of the tokens before it."""

    job: _Job
    start: int
    end: int
    past: Tensor | None = None

    @property
    def sees(self) -> bool:
        """Whether it contains the frames; all of them, or none."""
        return bool(self.job.layout.visual[self.start : self.end].any())


def _frames(request: ScoreRequest, layout: Layout) -> str:
    count = sum(len(group.frames) for group in request.groups)
    upto = "up to " if len(set(layout.sizes)) > 1 else ""
    return f"{count} frames of {upto}{layout.largest[0]}×{layout.largest[1]}"


def _out_of_memory(job: _Job) -> ModelError:
    return ModelError(
        f"out of memory on one sequence of {len(job.layout):,} tokens ({_frames(job.request, job.layout)}); "
        "lower --frames, --k or the pixels per frame, or use a smaller or quantized model"
    )
