"""The plain path: transformers' own modules, one call for a batch, nothing kept.

It runs models that the fast path cannot (quantized, spread over devices, other attention kernels), and tests compare
the fast path with it.
"""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor

from gridprobe.backends.local.cached import Cached
from gridprobe.backends.qwen3vl.prompt import Layout

__all__ = ["plain_cached", "plain_logits"]


def plain_logits(model: Any, layouts: Sequence[Layout], pixels: Sequence[Tensor | None], *, filler: int) -> Tensor:
    """Vocabulary logits at the last position of every sequence; sequences are padded on the left.

    The model is called with explicit position ids, so no call changes its state (transformers keeps `rope_deltas` on
    the model between calls, which silently shifts the next call).
    """
    return _read(model, layouts, pixels, filler=filler, cache=None)[0]


def plain_cached(
    model: Any, layouts: Sequence[Layout], pixels: Sequence[Tensor | None], *, filler: int
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
    model: Any, layouts: Sequence[Layout], pixels: Sequence[Tensor | None], *, filler: int, cache: Any
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
