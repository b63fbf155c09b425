"""Encoders: CLIP and its kin, which compare frames with a text without reading either. Names are in `registry`.

`NamedEncoder` is one that is not loaded yet. A selector that has one can be described, and sent to another process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridprobe.encoders.base import Encoder, Vectors
from gridprobe.errors import ModelError
from gridprobe.flops import Cost
from gridprobe.registry import ENCODERS, explain_missing
from gridprobe.video import FramePool, FrameSize

__all__ = ["Encoder", "NamedEncoder", "Vectors", "load_encoder"]


def load_encoder(name: str, **options: Any) -> Encoder:
    """Load an encoder by name.

    Args:
        name: "embedded", "clip", "siglip", or one of the last two with a folder or a Hugging Face id, such as
            "siglip:google/siglip2-so400m-patch14-384".
        **options: `device`, `dtype`, `cache`; see `gridprobe.encoders.clip.load`.
    """
    entry, _ = ENCODERS.find(name)
    with explain_missing(entry.extra):
        load, argument = ENCODERS.resolve(name)
        found: Encoder = load(argument, **options)
    return found


@dataclass(frozen=True)
class NamedEncoder(Encoder):
    """An encoder that is not loaded yet; without a name it is the one that a selector's paper uses."""

    name: str = ""
    cache: bool = True
    """Whether features are to be kept on disk."""

    def __post_init__(self) -> None:
        if self.name:
            ENCODERS.find(self.name)

    def or_else(self, name: str) -> "NamedEncoder":
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
            from gridprobe.encoders.gauge import gauge_encoder

            return gauge_encoder(self.name)
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
