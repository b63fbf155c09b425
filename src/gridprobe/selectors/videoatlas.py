"""VideoAtlas (arXiv:2603.17948): the video as a grid of contact sheets, which the model descends into.

The pool is divided into 16 spans. Each is shown to the model as one contact sheet, by itself, and its score is
1 - H/log n for the entropy H of the n options. The three best spans are divided again, until a span is one frame. The
frames of the deepest spans rank first, then those with the highest score.

Deviations. The paper's master and workers are agents that write a search task, call tools (expand, go back, zoom, mark)
and keep notes; its sheets have 8×8 cells of 336 pixels, and it samples the video itself ever more densely. Here nothing
is generated: posteriors score the spans, the descent is a beam search, it ends at the frames of the pool, and a sheet
has the cells that its span has frames, at most 8×8, at the size of the probes. There is no notebook of explored spans,
and no check whether the evidence suffices. The embedded models were never trained on contact sheets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gridprobe.backends.base import MAX_SHEET, FrameGroup, Posterior, ScoreRequest
from gridprobe.budget import spread
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.by_model import ByModel, certainty, parts_of
from gridprobe.video import FramePool

__all__ = ["VideoAtlas"]

BRANCHES = 16
"""Spans that a span is divided into."""
BEAM = 3
"""Spans that are divided again."""
FLAT = 1e-6
"""Spans whose scores differ by no more than this are equal, and none is divided."""


@dataclass(frozen=True)
class VideoAtlas(ByModel):
    """Descend from the whole video to single frames."""

    name: ClassVar[str] = "videoatlas"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Score spans, level by level."""
        found = [(0, 0.0)] * len(pool)  # level and score of the smallest span that each frame was seen in
        asked: list[Posterior] = []
        level, spans = 0, [range(len(pool))]
        while spans:
            level += 1
            parts = [part for span in spans for part in _divided(span)]
            answers = self.model.score([self._sheet(pool, part, question) for part in parts])
            scores = [certainty(each.probabilities) for each in answers]
            asked += answers
            for part, score in zip(parts, scores, strict=True):
                for frame in part:
                    found[frame] = (level, score)
            if max(scores) - min(scores) <= FLAT:  # no part of the video is better than another
                break
            ranked = sorted(range(len(parts)), key=lambda i: (-scores[i], i))
            spans = [parts[i] for i in ranked if len(parts[i]) > 1][:BEAM]
        return self.selected(pool, [(at - 1 + score) / level for at, score in found], asked, kind="descent")

    def _sheet(self, pool: FramePool, span: Sequence[int], question: Question) -> ScoreRequest:
        """The question about one contact sheet of a span."""
        shown = [span[i] for i in spread(len(span), min(len(span), MAX_SHEET**2))]
        side = math.isqrt(len(shown) - 1) + 1
        view = replace(self.small_view, packing="single", sheet=side)
        groups = (FrameGroup(pool.take(shown), view),)
        return ScoreRequest.about(question, groups, prompt_order=self.prompt_order, again=self.again)

    def describe(self) -> dict[str, Any]:
        """With the numbers of the descent."""
        return {**super().describe(), "branches": BRANCHES, "beam": BEAM}


def _divided(span: range) -> list[range]:
    """Up to 16 parts of nearly equal length."""
    count = min(BRANCHES, len(span))
    return [range(span[0] + i * len(span) // count, span[0] + (i + 1) * len(span) // count) for i in range(count)]


def make(argument: str, parts: Parts) -> VideoAtlas:
    """The function of the registry."""
    return VideoAtlas(**parts_of(parts))
