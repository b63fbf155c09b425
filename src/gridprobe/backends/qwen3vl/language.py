"""The language model on sequences of different lengths, with or without what was computed for their beginnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gridprobe.backends.qwen3vl.blocks import Block, rms, text_block, text_weights

__all__ = ["LanguageModel", "Piece"]


@dataclass(frozen=True, eq=False)
class Piece:
    """A stretch of one sequence to be run: all of it, its stem, or what follows the stem."""

    ids: np.ndarray[Any, np.dtype[np.int64]]
    positions: np.ndarray[Any, np.dtype[np.int64]]
    """3 × length."""
    visual: np.ndarray[Any, np.dtype[np.bool_]]
    features: Tensor | None
    """Of its visual tokens: levels × tokens × width."""
    past: Tensor | None = None
    """Keys and values of what stands before it: layers × 2 × heads × length × head size."""

    def __len__(self) -> int:
        return len(self.ids)


class LanguageModel:
    """Qwen3-VL's language model. Sequences are padded on the right, where causal attention never looks."""

    def __init__(self, model: Any, *, block: Block = text_block) -> None:
        self._language = model.model.language_model
        self._head = model.lm_head
        self._block = block

    def logits(self, pieces: Sequence[Piece]) -> Tensor:
        """Vocabulary logits behind the last token of every piece, in float32."""
        hidden, _ = self._run(pieces, keep=False)
        last = torch.tensor([len(piece) - 1 for piece in pieces], device=hidden.device)
        states = hidden[torch.arange(len(pieces), device=hidden.device), last]
        language = self._language
        logits: Tensor = self._head(rms(states, language.norm.weight, language.config.rms_norm_eps))
        return logits.float()

    def keys_and_values(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """What later tokens need to know about each piece, in the form of `Piece.past`."""
        _, kept = self._run(pieces, keep=True)
        return [
            torch.stack([torch.stack([part[row, :, : len(piece)] for part in layer]) for layer in kept])
            for row, piece in enumerate(pieces)
        ]

    def _run(self, pieces: Sequence[Piece], *, keep: bool) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        language = self._language
        h, positions, places, features = self._gather(pieces)
        cos, sin = language.rotary_emb(h, positions)
        past, mask = self._before(pieces, h)
        kept = []
        for number, layer in enumerate(language.layers):
            before = None if past is None else (past[number, 0], past[number, 1])
            eps = language.config.rms_norm_eps
            h, k, v = self._block(h, cos, sin, mask, before, eps, *text_weights(layer))
            if keep:
                kept.append((k, v))
            if features is not None and number + 1 < len(features):
                h[places] += features[number + 1]
        return h, kept

    def _gather(self, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """First states and positions, and where which visual features go; one copy to the device for each."""
        device = self._language.embed_tokens.weight.device
        length = max(map(len, pieces))
        ids = np.zeros((len(pieces), length), dtype=np.int64)
        positions = np.zeros((3, len(pieces), length), dtype=np.int64)
        visual = np.zeros((len(pieces), length), dtype=bool)
        for number, piece in enumerate(pieces):
            ids[number, : len(piece)] = piece.ids
            positions[:, number, : len(piece)] = piece.positions
            visual[number, : len(piece)] = piece.visual
        h = self._language.embed_tokens(torch.from_numpy(ids).to(device))
        row, column = (torch.from_numpy(part).to(device) for part in np.nonzero(visual))
        parts = [piece.features for piece in pieces if piece.features is not None]
        features = torch.cat(parts, dim=1).to(h.dtype) if parts else None
        if features is not None:
            h[row, column] = features[0]
        return h, torch.from_numpy(positions).to(device), (row, column), features

    def _before(self, pieces: Sequence[Piece], h: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Past keys and values side by side, and a mask that hides their padding."""
        if pieces[0].past is None:
            return None, None
        stems = [piece.past for piece in pieces if piece.past is not None]
        lengths = torch.tensor([stem.shape[3] for stem in stems], device=h.device)
        width, length = int(max(stem.shape[3] for stem in stems)), h.shape[1]
        past = h.new_zeros(*stems[0].shape[:2], len(stems), stems[0].shape[2], width, stems[0].shape[4])
        for row, stem in enumerate(stems):
            past[:, :, row, :, : stem.shape[3]] = stem
        known = torch.arange(width, device=h.device) < lengths[:, None]
        own = torch.ones(length, length, dtype=torch.bool, device=h.device).tril()
        seen = torch.cat([known[:, None].expand(-1, length, -1), own.expand(len(stems), -1, -1)], dim=-1)
        return past, torch.zeros_like(seen, dtype=h.dtype).masked_fill(~seen, float("-inf"))[:, None]
