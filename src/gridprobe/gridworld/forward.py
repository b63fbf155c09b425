"""A fast forward pass for training: the same weights and the same arithmetic as transformers', in fewer, fused steps.

transformers' vision attention loops over images; here frames of one size are one batch. Blocks are plain functions of
their weights, so that `torch.compile` fuses them. Equality with the transformers model is tested.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gridprobe.backends.qwen3vl.pixels import PatchSpec, cut
from gridprobe.gridworld.layout import Sequences

__all__ = ["FastModel", "on_device"]

SPEC = PatchSpec(patch=16, merge=2, temporal=2, mean=(0.5,) * 3, std=(0.5,) * 3)


def on_device(sequences: Sequences, device: Any) -> Sequences:
    """The sequences as tensors on a device."""
    arrays = (getattr(sequences, each.name) for each in fields(sequences))
    return Sequences(*(torch.from_numpy(array).to(device, non_blocking=True) for array in arrays))


class FastModel:
    """A Qwen3-VL model with single-size frames, for training and large experiments."""

    def __init__(self, model: Any, *, compiled: bool = False) -> None:
        self.model = model
        self._vision_block = _compiled(_vision_block) if compiled else _vision_block
        self._text_block = _compiled(_text_block) if compiled else _text_block
        self._grids: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def features(self, frames: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Vision features of frame groups, G × 2 × 3 × S × S in 0…1 -> G × tokens × hidden, and deepstack features."""
        tower = self.model.model.visual
        groups, side = frames.shape[0], frames.shape[-1] // SPEC.patch
        pixels = cut(((frames - 0.5) / 0.5).flatten(0, 1), SPEC)
        h = F.linear(pixels, *_patch_weights(tower))
        index, weight, cos, sin = self._grid(side)
        h = h.view(groups, side * side, -1) + (tower.pos_embed(index) * weight[..., None]).sum(1).to(h.dtype)
        deep = []
        for number, block in enumerate(tower.blocks):
            h = self._vision_block(h, cos, sin, tower.config.num_heads, *_vision_weights(block))
            if number in tower.deepstack_visual_indexes:
                merger = tower.deepstack_merger_list[tower.deepstack_visual_indexes.index(number)]
                deep.append(merger(h.flatten(0, 1)).view(groups, -1, merger.linear_fc2.out_features))
        merged = tower.merger(h.flatten(0, 1))
        return merged.view(groups, -1, merged.shape[-1]), deep

    def hidden(
        self, sequences: Sequences, features: Tensor, deep: list[Tensor], *, tap: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Hidden states of all positions, and of the visual tokens (B × tokens × hidden) after the first `tap` layers.

        Features are B·groups × tokens × hidden.
        """
        language = self.model.model.language_model
        count, tapped = sequences.ids.shape[0], features
        place = sequences.visual.long()[..., None].expand(-1, -1, features.shape[-1])
        h = language.embed_tokens(sequences.ids)
        h = h.to(features.dtype).scatter(1, place, features.reshape(count, -1, features.shape[-1]))
        cos, sin = language.rotary_emb(h, sequences.positions)
        mask = _mask(sequences, h.dtype)
        for number, layer in enumerate(language.layers):
            h = self._text_block(h, cos, sin, mask, language.config.num_key_value_heads, *_text_weights(layer))
            if number < len(deep):
                h = h.scatter_add(1, place, deep[number].reshape(count, -1, features.shape[-1]).to(h.dtype))
            if number + 1 == tap:
                tapped = h.gather(1, place)
        return _rms(h, language.norm.weight), tapped

    def _grid(self, side: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Position-embedding taps and rotary angles of a side × side patch grid, in merge-block order."""
        if side not in self._grids:
            tower, device = self.model.model.visual, self.model.device
            order = torch.arange(side * side, device=device).view(side // 2, 2, side // 2, 2)
            order = order.permute(0, 2, 1, 3).reshape(-1)
            row, column = order // side, order % side
            table = int(tower.config.num_position_embeddings**0.5)
            index, weight = _bilinear(row, column, side, table)
            size = tower.config.hidden_size // tower.config.num_heads
            frequency = 10000.0 ** -(torch.arange(0, size // 2, 2, device=device) / (size // 2))
            angle = torch.cat([row[:, None] * frequency, column[:, None] * frequency], dim=-1)
            angle = torch.cat([angle, angle], dim=-1)
            self._grids[side] = index, weight, angle.cos()[None, :, None], angle.sin()[None, :, None]
        return self._grids[side]


def _mask(sequences: Sequences, dtype: torch.dtype) -> Tensor:
    """What the tails may attend to: their own prefix and what stands before them in the same tail.

    Added to the scores: B × 1 × tails × (prefix + tails).
    """
    tail, length = sequences.tail, sequences.length
    width = sequences.ids.shape[1] - tail.shape[1]
    prefix = torch.arange(width, device=tail.device) < length[:, None]
    own = (tail[:, :, None] == tail[:, None, :]).tril()
    seen = torch.cat([prefix[:, None].expand(-1, tail.shape[1], -1), own], dim=-1)
    return torch.zeros(seen.shape, dtype=dtype, device=tail.device).masked_fill(~seen, float("-inf"))[:, None]


def _compiled(block: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile a block once for every batch size and length."""
    fused = torch.compile(block)

    def call(h: Tensor, cos: Tensor, sin: Tensor, *rest: Any) -> Tensor:
        shapes: list[tuple[Tensor, tuple[int, ...]]] = [(h, (0, 1)), (cos, (0, 1)), (sin, (0, 1))]
        shapes += [(rest[0], (0, 2, 3))] if isinstance(rest[0], Tensor) else []
        for tensor, dimensions in shapes:
            for dimension in dimensions:
                if tensor.shape[dimension] > 1:
                    torch._dynamo.maybe_mark_dynamic(tensor, dimension)
        result: Tensor = fused(h, cos, sin, *rest)
        return result

    return call


def _bilinear(row: Tensor, column: Tensor, side: int, table: int) -> tuple[Tensor, Tensor]:
    """Four taps into a table × table grid for each patch, corners aligned."""
    indices, weights = [], []
    scale = (table - 1) / max(1, side - 1)
    y, x = row * scale, column * scale
    y0, x0 = y.floor().clamp(max=table - 1).long(), x.floor().clamp(max=table - 1).long()
    for dy in (0, 1):
        for dx in (0, 1):
            yy, xx = (y0 + dy).clamp(max=table - 1), (x0 + dx).clamp(max=table - 1)
            indices.append(yy * table + xx)
            weights.append((1 - (y - y0 - dy).abs()).clamp(min=0) * (1 - (x - x0 - dx).abs()).clamp(min=0))
    return torch.stack(indices, dim=1), torch.stack(weights, dim=1)


def _patch_weights(tower: Any) -> tuple[Tensor, Tensor]:
    return tower.patch_embed.proj.weight.flatten(1), tower.patch_embed.proj.bias


def _vision_weights(block: Any) -> tuple[Tensor, ...]:
    parts = (block.norm1, block.attn.qkv, block.attn.proj, block.norm2, block.mlp.linear_fc1, block.mlp.linear_fc2)
    return tuple(tensor for part in parts for tensor in (part.weight, part.bias))


def _text_weights(layer: Any) -> tuple[Tensor, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    parts = (
        layer.input_layernorm,
        attention.q_proj,
        attention.k_proj,
        attention.v_proj,
        attention.o_proj,
        attention.q_norm,
        attention.k_norm,
        layer.post_attention_layernorm,
        mlp.gate_proj,
        mlp.up_proj,
        mlp.down_proj,
    )
    return tuple(part.weight for part in parts)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def _vision_block(h: Tensor, cos: Tensor, sin: Tensor, heads: int, *weights: Tensor) -> Tensor:
    n1, n1b, qkv, qkvb, out, outb, n2, n2b, up, upb, down, downb = weights
    count, length, width = h.shape
    normal = F.layer_norm(h, (width,), n1.to(h.dtype), n1b.to(h.dtype), 1e-6)
    q, k, v = F.linear(normal, qkv, qkvb).view(count, length, 3, heads, width // heads).unbind(2)
    q, k = (_rotate(x, cos, sin).to(v.dtype).transpose(1, 2) for x in (q, k))
    mixed = F.scaled_dot_product_attention(q, k, v.transpose(1, 2)).transpose(1, 2).reshape(count, length, width)
    h = h + F.linear(mixed, out, outb)
    normal = F.layer_norm(h, (width,), n2.to(h.dtype), n2b.to(h.dtype), 1e-6)
    return h + F.linear(F.gelu(F.linear(normal, up, upb), approximate="tanh"), down, downb)


def _text_block(h: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, kv_heads: int, *weights: Tensor) -> Tensor:
    n1, wq, wk, wv, wo, nq, nk, n2, gate, up, down = weights
    count, length, _ = h.shape
    size, prefix = nq.shape[0], length - mask.shape[2]
    normal = _rms(h, n1)
    q = _rms(F.linear(normal, wq).view(count, length, -1, size), nq)
    k = _rms(F.linear(normal, wk).view(count, length, kv_heads, size), nk)
    v = F.linear(normal, wv).view(count, length, kv_heads, size)
    repeat = q.shape[2] // kv_heads
    q = _rotate(q, cos[:, :, None], sin[:, :, None]).to(v.dtype).transpose(1, 2)
    k = _rotate(k, cos[:, :, None], sin[:, :, None]).to(v.dtype).transpose(1, 2).repeat_interleave(repeat, 1)
    v = v.transpose(1, 2).repeat_interleave(repeat, 1)
    # Frames see what stands before them; each tail sees its frames and itself.
    frames = F.scaled_dot_product_attention(q[:, :, :prefix], k[:, :, :prefix], v[:, :, :prefix], is_causal=True)
    tails = F.scaled_dot_product_attention(q[:, :, prefix:], k, v, attn_mask=mask)
    mixed = torch.cat([frames, tails], dim=2).transpose(1, 2).reshape(count, length, -1)
    h = h + F.linear(mixed, wo)
    normal = _rms(h, n2)
    return h + F.linear(F.silu(F.linear(normal, gate)) * F.linear(normal, up), down)
