"""Sequences in the cache of a model of transformers, one row for each text; a prompt's row is copied for its texts."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

__all__ = ["Cached", "Forward"]

Forward = Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor]
"""Token ids, the mask of all tokens so far, each token's place in its sequence, each row's prompt -> all logits."""


class Cached:
    """Prompts that were read, padded on the left, and what is written after them."""

    def __init__(self, forward: Forward, cache: Any, mask: Tensor) -> None:
        """Take over a cache; `mask` says which tokens in it are no padding: rows × tokens."""
        self._forward = forward
        self._cache = cache
        self._mask = mask
        self._prompts = list(range(len(mask)))
        self._texts = list(range(len(mask)))

    def copies(self, counts: Sequence[int]) -> None:
        """Make so many texts of each prompt; they are numbered from 0."""
        self._select(list(chain.from_iterable([row] * count for row, count in enumerate(counts))))
        self._texts = list(range(len(self._mask)))

    def step(self, tokens: Sequence[int], live: Sequence[int]) -> Tensor:
        """Go on with some of the texts, one token each."""
        if list(live) != self._texts:
            self._select([self._texts.index(number) for number in live])
        ids = torch.tensor(tokens, device=self._mask.device)[:, None]
        places = self._mask.sum(-1, keepdim=True)
        self._mask = torch.cat([self._mask, torch.ones_like(ids)], dim=1)
        return self._forward(ids, self._mask, places, self._prompts).float()[:, -1]

    def _select(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows, device=self._mask.device)
        self._cache.batch_select_indices(index)
        self._mask = self._mask[index]
        self._prompts = [self._prompts[row] for row in rows]
        self._texts = [self._texts[row] for row in rows]
