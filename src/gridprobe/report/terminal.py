"""Show an answer in a terminal: with or without colour, in Unicode or ASCII, at 40 columns or more."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from gridprobe._util import ASCII_WORDS, one_line
from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.importance import Grid
from gridprobe.report.format import MARK, RGB, clock, hex_colour, mix, share_words, sure_words
from gridprobe.report.html import check_writable, write_whole
from gridprobe.report.picture import draw_labelled_sheet, encoded, jpeg
from gridprobe.report.view import READING, AnswerView
from gridprobe.video import CLIP_FORMATS, Cut, VideoLimits, cut

QUESTION_LINES, VERDICT_LINES = 4, 2
SHORT_LINES = 12
"""The most lines of a short answer."""
MOST_MOMENTS = 12
"""At most this many times or stretches are listed."""
KEY_WIDTH = 10
EIGHTHS = " ▏▎▍▌▋▊▉█"
SHADES, ASCII_SHADES = "░▒▓█", ".:-=+*%@"
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇", "._:-=+"
"""Levels of importance on the timeline, lowest first."""
STRIP_WIDTH = 72
PICTURE_WIDTH, PICTURE_LINES = 24, 9
"""The largest picture of a frame, in columns and lines."""
DARK: RGB = (42, 46, 58)
LIGHT: RGB = (196, 201, 212)


def shows_colour(console: Console) -> bool:
    """Whether the console can draw in colours; with TERM=dumb it cannot, and pictures would be solid bands."""
    return console.color_system is not None and not console.no_color


@dataclass(frozen=True)
class Terminal:
    """What a terminal can show; it wraps, cuts and pads text to columns."""

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

    def line(self, text: str) -> str:
        """The clean text on one line."""
        return self.clean(one_line(text))

    def wrap(self, text: str, style: str = "none", *, limit: int | None = None) -> list[Text]:
        """The text in lines; if it needs more than `limit`, the last one ends with an ellipsis."""
        if limit is not None:
            text = self.cut(text, self.width * limit)  # wrapping a megabyte of text would be slow
        console = Console(file=io.StringIO(), width=self.width)
        lines = list(Text(self.line(text), self.style(style)).wrap(console, self.width))
        for line in lines:
            line.rstrip()
        if limit is None or len(lines) <= limit:
            return lines
        last = self.cut(f"{lines[limit - 1].plain} {lines[limit].plain}", self.width)
        return [*lines[: limit - 1], Text(last, self.style(style))]

    def cut(self, text: str, width: int) -> str:
        """The text on one line, with an ellipsis if it is wider."""
        text = self.line(text)
        if cell_len(text) <= width:
            return text
        ellipsis = self.clean("…")
        return set_cell_size(text, max(0, width - len(ellipsis))).rstrip() + ellipsis

    def pad(self, text: str, width: int) -> str:
        """The text on one line, at exactly this width."""
        return set_cell_size(self.cut(text, width), width)


def answer_view(answer: Answer, *, width: int, color: bool, unicode: bool, all_details: bool = False) -> Text:
    """Where the answer is, the timeline, the kept frames, the sheet, the options, the stages and the bill.

    Args:
        answer: what to show.
        width: columns of the terminal, at least 40; no line is longer.
        color: whether to use colours; otherwise characters show importance.
        unicode: whether the terminal can show characters outside ASCII.
        all_details: whether to add the mathematics of the map, TFLOPs, tokens and models.
    """
    view, terminal = AnswerView(answer), Terminal(width=max(20, width), color=color, unicode=unicode)
    blocks = [
        [*terminal.wrap(answer.question.text, "dim", limit=QUESTION_LINES), *headline(view, terminal)],
        timeline_lines(view, terminal),
        picture_lines(view, terminal) + _moments(view, terminal),
        map_lines(view, terminal),
        _options(view, terminal),
        _reached(view, terminal) + _bill(view, terminal),
        _details(view, terminal) if all_details else [],
        _warnings(view, terminal),
    ]
    lines = [line for block in blocks if block for line in (*block, Text())]
    return Text("\n").join(lines[:-1])


def short_view(answer: Answer, *, width: int, color: bool, unicode: bool) -> Text:
    """The answer, how sure, where, how it was reached, and what it took: at most 12 lines. `-v` shows the rest."""
    view, terminal = AnswerView(answer), Terminal(width=max(20, width), color=color, unicode=unicode)
    lines = [
        *terminal.wrap(answer.question.text, "dim", limit=1),
        *headline(view, terminal),
        *terminal.wrap(view.reached),
        *terminal.wrap(view.compute, "bold"),
        *_warnings(view, terminal),
    ]
    if len(lines) > SHORT_LINES:
        rest = terminal.cut(f"… and {len(lines) - SHORT_LINES + 1} more lines; -v shows them", terminal.width)
        lines = [*lines[: SHORT_LINES - 1], Text(rest, terminal.style("dim"))]
    return Text("\n").join(lines)


def headline(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The answer with its probability and, if known, whether it is right; then what is doubtful, and where it is."""
    sure = terminal.clean(f" {view.sure}")
    line = Text(terminal.cut(view.text, terminal.width - len(sure)), terminal.style("bold"))
    line.append(sure, terminal.style(f"bold {hex_colour(MARK)}"))
    verdict = terminal.line(view.verdict)
    if view.answer.right and line.cell_len + len(verdict) + 2 <= terminal.width:
        line.append(f", {verdict}", terminal.style("green"))
        verdict = ""
    judged = terminal.wrap(verdict, "green" if view.answer.right else "red", limit=VERDICT_LINES) if verdict else []
    doubt = terminal.wrap(view.doubt, "yellow") if view.doubt else []
    heard = terminal.wrap(view.subtitles, "dim") if view.subtitles else []
    return [line, *judged, *doubt, *terminal.wrap(view.where, "bold"), *heard]


def _warnings(view: AnswerView, terminal: Terminal) -> list[Text]:
    return [line for warning in view.warnings for line in terminal.wrap(f"warning: {warning}", "yellow")]


def _moments(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The times of all kept frames; empty if the headline has them already."""
    if view.spans == view.main_spans:
        return []
    items = [span.words + (f" ({len(span.indices)})" if len(span.indices) > 1 else "") for span in view.spans]
    rest = f" and {len(items) - MOST_MOMENTS} more" if len(items) > MOST_MOMENTS else ""
    return terminal.wrap(f"{view.mark}: {', '.join(items[:MOST_MOMENTS])}{rest}")


def _options(view: AnswerView, terminal: Terminal) -> list[Text]:
    """A bar for each option, the chosen one first; unlikely ones share a line."""
    shown = view.shown_options
    texts = [terminal.line(f"{option.label} {option.text}") for option in shown]
    room = min(max(map(cell_len, texts)), terminal.width * 2 // 5)
    bar = min(40, terminal.width - room - 13)
    lines = terminal.wrap(view.options_title, "dim") if view.answer.question.open else []
    for option, text in zip(shown, texts, strict=True):
        weight, colour = ("bold", hex_colour(MARK)) if option.chosen else ("none", "dim")
        arrow = terminal.clean("▸" if option.chosen else " ")
        line = Text(f"{arrow} {terminal.pad(text, room)} ", terminal.style(weight))
        line.append(_bar(option.share, bar, terminal), terminal.style(colour))
        lines.append(line.append(f" {terminal.clean(sure_words(option.share)):>7}", terminal.style(weight)))
    if folded := view.folded_words:
        lines.append(Text("  " + terminal.cut(folded, terminal.width - 2), terminal.style("dim")))
    return lines


def _bar(share: float, width: int, terminal: Terminal) -> str:
    """A bar with a resolution of an eighth of a column, or of a whole column in ASCII."""
    if not terminal.unicode:
        return ("#" * round(share * width)).ljust(width)
    whole, rest = divmod(round(share * width * 8), 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def _reached(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The sentence about how the answer was reached, and what each stage preferred."""
    lines = terminal.wrap(view.reached)
    if stages := view.stages:
        lines += terminal.wrap(f"{'; '.join(stages)}.", "dim")
    return lines


def _bill(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The share of the compute, and one line for each stage with its share and its seconds."""
    rows = [("decode", "", view.answer.seconds.decode)]
    rows += [(stage.name, share_words(stage.share), stage.seconds) for stage in view.bill]
    stages = [
        Text(terminal.clean(f"{name:<{KEY_WIDTH}}{share:>7}{seconds:>8.1f} s"), terminal.style("dim"))
        for name, share, seconds in rows
    ]
    return [*terminal.wrap(view.compute, "bold"), *stages]


def _details(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The details in two columns."""
    lines, narrow = [], replace(terminal, width=terminal.width - KEY_WIDTH)
    for name, value in view.details.items():
        part = narrow.wrap(value)
        for key, line in zip([name, *[""] * (len(part) - 1)], part, strict=True):
            lines.append(Text(key.ljust(KEY_WIDTH), terminal.style("dim")).append_text(line))
    return lines


# The timeline.


def timeline_lines(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The whole video from left to right: times of the main stretches, importance with kept frames, and both ends."""
    width, length, kept = min(terminal.width, STRIP_WIDTH), view.length, set(view.kept)
    levels = view.levels
    highest: dict[int, float] = {}
    marked = set()
    for index, time in enumerate(view.answer.pool.times):
        column = _column(time, length, width)
        highest[column] = max(highest.get(column, 0.0), levels[index] if levels else 0.0)
        marked |= {column} if index in kept else set()
    strip = Text()
    for column in range(width):
        strip.append_text(_notch(highest.get(column), column in marked, terminal, plain=levels is None))
    first, last = clock(0), clock(length)
    ends = Text(first + last.rjust(width - len(first)), terminal.style("dim"))
    return [line for line in (_moment_times(view, terminal, width), strip, ends) if line.plain.strip()]


def _column(time: float, length: float, width: int) -> int:
    return min(width - 1, max(0, int(time / length * width)))


def _notch(level: float | None, marked: bool, terminal: Terminal, *, plain: bool) -> Text:
    """One column: bright if a frame in it was kept, otherwise its importance; blank where there is no frame."""
    if marked:
        return Text("█" if terminal.unicode else "#", terminal.style(hex_colour(MARK)))
    if level is None:
        return Text(" ")
    blocks = BLOCKS if terminal.unicode else ASCII_BLOCKS
    sign = terminal.clean("·") if plain else blocks[min(len(blocks) - 1, int(level * len(blocks)))]
    return Text(sign, terminal.style("dim"))


def _moment_times(view: AnswerView, terminal: Terminal, width: int) -> Text:
    """The times of the stretches above the strip; a time without room is left out."""
    line = ""
    for span in view.moments:
        words = terminal.clean(span.words)
        middle = _column((span.start + span.end) / 2, view.length, width)
        start = min(width - len(words), max(0, middle - len(words) // 2))
        if start > len(line) or not line:
            line = line.ljust(start) + words
    return Text(line, terminal.style(f"bold {hex_colour(MARK)}"))


# The kept frames.


def picture_lines(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The most important kept frames side by side, in blocks of colour; empty without colour or Unicode."""
    most = max(1, (terminal.width + 2) // (PICTURE_WIDTH + 2))
    shown = view.large_frames(most)
    if not (terminal.color and terminal.unicode and shown):
        return []
    columns = max(4, min(PICTURE_WIDTH, terminal.width, round(2 * PICTURE_LINES * view.aspect)))
    rows = max(1, min(PICTURE_LINES, round(columns / view.aspect / 2)))
    decoded = view.pixels
    pictures = [_picture(Image.fromarray(decoded[index]), columns, rows) for index in shown]
    lines = [Text("  ").join(each) for each in zip(*pictures, strict=True)]
    times = "  ".join(clock(view.answer.pool.times[index], tenths=True).ljust(columns) for index in shown)
    return [*lines, Text(times.rstrip(), terminal.style("dim"))]


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


def map_lines(view: AnswerView, terminal: Terminal) -> list[Text]:
    """The frames in rows with the time of each row: brighter is more important, kept ones are marked.

    Empty without scores, or if the rows are too wide.
    """
    levels, kept = view.levels, set(view.kept)
    if levels is None:
        return []
    evidence = view.answer.selection.evidence
    grid = evidence.grid if evidence else Grid.holding(len(levels))
    starts = [clock(view.answer.pool.times[r * grid.k], tenths=view.is_short) for r in range(grid.rows)]
    times = max(map(len, starts)) + 1
    shapes = ((3, times), (2, times), (1, times), (1, 0))
    shape = next(((cell, start) for cell, start in shapes if start + grid.k * cell <= terminal.width), None)
    if shape is None:
        return []
    cell, start = shape
    lines = []
    for r, words in enumerate(starts):
        line = Text(f"{words:>{start - 1}} " if start else "", terminal.style("dim"))
        for index in grid.row(r):
            line.append_text(_cell(levels[index], index in kept, cell, terminal))
        lines.append(line)
    return [*lines, *_legend(view, terminal, cell)]


def _cell(level: float, kept: bool, width: int, terminal: Terminal) -> Text:
    """One frame: a grey or, if it was kept, a bright background; without colour a shade, in brackets if kept."""
    if terminal.color:
        ground = MARK if kept else mix(DARK, LIGHT, level)
        mark = terminal.clean("●") if kept else ""
        return Text(mark.center(width), f"bold {hex_colour(DARK)} on {hex_colour(ground)}")
    shades = SHADES if terminal.unicode else ASCII_SHADES
    shade = shades[min(len(shades) - 1, int(level * len(shades)))]
    if not kept:
        return Text(shade * width if width < 3 else f" {shade} ")
    mark = "●" if terminal.unicode else "O"
    return Text((mark, mark + shade, f"[{shade}]")[width - 1])


def _legend(view: AnswerView, terminal: Terminal, cell: int) -> list[Text]:
    """How the rows are read, and what brightness and marks mean; marks are as wide as on the map."""
    key = Text("importance ", terminal.style("dim"))
    for step in range(8):
        key.append_text(_cell(step / 7, False, 1, terminal))
    if view.kept:
        key.append("   ").append_text(_cell(1.0, True, cell, terminal)).append(f" {view.mark}", terminal.style("dim"))
    return [*terminal.wrap(READING, "dim"), key]


SHEET = "contact-sheet.jpg"


def check_folder(folder: Path) -> None:
    """Raise UsageError if frames cannot be saved there; the command line calls this before any work starts."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot save frames in {folder}: it is not a folder; name a new one")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"cannot save frames in {folder}: it is not empty; name a new folder")
    if not folder.is_dir() and not folder.resolve().parent.is_dir():
        raise UsageError(f"cannot save frames in {folder}: the folder {folder.resolve().parent} does not exist")


def check_clip(path: Path, video: Path) -> None:
    """Raise UsageError if no clip of this video can be saved there."""
    check_writable(path)
    if path.suffix.lower() not in CLIP_FORMATS:
        raise UsageError(f"cannot write the clip {path}: its name must end in {', '.join(CLIP_FORMATS)}")
    if video.is_dir():
        raise UsageError(f"cannot cut a clip from {video}: it is a folder of pictures; use --save-frames")
    if path.resolve() == video.resolve():
        raise UsageError(f"cannot write the clip {path}: it is the video itself; name another file")


def save_frames(answer: Answer, folder: Path) -> None:
    """Write the kept frames, named by their times, and the contact sheet as JPEG files into a new folder."""
    check_folder(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {folder}: {error.strerror}; name another") from None
    view = AnswerView(answer)
    for index in answer.selection.indices:
        frame = Image.fromarray(view.pixels[index])
        write_whole(folder / frame_name(answer.pool.times[index]), jpeg(frame, quality=92))
    write_whole(folder / SHEET, encoded(draw_labelled_sheet(view), folder / SHEET))


def frame_name(time: float) -> str:
    """For example "frame-0h02m40.25s.jpg"; names sort by time."""
    hundredths = round(time * 100)
    minutes, rest = divmod(hundredths, 6000)
    return f"frame-{minutes // 60}h{minutes % 60:02d}m{rest / 100:05.2f}s.jpg"


def save_clip(answer: Answer, video: Path, path: Path, *, limits: VideoLimits) -> Cut | None:
    """Write the stretches around the main kept frames; None if the answer does not point at any moment."""
    stretches = AnswerView(answer).clip_stretches
    if not stretches:
        return None
    stream = answer.pool.info.stream if answer.pool.info else None
    made = cut(video, stretches, suffix=path.suffix.lower(), limits=limits, stream=stream)
    write_whole(path, made.content)
    return made
