"""BOLT (Liu et al., CVPR 2025, arXiv 2503.21483): inverse transform sampling of sharpened similarities.

Similarities, less their minimum, are raised to the power 3 and cumulated. The frames at n even levels of the cumulated
share, from 1/n to 1 - 1/n, are kept. The published encoder is CLIP ViT-L/14, the query the bare question, and the
number of frames 8, 16 or 32.

What is different here: a frame that several levels point at is kept once, and the levels that remain are applied to the
other frames again, so that exactly n frames are kept (the released code keeps duplicates: 13 distinct ones of 32 in a
clip of 30 s). If all similarities are equal, every frame has the same share (the released code divides by zero). One
frame is taken at the level 1/2. The released code uses the power 2.5 for LongVideoBench.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gridprobe_selectors.encoded import Encoded, Floats, Similarities, unit_range

POWER = 3.0


@dataclass(frozen=True)
class BOLT(Encoded):
    """More frames where the similarity is high, and some where it is not."""

    power: float = POWER
    name: ClassVar[str] = "bolt"
    published: ClassVar[str] = "clip"

    def choose(self, similarities: Similarities, kept: int) -> tuple[int, ...]:
        """Frames at even levels of the cumulated similarity."""
        return choose_frames(unit_range(similarities.cosines) ** self.power, kept)

    def describe(self) -> dict[str, Any]:
        """With its power."""
        return {**super().describe(), "power": self.power}


def choose_frames(weights: Floats, kept: int) -> tuple[int, ...]:
    """Positions of `kept` frames, ascending; `weights` are at least 0 and need no sum."""
    chosen: set[int] = set()
    while len(chosen) < kept:
        missing = kept - len(chosen)
        rest = np.array([i for i in range(len(weights)) if i not in chosen], dtype=np.int64)
        share = weights[rest] if weights[rest].sum() > 0 else np.ones(len(rest))
        levels = np.linspace(1 / missing, 1 - 1 / missing, missing) if missing > 1 else np.array([0.5])
        places = np.searchsorted(np.cumsum(share) / share.sum(), levels)
        chosen |= {int(rest[place]) for place in np.minimum(places, len(rest) - 1)}
    return tuple(sorted(chosen))
