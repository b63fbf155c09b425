"""VideoAgent (Wang et al. 2024, arXiv:2403.10517): answer from few frames; while not sure, retrieve more of them.

Round 0 answers from five evenly spaced frames. While the answer's confidence is below 0.9, and at most twice more, the
segments between the frames seen so far are scored, one frame is retrieved from each of the best segments, and the
question is asked again.

Deviations. The paper captions the frames and lets GPT-4 answer, rate its confidence from 1 to 3, and describe in words
which frames are missing from which segments; CLIP then retrieves them. Here nothing is generated: confidence is the
probability of the most likely option, a segment's score is 1 - H/log n of the answer from three of its unseen frames
together, and the frame retrieved is the middle one of the segment. A number of frames is the most that is kept, five
eighths of it in round 0, at most five. Without a number it is 11. The final answer is read from the kept frames at
native size, as for every selector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from gridprobe.backends.base import Posterior
from gridprobe.budget import spread
from gridprobe.question import Question
from gridprobe.selectors.agents import Agent
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import parts_of
from gridprobe.video import FramePool

__all__ = ["VideoAgent"]

START, MOST, ROUNDS = 5, 11, 2
"""Frames of round 0, frames at the end, and rounds after round 0."""
SHOWN = 3
"""Frames of a segment that its score is found from."""


@dataclass(frozen=True)
class VideoAgent(Agent):
    """Look at few frames, and at more where the answer may be."""

    most: int = MOST
    name: ClassVar[str] = "videoagent"

    def first(self, pool: int) -> int:
        """Five eighths of the limit, at most five."""
        return max(1, min(START, self.limit(pool) * START // (START + SHOWN)))

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Rounds of answering and retrieving."""
        seen, limit = list(spread(len(pool), self.first(len(pool)))), self.limit(len(pool))
        asked = self.model.score([self.request(pool, seen, question)])
        for rounds_left in range(ROUNDS, 0, -1):
            if asked[-1].confidence >= self.sure or len(seen) >= limit:
                break
            wanted = -(-(limit - len(seen)) // rounds_left)
            found, more = self._retrieve(pool, seen, question, wanted=wanted)
            seen = sorted([*seen, *found])
            asked += more
            if rounds_left > 1:  # the last round's frames are answered from in the focused pass
                asked += self.model.score([self.request(pool, seen, question)])
        return self.chosen(pool, seen, asked)

    def _retrieve(
        self, pool: FramePool, seen: Sequence[int], question: Question, *, wanted: int
    ) -> tuple[list[int], list[Posterior]]:
        """The middle frames of the best segments; a segment that is taken from again is halved first."""
        segments = [range(a + 1, b) for a, b in pairwise([-1, *seen, len(pool)]) if b - a > 1]
        shown = [[segment[i] for i in spread(len(segment), min(SHOWN, len(segment)))] for segment in segments]
        scores, asked = self.ask_each(pool, shown, question)
        ranked = [segments[i] for i in sorted(range(len(segments)), key=lambda i: (-scores[i], i))]
        found: list[int] = []
        while ranked and len(found) < wanted:
            segment = ranked.pop(0)
            middle = segment[len(segment) // 2]
            found.append(middle)
            ranked += [half for half in (range(segment[0], middle), range(middle + 1, segment[-1] + 1)) if half]
        return found, asked

    def describe(self) -> dict[str, Any]:
        """With its rounds."""
        return {**super().describe(), "start": START, "rounds": ROUNDS, "shown": SHOWN}


def make(argument: str, parts: Parts) -> VideoAgent:
    """The function of the registry."""
    return VideoAgent(**parts_of(parts))
