"""Questions about a script, in ordinary English, with their answers and the intervals that hold the evidence.

Families: needle (the colour of something brief), detail (the digit on it), redundant (the colour of something nearly
always there), negation (what never appears), count, order, holistic (the background on screen longest), and prejudice
(needle about a ring, which is usually red, so that the text alone suggests an answer).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gridprobe.gridworld.wordings import WORDINGS
from gridprobe.gridworld.words import BACKGROUNDS, COLOURS, DIGITS, PREJUDICE, SHAPES, TIMES
from gridprobe.gridworld.world import CELL, NEVER, Worlds
from gridprobe.question import Question

__all__ = ["FAMILIES", "Asked", "ask_about"]


@dataclass(frozen=True)
class Asked:
    """A question, the family it belongs to, and where in the video its evidence is."""

    family: str
    question: Question
    evidence: tuple[tuple[float, float], ...]
    """Intervals of the video, time running from 0 to 1; empty when the whole video is the evidence."""
    objects: tuple[int, ...]
    """The objects whose appearances are the evidence."""
    wording: str
    """Key into `WORDINGS` or `PART_WORDINGS`."""
    hint: tuple[tuple[float, float], ...] = ()
    """Longer intervals around the evidence, if the question names them."""

    @property
    def right(self) -> str:
        """The text of the right option; empty when none is right."""
        return self.question.option(self.question.answer) if self.question.answer else ""


Made = tuple[str, str, str, list[str], tuple[int, ...]]
"""Wording, shape in it, right option, candidate wrong options, evidence objects."""


def _shape(worlds: Worlds, row: int, j: int) -> str:
    return SHAPES[worlds.shape[row, j]]


def _happens(worlds: Worlds, row: int, j: int) -> bool:
    return bool(worlds.start[row, j, 0] < NEVER)


def _colour_of(j: int) -> Callable[[Worlds, int, random.Random], Made]:
    def make(worlds: Worlds, row: int, rng: random.Random) -> Made:
        right = list(COLOURS)[worlds.colour[row, j]]
        return "colour", _shape(worlds, row, j), right, [c for c in COLOURS if c != right], (j,)

    return make


def _needle(worlds: Worlds, row: int, rng: random.Random) -> Made | None:
    choices = [j for j in (2, 3) if _shape(worlds, row, j) != PREJUDICE[0] and _happens(worlds, row, j)]
    return _colour_of(rng.choice(choices))(worlds, row, rng) if choices else None


def _prejudice(worlds: Worlds, row: int, rng: random.Random) -> Made | None:
    choices = [j for j in (2, 3) if _shape(worlds, row, j) == PREJUDICE[0] and _happens(worlds, row, j)]
    return _colour_of(choices[0])(worlds, row, rng) if choices else None


def _redundant(worlds: Worlds, row: int, rng: random.Random) -> Made | None:
    return None if _shape(worlds, row, 0) == PREJUDICE[0] else _colour_of(0)(worlds, row, rng)


def _detail(worlds: Worlds, row: int, rng: random.Random) -> Made | None:
    choices = [j for j in (2, 3) if worlds.digit[row, j] and _happens(worlds, row, j)]
    if not choices:
        return None
    j = rng.choice(choices)
    right = str(worlds.digit[row, j])
    return "digit", _shape(worlds, row, j), right, [d for d in DIGITS if d != right], (j,)


def _negation(worlds: Worlds, row: int, rng: random.Random) -> Made:
    seen = [j for j in range(4) if _happens(worlds, row, j)]
    shapes = [_shape(worlds, row, j) for j in seen]
    right = rng.choice([shape for shape in SHAPES if shape not in shapes])
    return "never", "", right, shapes, tuple(seen)


def _count(worlds: Worlds, row: int, rng: random.Random) -> Made:
    right = TIMES[int((worlds.start[row, 1] < NEVER).sum()) - 1]
    return "count", _shape(worlds, row, 1), right, [word for word in TIMES if word != right], (1,)


def _order(worlds: Worlds, row: int, rng: random.Random) -> Made | None:
    """First, last, after, before: asked only if 144 frames can tell the moments apart."""
    shown = [j for j in (1, 2, 3) if _happens(worlds, row, j)]
    wording = rng.choice(("first", "last", "after", "before"))
    starts = {j: float(worlds.start[row, j].min()) for j in shown}
    ends = {j: float(np.where(worlds.end[row, j] < 2, worlds.end[row, j], -1).max()) for j in shown}
    moment = ends if wording == "last" else starts
    order = sorted(shown, key=lambda j: moment[j])
    gaps = np.diff([moment[j] for j in order])
    if len(shown) < 3 or min(gaps) < 1.5 * CELL:
        return None
    strangers = [name for name in SHAPES if name not in {_shape(worlds, row, j) for j in range(4)}]
    anchor = ""
    if wording in ("after", "before"):
        place = rng.choice((0, 1) if wording == "after" else (1, 2))
        anchor = _shape(worlds, row, order[place])
        answer = order[place + 1] if wording == "after" else order[place - 1]
    else:
        answer = order[0] if wording == "first" else order[-1]
    wrong = [_shape(worlds, row, j) for j in shown if j != answer and _shape(worlds, row, j) != anchor]
    return wording, anchor, _shape(worlds, row, answer), wrong + rng.sample(strangers, 2), tuple(shown)


def _holistic(worlds: Worlds, row: int, rng: random.Random) -> Made:
    right = list(BACKGROUNDS)[int(worlds.take([row]).shares()[0].argmax())]
    return "background", "", right, [name for name in BACKGROUNDS if name != right], ()


FAMILIES: dict[str, Callable[[Worlds, int, random.Random], Made | None]] = {
    "needle": _needle,
    "detail": _detail,
    "redundant": _redundant,
    "negation": _negation,
    "count": _count,
    "order": _order,
    "holistic": _holistic,
    "prejudice": _prejudice,
}


def ask_about(worlds: Worlds, row: int, family: str, rng: random.Random) -> Asked | None:
    """A question of the family about one script; None if the script does not suit the family."""
    made = FAMILIES[family](worlds, row, rng)
    if made is None:
        return None
    wording, shape, right, wrong, objects = made
    count = rng.randint(2, min(7, len(wrong)))
    # A wrong option that appears in the video is harder than one that does not, so those come first and are kept.
    kept = wrong[:2] + rng.sample(wrong[2:], count - 2) if wording in WITNESSED else rng.sample(wrong, count)
    options = [right, *kept]
    rng.shuffle(options)
    text = rng.choice(WORDINGS[wording]).format(shape=shape)
    question = Question(text, options, answer="ABCDEFGH"[options.index(right)])
    evidence = tuple(
        (float(a), float(b))
        for j in objects
        for a, b in zip(worlds.start[row, j], worlds.end[row, j], strict=True)
        if a < 2.0
    )
    return Asked(family, question, evidence, objects, wording)


WITNESSED = ("first", "last")
