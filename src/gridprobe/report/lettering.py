"""Text in an image: fonts that contain its characters, and lines that fit."""

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
"""Fonts to try, in this order, if Pillow's default font lacks a character; without any it is drawn as a box."""
STAND_INS = {"×": "x", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "·": "|", "…": "..."}
"""Used where the font lacks a character; a line does not change its font for these alone."""
LONGEST = 600
"""The most characters of a line that are measured; measuring a megabyte of text would take minutes."""


def face(text: str, size: int) -> FreeTypeFont:
    """The font of this size that contains the most characters of the text; Pillow's default font wins ties."""
    return _face(frozenset(text[:LONGEST]).difference(STAND_INS), size)


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
    """The characters that the font lacks: it draws its placeholder for them."""
    unknown = bytes(font.getmask("\uffff"))
    return {letter for letter in letters if not letter.isspace() and bytes(font.getmask(letter)) == unknown}


def _spelled(text: str, font: FreeTypeFont) -> str:
    """Replace characters that the font lacks: ü by u, × by x. Others stay and are drawn as boxes."""
    unknown = _unknown(set(text), font)
    relatives: dict[str, str | int | None] = {
        letter: STAND_INS.get(letter) or normalize("NFKD", letter)[0] for letter in unknown
    }
    return text.translate(str.maketrans(relatives))


def fitted(text: str, font: FreeTypeFont, width: float) -> str:
    """The text, cut with an ellipsis if it is too long."""
    spelled = _spelled(text[:LONGEST], font)
    if len(text) <= LONGEST and font.getlength(spelled) <= width:
        return spelled
    return spelled[: _longest(spelled, font, width - font.getlength("…"))].rstrip() + "…"


def wrapped(text: str, font: FreeTypeFont, width: float, lines: int) -> list[str]:
    """Wrap the text into at most `lines` lines, at spaces if possible."""
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
    """The number of characters that fit."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle]) <= width else (low, middle - 1)
    return low
