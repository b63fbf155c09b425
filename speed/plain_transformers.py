"""Qwen3-VL as transformers runs it: its own modules, one call for a batch, nothing kept.

The rival of the speed programs, and what tests compare the engine with. It takes pairs of frames, which the engine for
all families does not.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch import Tensor

from gridprobe.errors import ModelError
from gridprobe.models.base import Capabilities, Unit
from gridprobe.models.local.base import BatchResult
from gridprobe.models.local.generate import Step
from gridprobe.models.local.kv_cache import Cached
from gridprobe.models.local.layout import Batch, PreparedRequest
from gridprobe.models.qwen3vl.blocks import patches
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.prompt import GridLayout


class PlainQwen3VL(Qwen3VL):
    """The engine's requests and prices, with transformers' modules in place of its passes."""

    @classmethod
    def around(cls, engine: Qwen3VL, *, identity: str = "plain") -> "PlainQwen3VL":
        """The same weights."""
        return cls(engine._model, engine._tokenizer, spec=engine._spec, identity=identity, min_letter_mass=0.0)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """Without what needs a kept KV cache."""
        return replace(super().capabilities, kv_reuse=False, masks_frames=False, attention_map=False)

    def _shares(self, job: PreparedRequest, often: int) -> bool:
        return False

    def _scores(self, batch: Batch) -> BatchResult:
        results = BatchResult()
        rows = plain_logits(*self._plain_inputs(batch, results.flops), filler=self._special.im_end)
        results.logits.update({job.place: row for job, row in zip(batch, rows, strict=True)})
        return results

    def _begin_texts(self, batch: Batch, flops: Counter[int], *, texts: int, steps: int) -> tuple[Tensor, Step]:
        logits, cached = plain_cached(*self._plain_inputs(batch, flops), filler=self._special.im_end)
        cached.copies([texts] * len(batch))
        return logits, cached.step

    def _plain_inputs(self, batch: Batch, flops: Counter[int]) -> tuple[Any, list[GridLayout], list[Tensor | None]]:
        """The model, layouts and patches."""
        if any(job.needs_kv for job in batch):
            raise ModelError("transformers' own modules cannot question the memory of frames")
        for job in batch:
            flops[job.place] += int(self._prompt_cost(job).flops)
        return self._model, [job.layout for job in batch], [patches_of(self, job) for job in batch]


def patches_of(engine: Qwen3VL, job: PreparedRequest) -> Tensor | None:
    """The patches of every unit of a job, in the order shown; None without frames."""
    request, layout = job.request, job.layout
    parts: dict[Unit, Tensor] = {}
    for number, group in enumerate(request.groups):
        units = group.units(number)
        flat = patches(
            group.pictures(units),
            size=layout.sizes[request.units.index(units[0])],
            packing=group.view.packing,
            spec=engine._spec,
            device=engine._memory.device,
        )
        parts |= zip(units, flat.chunk(len(units)), strict=True)
    return torch.cat([parts[unit] for unit in request.units]) if parts else None


def plain_logits(model: Any, layouts: Sequence[GridLayout], pixels: Sequence[Tensor | None], *, filler: int) -> Tensor:
    """Vocabulary logits at the last position of every sequence; sequences are padded on the left.

    The model is called with explicit position ids, so no call changes its state (transformers keeps `rope_deltas` on
    the model between calls, which silently shifts the next call).
    """
    return _read(model, layouts, pixels, filler=filler, cache=None)[0]


def plain_cached(
    model: Any, layouts: Sequence[GridLayout], pixels: Sequence[Tensor | None], *, filler: int
) -> tuple[Tensor, Cached]:
    """The same logits, and the sequences in a cache, to go on with."""
    cache = transformers.DynamicCache(config=model.config.text_config)
    logits, mask = _read(model, layouts, pixels, filler=filler, cache=cache)
    ahead = torch.tensor([[int(layout.positions[0, -1]) + 1 - len(layout)] for layout in layouts])

    def forward(ids: Tensor, mask: Tensor, numbers: Tensor, rows: Sequence[int]) -> Tensor:
        positions = numbers + ahead.to(numbers.device)[rows]
        hidden = model.model.language_model(
            input_ids=ids,
            position_ids=positions.expand(3, -1, -1),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        logits: Tensor = model.lm_head(hidden)
        return logits

    return logits, Cached(forward, cache, mask)


def _read(
    model: Any, layouts: Sequence[GridLayout], pixels: Sequence[Tensor | None], *, filler: int, cache: Any
) -> tuple[Tensor, Tensor]:
    """Logits at the last position of every sequence, and which tokens are no padding."""
    length = max(map(len, layouts))
    ids = torch.full((len(layouts), length), filler, dtype=torch.long)
    mask = torch.zeros((len(layouts), length), dtype=torch.long)
    visual = torch.zeros((len(layouts), length), dtype=torch.bool)
    positions = torch.zeros((3, len(layouts), length), dtype=torch.long)
    for row, layout in enumerate(layouts):
        start = length - len(layout)
        ids[row, start:] = torch.from_numpy(layout.ids)
        mask[row, start:] = 1
        visual[row, start:] = torch.from_numpy(layout.visual)
        positions[:, row, start:] = torch.from_numpy(layout.positions)
    embeds = model.get_input_embeddings()(ids.to(model.device))
    visual = visual.to(embeds.device)
    deep: list[Tensor] | None = None
    grids = [grid for layout in layouts for grid in layout.grids]
    if grids:
        tower = model.model.visual
        flat = torch.cat([part for part in pixels if part is not None]).to(tower.dtype)
        seen = tower(flat, grid_thw=torch.tensor(grids, device=tower.device), return_dict=True)
        embeds[visual] = seen.pooler_output.to(embeds.device, embeds.dtype)
        deep = list(seen.deepstack_features)
    hidden = model.model.language_model(
        inputs_embeds=embeds,
        position_ids=positions.to(embeds.device),
        attention_mask=None if bool(mask.all()) else mask.to(embeds.device),
        visual_pos_masks=visual if grids else None,
        deepstack_visual_embeds=deep,
        use_cache=cache is not None,
        past_key_values=cache,
    ).last_hidden_state[:, -1]
    logits: Tensor = model.lm_head(hidden)
    return logits.float(), mask.to(embeds.device)
