"""Questions of the harder parts, with their answers, the intervals that hold the evidence, and hints where it is.

| part | family | asks for |
|---|---|---|
| fine | pattern, print | the fine lines, or the small digit, on a plate |
| brief | flash-colour, flash-shape | the colour or shape of what flashes up while a marker is on screen |
| crowded | companion, ordinal | the colour or digit of the look-alike beside another object, or of the n-th one |
| unanswerable | absent | a shape that never appears; the option "not shown" is right |
| | present | a shape that does appear; "not shown" is among the options and wrong |
| | no-option | a shape that never appears, without such an option: no answer is right, and `answer` is None |
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gridprobe.gridworld.parts import Part
from gridprobe.gridworld.questions import Asked
from gridprobe.gridworld.wordings import PART_WORDINGS, WORDINGS
from gridprobe.gridworld.words import COLOURS, DIGITS, NOT_SHOWN, ORDINALS, PATTERNS, SHAPES
from gridprobe.gridworld.world import NEVER, Worlds
from gridprobe.question import Question

__all__ = ["PART_FAMILIES", "ask_part", "offer_not_shown"]


@dataclass(frozen=True)
class Draft:
    """What a family asks, before the options are chosen."""

    wording: str
    shape: str
    right: str | None
    wrong: Sequence[str]
    """Candidates; the first two are preferred when `witnessed`."""
    objects: tuple[int, ...] = ()
    other: str = ""
    witnessed: bool = False
    hint: tuple[int, ...] = ()
    """The objects that are on screen together with the evidence."""
    unseen: str = ""
    """The option that says that nothing is shown, if there is one."""


def _shape(worlds: Worlds, row: int, j: int) -> str:
    return SHAPES[int(worlds.shape[row, j])]


def _colour(worlds: Worlds, row: int, j: int) -> str:
    return list(COLOURS)[int(worlds.colour[row, j])]


def _others(words: Sequence[str], right: str) -> list[str]:
    return [word for word in words if word != right]


def _pattern(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    j = rng.choice(np.flatnonzero(worlds.pattern[row]).tolist())
    right = PATTERNS[worlds.pattern[row, j] - 1]
    return Draft("pattern", _shape(worlds, row, j), right, _others(PATTERNS, right), (j,))


def _print(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    j = rng.choice(np.flatnonzero(worlds.digit[row]).tolist())
    right = str(worlds.digit[row, j])
    return Draft("print", _shape(worlds, row, j), right, _others(DIGITS, right), (j,))


def _flash_colour(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    marker = rng.choice((2, 4))
    flash, right = marker + 1, _colour(worlds, row, marker + 1)
    wrong, other = _others(list(COLOURS), right), _shape(worlds, row, marker)
    return Draft("flash-colour", _shape(worlds, row, flash), right, wrong, (flash,), other, hint=(marker,))


def _flash_shape(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    marker = rng.choice((2, 4))
    right, other = _shape(worlds, row, marker + 1), _shape(worlds, row, marker)
    # An object that is on screen at the same time for longer could also count as right, so it is no option.
    wrong = _others([name for name in SHAPES if name not in (other, _shape(worlds, row, 0))], right)
    return Draft("flash-shape", "", right, wrong, (marker + 1,), other, hint=(marker,))


def _look_alike(
    worlds: Worlds, row: int, rng: random.Random, *, kind: str, target: int, other: str, objects: tuple[int, ...]
) -> Draft:
    """The colour or digit of one of the look-alikes; those of the others are among the options."""
    shape, rivals = _shape(worlds, row, target), [j for j in (1, 2, 3) if j != target]
    rng.shuffle(rivals)
    if worlds.digit[row, target] and rng.random() < 0.5:
        words, wording, values = list(DIGITS), f"{kind}-digit", worlds.digit[row] - 1
    else:
        words, wording, values = list(COLOURS), f"{kind}-colour", worlds.colour[row]
    right, seen = words[values[target]], [words[values[j]] for j in rivals]
    wrong = [*seen, *(word for word in words if word not in (right, *seen))]
    return Draft(wording, shape, right, wrong, objects, other, witnessed=True)


def _companion(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    anchor = rng.choice((4, 5))
    start, end = worlds.start[row, :, 0], worlds.end[row, :, 0]
    target = next(j for j in (1, 2, 3) if start[j] < end[anchor] and start[anchor] < end[j])
    other = _shape(worlds, row, anchor)
    return _look_alike(worlds, row, rng, kind="companion", target=target, other=other, objects=(target,))


def _ordinal(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    order = sorted((1, 2, 3), key=lambda j: float(worlds.start[row, j, 0]))
    place = rng.randrange(3)
    earlier = tuple(order[: place + 1])
    return _look_alike(worlds, row, rng, kind="ordinal", target=order[place], other=ORDINALS[place], objects=earlier)


def _missing(worlds: Worlds, row: int, rng: random.Random) -> tuple[str, str, tuple[str, ...]]:
    """A wording, a shape that never appears, and possible answers."""
    shown = {_shape(worlds, row, int(j)) for j in np.flatnonzero(worlds.start[row, :, 0] < NEVER)}
    shape = rng.choice([name for name in SHAPES if name not in shown])
    choices: list[tuple[str, tuple[str, ...]]] = [("colour", tuple(COLOURS)), ("digit", DIGITS)]
    if worlds.pattern[row].any():
        choices = [("pattern", PATTERNS), ("print", DIGITS), ("colour", tuple(COLOURS))]
    wording, words = rng.choice(choices)
    return wording, shape, words


def _absent(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    wording, shape, words = _missing(worlds, row, rng)
    return Draft(wording, shape, rng.choice(NOT_SHOWN), words)


def _no_option(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    wording, shape, words = _missing(worlds, row, rng)
    return Draft(wording, shape, None, words)


def _present(worlds: Worlds, row: int, rng: random.Random) -> Draft:
    j = rng.choice((2, 3))
    shape, unseen = _shape(worlds, row, j), rng.choice(NOT_SHOWN)
    if worlds.digit[row, j] and rng.random() < 0.5:
        right = str(worlds.digit[row, j])
        return Draft("digit", shape, right, _others(DIGITS, right), (j,), unseen=unseen)
    right = _colour(worlds, row, j)
    return Draft("colour", shape, right, _others(list(COLOURS), right), (j,), unseen=unseen)


Maker = Callable[[Worlds, int, random.Random], Draft]

PART_FAMILIES: dict[Part, dict[str, Maker]] = {
    "fine": {"pattern": _pattern, "print": _print},
    "brief": {"flash-colour": _flash_colour, "flash-shape": _flash_shape},
    "crowded": {"companion": _companion, "ordinal": _ordinal},
    "unanswerable": {"absent": _absent, "present": _present, "no-option": _no_option},
}
MAKERS: dict[str, Maker] = {name: maker for families in PART_FAMILIES.values() for name, maker in families.items()}


def ask_part(worlds: Worlds, row: int, family: str, rng: random.Random) -> Asked:
    """A question of a family of the harder parts about one script of its part."""
    draft = MAKERS[family](worlds, row, rng)
    options = _options(draft, rng)
    texts = PART_WORDINGS.get(draft.wording) or WORDINGS[draft.wording]
    if not draft.objects:  # the question must not say that it appears
        texts = tuple(text for text in texts if not text.startswith("A "))
    text = rng.choice(texts).format(shape=draft.shape, other=draft.other)
    answer = None if draft.right is None else "ABCDEFGH"[options.index(draft.right)]
    evidence, hint = _intervals(worlds, row, draft.objects), _intervals(worlds, row, draft.hint)
    return Asked(family, Question(text, options, answer=answer), evidence, draft.objects, draft.wording, hint)


def _options(draft: Draft, rng: random.Random) -> list[str]:
    sure = [word for word in (draft.right, draft.unseen) if word]
    wrong, count = list(draft.wrong), rng.randint(2, min(8 - len(sure), len(draft.wrong)))
    kept = wrong[:2] + rng.sample(wrong[2:], count - 2) if draft.witnessed else rng.sample(wrong, count)
    options = [*sure, *kept]
    rng.shuffle(options)
    return options


def _intervals(worlds: Worlds, row: int, objects: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(a), float(b))
        for j in objects
        for a, b in zip(worlds.start[row, j], worlds.end[row, j], strict=True)
        if a < NEVER
    )


def offer_not_shown(asked: Asked, rng: random.Random) -> Asked:
    """The same question with "not shown" in place of one of its wrong options."""
    question, right = asked.question, asked.right
    place = rng.choice([i for i, option in enumerate(question.options) if option != right])
    options = [*question.options[:place], rng.choice(NOT_SHOWN), *question.options[place + 1 :]]
    return replace(asked, question=replace(question, options=tuple(options)))
