"""Text wrapped, cut or padded to the columns of a terminal."""

import io

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from gridprobe.report.terminal_map import Look

__all__ = ["padded", "shortened", "wrapped"]


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
