"""The regime figure, one row per question: its map, the kept frames, and the answers of several runs."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from canvas import COLUMN, INCH, NOTE, SMALL, TEXT, new_figure, styled, wrap
from gridprobe.errors import UsageError
from gridprobe.importance import Grid, ImportanceMap, spread
from gridprobe.record import Record
from gridprobe.report.format import MARK, STOPS, clock, hex_colour, levels
from gridprobe_eval.metrics import score, shared
from gridprobe_eval.reader import Result, Run
from gridprobe_eval.report.run_data import make_thumbnails

__all__ = ["Regime", "RunAnswer", "regime_figure", "regimes"]

MOST = 12
"""The most questions of a figure."""


@dataclass(frozen=True)
class RunAnswer:
    """What one run answered."""

    run: str
    choice: str | None
    """None if the question failed."""
    right: bool | None
    """None if the right answer is not public."""


@dataclass(frozen=True, eq=False)
class Regime:
    """One row of the figure."""

    result: Result
    """The question, as the run that made the map has it."""
    chosen: Record
    """The selection of that run."""
    mapped: str
    """The name of that run."""
    answers: tuple[RunAnswer, ...]
    pictures: tuple[tuple[float, npt.NDArray[np.uint8]], ...] = ()
    """Times and pixels of some kept frames; empty if the video is not on disk."""

    @property
    def importance(self) -> npt.NDArray[np.float64]:
        """The map, rows × K."""
        record, pool = self.chosen, self.chosen.selection["pool"]
        if record.by_frame:
            return ImportanceMap(Grid.holding(pool), by_frame=record.by_frame).matrix
        rows, columns = record.selection["row_confidence"], record.selection["column_confidence"]
        return ImportanceMap(Grid(len(columns), pool), tuple(rows), tuple(columns)).matrix


def regimes(runs: Sequence[Run], ids: Sequence[str] = ()) -> tuple[list[Regime], list[str]]:
    """The rows for these questions, or for three, and notes on frames that cannot be shown.

    The three are those for which the first run with maps kept the most frames, the median number and the fewest; of
    equal ones the first. Nobody chooses them by how they turned out.
    """
    score(runs)  # refuses runs of different benchmark versions
    common = shared(runs)
    rows = {row.result.id: row for row in _rows(common)}
    if not rows:
        raise UsageError(
            "no question has a map and was asked in every run; name a run of gridprobe, and others with it"
        )
    if len(ids) > MOST:
        raise UsageError(f"the figure has room for {MOST} questions, got {len(ids)}; name fewer")
    unknown = [name for name in ids if name not in rows]
    if unknown:
        raise UsageError(f"the question {unknown[0]!r} has no map, or was not asked in every run; choose others")
    chosen = [rows[name] for name in ids] if ids else _typical(list(rows.values()))
    pictures, notes = _pictures(common, chosen)
    return [replace(row, pictures=pictures.get(row.result.id, ())) for row in chosen], notes


def _rows(runs: Sequence[Run]) -> list[Regime]:
    rows = []
    by_run = [{result.id: result for result in run.results} for run in runs]
    for name in by_run[0]:
        results = [mine[name] for mine in by_run]
        for run, result in zip(runs, results, strict=True):
            if result.answered and (result.answered.selection["row_confidence"] or result.answered.by_frame):
                answers = tuple(map(_given, runs, results))
                rows.append(Regime(result, result.answered, run.name, answers))
                break
    return rows


def _given(run: Run, result: Result) -> RunAnswer:
    return RunAnswer(run.name, result.answered.reply if result.answered else None, result.right)


def _typical(rows: Sequence[Regime]) -> list[Regime]:
    order = sorted(rows, key=lambda row: -row.chosen.shown_native)
    places = dict.fromkeys((0, len(order) // 2, len(order) - 1))
    return [order[place] for place in places]


Pictures = Mapping[str, tuple[tuple[float, npt.NDArray[np.uint8]], ...]]


def _pictures(runs: Sequence[Run], rows: Sequence[Regime]) -> tuple[Pictures, list[str]]:
    """The kept frames of each row, decoded from the videos on disk."""
    wanted = {(row.mapped, row.result.id) for row in rows}
    fewer = [replace(run, results=tuple(r for r in run.results if (run.name, r.id) in wanted)) for run in runs]
    thumbnails, notes = make_thumbnails(fewer)
    decoded = {
        name: tuple((time, _pixels(jpeg)) for time, jpeg in each)
        for mine in thumbnails.values()
        for name, each in mine.items()
    }
    return decoded, notes


def _pixels(jpeg: str) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(jpeg)), formats=["JPEG"]))


# Drawing. All places are in millimetres from the top left corner.

EDGE, GAP, LINE = 2.0, 2.5, 0.48
"""Margins, the space between parts, and the height of a line in millimetres for a type of one point."""
THUMBNAIL = 9.0
"""The least width of a kept frame."""
MAP_SIDE, ANSWERS = 26.0, 46.0
"""The most width of the map and of the answers."""
POINTS = 72.0
"""Points of an inch."""
RIGHT, WRONG, UNKNOWN = ("✓", "#0b4a8f"), ("✗", "#b03a00"), ("?", "#555555")
MARKS = {RIGHT: "right", WRONG: "wrong", UNKNOWN: "not public"}


@dataclass(frozen=True)
class _Sheet:
    """A figure with places in millimetres."""

    figure: Any
    width: float
    height: float

    def text(self, x: float, y: float, words: str, **style: Any) -> None:
        usual = {"va": "top", "ha": "left", "fontsize": SMALL, "linespacing": 1.15, "parse_math": False}
        self.figure.text(x / self.width, 1 - y / self.height, words, **usual | style)

    def axes(self, x: float, y: float, width: float, height: float) -> Any:
        place = (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def rule(self, y: float) -> None:
        from matplotlib.lines import Line2D

        at = 1 - y / self.height
        self.figure.add_artist(Line2D([0, 1], [at, at], color="#bbbbbb", linewidth=0.5))


@dataclass(frozen=True)
class _Widths:
    """Widths of the map, of the frames and of the answers."""

    map: float
    frames: float
    answers: float

    @classmethod
    def of(cls, width: float) -> "_Widths":
        free = width - 2 * EDGE - 2 * GAP
        side = min(MAP_SIDE, 0.27 * free)
        answers = min(ANSWERS, 0.45 * (free - side))
        return cls(side, free - side - answers, answers)


def regime_figure(rows: Sequence[Regime], *, width: float = COLUMN) -> Any:
    """Question, map, kept frames and answers, row by row."""
    with styled():
        widths = _Widths.of(width)
        heads = [wrap(row.result.question, width - 2 * EDGE, size=TEXT, most=6, weight="bold") for row in rows]
        listed = [_answers(row, widths.answers) for row in rows]
        heights = [
            _lines(head, TEXT) + max(_map_height(row, widths), _frames_height(row, widths), _list_height(each))
            for row, head, each in zip(rows, heads, listed, strict=True)
        ]
        note = wrap(_note(rows), width - 2 * EDGE, size=NOTE)
        whole = sum(heights) + len(rows) * 2 * GAP + _lines(note, NOTE) + EDGE
        sheet = _Sheet(new_figure(width, whole), width, whole)
        sheet.figure.set_layout_engine("none")
        y = EDGE
        for row, head, each, height in zip(rows, heads, listed, heights, strict=True):
            sheet.text(EDGE, y, head, fontsize=TEXT, weight="bold")
            below, x = y + _lines(head, TEXT) + 0.8, EDGE
            _draw_map(sheet, row, x, below, widths.map)
            _draw_frames(sheet, row, x + widths.map + GAP, below, widths.frames)
            _draw_answers(sheet, each, width - EDGE - widths.answers, below)
            y += height + 2 * GAP
            sheet.rule(y - GAP)
        sheet.text(EDGE, y - 0.5 * GAP, note, fontsize=NOTE, color="#444444")
    return sheet.figure


def _lines(words: str, size: float) -> float:
    """The height of a text."""
    return LINE * size * (words.count("\n") + 1)


def _note(rows: Sequence[Regime]) -> str:
    runs = dict.fromkeys(row.mapped for row in rows)
    used = dict.fromkeys(_mark(answer)[0] for row in rows for answer in row.answers)
    marks = ", ".join(f"{mark}\u00a0{words}" for (mark, _), words in MARKS.items() if mark in used)
    return f"Maps and kept frames: {', '.join(runs)}. Bright: important, dot: kept. {marks}."


# The map.


def _map_height(row: Regime, widths: _Widths) -> float:
    rows, columns = row.importance.shape
    return float(widths.map * rows / columns) + 0.8 + _lines(_map_words(row), NOTE)


def _map_words(row: Regime) -> str:
    answered = row.chosen
    skew = "" if answered.skew is None else f"\nskew {round(answered.skew, 2) + 0.0:+.2f}".replace("-", "−")
    kept = (
        f"{answered.shown_native} of {answered.selection['pool']} kept"
        if answered.shown_native
        else "from the overview"
    )
    return f"{kept}{skew}"


def _draw_map(sheet: _Sheet, row: Regime, x: float, y: float, side: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    matrix = row.importance
    shades = np.reshape(levels(matrix.reshape(-1).tolist()), matrix.shape)
    colours = LinearSegmentedColormap.from_list("importance", [hex_colour(stop) for stop in STOPS])
    height = side * matrix.shape[0] / matrix.shape[1]
    axes = sheet.axes(x, y, side, height)
    axes.imshow(shades, cmap=colours, vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    dots = {"marker": "o", "markerfacecolor": hex_colour(MARK), "markeredgecolor": "black", "linestyle": "none"}
    cell = side / matrix.shape[1] / INCH * POINTS
    across, down = zip(
        *(reversed(divmod(index, matrix.shape[1])) for index in row.chosen.selection["indices"]), strict=True
    )
    axes.plot(across, down, **dots, markersize=0.4 * cell, markeredgewidth=0.1 * cell)  # dark around light: always seen
    sheet.text(x, y + height + 0.8, _map_words(row), fontsize=NOTE)


# The kept frames.


def _thumbnails(row: Regime, width: float) -> tuple[int, float, list[int]]:
    """Columns, height of a frame, and which of the pictures are shown: at most two rows."""
    columns = max(1, min(int(width // THUMBNAIL), len(row.pictures)))
    shown = min(len(row.pictures), 2 * columns)
    places = list(spread(len(row.pictures), shown)) if shown else []
    tall = max((pixels.shape[0] / pixels.shape[1] for _, pixels in row.pictures), default=0.0)
    return columns, min(width / columns * tall, 16.0), places


def _frames_height(row: Regime, widths: _Widths) -> float:
    columns, tall, places = _thumbnails(row, widths.frames)
    return ceil(len(places) / columns) * (tall + _lines("", NOTE) + 0.6) + 3.0 + _lines("", NOTE) + 1.0


def _draw_frames(sheet: _Sheet, row: Regime, x: float, y: float, width: float) -> None:
    columns, tall, places = _thumbnails(row, width)
    step = width / columns
    for number, place in enumerate(places):
        time, pixels = row.pictures[place]
        left = x + number % columns * step
        top = y + number // columns * (tall + _lines("", NOTE) + 0.6)
        wide = min(step - 0.6, tall * pixels.shape[1] / pixels.shape[0])
        axes = sheet.axes(left, top, wide, tall)
        axes.imshow(pixels, interpolation="antialiased", aspect="auto")
        axes.set_axis_off()
        sheet.text(left, top + tall + 0.2, clock(time), fontsize=NOTE)
    below = y + ceil(len(places) / columns) * (tall + _lines("", NOTE) + 0.6)
    _draw_timeline(sheet, row, x, below, width)


def _draw_timeline(sheet: _Sheet, row: Regime, x: float, y: float, width: float) -> None:
    """A stroke for each kept frame, from the start of the video to its end."""
    end = max(row.result.duration or 0.0, *row.chosen.selection["timestamps"])
    axes = sheet.axes(x, y + 0.6, width - 0.6, 2.4)
    axes.vlines(np.asarray(row.chosen.selection["timestamps"]), 0, 1, color="#0b4a8f", linewidth=0.7)
    axes.set_xlim(0, end or 1.0)
    axes.set_ylim(0, 1)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    sheet.text(x, y + 3.4, clock(0), fontsize=NOTE)
    sheet.text(x + width - 0.6, y + 3.4, clock(end), fontsize=NOTE, ha="right")


# The answers.


def _answers(row: Regime, width: float) -> list[tuple[str, str, str]]:
    """Texts with their colour and weight: what is right, then what each run said."""
    labels = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", row.result.options, strict=False))
    parts = []
    if row.result.answer:
        gold = f"{row.result.answer}: {labels[row.result.answer]}"
        parts.append((wrap(f"Answer {gold}", width, size=SMALL, most=3), "black", "normal"))
    for answer in row.answers:
        mark, colour = _mark(answer)
        text = f"{mark} {answer.run}: {answer.choice or 'failed'}"
        weight = "bold" if answer.right else "normal"
        parts.append((wrap(text, width, size=SMALL, most=2, weight=weight), colour, weight))
        wrong = answer.choice and answer.choice != row.result.answer
        if wrong and answer.choice in labels:
            parts.append((wrap(labels[answer.choice], width, size=NOTE, most=2), "#555555", "normal"))
    return parts


def _mark(answer: RunAnswer) -> tuple[str, str]:
    if answer.right is None:
        return UNKNOWN
    return RIGHT if answer.right else WRONG


def _list_height(parts: Sequence[tuple[str, str, str]]) -> float:
    return sum(_lines(words, SMALL) + 0.5 for words, _, _ in parts)


def _draw_answers(sheet: _Sheet, parts: Sequence[tuple[str, str, str]], x: float, y: float) -> None:
    for words, colour, weight in parts:
        size = NOTE if colour == "#555555" else SMALL
        sheet.text(x, y, words, color=colour, weight=weight, fontsize=size)
        y += _lines(words, SMALL) + 0.5
