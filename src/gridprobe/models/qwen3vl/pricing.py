"""Dimensions of Qwen3-VL models and what their forward passes cost; see `gridprobe.models.base` for the conventions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridprobe.models.base import CHARACTERS_PER_TOKEN, Cost, FrameGroup, Request, SamplingParams

MARKER_TOKENS = 8
"""Tokens of a time marker and of the two delimiters around a frame, roughly."""


@dataclass(frozen=True)
class VisionDims:
    """Widths of the vision tower."""

    depth: int
    hidden: int
    ffn: int
    out: int
    mergers: int = 4
    """The final merger and one for each deepstack layer."""
    patch: int = 16
    temporal_patch: int = 2
    merge: int = 2

    @property
    def frame_multiple(self) -> int:
        """The sides of a frame are multiples of this many pixels."""
        return self.patch * self.merge


@dataclass(frozen=True)
class ModelDims:
    """Widths of a Qwen3-VL model."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    vision: VisionDims


QWEN3_VL = {
    "2B": ModelDims(2048, 28, 16, 8, 128, 6144, 151936, VisionDims(24, 1024, 4096, 2048)),
    "4B": ModelDims(2560, 36, 32, 8, 128, 9728, 151936, VisionDims(24, 1024, 4096, 2560)),
    "8B": ModelDims(4096, 36, 32, 8, 128, 12288, 151936, VisionDims(27, 1152, 4304, 4096)),
}


def dims_of(config: Any) -> ModelDims:
    """The widths in a checkpoint's config, as transformers reads it or as plain attributes."""
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


def price(dims: ModelDims, tokens: int, grids: Sequence[tuple[int, int, int]]) -> Cost:
    """Price one forward pass.

    Args:
        dims: the model.
        tokens: length of the whole sequence, visual tokens included.
        grids: for each frame group the vision tower sees, (groups, patch rows, patch columns).
    """
    visual = sum(t * h * w for t, h, w in grids) // dims.vision.merge**2
    flops = honest_language_flops(dims, tokens) + vision_flops(dims.vision, grids)
    return Cost(
        calls=1,
        tokens=tokens,
        visual_tokens=visual,
        flops=flops,
        flops_paper=published_flops(dims, tokens),
        flops_computed=flops,
    )


def price_recall(dims: ModelDims, tokens: int, *, known: int) -> Cost:
    """Price a question of that many tokens to keys and values that exist; making those is not counted."""
    flops = prefill_flops(dims, known + tokens, known=known) + head_flops(dims)
    paper = published_flops(dims, known + tokens) - published_flops(dims, known)
    return Cost(calls=1, tokens=tokens, visual_tokens=0, flops=flops, flops_paper=paper, flops_computed=flops)


Grids = Sequence[tuple[int, int, int]]


def price_close_ups(dims: ModelDims, tokens: int, grids: Grids, large: Grids, *, known: int) -> Cost:
    """Price close-ups and a question behind an overview of `known` tokens, whose KV cache exists."""
    whole, tail = price(dims, tokens, grids), price(dims, tokens - known, large)
    flops = prefill_flops(dims, tokens, known=known) + head_flops(dims) + vision_flops(dims.vision, large)
    paper = whole.flops_paper - published_flops(dims, known)
    reused = whole.flops - flops
    return replace(tail, flops=flops, flops_paper=paper, flops_computed=flops, flops_reused=reused)


def price_text(dims: ModelDims, tokens: int, *, known: int) -> Cost:
    """Price a text of that many tokens after `known` ones; its first token comes from the pass that read those."""
    end = known + tokens - 1
    flops = prefill_flops(dims, end, known=known) + (tokens - 1) * head_flops(dims)
    paper = published_flops(dims, end) - published_flops(dims, known)
    return Cost(tokens=tokens, flops=flops, flops_paper=paper, flops_computed=flops)


def with_attention(cost: Cost, dims: ModelDims, tokens: int, *, known: int) -> Cost:
    """The cost of a pass that also reads off how much its last tokens attend to the known ones."""
    flops = attention_flops(dims, tokens, known=known)
    return replace(cost, flops=cost.flops + flops, flops_computed=cost.flops_computed + flops)


# Requests, for models whose tokenizer is not there.


def price_roughly(dims: ModelDims, request: Request) -> Cost:
    """Price a request, with its text estimated at four characters to a token."""
    frames, visible, prompt = _rough_tokens(dims, request)
    grids = [_grid(dims.vision, group) for group in request.groups]
    if request.close_ups:
        known = _frame_tokens(dims.vision, grids[-1])
        cost = price_close_ups(dims, frames + prompt, grids, grids[:-1], known=known)
    elif request.visible_frames is not None:
        cost = price_recall(dims, prompt, known=visible)
    else:
        cost = price(dims, frames + prompt, grids)
    if isinstance(request.task, SamplingParams):
        return sum([price_text_roughly(dims, request, request.task.limit)] * request.task.samples, cost)
    return with_attention(cost, dims, prompt, known=visible) if request.attention else cost


def price_text_roughly(dims: ModelDims, request: Request, tokens: int) -> Cost:
    """Price a text of that many tokens after a request."""
    _, visible, prompt = _rough_tokens(dims, request)
    return price_text(dims, tokens, known=visible + prompt)


def _rough_tokens(dims: ModelDims, request: Request) -> tuple[int, int, int]:
    """Tokens of all frames, of those that the text may look at, and of the text."""
    frames = sum(_frame_tokens(dims.vision, _grid(dims.vision, group)) for group in request.groups)
    visible = round(frames * len(request.seen_units) / max(1, len(request.units)))
    return frames, visible, len(request.prompt) // CHARACTERS_PER_TOKEN


def _frame_tokens(dims: VisionDims, grid: tuple[int, int, int]) -> int:
    units, rows, columns = grid
    return units * rows * columns // dims.merge**2 + units * MARKER_TOKENS


def _grid(dims: VisionDims, group: FrameGroup) -> tuple[int, int, int]:
    """Units of the group, and their rows and columns of patches."""
    width, height = group.size(dims.frame_multiple)
    return len(group.units(0)), height // dims.patch, width // dims.patch


# Floating-point operations and bytes.


def published_flops(dims: ModelDims, tokens: int) -> float:
    """N·L·(2(d² + 2·d·d_kv) + 4·N·d + 2d² + 6·d·f) + 2·N·d·V with d_kv = d·kv_heads/heads."""
    n, d = float(tokens), dims.hidden
    d_kv = d * dims.kv_heads / dims.heads
    layer = 2 * (d * d + 2 * d * d_kv) + 4 * n * d + 2 * d * d + 6 * d * dims.ffn
    return n * dims.layers * layer + 2 * n * d * dims.vocab


def honest_language_flops(dims: ModelDims, tokens: int) -> float:
    """L·[N(2dq + 4·d·kv + 2qd + 6df) + 4q·N(N+1)/2] + 2dV, with q and kv the true widths."""
    return prefill_flops(dims, tokens) + head_flops(dims)


def prefill_flops(dims: ModelDims, tokens: int, *, known: int = 0) -> float:
    """The layers alone; the first `known` tokens, whose keys and values exist, are not counted."""
    n, m, d = float(tokens), float(known), dims.hidden
    q, kv = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    linear = (n - m) * (4 * d * q + 4 * d * kv + 6 * d * dims.ffn)
    return dims.layers * (linear + 2 * q * (n * (n + 1) - m * (m + 1)))


def attention_flops(dims: ModelDims, tokens: int, *, known: int) -> float:
    """Reading the attention of that many tokens off all layers but the last: queries, keys and their products again."""
    q, kv = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    projections = 2.0 * tokens * dims.hidden * (q + kv)
    return (dims.layers - 1) * (projections + 2.0 * q * tokens * (known + tokens))


def head_flops(dims: ModelDims) -> float:
    """The vocabulary projection at one position."""
    return 2.0 * dims.hidden * dims.vocab


def vision_flops(dims: VisionDims, grids: Sequence[tuple[int, int, int]]) -> float:
    """Patch embedding, transformer blocks (attention stays within one temporal group) and mergers."""
    h, merged = dims.hidden, dims.hidden * dims.merge**2
    patch_values = 3 * dims.temporal_patch * dims.patch**2
    total = 0.0
    for groups, rows, columns in grids:
        in_group = float(rows * columns)
        patches = groups * in_group
        blocks = dims.depth * (patches * (8 * h * h + 4 * h * dims.ffn) + groups * 4 * h * in_group**2)
        merger = patches / dims.merge**2 * (2 * merged**2 + 2 * merged * dims.out)
        total += 2 * patches * h * patch_values + blocks + dims.mergers * merger
    return total


def token_bytes(dims: ModelDims, value_bytes: int) -> int:
    """Bytes of one token's activations at the widest place of a layer."""
    attention = (dims.heads + 2 * dims.kv_heads) * dims.head_dim
    return (6 * dims.hidden + 3 * dims.ffn + 3 * attention) * value_bytes


def cache_bytes(dims: ModelDims, value_bytes: int) -> int:
    """Bytes of one token's keys and values."""
    return 2 * dims.kv_heads * dims.head_dim * dims.layers * value_bytes


def parameters(dims: ModelDims, *, tied: bool) -> int:
    """Number of weights of a model of these widths, without norms and biases (about one in a thousand)."""
    q, kv = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    layer = dims.hidden * (2 * q + 2 * kv + 3 * dims.ffn)
    vocabulary = dims.hidden * dims.vocab * (1 if tied else 2)
    v = dims.vision
    merged = v.hidden * v.merge**2
    vision = v.depth * (4 * v.hidden**2 + 2 * v.hidden * v.ffn) + v.mergers * merged * (merged + v.out)
    return dims.layers * layer + vocabulary + vision + 3 * v.temporal_patch * v.patch**2 * v.hidden
