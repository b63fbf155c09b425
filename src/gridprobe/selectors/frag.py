"""FRAG (Huang et al. 2025, arXiv:2504.17447): ask about each frame alone whether it holds what the question needs.

The score of a frame is the probability of "yes" among all tokens; the frames with the highest scores are kept.

Deviations. The wording is ours. The pool is the K² frames of gridprobe (the paper: 256), shown at the size of the
probes; the number of kept frames is the budget's (the paper: 32). All frames are asked in one batch. Adjacent pairs and
the CLIP scorer of the paper's code are not here. The embedded models were never trained on questions with "yes" and
"no": they guess, and the answer carries a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gridprobe.backends.base import FrameGroup, Posterior, ScoreRequest
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import ByModel, parts_of
from gridprobe.video import FramePool

__all__ = ["Frag", "needed_prompt"]

YES, NO = "A", "B"


def needed_prompt(question: Question) -> str:
    """The text that is shown after a frame."""
    options = "; ".join(" ".join(option.split()) for option in question.options)
    return (
        f"This is one frame of a video. A question about the video: {question.text}\nPossible answers: {options}\n"
        "Does this frame show something that is needed to answer the question?\n"
        f"{YES}. yes\n{NO}. no\nAnswer with the option's letter from the given choices directly."
    )


@dataclass(frozen=True)
class Frag(ByModel):
    """Keep the frames of which the model says that they are needed."""

    name: ClassVar[str] = "frag"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Ask about every frame by itself."""
        asked = self.ask_needed(pool, question)
        scores = [min(1.0, each.mass * each.probabilities[YES]) for each in asked]
        return self.selected(pool, scores, asked, kind="needed")

    def ask_needed(self, pool: FramePool, question: Question) -> Sequence[Posterior]:
        """Yes or no for each frame."""
        prompt = needed_prompt(question)
        requests = [
            ScoreRequest(
                prompt, (YES, NO), (FrameGroup(pool.take([i]), self.small_view),), self.prompt_order, again=self.again
            )
            for i in range(len(pool))
        ]
        return self.model.score(requests)


def make(argument: str, parts: Parts) -> Frag:
    """The function of the registry."""
    return Frag(**parts_of(parts))
