"""What a terminal can show, and text wrapped, cut or padded to its columns."""

import io
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from gridprobe.text import ASCII_WORDS

__all__ = ["Look", "padded", "shortened", "wrapped"]


@dataclass(frozen=True)
class Look:
    """What the terminal can show."""

    width: int
    color: bool
    unicode: bool

    def style(self, style: str) -> str:
        """The style; empty without colour."""
        return style if self.color else ""

    def clean(self, text: str) -> str:
        """The text; without Unicode, in ASCII, with common symbols replaced and other characters escaped."""
        if self.unicode:
            return text
        return text.translate(ASCII_WORDS).encode("ascii", "backslashreplace").decode("ascii")


def wrapped(text: str, look: Look, style: str, limit: int | None = None) -> list[Text]:
    """Wrap the text; if it needs more than `limit` lines, cut it with an ellipsis."""
    if limit is not None:
        text = shortened(text, look.width * limit, look)  # wrapping a megabyte of text would be slow
    console = Console(file=io.StringIO(), width=look.width)
    lines = list(Text(text, look.style(style)).wrap(console, look.width))
    for line in lines:
        line.rstrip()
    if limit is None or len(lines) <= limit:
        return lines
    cut = shortened(f"{lines[limit - 1].plain} {lines[limit].plain}", look.width, look)
    return [*lines[: limit - 1], Text(cut, look.style(style))]


def shortened(text: str, width: int, look: Look) -> str:
    """The text, cut with an ellipsis if it is wider."""
    if cell_len(text) <= width:
        return text
    ellipsis = look.clean("…")
    return set_cell_size(text, max(0, width - len(ellipsis))).rstrip() + ellipsis


def padded(text: str, width: int, look: Look) -> str:
    """The text at exactly this width."""
    return set_cell_size(shortened(text, width, look), width)
