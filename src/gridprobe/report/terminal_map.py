"""Draw the importance map, or a timeline, as lines of text."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from gridprobe.answer import Answer
from gridprobe.importance import ImportanceMap
from gridprobe.report.colours import MARK, RGB, Scale, hex_colour, ink_on, ramp
from gridprobe.report.words import MAP_WORDS, clock, mark_words, score_words
from gridprobe.text import one_line

__all__ = ["Look", "map_lines", "strip_lines"]

SHADES, ASCII_SHADES = " ░▒▓█", " .:-=+*#%@"
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_WORDS = str.maketrans({"×": "x", "–": "-", "…": "...", "σ": "sigma", "●": "O", "▸": ">", "·": "."})
STRIP_WIDTH = 72
CONFIDENCE_WIDTH = 7
"""A space, a number such as 0.93, a space and a block."""


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

    def shade(self, level: float) -> str:
        """The shading character for a level from 0 to 1."""
        shades = SHADES[1:] if self.unicode else ASCII_SHADES[1:]
        return shades[min(len(shades) - 1, int(level * len(shades)))]

    def block(self, confidence: float, scale: Scale) -> str:
        """A block whose height shows the confidence; in ASCII, the first decimal digit."""
        if not self.unicode:
            return str(min(9, int(confidence * 10)))
        return BLOCKS[min(len(BLOCKS) - 1, int(scale.level(confidence) * len(BLOCKS)))]


@dataclass(frozen=True)
class Frame:
    """Widths of a cell, of the times at the left and of the confidences at the right, in columns."""

    cell: int
    times: int
    confidence: int

    @classmethod
    def fitting(cls, evidence: ImportanceMap, times: int, width: int) -> "Frame | None":
        """The widest layout that fits, or None: cells get narrower first, then confidences and times are omitted."""
        k = evidence.grid.k
        both, left = (times, CONFIDENCE_WIDTH if evidence.row_confidence else 0), (times, 0)
        for cell, (start, end) in ((3, both), (2, both), (1, both), (1, left), (1, (0, 0))):
            if start + k * cell + end <= width:
                return cls(cell, start, end)
        return None


def map_lines(answer: Answer, evidence: ImportanceMap, look: Look) -> list[Text]:
    """The K×K map with times and, if it is made of them, row and column confidences; empty if it is too wide."""
    grid, matrix = evidence.grid, evidence.matrix
    starts = [clock(answer.pool.times[r * grid.k]) for r in range(grid.rows)]
    frame = Frame.fitting(evidence, max(map(len, starts)) + 1, look.width)
    if frame is None:
        return []
    kept, scale = set(answer.selection.indices), Scale.over(evidence.scores)
    probes = Scale.over((*evidence.row_confidence, *evidence.column_confidence))
    lines = []
    for r, start in enumerate(starts):
        line = Text().append(f"{start:>{frame.times - 1}} " if frame.times else "", look.style("dim"))
        for c in range(grid.k):
            index = r * grid.k + c
            level = scale.level(matrix[r, c]) if index < grid.cells else None
            line.append_text(_cell(level, index in kept, frame.cell, look))
        if evidence.row_confidence:
            line.append_text(_confidence(evidence.row_confidence[r], probes, frame, look))
        lines.append(line)
    columns = "".join(look.block(value, probes).center(frame.cell) for value in evidence.column_confidence)
    below = [Text(" " * frame.times + columns.rstrip())] if columns else []
    return [*lines, *below, *_legend(answer, evidence, scale, look)]


def _cell(level: float | None, kept: bool, width: int, look: Look) -> Text:
    """One cell: a coloured background or a shade, marked if the frame was kept; blank if there is no frame."""
    if level is None:
        return Text(" " * width)
    if look.color:
        ground = ramp(level)
        mark = ("●" if look.unicode else ("O", "[]", "[ ]")[width - 1]) if kept else ""
        return Text(mark.center(width), f"bold {_on(ground)}")
    shade = look.shade(level)
    if not kept:
        return Text(shade * width if width < 3 else f" {shade} ")
    return Text(("●" if look.unicode else "O", f"[{shade}", f"[{shade}]")[width - 1])


def _on(ground: RGB) -> str:
    return f"{hex_colour(ink_on(ground))} on {hex_colour(ground)}"


def _confidence(value: float, scale: Scale, frame: Frame, look: Look) -> Text:
    if not frame.confidence:
        return Text()
    return Text(f" {value:.2f} {look.block(value, scale) if look.unicode else ''}".rstrip(), look.style("dim"))


def _legend(answer: Answer, evidence: ImportanceMap, scale: Scale, look: Look) -> list[Text]:
    """What the map shows, and the meaning of the colours and marks, as far as they fit."""
    shape = evidence.shape
    low, high = score_words(evidence.scores.min()), score_words(evidence.scores.max())
    kind = Text(f"map: {MAP_WORDS[evidence.kind]}", look.style("dim"))
    kind.truncate(look.width)
    key = Text().join(_cell(i / 7, False, 1, look) for i in range(8))
    line = Text().append("importance ", look.style("dim")).append(low + " ").append_text(key).append(f" {high}")
    mark = Text("   ").append_text(_cell(1.0, True, 3, look)).append(f" {mark_words(answer)}")
    sigma = Text(look.clean(f"   σ {shape.sigma:.2f}"))
    for part in (mark, sigma):
        if line.cell_len + part.cell_len <= look.width:
            line.append_text(part)
    return [kind, line]


def strip_lines(answer: Answer, look: Look, scale: Scale | None = None) -> list[Text]:
    """A timeline with the kept frames marked; with a scale, coloured by the selector's scores."""
    pool, scores = answer.selection.pool, answer.selection.scores
    kept, strip = set(answer.selection.indices), Text()
    for part in _parts(pool, min(pool, look.width, STRIP_WIDTH)):
        marked = not kept.isdisjoint(part)
        level = scale.level(max(scores[i] for i in part)) if scale and scores else None
        strip.append_text(_notch(marked, level, look))
    first, last = clock(answer.pool.times[0]), clock(answer.pool.times[-1])
    gap = max(1, len(strip) - len(first) - len(last))
    ends = [Text(first + " " * gap + last, look.style("dim"))]
    selector = look.clean(one_line(answer.selection.selector))
    words = Text(f"{selector}: {_mark(look)} {_strip_word(answer)}, {look.clean('·')} left out", look.style("dim"))
    words.truncate(look.width)
    return [strip, *ends, words]


def _strip_word(answer: Answer) -> str:
    """An overview without a map shows all frames; only a selection keeps some."""
    return mark_words(answer) if answer.selection.evidence or answer.reached.by != "overview" else "shown small"


def _parts(pool: int, parts: int) -> Iterator[range]:
    """Divide the pool into ranges of nearly equal length."""
    for part in range(parts):
        yield range(part * pool // parts, (part + 1) * pool // parts)


def _notch(marked: bool, level: float | None, look: Look) -> Text:
    if level is not None:
        return _cell(level, marked, 1, look)
    return Text(_mark(look), look.style(hex_colour(MARK))) if marked else Text(look.clean("·"), look.style("dim"))


def _mark(look: Look) -> str:
    return "█" if look.unicode else "#"
