"""Draw the timeline, the kept frames and the contact sheet of an answer as lines of text."""

from PIL import Image
from rich.text import Text

from gridprobe.answer import Answer
from gridprobe.grid import Grid
from gridprobe.report.colours import MARK, RGB, hex_colour, mix
from gridprobe.report.pixels import decoded_frames
from gridprobe.report.terminal_lines import Look, wrapped
from gridprobe.report.where import READING, is_short, kept_frames, large_frames, length_of, levels, main_spans, spans
from gridprobe.report.words import clock, mark_words

__all__ = ["STRIP_WIDTH", "map_lines", "picture_lines", "timeline_lines"]

SHADES, ASCII_SHADES = "░▒▓█", ".:-=+*%@"
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇", "._:-=+"
"""Levels of importance on the timeline, lowest first."""
STRIP_WIDTH = 72
PICTURE_WIDTH, PICTURE_LINES = 24, 9
"""The largest picture of a frame, in columns and lines."""
DARK: RGB = (42, 46, 58)
LIGHT: RGB = (196, 201, 212)


# The timeline.


def timeline_lines(answer: Answer, look: Look) -> list[Text]:
    """The whole video from left to right: times of the main stretches, importance with kept frames, and both ends."""
    width, length, kept = min(look.width, STRIP_WIDTH), length_of(answer), set(kept_frames(answer))
    known = levels(answer)
    highest: dict[int, float] = {}
    marked = set()
    for index, time in enumerate(answer.pool.times):
        column = _column(time, length, width)
        highest[column] = max(highest.get(column, 0.0), known[index] if known else 0.0)
        marked |= {column} if index in kept else set()
    strip = Text()
    for column in range(width):
        strip.append_text(_notch(highest.get(column), column in marked, look, plain=known is None))
    first, last = clock(0), clock(length)
    ends = Text(first + last.rjust(width - len(first)), look.style("dim"))
    return [line for line in (_moments(answer, look, width), strip, ends) if line.plain.strip()]


def _column(time: float, length: float, width: int) -> int:
    return min(width - 1, max(0, int(time / length * width)))


def _notch(level: float | None, marked: bool, look: Look, *, plain: bool) -> Text:
    """One column: bright if a frame in it was kept, otherwise its importance; blank where there is no frame."""
    if marked:
        return Text("█" if look.unicode else "#", look.style(hex_colour(MARK)))
    if level is None:
        return Text(" ")
    blocks = BLOCKS if look.unicode else ASCII_BLOCKS
    sign = look.clean("·") if plain else blocks[min(len(blocks) - 1, int(level * len(blocks)))]
    return Text(sign, look.style("dim"))


def _moments(answer: Answer, look: Look, width: int) -> Text:
    """The times of the stretches above the strip; a time without room is left out."""
    line = ""
    for span in main_spans(answer) or spans(answer):
        words = look.clean(span.words)
        middle = _column((span.start + span.end) / 2, length_of(answer), width)
        start = min(width - len(words), max(0, middle - len(words) // 2))
        if start > len(line) or not line:
            line = line.ljust(start) + words
    return Text(line, look.style(f"bold {hex_colour(MARK)}"))


# The kept frames.


def picture_lines(answer: Answer, look: Look) -> list[Text]:
    """The most important kept frames side by side, in blocks of colour; empty without colour or Unicode."""
    most = max(1, (look.width + 2) // (PICTURE_WIDTH + 2))
    shown = large_frames(answer, most)
    if not (look.color and look.unicode and shown):
        return []
    aspect = answer.frames.width / answer.frames.height
    columns = max(4, min(PICTURE_WIDTH, look.width, round(2 * PICTURE_LINES * aspect)))
    rows = max(1, min(PICTURE_LINES, round(columns / aspect / 2)))
    decoded = decoded_frames(answer)
    pictures = [_picture(Image.fromarray(decoded[index]), columns, rows) for index in shown]
    lines = [Text("  ").join(each) for each in zip(*pictures, strict=True)]
    times = "  ".join(clock(answer.pool.times[index], tenths=True).ljust(columns) for index in shown)
    return [*lines, Text(times.rstrip(), look.style("dim"))]


def _picture(image: Image.Image, columns: int, rows: int) -> list[Text]:
    """An image in half blocks: two of its pixels in every character."""
    small = image.resize((columns, 2 * rows), Image.Resampling.BOX).tobytes()
    pixels = [small[i : i + 3].hex() for i in range(0, len(small), 3)]
    lines = []
    for row in range(rows):
        upper, lower = (pixels[start : start + columns] for start in (2 * row * columns, (2 * row + 1) * columns))
        lines.append(Text().join(Text("▀", f"#{a} on #{b}") for a, b in zip(upper, lower, strict=True)))
    return lines


# The contact sheet.


def map_lines(answer: Answer, look: Look) -> list[Text]:
    """The frames in rows with the time of each row: brighter is more important, kept ones are marked.

    Empty without scores, or if the rows are too wide.
    """
    known, kept = levels(answer), set(kept_frames(answer))
    if known is None:
        return []
    evidence = answer.selection.evidence
    grid = evidence.grid if evidence else Grid.holding(len(known))
    starts = [clock(answer.pool.times[r * grid.k], tenths=is_short(answer)) for r in range(grid.rows)]
    times = max(map(len, starts)) + 1
    shapes = ((3, times), (2, times), (1, times), (1, 0))
    shape = next(((cell, start) for cell, start in shapes if start + grid.k * cell <= look.width), None)
    if shape is None:
        return []
    cell, start = shape
    lines = []
    for r, words in enumerate(starts):
        line = Text(f"{words:>{start - 1}} " if start else "", look.style("dim"))
        for index in grid.row(r):
            line.append_text(_cell(known[index], index in kept, cell, look))
        lines.append(line)
    return [*lines, *_legend(answer, look)]


def _cell(level: float, kept: bool, width: int, look: Look) -> Text:
    """One frame: a grey or, if it was kept, a bright background; without colour a shade, in brackets if kept."""
    if look.color:
        ground = MARK if kept else mix(DARK, LIGHT, level)
        mark = look.clean("●") if kept else ""
        return Text(mark.center(width), f"bold {hex_colour(DARK)} on {hex_colour(ground)}")
    shades = SHADES if look.unicode else ASCII_SHADES
    shade = shades[min(len(shades) - 1, int(level * len(shades)))]
    if not kept:
        return Text(shade * width if width < 3 else f" {shade} ")
    return Text(("●" if look.unicode else "O", f"[{shade}", f"[{shade}]")[width - 1])


def _legend(answer: Answer, look: Look) -> list[Text]:
    """How the rows are read, and what brightness and marks mean."""
    key = Text("importance ", look.style("dim"))
    for step in range(8):
        key.append_text(_cell(step / 7, False, 1, look))
    if kept_frames(answer):
        key.append("   ").append_text(_cell(1.0, True, 3, look)).append(f" {mark_words(answer)}", look.style("dim"))
    return [*wrapped(READING, look, "dim"), key]
