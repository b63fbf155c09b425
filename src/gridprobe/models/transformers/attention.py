"""How much a text looks at each frame, read off any language model of transformers while it runs.

transformers lets one function stand for attention in every family. Ours is transformers' own sdpa; while a pass is
watched, it also computes the weights that the tokens of the text give to the frames before them. It knows no family.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from gridprobe.models.local.kv_cache import most_scores

NAME = "gridprobe"
"""What transformers calls this attention."""


@dataclass(eq=False)
class Watch:
    """What is watched in one pass: the texts of a batch, padded on the right, after copies of one prefix."""

    owners: Tensor
    """For every token of the prefix the number of its unit, or -1."""
    units: int
    lengths: Tensor
    """How many tokens each text has."""
    layers: frozenset[int]
    """The layers that count."""
    start: int = 0
    """How many tokens of the texts were read in passes before this one."""
    most: dict[int, Tensor] = field(default_factory=dict)
    """For each layer the largest share of attention that a token of the text gives to a unit: texts × heads × units."""

    @property
    def heads(self) -> Tensor:
        """The shares of all heads of the layers that count, in their order: texts × heads × units."""
        return torch.cat([self.most[layer].to(self.owners.device) for layer in sorted(self.most)], dim=1)

    def note(self, layer: int, query: Tensor, key: Tensor, mask: Tensor | None, scaling: float, cap: float) -> None:
        """Add what the tokens of a pass look at in one layer, a few tokens at a time."""
        texts, heads, tokens, _ = query.shape
        keys = key.repeat_interleave(heads // key.shape[1], 1).transpose(2, 3)
        step = max(1, most_scores(query.device) // (texts * heads * key.shape[2]))
        owners, lengths = self.owners.to(query.device), self.lengths.to(query.device)  # layers may be spread
        frames = torch.nonzero(owners >= 0)[:, 0]
        most = self.most.get(layer, query.new_zeros(texts, heads, self.units, dtype=torch.float32))
        for start in range(0, tokens, step):
            some = slice(start, min(start + step, tokens))
            scores = (query[:, :, some] @ keys).float() * scaling
            scores = torch.tanh(scores / cap) * cap if cap else scores
            weights = _masked(scores, mask, some, tokens).softmax(-1)
            shares = weights.new_zeros(*weights.shape[:3], self.units)
            shares.index_add_(3, owners[frames], weights[..., frames])
            places = self.start + torch.arange(some.start, some.stop, device=query.device)
            shares *= (places < lengths[:, None])[:, None, :, None]
            most = torch.maximum(most, shares.amax(2))
        self.most[layer] = most


def _masked(scores: Tensor, mask: Tensor | None, some: slice, tokens: int) -> Tensor:
    """Scores of some of the tokens of a pass, without what they may not look at."""
    if mask is None:
        before = scores.shape[-1] - tokens
        places = torch.arange(some.start, some.stop, device=scores.device)[:, None] + before
        return scores.masked_fill(torch.arange(scores.shape[-1], device=scores.device) > places, -torch.inf)
    mask = mask[:, :, some, : scores.shape[-1]]
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: Watch | None) -> Iterator[None]:
    """Passes in this context are watched; without a watch they are not."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    watch, layer = _watch.get(), getattr(module, "layer_idx", None)
    if watch is not None and layer in watch.layers:
        scaling = options.get("scaling") or query.shape[-1] ** -0.5
        watch.note(layer, query, key, attention_mask, scaling, options.get("softcap") or 0.0)
    out: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return out


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def layers_of(config: Any) -> list[str]:
    """The kind of attention of every layer of a language model."""
    return list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)


def watched_layers(config: Any) -> frozenset[int]:
    """The layers that see all frames, but for the last one, whose states become the answer."""
    full = [number for number, kind in enumerate(layers_of(config)) if kind == "full_attention"]
    return frozenset([number for number in full if number < config.num_hidden_layers - 1] or full)


def make_watchable(decoder: Any) -> bool:
    """Let a language model compute its attention here; one that computes it in another way than sdpa stays as it is."""
    if decoder.config._attn_implementation != "sdpa":
        return bool(decoder.config._attn_implementation == NAME)
    decoder.set_attn_implementation(NAME)
    return True
