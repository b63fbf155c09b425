"""How questions are worded, and every word that occurs in them."""

from gridprobe.gridworld.words import BACKGROUNDS, COLOURS, DIGITS, NOT_SHOWN, ORDINALS, PATTERNS, SHAPES, TIMES

__all__ = ["PART_WORDINGS", "WORDINGS", "vocabulary"]

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


def vocabulary(*, parts: bool = True) -> frozenset[str]:
    """Every word of gridworld's questions and options, in lower case; without `parts` only of the standard part."""
    texts = [text for wordings in WORDINGS.values() for text in wordings]
    names = [*SHAPES, *COLOURS, *BACKGROUNDS, *TIMES]
    if parts:
        texts += [text for wordings in PART_WORDINGS.values() for text in wordings]
        names += [*PATTERNS, *ORDINALS, *NOT_SHOWN]
    words = " ".join([*(text.format(shape=" ", other=" ") for text in texts), *names]).lower()
    letters = "".join(c if c.isalnum() else " " for c in words)
    return frozenset(letters.split()) | frozenset(DIGITS)
