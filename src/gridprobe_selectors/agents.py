"""Selectors that ask the model about frames: about each alone, or as agents that look in rounds until they are sure."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

from gridprobe.errors import UsageError
from gridprobe.importance import Fixed, spread
from gridprobe.models.base import MAX_SHEET, Choose, FrameGroup, Posterior, Request, choose
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection
from gridprobe.selectors.gridprobe import ByModel, certainty, parts_of
from gridprobe.video import FramePool

# FRAG (Huang et al. 2025, arXiv:2504.17447): ask about each frame alone whether it holds what the question needs.
#
# The score of a frame is the probability of "yes" among all tokens; the frames with the highest scores are kept.
#
# Deviations. The wording is ours. The pool is the K² frames of gridprobe (the paper: 256), shown at the size of the
# probes; the number of kept frames is the budget's (the paper: 32). All frames are asked in one batch. Adjacent pairs
# and the CLIP scorer of the paper's code are not here. The embedded models were never trained on questions with "yes"
# and "no": they guess, and the answer carries a warning.

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
        answers = self.ask_needed(pool, question)
        scores = [min(1.0, each.mass * each.probabilities[YES]) for each in answers]
        return self.selected(pool, scores, answers, kind="needed")

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


# Training-free Uncertainty Guidance (arXiv:2510.00705): frames from which the answer has a low entropy are evidence.
#
# The question is asked about each window of consecutive frames by itself. The score of a frame is 1 - H/log n for the
# entropy H of the n options in its window. The default window is one frame; `uncertainty:4` takes windows of four.
#
# Deviations. The entropy is that of the option letters, not of generated text. Windows do not overlap, and the frames
# of a window share its score. The pool, the size of the frames and the number of kept frames are gridprobe's. The
# paper's code was not read, so its search strategies for images and for temporal grounding are not here.

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
        sure, answers = self.ask_each(pool, windows, question)
        scores = [sure[place // self.window] for place in range(len(pool))]
        selection = self.selected(pool, scores, answers, kind="certainty")
        return replace(selection, probes=tuple(answers), notes=()) if self.window == 1 else selection

    @classmethod
    def make(cls, argument: str, parts: Parts) -> "Uncertainty":
        """From "uncertainty" or "uncertainty:WINDOW"."""
        if argument and not (argument.isascii() and argument.isdigit() and int(argument) >= 1):
            raise UsageError(f"a window has a whole number of frames, 1 or more, as in uncertainty:4, got {argument!r}")
        return cls(**parts_of(parts), window=int(argument) if argument else WINDOW)

    def describe(self) -> dict[str, Any]:
        """With the window."""
        return {**super().describe(), "window": self.window}


# Agents: how many frames they may see, and when they stop.

SURE = 0.9
"""The confidence at which an agent stops looking."""


@dataclass(frozen=True)
class Agent(ByModel):
    """A selector that looks in rounds until it is sure. A fixed number of frames is the most that it keeps."""

    sure: float = SURE
    most: int = 8
    """The most frames it keeps if the budget gives no number."""

    def limit(self, pool: int) -> int:
        """The most frames it keeps of a pool."""
        return min(pool, self.budget.frames if isinstance(self.budget, Fixed) else self.most)

    def first(self, pool: int) -> int:
        """How many frames it keeps at least: those of its first round."""
        return 1

    def bounds(self, pool: int) -> tuple[int, int]:
        """From the frames of the first round to the limit."""
        return self.first(pool), self.limit(pool)

    def describe(self) -> dict[str, Any]:
        """With its own limits in place of a budget's rule, which it does not use."""
        number = self.budget.frames if isinstance(self.budget, Fixed) else self.most
        return {**super().describe(), "budget": {"name": "at most", "frames": number}, "sure": self.sure}


def farthest(pool: int, seen: Collection[int], count: int) -> list[int]:
    """Positions, each as far as possible from those before it and those seen; without any, the middle first."""
    chosen: list[int] = [] if seen else [pool // 2]
    while len(chosen) < count and len(chosen) + len(seen) < pool:
        used = [*seen, *chosen]
        others = (i for i in range(pool) if i not in used)
        chosen.append(max(others, key=lambda i: (min(abs(i - other) for other in used), -i)))
    return chosen


# VideoAgent (Wang et al. 2024, arXiv:2403.10517): answer from few frames; while not sure, retrieve more of them.
#
# Round 0 answers from five evenly spaced frames. While the answer's confidence is below 0.9, and at most twice more,
# the segments between the frames seen so far are scored, one frame is retrieved from each of the best segments, and the
# question is asked again.
#
# Deviations. The paper captions the frames and lets GPT-4 answer, rate its confidence from 1 to 3, and describe in
# words which frames are missing from which segments; CLIP then retrieves them. Here nothing is generated: confidence is
# the probability of the most likely option, a segment's score is 1 - H/log n of the answer from three of its unseen
# frames together, and the frame retrieved is the middle one of the segment. A number of frames is the most that is
# kept, five eighths of it in round 0, at most five. Without a number it is 11. The final answer is read from the kept
# frames at full size, as for every selector.

START, VIDEOAGENT_MOST, ROUNDS = 5, 11, 2
"""Frames of round 0, frames at the end, and rounds after round 0."""
SHOWN = 3
"""Frames of a segment that its score is found from."""


@dataclass(frozen=True)
class VideoAgent(Agent):
    """Look at few frames, and at more where the answer may be."""

    most: int = VIDEOAGENT_MOST
    name: ClassVar[str] = "videoagent"

    def first(self, pool: int) -> int:
        """Five eighths of the limit, at most five."""
        return max(1, min(START, self.limit(pool) * START // (START + SHOWN)))

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Rounds of answering and retrieving."""
        seen, limit = list(spread(len(pool), self.first(len(pool)))), self.limit(len(pool))
        answers = choose(self.model, [self.request(pool, seen, question)])
        for rounds_left in range(ROUNDS, 0, -1):
            if answers[-1].confidence >= self.sure or len(seen) >= limit:
                break
            wanted = -(-(limit - len(seen)) // rounds_left)
            frames, more = self._retrieve(pool, seen, question, wanted=wanted)
            seen = sorted([*seen, *frames])
            answers += more
            if rounds_left > 1:  # the last round's frames are answered from in the focused pass
                answers += choose(self.model, [self.request(pool, seen, question)])
        return self.chosen(pool, seen, answers)

    def _retrieve(
        self, pool: FramePool, seen: Sequence[int], question: Question, *, wanted: int
    ) -> tuple[list[int], list[Posterior]]:
        """The middle frames of the best segments; a segment that is taken from again is halved first."""
        segments = [range(a + 1, b) for a, b in pairwise([-1, *seen, len(pool)]) if b - a > 1]
        shown = [[segment[i] for i in spread(len(segment), min(SHOWN, len(segment)))] for segment in segments]
        scores, answers = self.ask_each(pool, shown, question)
        ranked = [segments[i] for i in sorted(range(len(segments)), key=lambda i: (-scores[i], i))]
        frames: list[int] = []
        while ranked and len(frames) < wanted:
            segment = ranked.pop(0)
            middle = segment[len(segment) // 2]
            frames.append(middle)
            ranked += [half for half in (range(segment[0], middle), range(middle + 1, segment[-1] + 1)) if half]
        return frames, answers

    def describe(self) -> dict[str, Any]:
        """With its rounds."""
        return {**super().describe(), "start": START, "rounds": ROUNDS, "shown": SHOWN}


# VideoAtlas (arXiv:2603.17948): the video as a grid of contact sheets, which the model descends into.
#
# The pool is divided into 16 spans. Each is shown to the model as one contact sheet, by itself, and its score is 1 -
# H/log n for the entropy H of the n options. The three best spans are divided again, until a span is one frame. The
# frames of the deepest spans rank first, then those with the highest score.
#
# Deviations. The paper's master and workers are agents that write a search task, call tools (expand, go back, zoom,
# mark) and keep notes; its sheets have 8×8 cells of 336 pixels, and it samples the video itself ever more densely. Here
# nothing is generated: posteriors score the spans, the descent is a beam search, it ends at the frames of the pool, and
# a sheet has the cells that its span has frames, at most 8×8, at the size of the probes. There is no notebook of
# explored spans, and no check whether the evidence suffices. The embedded models were never trained on contact sheets.

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
        levels = [(0, 0.0)] * len(pool)  # level and score of the smallest span that each frame was seen in
        posteriors: list[Posterior] = []
        level, spans = 0, [range(len(pool))]
        while spans:
            level += 1
            parts = [part for span in spans for part in _divided(span)]
            answers = choose(self.model, [self._sheet(pool, part, question) for part in parts])
            scores = [certainty(each.probabilities) for each in answers]
            posteriors += answers
            for part, score in zip(parts, scores, strict=True):
                for frame in part:
                    levels[frame] = (level, score)
            if max(scores) - min(scores) <= FLAT:  # no part of the video is better than another
                break
            ranked = sorted(range(len(parts)), key=lambda i: (-scores[i], i))
            spans = [parts[i] for i in ranked if len(parts[i]) > 1][:BEAM]
        return self.selected(pool, [(at - 1 + score) / level for at, score in levels], posteriors, kind="descent")

    def _sheet(self, pool: FramePool, span: Sequence[int], question: Question) -> Request:
        """The question about one contact sheet of a span."""
        shown = [span[i] for i in spread(len(span), min(len(span), MAX_SHEET**2))]
        side = math.isqrt(len(shown) - 1) + 1
        view = replace(self.small_view, packing="single", sheet=side)
        groups = (FrameGroup(pool.take(shown), view),)
        return Request.about(question, groups, prompt_order=self.prompt_order, keep_kv=self.keep_kv)

    def describe(self) -> dict[str, Any]:
        """With the numbers of the descent."""
        return {**super().describe(), "branches": BRANCHES, "beam": BEAM}


def _divided(span: range) -> list[range]:
    """Up to 16 parts of nearly equal length."""
    count = min(BRANCHES, len(span))
    return [range(span[0] + i * len(span) // count, span[0] + (i + 1) * len(span) // count) for i in range(count)]


# AVUA (Jeoung et al. 2024, arXiv:2410.20252): a policy for the type of question, then frames are accessed in rounds.
#
# There is no public code, and the paper's policies, its memory and its refiner are texts that a language model writes.
# We take from it what it defines without them: the type of question decides the policy, frames are accessed a few at a
# time, what was seen is remembered, and the agent stops when it is sure.
#
# Deviations. The type is found by words of the question (`question_type`), not by a language model. "spread" accesses
# frames far from all seen ones, for questions about counts, order, absence or the whole video. "search" accesses frames
# next to the most certain one in every second place, if it stands out by 0.1, for all other questions. The short-term
# memory is the certainty of each new frame by itself, the long-term memory all seen frames in one pass, whose
# confidence ends the rounds at 0.9. A number of frames is the most that is kept; without one it is 8. There is no
# verbal feedback. The final answer is read from the kept frames at full size, as for every selector.

ROUND = 3
"""Frames that are accessed in one round."""
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
    types = (name for name, words in WORDS.items() if re.search(rf"\b({words})\b", text.casefold()))
    return next(types, "local")


@dataclass(frozen=True)
class Avua(Agent):
    """Access frames by a policy until the model is sure."""

    name: ClassVar[str] = "avua"

    def first(self, pool: int) -> int:
        """The frames of one round."""
        return min(ROUND, self.limit(pool))

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Rounds of accessing frames and remembering them."""
        policy: Literal["search", "spread"] = "search" if question_type(question.text) == "local" else "spread"
        limit = self.limit(len(pool))
        seen: dict[int, float] = {}
        answers: list[Posterior] = []
        while len(seen) < limit:
            new = sorted(_access(len(pool), seen, min(ROUND, limit - len(seen)), policy=policy))
            scores, alone = self.ask_each(pool, [[i] for i in new], question)
            seen |= dict(zip(new, scores, strict=True))
            answers += [*alone, *choose(self.model, [self.request(pool, sorted(seen), question)])]
            if answers[-1].confidence >= self.sure:
                break
        return self.chosen(pool, list(seen), answers)

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
        used = {*seen, *chosen}
        near = min((i for i in range(pool) if i not in used), key=lambda i: (abs(i - best), i))
        chosen += [near] if len(chosen) % 2 == 0 else farthest(pool, used, 1)
    return chosen
