"""Where the answer is in the video: the sentence, the stretches of the kept frames, and how bright each frame is drawn.

The picture, the pages and the terminal show the same things in the same order, and take them from here and facts.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gridprobe.answer import Answer
from gridprobe.budget import spread, top
from gridprobe.report.colours import FLOOR, Scale
from gridprobe.report.facts import said_words
from gridprobe.report.words import clock, kept_words, mark_words
from gridprobe.selectors.base import FLAT
from gridprobe.stretches import runs

__all__ = [
    "READING",
    "Span",
    "brightness",
    "is_short",
    "kept_frames",
    "large_frames",
    "large_words",
    "length_of",
    "levels",
    "levels_of",
    "main_spans",
    "sheet_words",
    "spans",
    "where_words",
]

MAIN = (0.5, 0.8)
"""A stretch with a frame of at least this level of importance is a main one; the second limit counts if the first
leaves more than MOST_SPANS."""
MOST_SPANS = 4
"""If still more stretches matter, no moment stands out."""
DIMMEST, DIM = 0.3, 0.65
"""Brightness of a frame that was not kept, from the least to the most important one."""
PLAIN_DIM = 0.45
"""The same without a map."""
SHORT = 60.0
"""Videos of fewer seconds get times with tenths."""
READING = "Time runs left to right, row by row."


class Span(NamedTuple):
    """Kept frames that are neighbours."""

    start: float
    end: float
    indices: tuple[int, ...]
    """Their positions in the pool."""
    tenths: bool = False
    """Whether its times are written with tenths of a second."""

    @property
    def words(self) -> str:
        """For example "2:40–2:44", or "2:40" for a single frame."""
        first, last = (clock(time, tenths=self.tenths) for time in (self.start, self.end))
        return first if first == last else f"{first}–{last}"


def kept_frames(answer: Answer) -> tuple[int, ...]:
    """Positions of the frames that the selection points at: none of an overview without a map, and none of all."""
    selection = answer.selection
    if selection.kept == selection.pool or (answer.reached.by == "overview" and selection.evidence is None):
        return ()
    return selection.indices


def spans(answer: Answer) -> list[Span]:
    """The stretches of kept frames, in time order."""
    times = answer.pool.times
    found = [Span(times[run[0]], times[run[-1]], run) for run in runs(times, kept_frames(answer))]
    same = len({span.words for span in found}) < len(found)
    return [span._replace(tenths=True) for span in found] if same or is_short(answer) else found


def is_short(answer: Answer) -> bool:
    """Whether the video is so short that whole seconds do not tell its frames apart."""
    return length_of(answer) < SHORT


def levels(answer: Answer) -> list[float] | None:
    """Importance of every frame from 0 to 1; None without scores."""
    return levels_of(answer.selection.scores)


def levels_of(scores: Sequence[float] | None) -> list[float] | None:
    """These scores from 0 to 1; None without scores."""
    if scores is None:
        return None
    scale = Scale.over(scores)
    return [float(scale.level(score)) for score in scores]


def main_spans(answer: Answer) -> list[Span]:
    """The stretches with important frames; empty if no moment stands out."""
    found, known = spans(answer), levels(answer)
    if known is None or _is_flat(answer):
        return []
    highest = {span: max(known[i] for i in span.indices) for span in found}
    main = ([span for span in found if highest[span] >= limit] for limit in MAIN)
    return next((some for some in main if len(some) <= MOST_SPANS), [])


def _is_flat(answer: Answer) -> bool:
    scores = answer.selection.scores or (0.0,)
    return FLAT in answer.selection.notes or max(scores) - min(scores) <= FLOOR * max(map(abs, scores))


def sentence(answer: Answer) -> str:
    """For example "cyan: seen at 2:40–2:44, in 2 of 144 frames"."""
    return f"{said_words(answer)}: {where_words(answer)}"


def where_words(answer: Answer) -> str:
    """For example "seen at 2:40–2:44, in 2 of 144 frames"."""
    selection, main = answer.selection, main_spans(answer)
    moments = _listed([span.words for span in main])
    overview = answer.reached.by == "overview"
    if overview and main and selection.evidence is not None and selection.evidence.kind == "evidence":
        return f"seen {'at' if main == spans(answer) else 'mainly at'} {moments}, in {kept_words(selection)}"
    if overview or selection.kept == selection.pool:
        read = f"read from all {selection.pool} frames" if selection.pool > 1 else "read from the only frame"
    else:
        read = f"read from {kept_words(selection)}"
    if main:
        return f"{read}, {'at' if main == spans(answer) and not overview else 'mainly at'} {moments}"
    return f"{read}; no moment stands out" if selection.scores is not None else f"{read}{_range(answer)}"


def _range(answer: Answer) -> str:
    """From where to where frames were kept, for selectors that do not say which matter."""
    kept = kept_frames(answer)
    if not kept:
        return ""
    times = answer.pool.times
    first, last = (clock(times[index], tenths=is_short(answer)) for index in (kept[0], kept[-1]))
    return f", between {first} and {last}" if len(kept) > 1 else f", at {first}"


def _listed(items: Sequence[str]) -> str:
    """For example "2:40, 3:10 and 5:00"."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def large_frames(answer: Answer, most: int) -> tuple[int, ...]:
    """The kept frames to show large, in time order: of more than `most` the most important, or an even sample."""
    kept, known = kept_frames(answer), levels(answer)
    if not kept and answer.reached.by != "overview":
        kept = answer.selection.indices
    if len(kept) <= most:
        return kept
    chosen = spread(len(kept), most) if known is None else top(np.array([known[i] for i in kept]), most)
    return tuple(kept[place] for place in chosen)


def large_words(answer: Answer, most: int) -> str:
    """Which of the kept frames are shown large; empty if all are."""
    shown, kept = len(large_frames(answer, most)), answer.selection.kept
    if shown in (0, kept):
        return ""
    return f"{shown} of {kept} frames, " + ("evenly spaced" if levels(answer) is None else "the most important")


def brightness(answer: Answer) -> list[float]:
    """How bright each frame is drawn, from 0 to 1: kept frames wholly, others by their importance."""
    kept, known = set(kept_frames(answer)), levels(answer)
    if not kept:
        return [1.0] * answer.selection.pool
    dimmed = [PLAIN_DIM] * answer.selection.pool if known is None else [DIMMEST + (DIM - DIMMEST) * x for x in known]
    return [1.0 if i in kept else share for i, share in enumerate(dimmed)]


def length_of(answer: Answer) -> float:
    """The end of the timeline, in seconds."""
    info, last = answer.pool.info, answer.pool.times[-1]
    return max(last, info.duration or 0.0 if info else 0.0) or 1.0


def sheet_words(answer: Answer) -> str:
    """How a contact sheet is read, and what brightness and frames mean on it."""
    if not kept_frames(answer):
        return f"{READING} No frame was preferred."
    others = "dark: not kept" if answer.selection.scores is None else "the darker, the less important"
    return f"{READING} Framed: {mark_words(answer)}; {others}."
