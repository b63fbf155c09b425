"""Answers in words: when two of them say the same, what kind they are, and candidates merged from several drafts."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["NOT_SAID", "Draft", "Kind", "canonical", "exact_match", "kind_of", "merge", "token_f1"]

Kind = Literal["yes/no", "number", "not said", "text", "description"]
NOT_SAID = "not shown in the video"
"""How it is said that the video does not show what is asked."""
UNKNOWN = frozenset(
    (
        "not shown",
        "not shown in video",
        "video does not say",
        "it never appears",
        "unknown",
        "not visible",
        "i dont know",
    )
)
"""What models write when they mean it, in canonical form."""
NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
} | {"once": "1 times", "twice": "2 times", "none": "0"}
ARTICLES = frozenset(("a", "an", "the"))
YES, NO = frozenset(("yes", "yeah", "true", "correct")), frozenset(("no", "nope", "false", "incorrect"))
WORD = re.compile(r"[^\W_]+(?:\.\d+)?")


class Draft(NamedTuple):
    """A candidate answer."""

    text: str
    """As it was written most often."""
    share: float
    """The share of the drafts that say it."""
    probability: float | None = None
    """The probability of writing any of its wordings that were drafted; None if that is not known."""


def canonical(text: str) -> str:
    """The text without case, punctuation, articles and accents, and with digits for number words.

    "The 3rd of May." and "3rd of may" are the same, and so are "Twice" and "two times".
    """
    plain = unicodedata.normalize("NFKD", text.replace("'", "").replace("’", "")).casefold()
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    words = [NUMBERS.get(word, word) for word in WORD.findall(plain) if word not in ARTICLES]
    found = " ".join(words)
    if found in YES:
        return "yes"
    if found in NO:
        return "no"
    return NOT_SAID if found in UNKNOWN or found == "not shown in video" else found


def kind_of(text: str) -> Kind:
    """What kind of answer a text is; whether it is a description, its question says."""
    plain = canonical(text)
    if plain in ("yes", "no"):
        return "yes/no"
    if plain == NOT_SAID:
        return "not said"
    return "number" if re.fullmatch(r"\d+(?:\.\d+)?(?: times)?", plain) else "text"


def exact_match(text: str, truth: str) -> bool:
    """Whether two answers say the same; numbers are compared as numbers."""
    one, other = canonical(text), canonical(truth)
    if {kind_of(text), kind_of(truth)} == {"number"}:
        return float(one.split()[0]) == float(other.split()[0])
    return one == other


def token_f1(text: str, truth: str) -> float:
    """The harmonic mean of precision and recall over the words of both; 1 for two empty texts."""
    one, other = Counter(canonical(text).split()), Counter(canonical(truth).split())
    if not one or not other:
        return float(one == other)
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total())


def _printable(text: str) -> str:
    """What a model wrote, in one line and without control characters, which no prompt may contain."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def merge(texts: Sequence[str], logprobs: Sequence[float | None] = ()) -> list[Draft]:
    """Drafts that say the same as one, the likeliest first, then the most frequent; empty ones are dropped.

    Args:
        texts: the drafts, of which control characters are dropped. The wording that occurs most often stands for those
            that say the same.
        logprobs: the log-probability of writing each; a text that was drafted twice counts once.
    """
    wordings: dict[str, Counter[str]] = {}
    likely: dict[str, float | None] = {}
    for text, logprob in zip(texts, logprobs or [None] * len(texts), strict=True):
        found = _printable(text)
        if canonical(found):
            wordings.setdefault(canonical(found), Counter())[found] += 1
            likely[found] = None if logprob is None else math.exp(min(0.0, logprob))
    merged = []
    for counts in wordings.values():
        known = [likely[text] for text in counts]
        total = None if None in known else min(1.0, math.fsum(p for p in known if p is not None))
        merged.append(Draft(counts.most_common(1)[0][0], counts.total() / len(texts), total))
    return sorted(merged, key=lambda draft: (-(draft.probability or 0.0), -draft.share))
