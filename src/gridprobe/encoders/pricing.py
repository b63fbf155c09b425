"""What the two towers of an encoder cost, from its widths. A multiply-add is 2; norms and softmax are ignored."""

from dataclasses import dataclass
from typing import Any

from gridprobe.flops import Cost
from gridprobe.video import FrameSize

__all__ = [
    "DEFAULTS",
    "KNOWN",
    "EncoderDims",
    "Tower",
    "dims_of",
    "encoder_cost",
    "image_flops",
    "size_for",
    "text_flops",
]

DEFAULTS = {"clip": "openai/clip-vit-large-patch14", "siglip": "google/siglip-so400m-patch14-384"}
"""The checkpoints behind the two names without an argument."""
WIDE = 16 / 9
ANY_SIDE = 384
"""The side a pool is decoded for if the encoder takes any aspect ratio."""


@dataclass(frozen=True)
class Tower:
    """Widths of one transformer."""

    layers: int
    hidden: int
    ffn: int
    tokens: int
    """What a picture takes, and the most a text may take."""


@dataclass(frozen=True)
class EncoderDims:
    """Widths of an encoder."""

    vision: Tower
    text: Tower
    patch: int
    side: int
    """Pixels of a picture's side; 0 if pictures keep their aspect ratio."""
    out: int
    """Length of a vector."""
    sigmoid: bool
    """SigLIP: no class token, a pooling head with attention, text padded to its full length and not causal."""


KNOWN = {
    "openai/clip-vit-large-patch14": EncoderDims(
        Tower(24, 1024, 4096, 257), Tower(12, 768, 3072, 77), 14, 224, 768, False
    ),
    "google/siglip-so400m-patch14-384": EncoderDims(
        Tower(27, 1152, 4304, 729), Tower(27, 1152, 4304, 64), 14, 384, 1152, True
    ),
}
"""The default encoders, to plan with before they are on the machine."""


def dims_of(config: Any) -> EncoderDims:
    """The widths in a checkpoint's config, as transformers reads it."""
    vision, text = config.vision_config, config.text_config
    sigmoid = config.model_type != "clip"
    side = getattr(vision, "image_size", 0)
    patches = (side // vision.patch_size) ** 2 if side else vision.num_patches
    return EncoderDims(
        vision=Tower(
            vision.num_hidden_layers, vision.hidden_size, vision.intermediate_size, patches + (0 if sigmoid else 1)
        ),
        text=Tower(text.num_hidden_layers, text.hidden_size, text.intermediate_size, text.max_position_embeddings),
        patch=vision.patch_size,
        side=side,
        out=vision.hidden_size if sigmoid else config.projection_dim,
        sigmoid=sigmoid,
    )


def size_for(dims: EncoderDims) -> FrameSize:
    """The size a pool is decoded at: the encoder's side is the short side of a 16:9 frame."""
    return FrameSize(max_pixels=round((dims.side or ANY_SIDE) ** 2 * WIDE))


def encoder_cost(calls: int, *, flops: float, computed: float | None = None) -> Cost:
    """So many calls; what was computed is all of it, unless it is given."""
    return Cost(calls=calls, flops=flops, flops_paper=flops, flops_computed=flops if computed is None else computed)


def image_flops(dims: EncoderDims) -> float:
    """One picture: patch embedding, blocks, and the pooling head or the projection."""
    tower = dims.vision
    h, n, patches = tower.hidden, tower.tokens, tower.tokens - (0 if dims.sigmoid else 1)
    embedding = 2.0 * patches * h * 3 * dims.patch**2
    pooling = 4 * n * h * h + 4 * h * h + 4 * h * n + 4 * h * tower.ffn
    head = pooling if dims.sigmoid else 2 * h * dims.out
    return embedding + _blocks(tower, n) + 4.0 * tower.layers * h * n**2 + head


def text_flops(dims: EncoderDims, tokens: int) -> float:
    """One piece of text of so many tokens; attention is causal in CLIP."""
    tower = dims.text
    n = tower.tokens if dims.sigmoid else tokens
    pairs = n**2 if dims.sigmoid else n * (n + 1) / 2
    return _blocks(tower, n) + 4.0 * tower.layers * tower.hidden * pairs + 2 * tower.hidden * dims.out


def _blocks(tower: Tower, tokens: int) -> float:
    """The linear layers of all blocks."""
    return float(tower.layers * tokens * (8 * tower.hidden**2 + 4 * tower.hidden * tower.ffn))
