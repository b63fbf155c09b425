"""Texts as an encoder's tokenizer gets them: cleaned as in training, and in pieces that fit."""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe.errors import UsageError
from gridprobe.models.base import Cost
from gridprobe.models.local.checkpoint import local_folder
from gridprobe.selectors.base import Encoder, Vectors
from gridprobe.video import FramePool, FrameSize

PUNCTUATION = str.maketrans("", "", string.punctuation)


def lower_case(text: str) -> str:
    """As SigLIP2 was trained."""
    return text.lower()


def without_punctuation(text: str) -> str:
    """As SigLIP was trained: lower case, no ASCII punctuation, single spaces."""
    return " ".join(text.lower().translate(PUNCTUATION).split())


def pieces(text: str, count: Callable[[str], int], limit: int) -> list[str]:
    """Cut a text into the fewest equal runs of words that have at most `limit` tokens each by `count`.

    A text whose words are too long is cut within words. Equal runs, because the vectors of the pieces are averaged and
    a last piece of one word should not count as much as one of 64 tokens.
    """
    total = count(text)
    if total <= limit:
        return [text]
    for units, glue in ((text.split(), " "), (list(text), "")):
        number = -(-total // limit)
        while number <= len(units):
            cut = [glue.join(units[i * len(units) // number : (i + 1) * len(units) // number]) for i in range(number)]
            if all(count(each) <= limit for each in cut):
                return cut
            number += max(1, number // 8)
    return list(text)


# What the two towers of an encoder cost, from its widths. A multiply-add is 2; norms and softmax are ignored.

DEFAULTS = {"clip": "openai/clip-vit-large-patch14", "siglip": "google/siglip-so400m-patch14-384"}
"""The checkpoints behind the two names without an argument."""
WIDE = 16 / 9
ANY_SIDE = 384
"""The side a pool is decoded for if the encoder takes any aspect ratio."""


@dataclass(frozen=True)
class EncoderTower:
    """Widths of one transformer."""

    layers: int
    hidden: int
    ffn: int
    tokens: int
    """What a picture takes, and the most a text may take."""


@dataclass(frozen=True)
class EncoderDims:
    """Widths of an encoder."""

    vision: EncoderTower
    text: EncoderTower
    patch: int
    side: int
    """Pixels of a picture's side; 0 if pictures keep their aspect ratio."""
    out: int
    """Length of a vector."""
    sigmoid: bool
    """SigLIP: no class token, a pooling head with attention, text padded to its full length and not causal."""


KNOWN = {
    "openai/clip-vit-large-patch14": EncoderDims(
        EncoderTower(24, 1024, 4096, 257), EncoderTower(12, 768, 3072, 77), 14, 224, 768, False
    ),
    "google/siglip-so400m-patch14-384": EncoderDims(
        EncoderTower(27, 1152, 4304, 729), EncoderTower(27, 1152, 4304, 64), 14, 384, 1152, True
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
        vision=EncoderTower(
            vision.num_hidden_layers, vision.hidden_size, vision.intermediate_size, patches + (0 if sigmoid else 1)
        ),
        text=EncoderTower(
            text.num_hidden_layers, text.hidden_size, text.intermediate_size, text.max_position_embeddings
        ),
        patch=vision.patch_size,
        side=side,
        out=vision.hidden_size if sigmoid else config.projection_dim,
        sigmoid=sigmoid,
    )


def size_for(dims: EncoderDims) -> FrameSize:
    """The size a pool is decoded at: the encoder's side is the short side of a 16:9 frame."""
    return FrameSize(max_pixels=round((dims.side or ANY_SIDE) ** 2 * WIDE))


def encoder_cost(calls: int, *, flops: float, computed: float | None = None) -> Cost:
    """This many calls; what was computed is all of it, unless it is given."""
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
    """One piece of text of this many tokens; attention is causal in CLIP."""
    tower = dims.text
    n = tower.tokens if dims.sigmoid else tokens
    pairs = n**2 if dims.sigmoid else n * (n + 1) / 2
    return _blocks(tower, n) + 4.0 * tower.layers * tower.hidden * pairs + 2 * tower.hidden * dims.out


def _blocks(tower: EncoderTower, tokens: int) -> float:
    """The linear layers of all blocks."""
    return float(tower.layers * tokens * (8 * tower.hidden**2 + 4 * tower.hidden * tower.ffn))


# EncoderCostModel: what an encoder costs, without its weights; for `gridprobe plan`.

CHARACTERS = 4
"""What counts as a token of text."""


@dataclass(frozen=True)
class EncoderCostModel(Encoder):
    """An encoder that finds everything equally similar, at the encoder's price."""

    name: str
    dims: EncoderDims

    @property
    def identity(self) -> str:
        """The encoder's name."""
        return f"encoder:{self.name}"

    @property
    def scale(self) -> float:
        """None in particular."""
        return 1.0

    @property
    def bias(self) -> float:
        """None in particular."""
        return 0.0

    @property
    def image_size(self) -> FrameSize:
        """The encoder's."""
        return size_for(self.dims)

    def images(self, frames: FramePool) -> Vectors:
        """The same vector for each."""
        return np.ones((len(frames), 1), dtype=np.float32)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """The same vector for each."""
        return np.ones((len(texts), 1), dtype=np.float32)

    def image_cost(self, frames: FramePool) -> Cost:
        """One call for each frame."""
        return encoder_cost(len(frames), flops=image_flops(self.dims) * len(frames))

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """One call for each piece; four characters count as a token."""
        total = Cost()
        for text in texts:
            tokens, most = len(text) // CHARACTERS + 2, self.dims.text.tokens
            count = -(-tokens // most)
            total += encoder_cost(count, flops=count * text_flops(self.dims, -(-tokens // count)))
        return total


def load_clip(argument: str = "", **options: Any) -> Encoder:
    """The function of the registry, for "clip"."""
    return _load("clip", argument, **options)


def load_siglip(argument: str = "", **options: Any) -> Encoder:
    """The function of the registry, for "siglip"."""
    return _load("siglip", argument, **options)


def _load(kind: str, argument: str, *, weights: bool = True, **options: Any) -> Encoder:
    checkpoint = argument or DEFAULTS[kind]
    if not weights:
        return EncoderCostModel(f"{kind}:{argument}" if argument else kind, dims_of_checkpoint(checkpoint))
    from gridprobe_selectors.clip import load

    return load(checkpoint, **options)


def dims_of_checkpoint(checkpoint: str) -> EncoderDims:
    """The widths of an encoder that is on this machine, or of a default one; nothing is downloaded."""
    if checkpoint in KNOWN:
        return KNOWN[checkpoint]
    folder: Path | None = local_folder(checkpoint)
    if folder is None:
        raise UsageError(
            f"cannot plan for the encoder {checkpoint!r}: it is no checkpoint on this machine, nor one of "
            f"{', '.join(KNOWN)}"
        )
    from gridprobe_selectors.clip import dims

    return dims(checkpoint, folder)
