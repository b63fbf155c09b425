"""A figure of a given width, its style, and how it is saved: the same input gives the same file, byte for byte."""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gridprobe.errors import UsageError
from gridprobe.report.html import write_whole

__all__ = [
    "BLANK",
    "COLUMN",
    "INCH",
    "NOTE",
    "SERIES",
    "SMALL",
    "TEXT",
    "Series",
    "add_legend",
    "add_note",
    "check_format",
    "new_figure",
    "save",
    "styled",
    "text_width",
    "wrap",
]

COLUMN = 80.0
"""Width of a column of a paper, in millimetres."""
INCH = 25.4
TEXT, SMALL, NOTE = 7.0, 6.0, 5.5
"""Sizes of type in points: axes, labels within a plot, notes."""
FORMATS = (".svg", ".png")
PNG_DPI = 400
RULER_DPI = 720
"""Resolution at which text is measured."""
ROUNDING = 1.02
"""A text may be this much wider at another resolution, where its letters are rounded to pixels."""

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same letters
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.4,
    "svg.hashsalt": "gridprobe",
    "svg.fonttype": "path",  # letters as outlines: no reader's font makes a text longer than its place
}


@dataclass(frozen=True)
class Series:
    """How one curve is drawn; lightness, dash and marker each tell the series apart, also in grey."""

    colour: str
    marker: str
    dash: Any
    ink: str
    """The colour of text about it, dark enough to read."""


SERIES = (
    Series("#0b4a8f", "o", "-", "#0b4a8f"),
    Series("#e08a00", "s", (0, (4, 1.5)), "#a86500"),
    Series("#7a7a7a", "^", (0, (1, 1.2)), "#555555"),
    Series("#1b1b1b", "D", (0, (5, 1.2, 1, 1.2)), "#1b1b1b"),
)


BLANK = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""What is behind a text that stands on lines."""


@contextmanager
def styled() -> Iterator[None]:
    """Draw with our style, whatever the user's matplotlibrc says."""
    try:
        from matplotlib import style
    except ModuleNotFoundError:
        raise UsageError(
            "figures need matplotlib, which is not installed; run: pip install 'gridprobe[figures]'"
        ) from None
    with style.context(["default", STYLE]):
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in millimetres, whose parts make room for each other."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / INCH, height / INCH), layout="constrained")


def add_legend(figure: Any, lines: Sequence[Any], *, width: float) -> None:
    """Name the lines above the plot; a line whose label starts with "_" has no name of its own."""
    named = [line for line in lines if not line.get_label().startswith("_")]
    labels = [wrap(line.get_label(), width - 18, size=SMALL) for line in named]
    legend = figure.legend(named, labels, loc="outside upper left", handlelength=3.2, borderaxespad=0.2)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a run may be named a$b$c


def add_note(figure: Any, note: str, *, width: float) -> None:
    """Say below the plot where its numbers are from."""
    words = wrap(note, width - 4, size=NOTE)
    figure.supxlabel(words, fontsize=NOTE, x=0.02, ha="left", color="#444444", parse_math=False)


def check_format(path: Path) -> None:
    """Refuse a file that is neither SVG nor PNG."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"a figure is saved as {' or '.join(FORMATS)}, got {path.name!r}; choose one of them")


def save(figure: Any, path: Path) -> list[str]:
    """Write the figure, and return notes on what it could not show."""
    check_format(path)
    form, content = path.suffix.lower()[1:], io.BytesIO()
    metadata = {"Date": None, "Creator": "gridprobe"} if form == "svg" else {"Software": None}
    with styled(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(content, format=form, dpi=PNG_DPI if form == "png" else "figure", metadata=metadata)
    write_whole(path, content.getvalue())
    lacking = {str(each.message) for each in caught if "missing from" in str(each.message)}
    return [f"{len(lacking)} characters are not in the figure's font and are drawn as boxes"] if lacking else []


def wrap(text: str, width: float, *, size: float, most: int = 0, weight: str = "normal") -> str:
    """The text in lines of at most this width in millimetres; a text of more lines than `most` ends with "…"."""

    def fits(words: str) -> bool:
        return text_width(words, size, weight=weight) <= width / ROUNDING

    lines: list[str] = []
    for word in text.split():
        if lines and fits(f"{lines[-1]} {word}"):
            lines[-1] += f" {word}"
        else:
            lines += _pieces(word, fits)
    if most and len(lines) > most:
        last = lines[most - 1]
        while last and not fits(f"{last}…"):
            last = last.rpartition(" ")[0] if " " in last else last[:-1]
        lines = [*lines[: most - 1], f"{last}…"]
    return "\n".join(lines)


def _pieces(word: str, fits: Callable[[str], bool]) -> list[str]:
    """The word, in parts if it is wider than a line."""
    if fits(word):
        return [word]
    pieces = [""]
    for character in word:
        if pieces[-1] and not fits(pieces[-1] + character):
            pieces.append("")
        pieces[-1] += character
    return pieces


def text_width(text: str, size: float, *, weight: str = "normal") -> float:
    """The width of one line in millimetres; letters are never read as mathematics."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing glyph is reported when the figure is saved
        width, _, _ = _ruler().get_text_width_height_descent(text, _font(size, weight), False)
    return float(width) / RULER_DPI * INCH


@cache
def _ruler() -> Any:
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, RULER_DPI)


@cache
def _font(size: float, weight: str) -> Any:
    from matplotlib.font_manager import FontProperties

    return FontProperties(family=str(STYLE["font.family"]), size=size, weight=weight)
