"""Qwen3VL: scores requests with a transformers model, many sequences per forward pass.

The model object is only ever called with explicit position ids and without a cache, so no call leaves anything behind
on it (transformers keeps `rope_deltas` on the model between calls, which silently shifts the next one).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gridprobe.backends.base import Posterior, ScoreRequest
from gridprobe.backends.qwen3vl.letters import letter_logprobs, letter_tokens
from gridprobe.backends.qwen3vl.pixels import PatchSpec, patches
from gridprobe.backends.qwen3vl.prompt import Layout, SpecialTokens, build_layout
from gridprobe.errors import ModelError
from gridprobe.flops import Cost, ModelDims, VisionDims, price
from gridprobe.progress import report

__all__ = ["Qwen3VL", "dims_of"]

BATCH_TOKENS = 16_384
"""Sequences are batched up to this many tokens, padding included; one longer sequence goes alone."""

MIN_MASS = 1e-3
"""A model that puts less than this on the option letters is not answering with a letter at all."""


@dataclass(frozen=True)
class _Job:
    """One request on its way through the engine; `place` is where its posterior belongs."""

    place: int
    request: ScoreRequest
    layout: Layout


class Qwen3VL:
    """A Qwen3-VL model as a backend."""

    def __init__(
        self, model: Any, tokenizer: Any, *, spec: PatchSpec, identity: str, min_letter_mass: float = MIN_MASS
    ) -> None:
        self.identity = identity
        self.dims = dims_of(model.config)
        self._model = model
        self._tokenizer = tokenizer
        self._special = SpecialTokens.of(tokenizer)
        self._spec = spec
        self._min_mass = min_letter_mass
        self._context = int(model.config.text_config.max_position_embeddings)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Score all requests, in as few forward passes as `BATCH_TOKENS` allows."""
        jobs = [_Job(place, request, self._layout(request)) for place, request in enumerate(requests)]
        posteriors: dict[int, Posterior] = {}
        for batch in _batches(jobs):
            posteriors.update(self._run(batch))
            report("model", len(posteriors), len(jobs))
        return [posteriors[place] for place in range(len(jobs))]

    def estimate(self, request: ScoreRequest) -> Cost:
        """The cost of scoring the request, from its exact token count."""
        layout = self._layout(request)
        return price(self.dims, len(layout), [layout.grid])

    def _layout(self, request: ScoreRequest) -> Layout:
        layout = build_layout(request, self._tokenizer, self._special, patch=self._spec.patch, merge=self._spec.merge)
        if len(layout) > self._context:
            raise ModelError(
                f"{len(request.frames)} frames of {layout.size[0]}×{layout.size[1]} and the question need "
                f"{len(layout):,} tokens, but the model reads at most {self._context:,}; use fewer or smaller frames"
            )
        return layout

    @torch.inference_mode()
    def _run(self, batch: Sequence[_Job]) -> dict[int, Posterior]:
        with _explain_out_of_memory(batch):
            logits = self._last_logits(batch).cpu()
        return {job.place: self._posterior(job, row) for job, row in zip(batch, logits, strict=True)}

    def _last_logits(self, batch: Sequence[_Job]) -> torch.Tensor:
        """Vocabulary logits at the last position of every sequence; sequences are padded on the left."""
        core, device = self._model.model, self._model.device
        length = max(len(job.layout) for job in batch)
        ids = torch.full((len(batch), length), self._special.im_end, dtype=torch.long)
        mask = torch.zeros((len(batch), length), dtype=torch.long)
        visual = torch.zeros((len(batch), length), dtype=torch.bool)
        positions = torch.zeros((3, len(batch), length), dtype=torch.long)
        for row, job in enumerate(batch):
            start = length - len(job.layout)
            ids[row, start:] = torch.from_numpy(job.layout.ids)
            mask[row, start:] = 1
            visual[row, start:] = torch.from_numpy(job.layout.visual)
            positions[:, row, start:] = torch.from_numpy(job.layout.positions)
        features, deepstack = self._encode(batch)
        embeds = self._model.get_input_embeddings()(ids.to(device))
        visual = visual.to(embeds.device)
        embeds[visual] = features.to(embeds.device, embeds.dtype)
        hidden = core.language_model(
            inputs_embeds=embeds,
            position_ids=positions.to(embeds.device),
            attention_mask=None if bool(mask.all()) else mask.to(embeds.device),
            visual_pos_masks=visual,
            deepstack_visual_embeds=deepstack,
            use_cache=False,
        ).last_hidden_state[:, -1]
        logits: torch.Tensor = self._model.lm_head(hidden)
        return logits.float()

    def _encode(self, batch: Sequence[_Job]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Vision features and deepstack features of all frame groups, in the order of the batch."""
        tower = self._model.model.visual
        pixels = [
            patches(
                job.request.frames.pixels,
                size=job.layout.size,
                packing=job.request.packing,
                spec=self._spec,
                device=tower.device,
            )
            for job in batch
        ]
        grids = torch.tensor([job.layout.grid for job in batch], device=tower.device)
        output = tower(torch.cat(pixels).to(tower.dtype), grid_thw=grids, return_dict=True)
        return output.pooler_output, list(output.deepstack_features)

    def _posterior(self, job: _Job, logits: torch.Tensor) -> Posterior:
        labels = job.request.labels
        tokens = letter_tokens(self._tokenizer, labels)
        logprobs, mass = letter_logprobs(logits, [tokens[label] for label in labels])
        if mass < self._min_mass:
            raise ModelError(
                f"the model puts only {mass:.2g} of its probability on the option letters {labels[0]}–{labels[-1]}: "
                "it does not answer with a letter here; use an Instruct checkpoint, not a Thinking or base one"
            )
        return Posterior(labels, logprobs, price(self.dims, len(job.layout), [job.layout.grid]), mass)


def _batches(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """Longest first, so that sequences of like length share a batch and the worst case comes early."""
    batch: list[_Job] = []
    for job in sorted(jobs, key=lambda job: -len(job.layout)):
        if batch and (len(batch) + 1) * len(batch[0].layout) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


@contextmanager
def _explain_out_of_memory(batch: Sequence[_Job]) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        longest = max(len(job.layout) for job in batch)
        frames = max(len(job.request.frames) for job in batch)
        raise ModelError(
            f"out of memory on {len(batch)} sequence(s) of up to {longest:,} tokens ({frames} frames each); "
            "lower --frames, --k or the pixels per frame, or use a smaller or quantized model"
        ) from error


def dims_of(config: Any) -> ModelDims:
    """The widths that decide what a pass costs."""
    text, vision = config.text_config, config.vision_config
    return ModelDims(
        hidden=text.hidden_size,
        layers=text.num_hidden_layers,
        heads=text.num_attention_heads,
        kv_heads=text.num_key_value_heads,
        head_dim=text.head_dim,
        ffn=text.intermediate_size,
        vocab=text.vocab_size,
        vision=VisionDims(
            depth=vision.depth,
            hidden=vision.hidden_size,
            ffn=vision.intermediate_size,
            out=vision.out_hidden_size,
            mergers=1 + len(vision.deepstack_visual_indexes),
            patch=vision.patch_size,
            temporal_patch=vision.temporal_patch_size,
            merge=vision.spatial_merge_size,
        ),
    )
