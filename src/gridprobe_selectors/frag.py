"""FRAG (Huang et al. 2025, arXiv:2504.17447): ask about each frame alone whether it holds what the question needs.

The score of a frame is the probability of "yes" among all tokens; the frames with the highest scores are kept.

Deviations. The wording is ours. The pool is the K² frames of gridprobe (the paper: 256), shown at the size of the
probes; the number of kept frames is the budget's (the paper: 32). All frames are asked in one batch. Adjacent pairs and
the CLIP scorer of the paper's code are not here. The embedded models were never trained on questions with "yes" and
"no": they guess, and the answer carries a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gridprobe.errors import UsageError
from gridprobe.models.base import Choose, FrameGroup, Posterior, Request, choose
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import ByModel, parts_of
from gridprobe.video import FramePool

__all__ = ["Frag", "Uncertainty", "needed_prompt"]

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
            Request(
                prompt,
                Choose((YES, NO)),
                (FrameGroup(pool.take([i]), self.small_view),),
                self.prompt_order,
                keep_kv=self.keep_kv,
            )
            for i in range(len(pool))
        ]
        return choose(self.model, requests)


def make(argument: str, parts: Parts) -> Frag:
    """The function of the registry."""
    return Frag(**parts_of(parts))


# Training-free Uncertainty Guidance (arXiv:2510.00705): frames from which the answer has a low entropy are evidence.
#
# The question is asked about each window of consecutive frames by itself. The score of a frame is 1 - H/log n for the
# entropy H of the n options in its window. The default window is one frame; `uncertainty:4` takes windows of four.
#
# Deviations. The entropy is that of the option letters, not of generated text. Windows do not overlap, and the frames
# of
# a window share its score. The pool, the size of the frames and the number of kept frames are gridprobe's. The paper's
# code was not read, so its search strategies for images and for temporal grounding are not here.

WINDOW = 1
"""Frames that are asked about together."""


@dataclass(frozen=True)
class Uncertainty(ByModel):
    """Keep the frames from which the model is least uncertain."""

    window: int = WINDOW
    name: ClassVar[str] = "uncertainty"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Ask about every window by itself."""
        starts = range(0, len(pool), self.window)
        windows = [range(start, min(start + self.window, len(pool))) for start in starts]
        sure, asked = self.ask_each(pool, windows, question)
        scores = [sure[place // self.window] for place in range(len(pool))]
        found = self.selected(pool, scores, asked, kind="certainty")
        return replace(found, probes=tuple(asked), notes=()) if self.window == 1 else found

    def describe(self) -> dict[str, Any]:
        """With the window."""
        return {**super().describe(), "window": self.window}


def make_uncertainty(argument: str, parts: Parts) -> Uncertainty:
    """The function of the registry, for "uncertainty" or "uncertainty:WINDOW"."""
    good = argument.isascii() and argument.isdigit() and int(argument) >= 1
    if argument and not good:
        raise UsageError(f"a window has a whole number of frames of at least 1, as in uncertainty:4, got {argument!r}")
    return Uncertainty(**parts_of(parts), window=int(argument) if argument else WINDOW)
