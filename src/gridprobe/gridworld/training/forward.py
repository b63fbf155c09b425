"""A training step's forward pass: the engine's own blocks, on batches with many questions about the same frames."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from gridprobe.backends.qwen3vl.blocks import compiled, rms, text_block, text_weights, vision_block
from gridprobe.backends.qwen3vl.pixels import PatchSpec, cut
from gridprobe.backends.qwen3vl.vision import VisionTower
from gridprobe.gridworld.training.layout import Sequences

__all__ = ["FastModel", "on_device"]

SPEC = PatchSpec(patch=16, merge=2, temporal=2, mean=(0.5,) * 3, std=(0.5,) * 3)


def on_device(sequences: Sequences, device: Any) -> Sequences:
    """The sequences as tensors on a device."""
    arrays = (getattr(sequences, each.name) for each in fields(sequences))
    return Sequences(*(torch.from_numpy(array).to(device, non_blocking=True) for array in arrays))


class FastModel:
    """A Qwen3-VL model with frames of one size or of several, for training."""

    def __init__(self, model: Any, *, compile: bool = False) -> None:
        self.model = model
        self._vision = VisionTower(model.model.visual, block=compiled(vision_block) if compile else vision_block)
        self._text_block = compiled(text_block) if compile else text_block

    def features(self, frames: Tensor) -> Tensor:
        """Frame groups, G × 2 × 3 × S × S in 0…1 -> levels × G × tokens × hidden."""
        side = frames.shape[-1] // SPEC.patch
        patches = cut(((frames - 0.5) / 0.5).flatten(0, 1), SPEC)
        return self._vision(patches.view(len(frames), side * side, -1), side, side)

    def hidden(self, sequences: Sequences, features: list[Tensor], *, tap: int = 0) -> tuple[Tensor, Tensor]:
        """Hidden states of all positions, and those of the visual tokens after the first `tap` layers.

        Args:
            sequences: what to run, on the device.
            features: those of the frame groups of each size, smaller ones first.
            tap: a number of layers, or 0 for the features themselves.
        """
        language = self.model.model.language_model
        count, width, eps = len(sequences.ids), features[0].shape[-1], language.config.rms_norm_eps
        levels = torch.cat([each.reshape(len(each), count, -1, width) for each in features], dim=2)
        place = sequences.visual.long()[..., None].expand(-1, -1, width)
        h = language.embed_tokens(sequences.ids).to(levels.dtype).scatter(1, place, levels[0])
        cos, sin = language.rotary_emb(h, sequences.positions)
        mask, tapped = _mask(sequences, h.dtype), levels[0]
        for number, layer in enumerate(language.layers):
            h, _, _ = self._text_block(h, cos, sin, mask, None, eps, *text_weights(layer))
            if number + 1 < len(levels):
                h = h.scatter_add(1, place, levels[number + 1].to(h.dtype))
            if number + 1 == tap:
                tapped = h.gather(1, place)
        return rms(h, language.norm.weight, eps), tapped


def _mask(sequences: Sequences, dtype: torch.dtype) -> Tensor:
    """What the tails may attend to: their own prefix and the earlier tokens of the same tail.

    Added to the scores: B × 1 × tails × (prefix + tails).
    """
    tail, length = sequences.tail, sequences.length
    width = sequences.ids.shape[1] - tail.shape[1]
    prefix = torch.arange(width, device=tail.device) < length[:, None]
    own = (tail[:, :, None] == tail[:, None, :]).tril()
    seen = torch.cat([prefix[:, None].expand(-1, tail.shape[1], -1), own], dim=-1)
    return torch.zeros(seen.shape, dtype=dtype, device=tail.device).masked_fill(~seen, float("-inf"))[:, None]
