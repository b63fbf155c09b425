"""What a command printed, as an SVG that plays once: the command is typed, then its output appears block by block."""

from collections.abc import Iterator
from html import escape

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

CELL, LINE, SIZE, MARGIN = 8.4, 18, 14, 18
"""Width and height of a character, size of the letters, and the edge of the terminal."""
GROUND, INK = "#101218", "#d9dde5"
TYPING, PAUSE, STEP = 1.6, 0.7, 0.45
"""Seconds: typing the command, waiting for it, and between the blocks of its output."""
HEIGHTS = {"█": 8, "▇": 7, "▆": 6, "▅": 5, "▄": 4, "▃": 3, "▂": 2, "▁": 1}
"""Characters that are drawn as rectangles -> eighths of the line."""


def animated(command: str, printed: str, *, width: int) -> str:
    """The SVG."""
    console = Console(width=width, color_system="truecolor", force_terminal=True, legacy_windows=False)
    typed = console.render_lines(Text(f"$ {command}"), pad=False)
    lines = console.render_lines(Text.from_ansi(printed.rstrip("\n")), pad=False)
    parts, delay = [], TYPING + PAUSE
    for number, line in enumerate(typed):
        parts.append(_group(line, number, TYPING * number / len(typed)))
    for number, line in enumerate(lines, start=len(typed) + 1):
        if not "".join(segment.text for segment in line).strip():
            delay += STEP
        parts.append(_group(line, number, delay))
    high = round((len(typed) + 1 + len(lines)) * LINE + 2 * MARGIN)
    wide = round(width * CELL + 2 * MARGIN)
    style = "g { animation: show 0s both } @keyframes show { from { opacity: 0 } }"
    style += " @media (prefers-reduced-motion: reduce) { g { animation: none } } text { white-space: pre }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{SIZE}">'
        f'<title>{escape(command)}</title><style>{style}</style><rect width="{wide}" height="{high}" rx="10" '
        f'fill="{GROUND}"/>\n{"".join(parts)}</svg>\n'
    )


def _group(line: list[Segment], number: int, delay: float) -> str:
    body = "".join(_cells(line, MARGIN + number * LINE))
    return f'<g style="animation-delay:{delay:.2f}s">{body}</g>\n' if body else ""


def _cells(line: list[Segment], y: float) -> Iterator[str]:
    """Rectangles for backgrounds and blocks, and text for the rest."""
    x = float(MARGIN)
    for segment in line:
        wide = cell_len(segment.text) * CELL
        style = segment.style or Style()
        ink, ground = _colour(style, "color") or INK, _colour(style, "bgcolor")
        if ground:
            yield _rect(x, y, wide, LINE, ground)
        for place, letter in enumerate(segment.text):
            if letter == "▀":
                yield _rect(x + place * CELL, y, CELL, LINE / 2, ink)
            elif letter in HEIGHTS:
                high = LINE * HEIGHTS[letter] / 8
                yield _rect(x + place * CELL, y + LINE - high, CELL, high, ink, dim=bool(style.dim))
        words = "".join(" " if letter in HEIGHTS or letter == "▀" else letter for letter in segment.text)
        if words.strip():
            weight = ' font-weight="700"' if style.bold else ""
            weight += ' opacity=".6"' if style.dim else ""
            yield (
                f'<text x="{x:.1f}" y="{y + LINE - 5:.0f}" fill="{ink}"{weight} textLength="{wide:.1f}" '
                f'xml:space="preserve">{escape(words)}</text>'
            )
        x += wide


def _rect(x: float, y: float, wide: float, high: float, colour: str, *, dim: bool = False) -> str:
    """A rectangle that overlaps its neighbour a little, so that no seam is seen."""
    opacity = ' opacity=".6"' if dim else ""
    return f'<rect x="{x:.1f}" y="{y:g}" width="{wide + 0.4:.1f}" height="{high + 0.4:.1f}" fill="{colour}"{opacity}/>'


def _colour(style: Style, name: str) -> str:
    colour = getattr(style, name)
    return "" if colour is None or colour.is_default else str(colour.get_truecolor(DIMMED_MONOKAI).hex)
