"""Qwen3VL: scores requests with a transformers model, in the fewest possible passes."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gridprobe._util import parse_json
from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import Capabilities, Cost, Request
from gridprobe.models.local.base import BatchResult, LocalModel
from gridprobe.models.local.checkpoint import first_line
from gridprobe.models.local.generate import MIN_MASS, Step
from gridprobe.models.local.layout import Batch, PreparedRequest
from gridprobe.models.local.loading import LoadOptions, opened
from gridprobe.models.qwen3vl.blocks import (
    PatchSpec,
    compiled,
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
    GridLayout,
    Layouts,
    Span,
    SpecialTokens,
    encoder,
    price_prompt,
    price_text_of,
    time_marker,
)
from gridprobe.models.qwen3vl.vision import Features, VisionTower

LEAST_ROW = 512
"""Texts of that many tokens together share a row after any prefix; after a long one, half as many tokens as it has."""
WATCHED_SCORES = 2**26
"""The most attention scores of one layer that are looked at together."""


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
    return job.request.attention or (often > 1 and not job.narrow and not span.units)


def narrowed(span: Span) -> Span:
    """The span with none but the keys and values that it may attend to."""
    if span.job.request.visible_frames is None or span.past is None:
        return span
    return replace(span, past=span.past[..., upload(span.job.columns, span.past.device), :])


class Qwen3VL(LocalModel):
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
    ) -> None:
        self.dims = dims_of(model.config)
        self._special = SpecialTokens.of(tokenizer)
        size = model.dtype.itemsize
        super().__init__(
            model,
            tokenizer,
            identity=identity,
            min_letter_mass=min_letter_mass,
            context=int(model.config.text_config.max_position_embeddings),
            token_bytes=token_bytes(self.dims, size),
            cache_bytes=cache_bytes(self.dims, size),
            end=(self._special.im_end,),
        )
        self._encode_text = encoder(tokenizer)
        self._spec = spec
        self._layouts = Layouts(self._encode_text, self._special, patch=spec.patch, merge=spec.merge)
        self._language = LanguageModel(model, block=compiled(text_block) if compile else text_block)
        tower = VisionTower(model.model.visual, block=compiled(vision_block) if compile else vision_block)
        self._features = Features(tower, spec, self.dims.vision, self._memory, model.dtype)

    @cached_property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # computed once asked for
        """What the engine can do."""
        return Capabilities(
            kv_reuse=True,
            masks_frames=True,
            attention_map=True,
            close_ups=True,
            generates=True,
            frame_multiple=self._spec.multiple,
            context_tokens=self._context,
            weight_bytes=self._memory.weights,
            pass_bytes=self._memory.pass_bytes,
        )

    def _layout(self, request: Request) -> GridLayout:
        return self._layouts.of(request)

    def _prompt_cost(self, job: PreparedRequest) -> Cost:
        return price_prompt(self.dims, job)

    def _text_cost(self, job: PreparedRequest, tokens: int) -> Cost:
        return price_text_of(self.dims, job, tokens)

    def _begin_texts(self, batch: Batch, flops: Counter[int], *, texts: int, steps: int) -> tuple[Tensor, Step]:
        prefixes = self._prefixes(batch, flops)
        logits = torch.stack([prefix.logits for prefix in prefixes])
        return logits, Branches(self._language, prefixes, texts=texts, steps=steps).step

    def _prefixes(self, batch: Batch, flops: Counter[int]) -> list[Prefix]:
        """The jobs' sequences, read to their ends."""
        prefixes: dict[int, Prefix] = {}
        alone, rests = self._spans(batch, flops)
        for part in (alone, [narrowed(span) for span in rests]):
            if part:
                logits, caches = self._language.read(self._pieces(part, flops))
                for span, row, new in zip(part, logits, caches, strict=True):
                    parts = (new,) if span.past is None else (span.past, new)
                    prefixes[span.job.place] = Prefix(parts, int(span.job.layout.positions[0, -1]) + 1, row)
        for job in batch:
            flops[job.place] += int(head_flops(self.dims))
        return [prefixes[job.place] for job in batch]

    def _spans(self, batch: Batch, flops: Counter[int]) -> tuple[list[Span], list[Span]]:
        """Sequences that are read as a whole, and the rests of those whose prefixes are kept."""
        shared = [job for job in batch if job.shared]
        prefixes = self._prefix_caches(shared, flops)
        alone = [Span(job, 0, len(job.layout)) for job in batch if not job.shared]
        return alone, [Span(job, job.layout.prefix, len(job.layout), prefixes[job.prefix]) for job in shared]

    def _scores(self, batch: Batch) -> BatchResult:
        results = BatchResult()
        alone, rests = self._spans(batch, results.flops)
        often = Counter(span.job.prefix for span in rests if not span.job.request.attention)
        apart = [span for span in rests if not side_by_side(span, often[span.job.prefix])]
        for part in (alone, [narrowed(span) for span in apart]):
            if part:
                rows = self._language.logits(self._pieces(part, results.flops))
                results.logits.update({span.job.place: row for span, row in zip(part, rows, strict=True)})
        beside = [span for span in rests if side_by_side(span, often[span.job.prefix])]
        for row in rows_of(beside, heads=self.dims.heads):
            self._beside(row, results)
        for job in batch:
            results.flops[job.place] += int(head_flops(self.dims))
        return results

    def _beside(self, row: Sequence[Span], results: BatchResult) -> None:
        """Run texts that follow one prefix, side by side; note how much each attends to each unit if that is asked."""
        device, layout = self._memory.device, row[0].job.layout
        seen = [torch.zeros(layout.prefix, dtype=torch.bool, device=device) for _ in row]
        for mine, span in zip(seen, row, strict=True):
            mine[upload(span.job.columns, device)] = True
        pieces = self._pieces(row, results.flops)
        if row[0].job.request.attention:
            owners = upload(layout.owners, device)
            logits, watched = self._language.watched(pieces, seen, owners, len(layout.sizes))
            for span, heads in zip(row, watched.cpu().numpy(), strict=True):
                results.heads[span.job.place] = heads
                flops = attention_flops(self.dims, len(span), known=len(span.job.columns))
                results.flops[span.job.place] += int(flops)
        else:
            logits = self._language.beside(pieces, seen)
        results.logits.update({span.job.place: mine for span, mine in zip(row, logits, strict=True)})

    def _prefix_caches(self, jobs: Batch, flops: Counter[int]) -> dict[Hashable, Tensor]:
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
            for span, cache in zip(spans, self._language.keys_and_values(self._pieces(spans, flops)), strict=True):
                prefixes[span.job.prefix] = cache
                self.kept.put(span.job.prefix, cache)
        return prefixes

    def _pieces(self, spans: Sequence["Span"], flops: Counter[int]) -> list[Piece]:
        """The spans with the features of their frames, ready for the language model."""
        features = self._features.of([(span.job, span.units) for span in spans], self.kept, flops)
        pieces = []
        for span in spans:
            layout, cut = span.job.layout, slice(span.start, span.end)
            seen = torch.cat([features[span.job.units[n]] for n in span.units], dim=1) if span.units else None
            pieces.append(Piece(layout.ids[cut], layout.positions[:, cut], layout.visual[cut], seen, span.past))
            past_tokens = len(span.job.columns) if span.past is not None else 0
            flops[span.job.place] += int(prefill_flops(self.dims, past_tokens + len(span), known=past_tokens))
        return pieces


# Qwen3-VL checkpoints: from a folder on disk to an engine.


def load_engine(
    name: str, folder: Path, *, min_letter_mass: float = MIN_MASS, compile: bool = False, **options: Any
) -> LocalModel:
    """Load a checkpoint; one that is quantized, spread over devices, or has other kernels runs in the general engine.

    Args:
        name: what it is called in its identity.
        folder: the checkpoint.
        min_letter_mass: if the option letters get less than this share of the probability, it is an error.
        compile: fuse the model's blocks with torch.compile; pays after about a minute of questions on a GPU.
        **options: `device`, `dtype`, `attn_implementation`, `device_map`, `quantization`; see
            `gridprobe.models.local.loading.LoadOptions`.
    """
    checkpoint = opened(name, folder, chosen := LoadOptions.of(**options))
    if not plain_weights(checkpoint.model):
        if compile:
            raise UsageError("only a model that is not quantized and on one device can be compiled")
        from gridprobe.models.transformers import check_version
        from gridprobe.models.transformers.engine import around

        check_version()
        return around(name, folder, checkpoint, chosen, min_letter_mass=min_letter_mass, time=time_marker)
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
