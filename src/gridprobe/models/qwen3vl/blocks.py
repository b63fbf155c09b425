"""The arithmetic of Qwen3-VL's blocks as plain functions of their weights.

Inference and training use the same functions, `torch.compile` can fuse them, and attention runs on whole batches, while
transformers' vision attention loops over images in Python. Equality with transformers is tested.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from gridprobe.models.base import Packing

Block = Callable[..., Any]


def vision_weights(block: Any) -> tuple[Tensor, ...]:
    """The weights of a vision block, in the order `vision_block` takes them."""
    parts = (block.norm1, block.attn.qkv, block.attn.proj, block.norm2, block.mlp.linear_fc1, block.mlp.linear_fc2)
    return tuple(tensor for part in parts for tensor in (part.weight, part.bias))


def text_weights(layer: Any) -> tuple[Tensor, ...]:
    """The weights of a language-model layer, in the order `text_block` takes them."""
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


def plain_weights(model: Any) -> bool:
    """Whether these functions may replace the model's own: ordinary linear layers, all on one device, no hooks."""
    config = model.config
    activations = config.text_config.hidden_act == "silu" and config.vision_config.hidden_act == "gelu_pytorch_tanh"
    linears = (module for module in model.modules() if "Linear" in type(module).__name__)
    ordinary = all(type(module) is torch.nn.Linear for module in linears)
    hooked = any(hasattr(module, "_hf_hook") for module in model.modules())
    one_device = len({parameter.device for parameter in model.parameters()}) == 1
    return activations and ordinary and one_device and not hooked and config._attn_implementation == "sdpa"


def vision_block(h: Tensor, cos: Tensor, sin: Tensor, heads: int, *weights: Tensor) -> Tensor:
    """One block of the vision tower on frame groups of one size: groups × patches × width."""
    n1, n1b, qkv, qkvb, out, outb, n2, n2b, up, upb, down, downb = weights
    count, length, width = h.shape
    normal = F.layer_norm(h, (width,), n1.to(h.dtype), n1b.to(h.dtype), 1e-6)
    q, k, v = F.linear(normal, qkv, qkvb).view(count, length, 3, heads, width // heads).unbind(2)
    q, k = (_rotate(x, cos, sin).to(v.dtype).transpose(1, 2) for x in (q, k))
    mixed = F.scaled_dot_product_attention(q, k, v.transpose(1, 2)).transpose(1, 2).reshape(count, length, width)
    h = h + F.linear(mixed, out, outb)
    normal = F.layer_norm(h, (width,), n2.to(h.dtype), n2b.to(h.dtype), 1e-6)
    return h + F.linear(F.gelu(F.linear(normal, up, upb), approximate="tanh"), down, downb)


def text_block(
    h: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor | None,
    past: tuple[Tensor, Tensor] | None,
    eps: float,
    *weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer of the language model; returns the new states, and the keys and values of these tokens.

    Args:
        h: batch × length × width.
        cos: rotary angles, batch × length × head size.
        sin: likewise.
        mask: added to the scores of the last tokens, batch × 1 × tokens × keys; tokens before those, or all of them
            without a mask, attend causally.
        past: keys and values of the tokens before `h`: batch × heads × length × head size.
        eps: of the norms.
        *weights: as `text_weights` gives them.
    """
    n1, wq, wk, wv, wo, nq, nk, n2, gate, up, down = weights
    normal = rms(h, n1, eps)
    q, k = _heads(normal, wq, nq, cos, sin, eps), _heads(normal, wk, nk, cos, sin, eps)
    v = _split(F.linear(normal, wv), len(nk)).transpose(1, 2)
    keys, values = (k, v) if past is None else (torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2))
    h = h + F.linear(_attend(q, keys, values, mask).transpose(1, 2).flatten(2), wo)
    normal = rms(h, n2, eps)
    return h + F.linear(_gated(F.linear(normal, gate), F.linear(normal, up)), down), k, v


def last_text_block(
    h: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor | None,
    past: tuple[Tensor, Tensor] | None,
    eps: float,
    *weights: Tensor,
    last: Tensor,
) -> Tensor:
    """The last layer, for one token of each row, the one at `last`: batch × width.

    Only keys and values of the other tokens are needed, so this is a `text_block` on one token with all tokens as its
    past.
    """
    n1, wk, wv, nk = weights[0], weights[2], weights[3], weights[6]
    normal = rms(h, n1, eps)
    k = _heads(normal, wk, nk, cos, sin, eps)
    v = _split(F.linear(normal, wv), len(nk)).transpose(1, 2)
    row, length = torch.arange(len(h), device=h.device), h.shape[1]
    # The token adds its own key, so its place in the past is masked.
    hidden = torch.arange(length, device=h.device) >= last[:, None]
    before = h.new_zeros(len(h), length).masked_fill(hidden, float("-inf"))
    if past is not None and mask is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        before = torch.cat([mask[row, 0, last, :-length].to(h.dtype), before], dim=1)
    seen = torch.cat([before, before.new_zeros(len(h), 1)], dim=1)[:, None, None]
    h, cos, sin = h[row, last][:, None], cos[row, last][:, None], sin[row, last][:, None]
    return text_block(h, cos, sin, seen, (k, v), eps, *weights)[0][:, 0]


def last_text_block_of_row(
    h: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
    past: tuple[Tensor, Tensor],
    eps: float,
    *weights: Tensor,
    last: Tensor,
) -> Tensor:
    """As `last_text_block`, for several tokens of one row: tokens × width."""
    n1, wk, wv, nk = weights[0], weights[2], weights[3], weights[6]
    normal = rms(h, n1, eps)
    k = torch.cat([past[0], _heads(normal, wk, nk, cos, sin, eps)], dim=2)
    v = torch.cat([past[1], _split(F.linear(normal, wv), len(nk)).transpose(1, 2)], dim=2)
    before = mask[:, :, last].clone()
    before[0, 0, torch.arange(len(last), device=h.device), last - h.shape[1]] = float("-inf")  # it adds its own key
    own = torch.full((len(last), len(last)), float("-inf"), dtype=h.dtype, device=h.device).fill_diagonal_(0.0)
    seen = torch.cat([before, own[None, None]], dim=-1)
    return text_block(h[:, last], cos[:, last], sin[:, last], seen, (k, v), eps, *weights)[0][0]


def attention_weights(h: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, past: Tensor, layer: Any) -> Tensor:
    """What a layer's attention of one sequence looks at: heads × tokens × keys, in float32; `past` are earlier keys."""
    n1, wq, wk, _, _, nq, nk, *_ = text_weights(layer)
    eps = layer.input_layernorm.variance_epsilon
    normal = rms(h, n1, eps)
    q, k = _heads(normal, wq, nq, cos, sin, eps), _heads(normal, wk, nk, cos, sin, eps)
    keys = torch.cat([past, k], dim=2).repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = (q @ keys.transpose(-1, -2)).float().div_(q.shape[-1] ** 0.5).add_(mask)
    return scores.softmax(-1)[0]


def _heads(normal: Tensor, weight: Tensor, norm: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """Queries or keys of every head, rotated by their positions: batch × heads × length × head size."""
    heads = rms(_split(F.linear(normal, weight), len(norm)), norm, eps)
    return _rotate(heads, cos[:, :, None], sin[:, :, None]).to(normal.dtype).transpose(1, 2)


def _split(x: Tensor, size: int) -> Tensor:
    """The last dimension as heads × size."""
    return x.view(*x.shape[:-1], -1, size)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None and q.is_cuda:  # the kernels for a GPU share keys between heads without copying them
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    free = q.shape[2] - mask.shape[2]
    masked = F.scaled_dot_product_attention(q[:, :, free:], k, v, attn_mask=mask)
    if free == 0:
        return masked
    causal = F.scaled_dot_product_attention(q[:, :, :free], k[:, :, :free], v[:, :, :free], is_causal=True)
    return torch.cat([causal, masked], dim=2)


def _gated(gate: Tensor, up: Tensor) -> Tensor:
    """SiLU of one times the other; in place, since new memory costs a CPU more than the arithmetic."""
    return F.silu(gate) * up if torch.is_grad_enabled() else F.silu(gate, inplace=True).mul_(up)


def rms(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Root-mean-square norm, computed in float32."""
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, in the precision of the angles; with few kernels, since each one reads all of x."""
    half = x.shape[-1] // 2
    wide = x.to(cos.dtype)
    turned = wide * cos
    turned[..., :half].addcmul_(wide[..., half:], sin[..., :half], value=-1)
    turned[..., half:].addcmul_(wide[..., :half], sin[..., half:])
    return turned.to(x.dtype)


def compiled(block: Block) -> Block:
    """Compile a block once for all batch sizes and lengths."""
    fused = torch.compile(block)

    def call(h: Tensor, cos: Tensor, sin: Tensor, *rest: Any) -> Any:
        shapes: list[tuple[Tensor, tuple[int, ...]]] = [(h, (0, 1)), (cos, (0, 1)), (sin, (0, 1))]
        shapes += [(rest[0], (0, 2, 3))] if isinstance(rest[0], Tensor) else []
        shapes += [(part, (0, 2)) for part in rest[1]] if len(rest) > 1 and isinstance(rest[1], tuple) else []
        for tensor, dimensions in shapes:
            for dimension in dimensions:
                if tensor.shape[dimension] > 1:
                    torch._dynamo.maybe_mark_dynamic(tensor, dimension)
        return fused(h, cos, sin, *rest)

    return call


# Frames -> the flat patches of Qwen3-VL's vision tower, without torchvision.
#
# Bit for bit what transformers' video processor makes of the same frames (tests/models/test_qwen3vl_reference.py).


@dataclass(frozen=True)
class PatchSpec:
    """How a checkpoint's pixels are prepared."""

    patch: int
    merge: int
    temporal: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def multiple(self) -> int:
        """Frame sides must be multiples of this."""
        return self.patch * self.merge


def upload(values: npt.ArrayLike, device: torch.device) -> torch.Tensor:
    """Host values as a tensor.

    A copy from ordinary memory waits until the GPU has finished all earlier work, so the host cannot work ahead; a copy
    from pinned memory does not.
    """
    tensor = torch.from_numpy(np.asarray(values))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _together(pieces: Sequence[npt.NDArray[np.uint8]], device: torch.device) -> torch.Tensor:
    """Pieces of one video, concatenated; for a GPU in one pinned block, since allocating each block takes time.

    NumPy copies them in one thread. PyTorch uses all threads, and on a busy machine the copy waits for the slowest.
    """
    if device.type != "cuda":
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return torch.from_numpy(np.require(joined, requirements=("C", "W"))).to(device)  # torch warns of read-only ones
    block = torch.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=torch.uint8, pin_memory=True)
    np.concatenate(pieces, out=block.numpy())
    return block.to(device, non_blocking=True)


def patches(
    frames: npt.NDArray[np.uint8] | Sequence[npt.NDArray[np.uint8]],
    *,
    size: tuple[int, int],
    packing: Packing,
    spec: PatchSpec,
    device: torch.device,
) -> torch.Tensor:
    """Resize, normalize and cut frames.

    Args:
        frames: n × height × width × 3, or several such pieces, which are put together on the device.
        size: (width, height) to show them at, multiples of `spec.multiple`.
        packing: `single` repeats each frame to fill its temporal patch, `pairs` fuses neighbours; a last odd frame is
            fused with itself.
        spec: the checkpoint's settings.
        device: where the work is done and the result is.

    Returns:
        float32 of shape (groups · rows · columns, 3 · temporal · patch²), groups in time order.
    """
    pieces = [frames] if isinstance(frames, np.ndarray) else frames
    images = resize(_together(pieces, device).permute(0, 3, 1, 2), size)
    if packing == "single" and spec.temporal > 1:
        images = images.repeat_interleave(spec.temporal, dim=0)
    elif len(images) % spec.temporal:
        images = torch.cat([images, images[-1:].expand(spec.temporal - len(images) % spec.temporal, -1, -1, -1)])
    return _normalise(cut(images, spec), spec)


def resize(images: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Images × channels × height × width of bytes, at another size."""
    width, height = size
    if images.shape[2:] == (height, width):
        return images
    change = torch.nn.functional.interpolate
    if images.device.type == "cpu":  # on uint8 the CPU kernel equals torchvision's to the bit
        return change(images, (height, width), mode="bicubic", antialias=True)
    return change(images.float(), (height, width), mode="bicubic", antialias=True).round().clamp(0, 255)


def _normalise(flat: torch.Tensor, spec: PatchSpec) -> torch.Tensor:
    """Flat patches; bytes are cut before they become floats, which are four times as large."""
    values = np.array([spec.mean, spec.std], dtype=np.float32) * np.float32(255.0)
    mean, std = upload(values.repeat(spec.temporal * spec.patch**2, axis=1), flat.device)
    return flat.float().sub_(mean).div_(std)


def cut(images: torch.Tensor, spec: PatchSpec) -> torch.Tensor:
    """Cut frames into flat patches; those of a merge block are adjacent, as the merger expects."""
    frames, channels, height, width = images.shape
    groups, block = frames // spec.temporal, spec.patch * spec.merge
    cut = images.view(
        groups, spec.temporal, channels, height // block, spec.merge, spec.patch, width // block, spec.merge, spec.patch
    )
    return cut.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(
        groups * (height // spec.patch) * (width // spec.patch), channels * spec.temporal * spec.patch**2
    )
