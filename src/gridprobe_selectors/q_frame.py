"""Q-Frame (Zhang et al. 2025, arXiv:2506.22139): the best frames large, the next ones medium, more of them small.

Frames are drawn without replacement from a softmax of their scores (temperature 0.8): Gumbel noise is added to its
logarithms, and they are ranked. Of N kept frames, which are shown at full size, 2N more are shown at half of the side
and 8N at a quarter. They cost as much as 2N frames at full size: N = 4 is the paper's default, with the tokens of 8.

Deviations. The paper scores frames by Long-CLIP. Here the scores come from the encoder that the settings name, cosines
times its scale; without one they come from the model: the log-odds of how certain its answer from each frame alone is
(as for the selector uncertainty), with the model's calls on the bill. The noise is seeded by the seed and the question,
where the paper's code draws new noise at each run. The paper's largest size is half of the video's side; here it is the
full size of the settings. Where the pool is too short, the small frames are fewer first.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gridprobe.errors import ModelError
from gridprobe.question import Question
from gridprobe.selectors.base import ExtraFrames, Parts, Selection
from gridprobe.selectors.gridprobe import ByModel, parts_of
from gridprobe.video import FramePool, FrameSize
from gridprobe_selectors.encoded import encoder_of, seed_and_rest

TEMPERATURE = 0.8
EXTRA_FRAMES = ((2, 1 / 2), (8, 1 / 4))
"""For each kept frame: how many medium and small ones, and the share of its side that theirs have."""
SURE = 1e-6
"""Certainties nearer than this to 0 or 1 count as this near, so that log-odds stay finite."""


@dataclass(frozen=True)
class QFrame(ByModel):
    """Three sizes: the budget decides how many frames are large."""

    encoder: Any = None
    """An image-text encoder that scores the frames; None asks the model."""
    seed: int = 0
    name: ClassVar[str] = "q-frame"

    @property
    def input_size(self) -> FrameSize:
        """The encoder's size, or that of the model's requests."""
        return super().input_size if self.encoder is None else self.encoder.image_size

    @property
    def models(self) -> tuple[str, ...]:
        """The encoder, or the model."""
        return super().models if self.encoder is None else (self.encoder.identity,)

    def loaded(self, **options: Any) -> "QFrame":
        """The same with its encoder loaded."""
        return self if self.encoder is None else replace(self, encoder=self.encoder.loaded(**options))

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Score the frames, draw an order, and divide it."""
        scored, logits = self._by_model(pool, question) if self.encoder is None else self._compared(pool, question)
        order = drawn_order(logits, f"{self.seed}:{question.text}")
        numbers = [number for number, _ in self.extra_frames(scored.kept, len(pool))]
        kept, *rest = _divided(order, [scored.kept, *numbers])
        shares = [share for _, share in EXTRA_FRAMES]
        return replace(
            scored,
            indices=kept,
            timestamps=tuple(pool.times[i] for i in kept),
            extra_frames=tuple(ExtraFrames(each, share) for each, share in zip(rest, shares, strict=False)),
        )

    def _by_model(self, pool: FramePool, question: Question) -> tuple[Selection, list[float]]:
        """What the model says, and the log-odds of how certain it is from each frame."""
        sure, answers = self.ask_each(pool, [[i] for i in range(len(pool))], question)
        logits = [math.log(p / (1 - p)) for p in (min(1 - SURE, max(SURE, each)) for each in sure)]
        return self.selected(pool, sure, answers, kind="certainty"), logits

    def _compared(self, pool: FramePool, question: Question) -> tuple[Selection, list[float]]:
        """What the encoder says, and its scaled cosines."""
        encoder, text = self.encoder, question.text
        cost = encoder.image_cost(pool) + encoder.text_cost([text])  # before: what is known is not computed
        cosines = (encoder.images(pool) @ encoder.texts([text])[0]).astype(np.float64).clip(-1.0, 1.0)
        if not np.isfinite(cosines).all():
            raise ModelError("the encoder's vectors are not numbers (NaN); check its weights, or use float32")
        scores = [round(float(each), 6) for each in (1 + cosines) / 2]  # float32 means no more
        selection = replace(self.selected(pool, scores, (), kind="encoder"), cost=cost, notes=encoder.notes(text))
        return selection, [encoder.scale * each for each in cosines.tolist()]

    def extra_frames(self, kept: int, pool: int) -> tuple[tuple[int, float], ...]:
        """Medium and small frames, as far as the pool has them."""
        sizes, left = [], pool - kept
        for number, share in EXTRA_FRAMES:
            count = min(left, number * kept)
            left -= count
            if count:
                sizes.append((count, share))
        return tuple(sizes)

    def describe(self) -> dict[str, Any]:
        """With its sizes, its temperature and its seed."""
        sizes = [list(each) for each in EXTRA_FRAMES]
        scores = self.encoder.identity if self.encoder else self.model.identity
        return {
            **super().describe(),
            "model": scores,
            "extra_frames": sizes,
            "temperature": TEMPERATURE,
            "seed": self.seed,
        }


def drawn_order(logits: Sequence[float], seed: str) -> list[int]:
    """Positions in the order of a draw without replacement from the softmax of the logits."""
    draw = random.Random(seed)
    noise = [-math.log(-math.log(max(draw.random(), 1e-300))) for _ in logits]
    keys = [value / TEMPERATURE + extra for value, extra in zip(logits, noise, strict=True)]
    return sorted(range(len(keys)), key=lambda i: (-keys[i], i))


def _divided(order: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The order cut into parts of these sizes, each in time order."""
    parts, start = [], 0
    for size in sizes:
        parts.append(tuple(sorted(order[start : start + size])))
        start += size
    return parts


def make(argument: str, parts: Parts) -> QFrame:
    """The function of the registry. Without an encoder, from the argument or the preset, the model is asked."""
    seed, name = seed_and_rest(argument)
    encoder = encoder_of(parts, "", argument=name)
    return QFrame(**parts_of(parts), encoder=encoder if getattr(encoder, "name", True) else None, seed=seed)
