"""AKS, Adaptive Keyframe Sampling (Tang et al., CVPR 2025, arXiv 2502.21271): split where relevance is even.

Scores are scaled to 0…1. A stretch whose n best frames exceed its mean by more than 0.8 is kept as it is; any other is
split into halves, up to five times. A stretch of depth d then gets n / 2^d frames, its best.

What is different here: scores are cosines of CLIP ViT-L/14 instead of BLIP's matching head (the authors also used CLIP
B/32: `aks:clip:openai/clip-vit-base-patch32`), at the frames of the pool instead of one a second.
Splitting ends where a half would get no frame, and places that stretches leave go to the best frames of all, so that
exactly n are kept; the released code keeps fewer. The published number of frames is 32 or 64. The second threshold of
the released code (a standard deviation above -100) is always met and left out.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gridprobe.importance import top
from gridprobe_selectors.encoded import Encoded, Floats, Similarities, unit_range, with_best

THRESHOLD = 0.8
DEPTH = 5


@dataclass(frozen=True)
class AKS(Encoded):
    """Relevant frames, from few stretches if relevance is concentrated and from many if not."""

    name: ClassVar[str] = "aks"
    published: ClassVar[str] = "clip"

    def choose(self, similarities: Similarities, kept: int) -> tuple[int, ...]:
        """The best frames of every stretch."""
        return choose_frames(unit_range(similarities.cosines), kept)

    def describe(self) -> dict[str, Any]:
        """With its thresholds."""
        return {**super().describe(), "threshold": THRESHOLD, "depth": DEPTH}


def choose_frames(scores: Floats, kept: int) -> tuple[int, ...]:
    """Positions of `kept` frames for scores from 0 to 1, ascending."""
    chosen: set[int] = set()
    for stretch, depth in stretches(scores, kept):
        share = min(len(stretch), kept >> depth)
        inside = scores[stretch.start : stretch.stop]
        chosen |= {stretch.start + i for i in top(inside, share, ties="earliest")}
    return with_best(chosen, scores, kept)


def stretches(scores: Floats, kept: int) -> list[tuple[range, int]]:
    """The kept stretches and their depths, in time order."""
    deepest = min(DEPTH, kept.bit_length() - 1)

    def split(stretch: range, depth: int) -> list[tuple[range, int]]:
        inside = scores[stretch.start : stretch.stop]
        best = np.sort(inside)[-kept:]
        if depth == deepest or len(stretch) < 2 or best.mean() - inside.mean() > THRESHOLD:
            return [(stretch, depth)]
        middle = (stretch.start + stretch.stop) // 2
        return split(range(stretch.start, middle), depth + 1) + split(range(middle, stretch.stop), depth + 1)

    return split(range(len(scores)), 0)
