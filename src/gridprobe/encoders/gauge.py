"""EncoderGauge: what an encoder costs, without its weights; for `gridprobe plan`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridprobe.backends.embedded import MODELS
from gridprobe.backends.local.checkpoint import local_folder
from gridprobe.encoders.base import Encoder, Vectors
from gridprobe.encoders.pricing import (
    DEFAULTS,
    KNOWN,
    EncoderDims,
    encoder_cost,
    image_flops,
    size_for,
    text_flops,
)
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.video import FramePool, FrameSize

__all__ = ["EncoderGauge", "gauge_encoder"]

CHARACTERS = 4
"""What counts as a token of text."""


@dataclass(frozen=True)
class EncoderGauge(Encoder):
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


def gauge_encoder(name: str) -> EncoderGauge:
    """Gauge an encoder that is on this machine, or one of the defaults; nothing is downloaded."""
    kind, _, argument = name.partition(":")
    checkpoint = str(MODELS / "clip") if kind == "embedded" else argument or DEFAULTS.get(kind, "")
    return EncoderGauge(name, _dims(checkpoint))


def _dims(checkpoint: str) -> EncoderDims:
    if checkpoint in KNOWN:
        return KNOWN[checkpoint]
    folder: Path | None = local_folder(checkpoint)
    if folder is None:
        raise UsageError(
            f"cannot plan for the encoder {checkpoint!r}: it is no checkpoint on this machine, nor one of "
            f"{', '.join(KNOWN)}"
        )
    from gridprobe.encoders.clip import dims

    return dims(checkpoint, folder)
