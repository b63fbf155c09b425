"""Texts as an encoder's tokenizer gets them: cleaned as in training, and in pieces that fit."""

import string
from collections.abc import Callable

__all__ = ["lower_case", "pieces", "without_punctuation"]

PUNCTUATION = str.maketrans("", "", string.punctuation)


def lower_case(text: str) -> str:
    """As SigLIP2 was trained."""
    return text.lower()


def without_punctuation(text: str) -> str:
    """As SigLIP was trained: lower case, no ASCII punctuation, single spaces."""
    return " ".join(text.lower().translate(PUNCTUATION).split())


def pieces(text: str, count: Callable[[str], int], limit: int) -> list[str]:
    """Cut a text into the fewest equal runs of words that have at most `limit` tokens each by `count`.

    A text whose words are too long is cut within words. Equal runs, because the vectors of the pieces are averaged and
    a last piece of one word should not count as much as one of 64 tokens.
    """
    total = count(text)
    if total <= limit:
        return [text]
    for units, glue in ((text.split(), " "), (list(text), "")):
        number = -(-total // limit)
        while number <= len(units):
            cut = [glue.join(units[i * len(units) // number : (i + 1) * len(units) // number]) for i in range(number)]
            if all(count(each) <= limit for each in cut):
                return cut
            number += max(1, number // 8)
    return list(text)
