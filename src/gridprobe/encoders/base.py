"""The boundary to encoders: frames and texts in, vectors in one space out."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.flops import Cost
from gridprobe.video import FramePool, FrameSize

__all__ = ["Encoder", "Vectors"]

Vectors = npt.NDArray[np.float32]
"""Rows of length 1."""


class Encoder(Protocol):
    """An image encoder and a text encoder with a common space, such as CLIP.

    Costs count one call for every picture and for every piece of text, however they are batched. The published
    convention of `Cost` has no rule for encoders, so both conventions count the same floating-point operations. Tokens
    of an encoder are not counted, since they are not tokens of the model that answers.
    """

    @property
    def identity(self) -> str:
        """Name, fingerprint and dtype, behind the word "encoder": goes into cache keys and records."""
        ...

    @property
    def image_size(self) -> FrameSize:
        """The size a pool should be decoded at: large enough for the encoder, and with its aspect ratio."""
        ...

    @property
    def scale(self) -> float:
        """What cosines are multiplied by in the encoder's own loss."""
        ...

    @property
    def bias(self) -> float:
        """What is added then; 0 for CLIP, which has none."""
        ...

    def images(self, frames: FramePool) -> Vectors:
        """One row for each frame."""
        ...

    def texts(self, texts: Sequence[str]) -> Vectors:
        """One row for each text; that of a long text is the mean of its pieces."""
        ...

    def image_cost(self, frames: FramePool) -> Cost:
        """What encoding these frames costs; `flops_computed` leaves out those whose features are known by now."""
        ...

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """What encoding these texts costs; `flops_computed` leaves out those that are known by now."""
        ...

    def notes(self, text: str) -> tuple[str, ...]:
        """Warnings about a text, for the answer."""
        return ()

    def loaded(self, **options: Any) -> "Encoder":
        """The encoder, loaded; itself if it is. With `weights=False` only its price is known."""
        return self
