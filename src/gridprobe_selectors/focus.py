"""FOCUS (Zhu et al., arXiv 2510.27280): a bandit over clips, so that few frames are compared with the question.

Coarse  The pool is cut into arms of about 16 s, at least 8. Of each arm the middle frame and two random ones are
        compared with the question.
Fine    Arms are ranked by an upper confidence bound: mean + √(2·ln N·variance/n) + 3·ln N/n. In the best quarter of
        them (at least 4) about one frame a second is compared, half of them even and half random.
Choice  A fifth of the frames are the best of all that were compared. The others are shared evenly among the best
        quarter of the arms (4 to 32). In an arm every frame has the score of its nearest compared frame; frames are
        drawn by a softmax of temperature 0.06 and keep a distance of a second, or a quarter of their mean spacing.

What is different here: cosines of SigLIP instead of BLIP's matching head, scaled to 0…1 by those of the coarse stage.
What the fine stage finds counts for its arms, as the paper says; in the released code it does not. The frames are those
of the pool, so an arm has at least 8 of them (fewer arms for a small pool). The draws depend on the seed and the
question alone. Places that arms cannot fill go to the best remaining frames. The published number of frames is 64.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gridprobe.importance import spread, top
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.video import FramePool
from gridprobe_selectors.encoded import (
    Comparing,
    Floats,
    Similarities,
    encoder_of,
    seed_and_rest,
    similarity_map,
    with_best,
)

ARM_SECONDS, LEAST_ARMS, ARM_FRAMES = 16.0, 8, 8
COARSE = 3
"""Frames compared of every arm: its middle one, and two at random."""
ZOOM, LEAST_ZOOM, MOST_SHARING = 0.25, 4, 32
FINE_FPS = 1.0
BEST = 0.2
"""The share of frames that are simply the best."""
TEMPERATURE = 0.06
GAP_SECONDS, GAP_SHARE, GAP_OFF = 1.0, 0.25, 0.2
"""The least distance is a second or this share of the mean spacing; none if frames are closer than the last."""
FLOOR = 1e-6
"""The least variance of an arm."""


@dataclass(frozen=True)
class FOCUS(Comparing):
    """Explores clips, and compares more frames of the promising ones."""

    seed: int = 0
    name: ClassVar[str] = "focus"

    @classmethod
    def make(cls, argument: str, parts: Parts) -> "FOCUS":
        """From "focus", "focus:SEED", "focus:ENCODER" or "focus:SEED:ENCODER"."""
        seed, encoder = seed_and_rest(argument)
        return cls(encoder_of(parts, cls.published, argument=encoder), parts.budget, parts.ties, seed)

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Compare some frames, then choose."""
        text = self.text(question)
        digest = hashlib.sha256(f"{self.seed}:{text}".encode("utf-8", "surrogatepass")).digest()
        search = _Search(self, pool, text, np.random.default_rng(list(digest)))
        search.look([i for arm in search.arms for i in search.coarse(arm)])
        search.set_scale()
        for arm in search.best_arms(max(LEAST_ZOOM, math.ceil(ZOOM * len(search.arms)))):
            search.look(search.fine(arm))
        evidence = similarity_map(search.everywhere())
        kept = self.budget.kept(evidence)
        indices = search.choose(kept) if kept < len(pool) else tuple(range(len(pool)))
        return self.selection(pool, question, indices, evidence=evidence, cost=search.cost)

    def describe(self) -> dict[str, Any]:
        """With its seed."""
        return {**super().describe(), "seed": self.seed}


class _Search:
    """What one selection knows so far."""

    def __init__(self, selector: FOCUS, pool: FramePool, text: str, rng: np.random.Generator) -> None:
        self._encoder, self._pool, self._rng = selector.encoder, pool, rng
        self.cost = selector.encoder.text_cost([text])
        self._text = selector.encoder.texts([text])
        self._known: dict[int, float] = {}
        self._low, self._width = 0.0, 1.0
        self.seconds = _duration(pool.times)
        wanted = max(LEAST_ARMS, math.ceil(self.seconds / ARM_SECONDS))
        count = max(1, min(wanted, len(pool) // ARM_FRAMES))
        self.arms = [range(i * len(pool) // count, (i + 1) * len(pool) // count) for i in range(count)]

    def look(self, wanted: list[int]) -> None:
        """Compare these frames with the question, unless they were."""
        new = sorted(set(wanted) - set(self._known))
        if new:
            frames = self._pool.take(new)
            self.cost += self._encoder.image_cost(frames)
            similarities = Similarities(self._encoder.images(frames), self._text)
            self._known |= zip(new, similarities.cosines.tolist(), strict=True)

    def set_scale(self) -> None:
        """Map the similarities known now to 0…1."""
        values = list(self._known.values())
        self._low, self._width = min(values), (max(values) - min(values)) or 1.0

    def coarse(self, arm: range) -> list[int]:
        """The middle frame and two others."""
        middle = arm[len(arm) // 2]
        others = [i for i in arm if i != middle]
        return [middle, *self._drawn(others, min(COARSE - 1, len(others)))]

    def fine(self, arm: range) -> list[int]:
        """About one frame a second, half of them even and half random."""
        rest = [i for i in arm if i not in self._known]
        seconds = self.seconds * len(arm) / len(self._pool)
        wanted = min(len(rest), max(1, math.ceil(FINE_FPS * seconds)))
        even = [rest[i] for i in spread(len(rest), (wanted + 1) // 2)] if rest else []
        others = [i for i in rest if i not in even]
        return even + self._drawn(others, wanted - len(even))

    def best_arms(self, count: int) -> list[range]:
        """The arms with the highest bounds."""
        bounds = np.array([self._bound(arm) for arm in self.arms])
        return [self.arms[i] for i in np.argsort(-bounds, kind="stable")[:count]]

    def everywhere(self) -> Floats:
        """The similarity of every frame, from its nearest compared one."""
        return self._nearest(range(len(self._pool)))

    def choose(self, kept: int) -> tuple[int, ...]:
        """A fifth by score, the others by draws in the best arms."""
        compared = sorted(self._known)
        chosen: set[int] = set()
        if best := min(len(compared), round(BEST * kept)):
            chosen |= {compared[i] for i in top(np.array([self._known[i] for i in compared]), best)}
        arms = self.best_arms(min(MOST_SHARING, max(LEAST_ZOOM, math.ceil(ZOOM * len(self.arms)))))
        places = _even_shares(kept - len(chosen), len(arms))
        for arm, wanted in zip(arms, places, strict=True):
            self._draw(arm, wanted, chosen, gap=self._gap(kept))
        return with_best(chosen, self.everywhere(), kept)

    def _bound(self, arm: range) -> float:
        values = self._scaled(np.array([self._known[i] for i in arm if i in self._known]))
        log, count = math.log(max(2, len(self._known))), len(values)
        return float(values.mean() + math.sqrt(2 * log * max(FLOOR, values.var()) / count) + 3 * log / count)

    def _draw(self, arm: range, wanted: int, chosen: set[int], *, gap: float) -> None:
        """Draw this many frames of an arm without replacement, as far as the gap allows (Gumbel's method)."""
        scores = self._scaled(self._nearest(arm))
        width = float(np.ptp(scores)) or 1.0
        keys = (scores - scores.min()) / width / TEMPERATURE + self._rng.gumbel(size=len(arm))
        times, count = self._pool.times, 0
        for place in np.argsort(-keys):
            frame = arm[int(place)]
            if count == wanted:
                return
            if frame not in chosen and all(abs(times[frame] - times[other]) >= gap for other in chosen):
                chosen.add(frame)
                count += 1

    def _nearest(self, frames: range) -> Floats:
        compared = np.array(sorted(self._known))
        values = np.array([self._known[int(i)] for i in compared])
        distances = np.abs(np.array(frames)[:, None] - compared[None])
        return np.asarray(values[distances.argmin(axis=1)], dtype=np.float64)

    def _gap(self, kept: int) -> float:
        spacing = self.seconds / len(self._pool)
        return 0.0 if spacing < GAP_OFF else min(GAP_SECONDS, GAP_SHARE * self.seconds / kept)

    def _scaled(self, values: Floats) -> Floats:
        return np.asarray((values - self._low) / self._width, dtype=np.float64)

    def _drawn(self, frames: list[int], count: int) -> list[int]:
        return [frames[i] for i in self._rng.permutation(len(frames))[:count]]


def _even_shares(total: int, parts: int) -> list[int]:
    """Whole shares of a total that differ by at most 1; the first are the larger ones."""
    return [total // parts + (place < total % parts) for place in range(parts)]


def _duration(times: tuple[float, ...]) -> float:
    """From the first frame to one step after the last."""
    return (times[-1] - times[0]) * len(times) / max(1, len(times) - 1)
