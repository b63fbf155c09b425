"""Questions about a script, in ordinary English, with their answers and the intervals that hold the evidence.

Families: needle (the colour of something brief), detail (the digit on it), redundant (the colour of something nearly
always there), negation (what never appears), count, order, holistic (the background on screen longest), and prejudice
(needle about a ring, which is usually red, so that the text alone suggests an answer).
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import numpy as np

from gridprobe.question import Question
from gridprobe_world.parts import Part
from gridprobe_world.world import (
    BACKGROUNDS,
    CELL,
    COLOURS,
    DIGITS,
    NEVER,
    NOT_SHOWN,
    ORDINALS,
    PATTERNS,
    PREJUDICE,
    SHAPES,
    TIMES,
    Worlds,
)

# How questions are worded, and every word that occurs in them.

WORDINGS: dict[str, tuple[str, ...]] = {
    "colour": (
        "What colour is the {shape}?",
        "Which colour does the {shape} have?",
        "In which colour is the {shape} shown?",
        "Pick the colour of the {shape}.",
        "A {shape} can be seen in this video. What is its colour?",
    ),
    "digit": (
        "Which number is written on the {shape}?",
        "What number does the {shape} carry?",
        "Read the number on the {shape}.",
        "A number is written on the {shape}. Which one is it?",
    ),
    "never": (
        "Which shape never appears?",
        "Which of these shapes is not in the video?",
        "Which shape is missing from the video?",
        "One of these shapes is never shown. Which one?",
    ),
    "count": (
        "How many times does the {shape} appear?",
        "How often does the {shape} show up?",
        "Count the appearances of the {shape}.",
        "The {shape} comes and goes. How many times is it shown?",
    ),
    "first": (
        "Which of these shapes appears first?",
        "Which shape is shown before all the others here?",
        "What appears first?",
    ),
    "last": (
        "Which of these shapes appears last?",
        "Which shape is seen latest in the video?",
        "What is the last of these to be on screen?",
    ),
    "after": (
        "Which of these shapes first appears after the {shape}?",
        "After the {shape}, which shape is the next to appear for the first time?",
        "Which shape shows up for the first time right after the {shape} does?",
    ),
    "before": (
        "Which of these shapes first appears just before the {shape}?",
        "Before the {shape}, which shape was the last to appear for the first time?",
        "Which shape shows up for the first time right before the {shape} does?",
    ),
    "background": (
        "Which background is on screen longest?",
        "What is the most common background?",
        "Which background takes up most of the video?",
        "Most of the video plays against which background?",
    ),
}
"""Wordings of the standard part. The tokenizer was made from these, so a change here changes the tokenizer."""

PART_WORDINGS: dict[str, tuple[str, ...]] = {
    "pattern": (
        "Which pattern does the {shape} have?",
        "What pattern is on the {shape}?",
        "Pick the pattern of the {shape}.",
    ),
    "print": (
        "Which small number is written on the {shape}?",
        "Read the small number on the {shape}.",
        "What small number does the {shape} carry?",
    ),
    "flash-colour": (
        "While the {other} is on screen, a {shape} shows up for a short time. What colour is it?",
        "What colour is the {shape} that shows up for a short time while the {other} is on screen?",
    ),
    "flash-shape": (
        "While the {other} is on screen, which shape shows up for a short time?",
        "Which shape shows up for a short time while the {other} is on screen?",
    ),
    "companion-colour": (
        "What colour is the {shape} that is on screen with the {other}?",
        "Which colour does the {shape} have that is shown with the {other}?",
        "A {shape} and the {other} are on screen at one time. What colour is the {shape}?",
    ),
    "companion-digit": (
        "Which number is written on the {shape} that is on screen with the {other}?",
        "Read the number on the {shape} that is shown with the {other}.",
    ),
    "ordinal-colour": (
        "What colour is the {other} {shape}?",
        "Which colour does the {other} {shape} of the video have?",
    ),
    "ordinal-digit": (
        "Which number is written on the {other} {shape}?",
        "What number does the {other} {shape} of the video carry?",
    ),
}
"""Wordings of the harder parts; words that the tokenizer does not know take several tokens."""

CLAIMS: dict[str, tuple[str, ...]] = {
    "presence": (
        "Is there a {value}?",
        "Is there a {value} in the video?",
        "Does a {value} appear?",
        "Is a {value} shown?",
        "Can a {value} be seen?",
    ),
    "sequence": (
        "Does the {shape} appear {value} the {other}?",
        "Is the {shape} shown {value} the {other}?",
        "Is the {shape} on screen {value} the {other}?",
        "Does the {shape} show up {value} the {other}?",
        "A {shape} can be seen in this video. Is it {value} the {other}?",
    ),
    "colour": (
        "Is the {shape} {value}?",
        "Is the colour of the {shape} {value}?",
        "Does the {shape} have the colour {value}?",
        "A {shape} can be seen in this video. Is it {value}?",
    ),
    "digit": (
        "Is the number {value} written on the {shape}?",
        "Is the number on the {shape} a {value}?",
        "Does the {shape} carry the number {value}?",
    ),
    "count": (
        "Does the {shape} appear {value}?",
        "Is the {shape} shown {value}?",
        "The {shape} comes and goes. Does it appear {value}?",
    ),
    "background": (
        "Is {value} the most common background?",
        "Is the background {value} for most of the video?",
        "Does {value} take up most of the video?",
    ),
    "pattern": (
        "Does the {shape} have a {value} pattern?",
        "Is the pattern of the {shape} {value}?",
        "Is there a {value} pattern on the {shape}?",
    ),
    "print": (
        "Is the small number {value} written on the {shape}?",
        "Does the {shape} carry the small number {value}?",
    ),
    "flash-colour": (
        "While the {other} is on screen, a {shape} shows up for a short time. Is it {value}?",
        "Is the {shape} {value} that shows up for a short time while the {other} is on screen?",
    ),
    "flash-shape": (
        "While the {other} is on screen, does a {value} show up for a short time?",
        "Does a {value} show up for a short time while the {other} is on screen?",
    ),
    "companion-colour": (
        "Is the {shape} {value} that is on screen with the {other}?",
        "A {shape} and the {other} are on screen at one time. Is the {shape} {value}?",
    ),
    "companion-digit": (
        "Is the number {value} written on the {shape} that is on screen with the {other}?",
        "Does the {shape} that is shown with the {other} carry the number {value}?",
    ),
    "ordinal-colour": (
        "Is the {other} {shape} {value}?",
        "Is the {other} {shape} of the video {value}?",
    ),
    "ordinal-digit": (
        "Is the number {value} written on the {other} {shape}?",
        "Does the {other} {shape} of the video carry the number {value}?",
    ),
}
"""Yes/no questions: whether `value` is the answer to a question of this wording."""
YES_NO = (("yes", "no"), ("no", "yes"), ("Yes", "No"), ("No", "Yes"))


def vocabulary(*, parts: bool = True, yes_no: bool = False) -> frozenset[str]:
    """Every word of gridworld's questions and options, in lower case.

    Without `parts` only those of the standard part; with `yes_no` also those of yes/no questions, which the embedded
    models were not trained on.
    """
    texts = [text for wordings in WORDINGS.values() for text in wordings]
    names = [*SHAPES, *COLOURS, *BACKGROUNDS, *TIMES]
    if parts:
        texts += [text for wordings in PART_WORDINGS.values() for text in wordings]
        names += [*PATTERNS, *ORDINALS, *NOT_SHOWN]
    if yes_no:
        texts += [text for wordings in CLAIMS.values() for text in wordings]
        names += [*YES_NO[0], "an"]
    words = " ".join([*(text.format(shape=" ", other=" ", value=" ") for text in texts), *names]).lower()
    letters = "".join(c if c.isalnum() else " " for c in words)
    return frozenset(letters.split()) | frozenset(DIGITS)


@dataclass(frozen=True)
class WorldQuestion:
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
    lines: tuple[tuple[float, float, str], ...] = field(default=(), repr=False)
    """What is said, and when; only the spoken form has any."""

    @property
    def right(self) -> str:
        """The text of the right option; empty when none is right."""
        return self.question.option(self.question.answer) if self.question.answer else ""


@dataclass(frozen=True)
class QuestionDraft:
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


def _happens(worlds: Worlds, row: int, j: int) -> bool:
    return bool(worlds.start[row, j, 0] < NEVER)


def _colour_question(worlds: Worlds, row: int, j: int) -> QuestionDraft:
    right = _colour(worlds, row, j)
    return QuestionDraft("colour", _shape(worlds, row, j), right, _others(list(COLOURS), right), (j,))


def _needle(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft | None:
    choices = [j for j in (2, 3) if _shape(worlds, row, j) != PREJUDICE[0] and _happens(worlds, row, j)]
    return _colour_question(worlds, row, rng.choice(choices)) if choices else None


def _prejudice(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft | None:
    choices = [j for j in (2, 3) if _shape(worlds, row, j) == PREJUDICE[0] and _happens(worlds, row, j)]
    return _colour_question(worlds, row, choices[0]) if choices else None


def _redundant(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft | None:
    return None if _shape(worlds, row, 0) == PREJUDICE[0] else _colour_question(worlds, row, 0)


def _detail(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft | None:
    choices = [j for j in (2, 3) if worlds.digit[row, j] and _happens(worlds, row, j)]
    if not choices:
        return None
    j = rng.choice(choices)
    right = str(worlds.digit[row, j])
    return QuestionDraft("digit", _shape(worlds, row, j), right, _others(DIGITS, right), (j,))


def _negation(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    seen = [j for j in range(4) if _happens(worlds, row, j)]
    shapes = [_shape(worlds, row, j) for j in seen]
    right = rng.choice([shape for shape in SHAPES if shape not in shapes])
    return QuestionDraft("never", "", right, shapes, tuple(seen))


def _count(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    right = TIMES[int((worlds.start[row, 1] < NEVER).sum()) - 1]
    return QuestionDraft("count", _shape(worlds, row, 1), right, _others(TIMES, right), (1,))


def _order(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft | None:
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
    wrong += rng.sample(strangers, 2)
    # A wrong option that appears in the video is harder than one that does not, so those come first and are kept.
    witnessed = wording in ("first", "last")
    return QuestionDraft(wording, anchor, _shape(worlds, row, answer), wrong, tuple(shown), witnessed=witnessed)


def _holistic(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    right = list(BACKGROUNDS)[int(worlds.take([row]).shares()[0].argmax())]
    return QuestionDraft("background", "", right, _others(list(BACKGROUNDS), right))


FAMILIES: dict[str, Callable[[Worlds, int, random.Random], QuestionDraft | None]] = {
    "needle": _needle,
    "detail": _detail,
    "redundant": _redundant,
    "negation": _negation,
    "count": _count,
    "order": _order,
    "holistic": _holistic,
    "prejudice": _prejudice,
}


def ask_about(worlds: Worlds, row: int, family: str, rng: random.Random) -> WorldQuestion | None:
    """A question of the family about one script; None if the script does not suit the family."""
    draft = FAMILIES[family](worlds, row, rng)
    return None if draft is None else _finished(draft, worlds, row, family, rng)


def _finished(draft: QuestionDraft, worlds: Worlds, row: int, family: str, rng: random.Random) -> WorldQuestion:
    """The draft with its options and its text."""
    options = _options(draft, rng)
    texts = PART_WORDINGS.get(draft.wording) or WORDINGS[draft.wording]
    if not draft.objects:  # the question must not say that it appears
        texts = tuple(text for text in texts if not text.startswith("A "))
    text = rng.choice(texts).format(shape=draft.shape, other=draft.other)
    answer = None if draft.right is None else "ABCDEFGH"[options.index(draft.right)]
    evidence, hint = _intervals(worlds, row, draft.objects), _intervals(worlds, row, draft.hint)
    return WorldQuestion(family, Question(text, options, answer=answer), evidence, draft.objects, draft.wording, hint)


# Questions of the harder parts, with their answers, the intervals that hold the evidence, and hints where it is.
#
# | part | family | asks for |
# |---|---|---|
# | fine | pattern, print | the fine lines, or the small digit, on a plate |
# | brief | flash-colour, flash-shape | the colour or shape of what flashes up while a marker is on screen |
# | crowded | companion, ordinal | the colour or digit of the look-alike next to another object, or of the n-th one |
# | unanswerable | absent | a shape that never appears; the option "not shown" is right |
# | | present | a shape that does appear; "not shown" is among the options and wrong |
# | | no-option | a shape that never appears, without such an option: no answer is right, and `answer` is None |


def _pattern(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    j = rng.choice(np.flatnonzero(worlds.pattern[row]).tolist())
    right = PATTERNS[worlds.pattern[row, j] - 1]
    return QuestionDraft("pattern", _shape(worlds, row, j), right, _others(PATTERNS, right), (j,))


def _print(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    j = rng.choice(np.flatnonzero(worlds.digit[row]).tolist())
    right = str(worlds.digit[row, j])
    return QuestionDraft("print", _shape(worlds, row, j), right, _others(DIGITS, right), (j,))


def _flash_colour(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    marker = rng.choice((2, 4))
    flash, right = marker + 1, _colour(worlds, row, marker + 1)
    wrong, other = _others(list(COLOURS), right), _shape(worlds, row, marker)
    return QuestionDraft("flash-colour", _shape(worlds, row, flash), right, wrong, (flash,), other, hint=(marker,))


def _flash_shape(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    marker = rng.choice((2, 4))
    right, other = _shape(worlds, row, marker + 1), _shape(worlds, row, marker)
    # An object that is on screen at the same time for longer could also count as right, so it is no option.
    wrong = _others([name for name in SHAPES if name not in (other, _shape(worlds, row, 0))], right)
    return QuestionDraft("flash-shape", "", right, wrong, (marker + 1,), other, hint=(marker,))


def _look_alike(
    worlds: Worlds, row: int, rng: random.Random, *, kind: str, target: int, other: str, objects: tuple[int, ...]
) -> QuestionDraft:
    """The colour or digit of one of the look-alikes; those of the others are among the options."""
    shape, rivals = _shape(worlds, row, target), [j for j in (1, 2, 3) if j != target]
    rng.shuffle(rivals)
    if worlds.digit[row, target] and rng.random() < 0.5:
        words, wording, values = list(DIGITS), f"{kind}-digit", worlds.digit[row] - 1
    else:
        words, wording, values = list(COLOURS), f"{kind}-colour", worlds.colour[row]
    right, seen = words[values[target]], [words[values[j]] for j in rivals]
    wrong = [*seen, *(word for word in words if word not in (right, *seen))]
    return QuestionDraft(wording, shape, right, wrong, objects, other, witnessed=True)


def _companion(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    anchor = rng.choice((4, 5))
    start, end = worlds.start[row, :, 0], worlds.end[row, :, 0]
    target = next(j for j in (1, 2, 3) if start[j] < end[anchor] and start[anchor] < end[j])
    other = _shape(worlds, row, anchor)
    return _look_alike(worlds, row, rng, kind="companion", target=target, other=other, objects=(target,))


def _ordinal(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
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


def _absent(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    wording, shape, words = _missing(worlds, row, rng)
    return QuestionDraft(wording, shape, rng.choice(NOT_SHOWN), words)


def _no_option(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    wording, shape, words = _missing(worlds, row, rng)
    return QuestionDraft(wording, shape, None, words)


def _present(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    j = rng.choice((2, 3))
    shape, unseen = _shape(worlds, row, j), rng.choice(NOT_SHOWN)
    if worlds.digit[row, j] and rng.random() < 0.5:
        right = str(worlds.digit[row, j])
        return QuestionDraft("digit", shape, right, _others(DIGITS, right), (j,), unseen=unseen)
    right = _colour(worlds, row, j)
    return QuestionDraft("colour", shape, right, _others(list(COLOURS), right), (j,), unseen=unseen)


Maker = Callable[[Worlds, int, random.Random], QuestionDraft]

PART_FAMILIES: dict[Part, dict[str, Maker]] = {
    "fine": {"pattern": _pattern, "print": _print},
    "brief": {"flash-colour": _flash_colour, "flash-shape": _flash_shape},
    "crowded": {"companion": _companion, "ordinal": _ordinal},
    "unanswerable": {"absent": _absent, "present": _present, "no-option": _no_option},
}
MAKERS: dict[str, Maker] = {name: maker for families in PART_FAMILIES.values() for name, maker in families.items()}


def ask_part(worlds: Worlds, row: int, family: str, rng: random.Random) -> WorldQuestion:
    """A question of a family of the harder parts about one script of its part."""
    return _finished(MAKERS[family](worlds, row, rng), worlds, row, family, rng)


# Questions about a colour that somebody names: of a shape that never appears ("told"), the right one of a needle while
# it is on screen ("agrees"), or a wrong one, which is among the options ("contradicts"): then what is shown is right.

SPOKEN = ("told", "agrees", "contradicts")
SAID = "The {shape} is {value}."
SMALL_TALK = (
    "A shape comes and goes.",
    "Most of the video plays against a background.",
    "One of these shapes appears.",
)
TALK = 9
"""Lines of other things that are said, evenly spaced."""
LINE = 2 * CELL
"""How long they last, and a line about what is never shown."""


def ask_spoken(worlds: Worlds, row: int, family: str, rng: random.Random) -> WorldQuestion | None:
    """A question of the family about one script, with what is said; None if none suits it."""
    draft = _unseen_colour(worlds, row, rng) if family == "told" else _needle(worlds, row, rng)
    if draft is None or draft.right is None:
        return None
    said = draft.right
    if family == "contradicts":
        said = rng.choice(list(draft.wrong))
        draft = replace(draft, wrong=[said, *_others(draft.wrong, said)], witnessed=True)
    asked = _finished(draft, worlds, row, family, rng)
    start = rng.uniform(0.1, 0.9)
    evidence = asked.evidence or ((start, start + LINE),)
    talk = [((i + rng.random()) / TALK * (1 - LINE), rng.choice(SMALL_TALK)) for i in range(TALK)]
    lines = [(first, first + LINE, text) for first, text in talk]
    lines.append((*evidence[0], SAID.format(shape=draft.shape, value=said)))
    return replace(asked, evidence=evidence, lines=tuple(sorted(lines)))


def _unseen_colour(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    shown = {_shape(worlds, row, j) for j in range(4) if _happens(worlds, row, j)}
    shape = rng.choice([name for name in SHAPES if name not in shown and name != PREJUDICE[0]])
    right = rng.choice(list(COLOURS))
    return QuestionDraft("colour", shape, right, _others(list(COLOURS), right))


def _options(draft: QuestionDraft, rng: random.Random) -> list[str]:
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


# Questions with two options, and yes/no questions.


def ask_two_options(worlds: Worlds, row: int, family: str, rng: random.Random) -> WorldQuestion | None:
    """A question of the family about one script with the right and one wrong option; None if none suits it."""
    question = ask_about(worlds, row, family, rng)
    return None if question is None else with_two_options(question, rng)


def with_two_options(original: WorldQuestion, rng: random.Random) -> WorldQuestion:
    """The same question with the right and one wrong option, in either order."""
    question, right = original.question, original.right
    wrong = [option for option in question.options if option != right]
    options = [right, rng.choice(wrong)] if right else rng.sample(wrong, 2)
    rng.shuffle(options)
    answer = "AB"[options.index(right)] if right else None
    return replace(original, question=replace(question, options=tuple(options), answer=answer))


def _presence(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft:
    """A shape with its colour, or without; wrong ones have the colour of something else, or never appear."""
    shown = [j for j in range(worlds.shape.shape[1]) if _happens(worlds, row, j)]
    things = {(_colour(worlds, row, j), _shape(worlds, row, j)) for j in shown}
    j = rng.choice(shown[1:])
    colour, shape = _colour(worlds, row, j), _shape(worlds, row, j)
    absent = rng.choice([name for name in SHAPES if all(name != other for _, other in things)])
    if rng.random() < 0.3:
        return QuestionDraft("presence", "", shape, [absent], (j,))
    likely = [(other, shape) for other, _ in things] + [(colour, other) for _, other in things]
    others = [*likely, (rng.choice(list(COLOURS)), shape), (colour, absent)]
    wrong = [f"{a} {b}" for a, b in others if (a, b) not in things]
    return QuestionDraft("presence", "", f"{colour} {shape}", wrong, (j,))


def _sequence(worlds: Worlds, row: int, rng: random.Random) -> QuestionDraft | None:
    """Which of two that appear once, and never together, comes first."""
    shown = [_shape(worlds, row, j) for j in range(worlds.shape.shape[1]) if _happens(worlds, row, j)]
    times = worlds.occurrences()[row].tolist()
    once = [j for j, count in enumerate(times) if count == 1 and shown.count(_shape(worlds, row, j)) == 1]
    pairs = [(a, b) for a in once for b in once if worlds.start[row, b, 0] - worlds.end[row, a, 0] > CELL]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    if rng.random() < 0.5:
        asked, other, right, wrong = first, second, "before", "after"
    else:
        asked, other, right, wrong = second, first, "after", "before"
    shapes = _shape(worlds, row, asked), _shape(worlds, row, other)
    return QuestionDraft("sequence", shapes[0], right, [wrong], (first, second), shapes[1])


YES_NO_MAKERS: dict[str, Callable[[Worlds, int, random.Random], QuestionDraft | None]] = {
    **FAMILIES,
    **MAKERS,
    "presence": _presence,
    "sequence": _sequence,
}


def ask_yes_no(worlds: Worlds, row: int, family: str, rng: random.Random) -> WorldQuestion | None:
    """Whether something is the answer to a question of the family; None if there is no such question."""
    draft = YES_NO_MAKERS[family](worlds, row, rng)
    if draft is None or draft.wording not in CLAIMS or draft.right is None or draft.right in NOT_SHOWN:
        return None
    true, options = rng.random() < 0.5, rng.choice(YES_NO)
    value = draft.right if true else rng.choice(draft.wrong[:2] if draft.witnessed else draft.wrong)
    text = rng.choice(CLAIMS[draft.wording]).format(shape=draft.shape, other=draft.other, value=value)
    text = text.replace(" a orange", " an orange")
    answer = "AB"[[option.casefold() for option in options].index("yes" if true else "no")]
    objects = draft.objects
    if draft.wording == "presence":  # what has the shape shows whether it has the colour
        shape = value.split()[-1]
        objects = tuple(
            j for j in range(worlds.shape.shape[1]) if _happens(worlds, row, j) and _shape(worlds, row, j) == shape
        )
    evidence, hint = _intervals(worlds, row, objects), _intervals(worlds, row, draft.hint)
    return WorldQuestion(family, Question(text, options, answer=answer), evidence, objects, draft.wording, hint)


# What yes/no questions can be turned into. The embedded models never saw one: they are asked what is behind it.

VALUES: dict[str, Sequence[str]] = {
    "presence": (*SHAPES, *(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)),
    "sequence": ("before", "after"),
    "count": TIMES,
    "background": tuple(BACKGROUNDS),
    "pattern": PATTERNS,
    "flash-shape": SHAPES,
    **{wording: tuple(COLOURS) for wording in CLAIMS if wording.endswith("colour")},
    **{wording: DIGITS for wording in CLAIMS if wording.endswith(("digit", "print"))},
}
"""What a yes/no question of each wording may claim."""
MOST_OPTIONS = 8
"""No question of the training has more."""


def behind_yes_no(text: str) -> list[tuple[Question, dict[str, str]]]:
    """The questions behind a yes/no question, each with which of its options mean yes or no; none for any other text.

    Behind "Is the triangle cyan?" is "What colour is the triangle?", where cyan means yes and every other colour no.
    What comes first needs two questions, as the models like some shapes more than others.
    """
    claim = _claims().get(_plain(text))
    if claim is None:
        return []
    wording, shape, other, value = claim
    if wording == "sequence":
        options = shape, other, NOT_SHOWN[0]
        earlier, later = (shape, other) if value == "before" else (other, shape)
        first, last = Question(WORDINGS["first"][0], options), Question(WORDINGS["last"][0], options)
        return [(first, {earlier: "yes", later: "no"}), (last, {later: "yes", earlier: "no"})]
    unseen: tuple[str, ...] = ()
    if wording == "presence":
        wording, (value, _, shape), unseen = "colour", value.rpartition(" "), NOT_SHOWN[:1]
    words = [word for word in VALUES[wording] if word not in (value, other)]
    shown = ([value, *words] if value else words)[: MOST_OPTIONS - len(unseen)]
    means = dict.fromkeys((*shown, *unseen), "no") | dict.fromkeys([value] if value else shown, "yes")
    texts = PART_WORDINGS.get(wording) or WORDINGS[wording]
    return [(Question(texts[0].format(shape=shape, other=other), (*shown, *unseen)), means)]


@cache
def _claims() -> dict[str, tuple[str, str, str, str]]:
    """Every yes/no question in plain words, with its wording, shape, other and value."""
    claims = {}
    for wording, texts in CLAIMS.items():
        for text, value in product(texts, VALUES[wording]):
            shapes = SHAPES if "{shape}" in text else ("",)
            others = (ORDINALS if wording.startswith("ordinal") else SHAPES) if "{other}" in text else ("",)
            for shape, other in product(shapes, others):
                if not other or other not in (shape, value):
                    claims[_plain(text.format(shape=shape, other=other, value=value))] = wording, shape, other, value
    return claims


def _plain(text: str) -> str:
    """Lower-case words without punctuation and articles."""
    return " ".join(word for word in re.findall(r"\w+", text.casefold()) if word not in ("a", "an", "the"))
