"""Text that is safe to print: file names, questions and error messages can contain anything."""

import codecs
import unicodedata

__all__ = ["ASCII_WORDS", "REPLACING", "is_utf8", "one_line", "printable"]

ASCII_WORDS = str.maketrans(
    {"×": "x", "–": "-", "−": "-", "…": "...", "σ": "sigma", "●": "O", "▸": ">", "·": "."}
    | {"✓": "+", "✗": "x", "²": "^2"}
)
"""Symbols of our own, where the output cannot show them."""
REPLACING = "gridprobe.replacing"
"""The error handler for streams: a character that the encoding lacks is replaced by ASCII, so printing never fails."""

UNSAFE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, surrogates, and line and paragraph separators."""
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder the text around them, so that one answer could read as another."""


def printable(text: str) -> str:
    """Escape every character that would move the cursor, start a new line or reorder the text."""
    return "".join(_escaped(char) if unicodedata.category(char) in UNSAFE or char in BIDI else char for char in text)


def one_line(text: str) -> str:
    """The same for running text: each run of white space becomes one space, and a lone surrogate becomes "?"."""
    return printable(" ".join(text.encode("utf-8", "replace").decode("utf-8").split()))


def is_utf8(text: str) -> bool:
    """Whether the text has no lone surrogates, so that it can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(ASCII_WORDS)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(REPLACING, _replaced)
