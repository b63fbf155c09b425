"""Text on a picture: fonts that have the letters, and lines that fit."""

from collections.abc import Iterable
from functools import lru_cache
from typing import cast
from unicodedata import normalize

from PIL import ImageFont
from PIL.ImageFont import FreeTypeFont

__all__ = ["face", "fitted", "wrapped"]

OTHERS = (
    "DejaVuSans.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial Unicode.ttf",
    "NotoSans-Regular.ttf",
    "msyh.ttc",
    "arial.ttf",
)
"""Looked for, in this order, when Pillow's own font lacks a letter; without any the letter is an empty box."""
STAND_INS = {"×": "x", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"'}
LONGEST = 600
"""No picture has room for more characters than this; measuring a megabyte of text would take minutes."""


def face(text: str, size: int) -> FreeTypeFont:
    """The font of this size that knows the most letters of the text; Pillow's own wins a draw."""
    return _face(frozenset(text[:LONGEST]), size)


@lru_cache(maxsize=256)
def _face(letters: frozenset[str], size: int) -> FreeTypeFont:
    fonts = [_own(size)]
    if _unknown(letters, fonts[0]):
        fonts += [font for name in OTHERS if (font := _installed(name, size))]
    return min(fonts, key=lambda font: len(_unknown(letters, font)))


@lru_cache(maxsize=32)
def _own(size: int) -> FreeTypeFont:
    return cast(FreeTypeFont, ImageFont.load_default(size=size))


@lru_cache(maxsize=64)
def _installed(name: str, size: int) -> FreeTypeFont | None:
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


def _unknown(letters: Iterable[str], font: FreeTypeFont) -> set[str]:
    """The letters that the font draws as its sign for an unknown one."""
    unknown = bytes(font.getmask("\uffff"))
    return {letter for letter in letters if not letter.isspace() and bytes(font.getmask(letter)) == unknown}


def _spelled(text: str, font: FreeTypeFont) -> str:
    """The text with unknown letters by a known relative: ü by u, × by x; one without a relative stays, as a box."""
    unknown = _unknown(set(text), font)
    relatives: dict[str, str | int | None] = {
        letter: STAND_INS.get(letter) or normalize("NFKD", letter)[0] for letter in unknown
    }
    return text.translate(str.maketrans(relatives))


def fitted(text: str, font: FreeTypeFont, width: float) -> str:
    """The text, cut with an ellipsis where it is too long."""
    spelled = _spelled(text[:LONGEST], font)
    if len(text) <= LONGEST and font.getlength(spelled) <= width:
        return spelled
    return spelled[: _longest(spelled, font, width - font.getlength("…"))].rstrip() + "…"


def wrapped(text: str, font: FreeTypeFont, width: float, lines: int) -> list[str]:
    """The text on at most so many lines, broken at spaces where there are any."""
    text = _spelled(text[: LONGEST * lines], font)
    done: list[str] = []
    while text and len(done) < lines - 1:
        end = _longest(text[:LONGEST], font, width)
        if end < len(text):
            end = text.rfind(" ", 0, end + 1) if " " in text[: end + 1].strip() else max(1, end)
        done.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*done, fitted(text, font, width)] if text else done


def _longest(text: str, font: FreeTypeFont, width: float) -> int:
    """How many characters fit."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle]) <= width else (low, middle - 1)
    return low
