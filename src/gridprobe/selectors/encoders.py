"""The boundary to encoders: frames and texts in, vectors in one space out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError
from gridprobe.models.cost import Cost
from gridprobe.registry import ENCODERS, explain_missing
from gridprobe.video import FramePool, FrameSize

__all__ = ["Encoder", "LazyEncoder", "Vectors", "load_encoder"]

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


# Encoders: CLIP and its kin, which compare frames with a text without reading either. Names are in `registry`.
#
# `LazyEncoder` is one that is not loaded yet. A selector that has one can be described, and sent to another process.


def load_encoder(name: str, **options: Any) -> Encoder:
    """Load an encoder by name.

    Args:
        name: "embedded", "clip", "siglip", or one of the last two with a folder or a Hugging Face id, such as
            "siglip:google/siglip2-so400m-patch14-384".
        **options: `device`, `dtype`, `cache`; with `weights=False` only its price is known.
    """
    entry, _ = ENCODERS.find(name)
    with explain_missing(entry.extra):
        load, argument = ENCODERS.resolve(name)
        encoder: Encoder = load(argument, **options)
    return encoder


@dataclass(frozen=True)
class LazyEncoder(Encoder):
    """An encoder that is not loaded yet; without a name it is the one that a selector's paper uses."""

    name: str = ""
    cache: bool = True
    """Whether features are to be kept on disk."""

    def __post_init__(self) -> None:
        if self.name:
            ENCODERS.find(self.name)

    def or_else(self, name: str) -> "LazyEncoder":
        """This one, or that of the given name if it has none."""
        return self if self.name else replace(self, name=name)

    @property
    def identity(self) -> str:
        """The name, until it is loaded."""
        return f"encoder:{self.name}"

    @property
    def image_size(self) -> FrameSize:
        """Not known before it is loaded."""
        return FrameSize()

    @property
    def scale(self) -> float:
        """Refuse: it is not known yet."""
        raise self._error()

    @property
    def bias(self) -> float:
        """Refuse: it is not known yet."""
        raise self._error()

    def loaded(self, *, weights: bool = True, **options: Any) -> Encoder:
        """Load it, or a gauge of it."""
        if not weights:
            return load_encoder(self.name, weights=False)
        return load_encoder(self.name, cache=self.cache, **options)

    def images(self, frames: FramePool) -> Vectors:
        """Refuse: there is nothing to encode with yet."""
        raise self._error()

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Refuse: there is nothing to encode with yet."""
        raise self._error()

    def image_cost(self, frames: FramePool) -> Cost:
        """Refuse: its price is not known yet."""
        raise self._error()

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """Refuse: its price is not known yet."""
        raise self._error()

    def _error(self) -> ModelError:
        return ModelError(f"the encoder {self.name} is not loaded")
