"""Training-free Uncertainty Guidance (arXiv:2510.00705): frames from which the answer has a low entropy are evidence.

The question is asked about each window of consecutive frames by itself. The score of a frame is 1 - H/log n for the
entropy H of the n options in its window. The default window is one frame; `uncertainty:4` takes windows of four.

Deviations. The entropy is that of the option letters, not of generated text. Windows do not overlap, and the frames of
a window share its score. The pool, the size of the frames and the number of kept frames are gridprobe's. The paper's
code was not read, so its search strategies for images and for temporal grounding are not here.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gridprobe.errors import UsageError
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import ByModel, parts_of
from gridprobe.video import FramePool

__all__ = ["Uncertainty"]

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


def make(argument: str, parts: Parts) -> Uncertainty:
    """The function of the registry, for "uncertainty" or "uncertainty:WINDOW"."""
    good = argument.isascii() and argument.isdigit() and int(argument) >= 1
    if argument and not good:
        raise UsageError(f"a window has a whole number of frames of at least 1, as in uncertainty:4, got {argument!r}")
    return Uncertainty(**parts_of(parts), window=int(argument) if argument else WINDOW)
