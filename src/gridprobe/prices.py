"""What the stages of a question may take, before they are computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gridprobe.backends.base import FrameGroup, ScoreRequest, View
from gridprobe.backends.metered import Claim, Metered
from gridprobe.drafting import CANDIDATES, PHRASE, SAMPLES, SENTENCES, remembered
from gridprobe.given import Given, Thinned
from gridprobe.prompts import describes
from gridprobe.question import Question
from gridprobe.rotations import rotations_of
from gridprobe.selectors import Selection
from gridprobe.setup import Setup
from gridprobe.stages import focus_request, in_order, others_of
from gridprobe.video import Footage, FramePool, FrameSize, Pending

__all__ = ["Prices", "Source"]

Source = Footage | Given | Thinned
OPTION_TOKENS = 8
"""Tokens of an option beside its text, roughly."""
INSTRUCTION_TOKENS = 64
"""More tokens than the instruction for options has beyond that of an open question."""
FILLER = " word"
"""At least one token, for any tokenizer and by any rule of thumb."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of one question about one video; frames are not decoded for them."""

    setup: Setup
    """With metered models."""
    footage: Source
    question: Question
    pool_size: FrameSize
    """The size that the pool is decoded at."""
    frame_seconds: float = 0.0
    """How long it takes to decode a frame."""

    def overview(self, view: View, places: Sequence[int]) -> Claim:
        """All frames, or those at some places, in one pass."""
        frames = self._frames(places, self.pool_size)
        group = (FrameGroup(frames, view),)
        return self._asking(self.setup.model, lambda question: ScoreRequest.about(question, group))

    def focus(self, selection: Selection) -> Claim:
        """The focused pass from a selection."""
        setup = self.setup
        kept = self._frames(in_order(selection, setup), setup.size_of(setup.shown, selection.kept))
        others = others_of(selection, kept, setup, get=self._frames)
        show = partial(focus_request, kept, setup=setup, others=others)
        found = self._asking(setup.answerer, show)
        return found + Claim(seconds=self.frame_seconds * (len(kept) + sum(len(each.frames) for each in others)))

    def _frames(self, places: Sequence[int], size: FrameSize) -> FramePool:
        pool = self.footage.undecoded(size)
        if not isinstance(pool.data, Pending):  # frames in memory would be copied
            pixels = pool.data
            pool = replace(pool, data=Pending(lambda rows: pixels[list(rows)], pixels.shape))
        return pool.take(places)

    def _asking(self, model: object, show: Callable[[Question], ScoreRequest]) -> Claim:
        """What asking a model may take, in all orders of the options; an open question is drafted first."""
        assert isinstance(model, Metered)
        question, setup = self.question, self.setup
        if question.open:
            return self._drafting(model, show)
        requests = rotations_of(show(question), question, rotations=setup.rotations)
        return sum((model.claim(each, model.estimate(each)) for each in requests), Claim())

    def _drafting(self, model: Metered, show: Callable[[Question], ScoreRequest]) -> Claim:
        """What writing drafts, and choosing among them, may take, if all are as long as they may be."""
        long, way = describes(self.question.text), self.setup.open_way
        limit = SENTENCES if long else PHRASE
        request = show(self.question)
        again = remembered(model, request)
        claim = model.claim(request, model.most_for_texts(request, [limit]))
        costs = []
        if not long and way != "text":
            costs.append(model.most_for_texts(again, [limit] * SAMPLES))
        if not long and way == "drafts":
            tokens = CANDIDATES * (limit + OPTION_TOKENS) + INSTRUCTION_TOKENS
            longer = replace(again, prompt=again.prompt + FILLER * tokens)
            costs += [model.estimate(longer)] * self.setup.rotations
        return sum((model.claim(again, cost) for cost in costs), claim)
