"""AVUA (Jeoung et al. 2024, arXiv:2410.20252): a policy for the type of question, then frames are accessed in rounds.

There is no public code, and the paper's policies, its memory and its refiner are texts that a language model writes. We
take from it what it defines without them: the type of question decides the policy, frames are accessed a few at a time,
what was seen is remembered, and the agent stops when it is sure.

Deviations. The type is found by words of the question (`question_type`), not by a language model. "spread" accesses
frames far from all seen ones, for questions about counts, order, absence or the whole video. "search" accesses
frames next to the most certain one in every second place, if it stands out by 0.1, for all other questions. The
short-term memory is the certainty of each new frame by itself, the long-term memory all seen frames in one pass, whose
confidence ends the rounds at 0.9. A number of frames is the most that is kept; without one it is 8. There is no verbal
feedback. The final answer is read from the kept frames at native size, as for every selector.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gridprobe.backends.base import Posterior
from gridprobe.question import Question
from gridprobe.selectors.agents import Agent, farthest
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import parts_of
from gridprobe.video import FramePool

__all__ = ["Avua", "question_type"]

ROUND = 3
"""Frames that are accessed in one round."""
MOST = 8
STANDS_OUT = 0.1
"""A search goes next to a frame only if it is more certain than another seen one by this."""
WORDS = {
    "count": r"how many|how often|count|number of times",
    "order": r"before|after|first|last|latest|next|then|order|sequence|earlier|later",
    "absence": r"not|never|no|none|missing|except|without",
    "whole": r"mainly|mostly|most|longest|overall|main|whole|entire|throughout|summary|purpose|common",
}
"""Type of question -> words that show it; the first type with a word in the question counts."""


def question_type(text: str) -> str:
    """The type of a question by its words, or "local" if it has none of them."""
    found = (name for name, words in WORDS.items() if re.search(rf"\b({words})\b", text.casefold()))
    return next(found, "local")


@dataclass(frozen=True)
class Avua(Agent):
    """Access frames by a policy until the model is sure."""

    most: int = MOST
    name: ClassVar[str] = "avua"

    def first(self, pool: int) -> int:
        """The frames of one round."""
        return min(ROUND, self.limit(pool))

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Rounds of accessing frames and remembering them."""
        policy: Literal["search", "spread"] = "search" if question_type(question.text) == "local" else "spread"
        limit = self.limit(len(pool))
        seen: dict[int, float] = {}
        asked: list[Posterior] = []
        while len(seen) < limit:
            new = sorted(_access(len(pool), seen, min(ROUND, limit - len(seen)), policy=policy))
            scores, alone = self.ask_each(pool, [[i] for i in new], question)
            seen |= dict(zip(new, scores, strict=True))
            asked += [*alone, *self.model.score([self.request(pool, sorted(seen), question)])]
            if asked[-1].confidence >= self.sure:
                break
        return self.chosen(pool, list(seen), asked)

    def describe(self) -> dict[str, Any]:
        """With the frames of a round."""
        return {**super().describe(), "round": ROUND}


def _access(pool: int, seen: Mapping[int, float], count: int, *, policy: Literal["search", "spread"]) -> list[int]:
    """The next frames: far from all seen ones, or by turns next to the most certain one and far from all."""
    if policy == "spread" or not seen or max(seen.values()) - min(seen.values()) < STANDS_OUT:
        return farthest(pool, seen, count)
    best = max(seen, key=lambda i: (seen[i], -i))
    chosen: list[int] = []
    while len(chosen) < count and len(seen) + len(chosen) < pool:
        taken = {*seen, *chosen}
        near = min((i for i in range(pool) if i not in taken), key=lambda i: (abs(i - best), i))
        chosen += [near] if len(chosen) % 2 == 0 else farthest(pool, taken, 1)
    return chosen


def make(argument: str, parts: Parts) -> Avua:
    """The function of the registry."""
    return Avua(**parts_of(parts))
