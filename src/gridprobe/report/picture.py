"""The answer as one picture: where it is, the timeline, the kept frames, the contact sheet, the options, the bill."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import cast
from unicodedata import category, normalize

from PIL import Image, ImageDraw, ImageFont, ImageStat
from PIL.ImageFont import FreeTypeFont

from gridprobe._util import one_line
from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.importance import Grid
from gridprobe.report.format import MAP_WORDS, MARK, RGB, clock, share_words, sure_words
from gridprobe.report.html import write_whole
from gridprobe.report.view import AnswerView, Option
from gridprobe.video.frames import Pixels

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The ending of a file's name -> what is written."""
INK: RGB = (238, 240, 244)
QUIET: RGB = (158, 164, 178)
RAIL: RGB = (38, 42, 53)
BAR: RGB = (104, 112, 132)
RIGHT: RGB = (123, 216, 143)
WRONG: RGB = (255, 138, 128)
WARN: RGB = (255, 213, 138)
WIDTH, MARGIN, GAP = 1280, 44, 30
INSIDE = WIDTH - 2 * MARGIN
SHEET_HEIGHT = 1000
LARGE_HEIGHT, LARGE_COLUMNS, MOST_LARGE = 430, 4, 8
"""The height of a large frame, how many stand side by side, and how many there are."""
RAIL_HEIGHT, WIDEST = 46, 20
"""Height of the timeline, and the width of a frame's column on it, at most."""
TIMES = 96
"""Width of the times at the left of the sheet."""
GROUND: RGB = (16, 18, 24)
BLANK: RGB = (62, 68, 82)
"""A frame that was not decoded, at full brightness."""
DARKEST = 28
"""Mean brightness, of 255, to which a frame may be dimmed."""
QUESTION_LINES, OPTION_LINES = 6, 2
WIDEST_OPTION = 0.52
"""The share of the width that the texts of options get at most; their bars begin where the longest ends."""
FLATTEST = 4.0
"""The largest aspect ratio of a tile, either way; more extreme frames get bars inside their tiles."""
SMALLEST = 3
OTHER_FONTS = (
    "DejaVuSans.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial Unicode.ttf",
    "NotoSans-Regular.ttf",
    "msyh.ttc",
    "arial.ttf",
)
"""Fonts to try, in this order, if Pillow's default font lacks a character; then all in FONT_FOLDERS."""
FONT_FOLDERS = (
    *("~/.fonts", "~/.local/share/fonts", "/usr/local/share/fonts", "/usr/share/fonts"),
    *("/Library/Fonts", "/System/Library/Fonts", "C:/Windows/Fonts"),
)
FONT_ENDINGS = (".ttf", ".otf", ".ttc")
MOST_FONTS, PROBE = 1000, 16
"""At most this many installed fonts are tried, at this size."""
STAND_INS = {"×": "x", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "·": "|", "…": "..."}
"""Used where the font lacks a character; a line does not change its font for these alone."""
LONGEST = 600
"""The most characters of a line that are measured; measuring a megabyte of text would take minutes."""


def check_picture(path: Path) -> None:
    """Raise UsageError for a file name whose ending is not one of FORMATS."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot write the picture {path}: its name must end in {', '.join(FORMATS)}")


def save_map(answers: Sequence[Answer], path: Path) -> None:
    """Write the picture of one answer, 1280 pixels wide, as the ending of the name says."""
    check_picture(path)
    if len(answers) != 1:
        raise UsageError(f"a map shows exactly one answer, got {len(answers)}; save a report for any other number")
    write_whole(path, encoded(draw_answer(answers[0]), path))


def encoded(image: Image.Image, path: Path) -> bytes:
    """The image in the format that the name of the file says, in full colour."""
    content = io.BytesIO()
    image.save(content, FORMATS[path.suffix.lower()], quality=90, optimize=True)
    return content.getvalue()


def jpeg(image: Image.Image, *, quality: int) -> bytes:
    """The image as a small JPEG file."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=quality, optimize=True)
    return content.getvalue()


def draw_answer(answer: Answer) -> Image.Image:
    """The picture in memory."""
    view = AnswerView(answer)
    parts = [_title(view), _timeline(view), *_large(view), _sheet(view), _options(view), _footer(view)]
    return _stacked(parts, margin=MARGIN)


def _stacked(parts: Sequence[Image.Image], *, gap: int = GAP, margin: int = 0) -> Image.Image:
    """The parts below each other."""
    width, height = max(part.width for part in parts), sum(part.height for part in parts) + gap * (len(parts) - 1)
    image, y = Image.new("RGB", (width + 2 * margin, height + 2 * margin), GROUND), margin
    for part in parts:
        image.paste(part, (margin, y))
        y += part.height + gap
    return image


def _text(text: str, size: int, colour: RGB, *, lines: int = 1, width: int = INSIDE) -> Image.Image:
    """The text in at most this many lines."""
    font = font_for(text, size)
    rows = fit_lines(one_line(text), font, width, lines) or [""]
    height = round(size * 1.35)
    image = Image.new("RGB", (width, height * len(rows)), GROUND)
    draw = ImageDraw.Draw(image)
    for number, row in enumerate(rows):
        draw.text((0, height * number), row, colour, font)
    return image


# Parts.


def _title(view: AnswerView) -> Image.Image:
    """The question, the answer with its probability, and where it is."""
    sure, font = view.sure, font_for("0", 30)
    answer = _text(view.text, 46, MARK, lines=3, width=INSIDE - 190)
    headline = Image.new("RGB", (INSIDE, answer.height), GROUND)
    headline.paste(answer)
    words = font_for(view.text, 46).getlength(one_line(view.text)[:200])
    ImageDraw.Draw(headline).text((min(words + 30, INSIDE - 160), 14), sure, INK, font)
    doubt = [_text(view.doubt, 27, WARN, lines=3)] if view.doubt else []
    question = _text(view.answer.question.text, 27, QUIET, lines=QUESTION_LINES)
    lines = [question, headline, *doubt, _text(view.where, 33, INK, lines=2)]
    if verdict := view.verdict:
        lines.append(_text(verdict, 25, RIGHT if view.answer.right else WRONG))
    return _stacked(lines, gap=10)


def _timeline(view: AnswerView) -> Image.Image:
    """The whole video from left to right; columns show importance, bright ones the kept frames."""
    length = view.length
    image = Image.new("RGB", (INSIDE, 34 + RAIL_HEIGHT + 32), GROUND)
    draw = ImageDraw.Draw(image)
    top, bottom = 34, 34 + RAIL_HEIGHT
    draw.rounded_rectangle((0, top, INSIDE - 1, bottom), 5, RAIL)
    for start, end in view.answer.reached.stretches:
        draw.rectangle((_x(start, length), top, _x(end, length), bottom), BAR)
    wide = min(WIDEST, max(2, INSIDE // max(1, len(view.answer.pool)) - 2))
    for index, level in enumerate(view.levels or ()):
        x = _x(view.answer.pool.times[index], length) - wide // 2
        draw.rectangle((x, bottom - round(level * RAIL_HEIGHT), x + wide - 1, bottom), BAR)
    for index in view.kept:
        x = _x(view.answer.pool.times[index], length)
        draw.rectangle((x - 3, top, x + 3, bottom), MARK)
    _draw_moments(draw, view, length)
    draw.text((0, bottom + 8), clock(0), QUIET, font_for("0", 20))
    draw.text((INSIDE, bottom + 8), clock(length), QUIET, font_for("0", 20), anchor="ra")
    return image


def _x(time: float, length: float) -> int:
    return round(3 + (INSIDE - 7) * min(1.0, max(0.0, time / length)))


def _draw_moments(draw: ImageDraw.ImageDraw, view: AnswerView, length: float) -> None:
    """Write the times of the stretches above the rail; a time without room is left out."""
    font, end = font_for("0", 24), -1.0
    for span in view.moments:
        text = span.words.replace("–", "-")
        half = font.getlength(text) / 2
        middle = min(INSIDE - half, max(half, _x((span.start + span.end) / 2, length)))
        if middle - half > end:
            draw.text((middle, 26), text, MARK, font, anchor="ms")
            end = middle + half + 16


def _large(view: AnswerView) -> list[Image.Image]:
    """The kept frames with their times; empty if none were kept."""
    shown = view.large_frames(MOST_LARGE)
    if not shown:
        return []
    columns = 3 if len(shown) in (5, 6) else min(LARGE_COLUMNS, len(shown))
    width = min(INSIDE / columns - 14, LARGE_HEIGHT * view.aspect)
    size = max(8, round(width)), max(8, round(width / view.aspect))
    main = view.main_frames
    step, rows = (size[0] + 14, size[1] + 46), -(-len(shown) // columns)
    image = Image.new("RGB", (INSIDE, step[1] * rows - 8), GROUND)
    draw = ImageDraw.Draw(image)
    for place, index in enumerate(shown):
        corner = 4 + place % columns * step[0], 4 + place // columns * step[1]
        image.paste(_fit_picture(view.pixels[index], size, view.aspect), corner)
        if index in main:
            _outline(draw, corner, size, thick=4)
        words = clock(view.answer.pool.times[index], tenths=True)
        draw.text((corner[0], corner[1] + size[1] + 8), words, INK if index in main else QUIET, font_for(words, 22))
    note = view.large_words(MOST_LARGE)
    return [_stacked([image, _text(note, 20, QUIET)], gap=6) if note else image]


def _sheet(view: AnswerView) -> Image.Image:
    return _stacked([draw_labelled_sheet(view), _text(view.sheet_words, 20, QUIET)], gap=10)


def draw_labelled_sheet(view: AnswerView) -> Image.Image:
    """The contact sheet with the time of each row's first frame."""
    sheet = Sheet.of(view, width=INSIDE - TIMES, height=SHEET_HEIGHT)
    image = Image.new("RGB", (INSIDE, sheet.size[1]), GROUND)
    image.paste(draw_sheet(view, sheet), (TIMES, 0))
    draw = ImageDraw.Draw(image)
    step = max(1, -(-24 // (sheet.tile[1] + sheet.gap)))
    for row in range(0, sheet.rows, step):
        text, y = (
            clock(view.answer.pool.times[row * sheet.columns], tenths=view.is_short),
            sheet.corner(row * sheet.columns)[1],
        )
        draw.text((TIMES - 14, y + sheet.tile[1] // 2), text, QUIET, font_for(text, 20), anchor="rm")
    return image


def _options(view: AnswerView) -> Image.Image:
    """A bar for each option; unlikely ones share a line."""
    rows = [_text(view.options_title, 20, QUIET)] if view.answer.question.open else []
    texts = [(option, f"{option.label}  {one_line(option.text)}".strip()) for option in view.shown_options]
    widest = max(font_for(text, 24).getlength(text[:LONGEST]) for _, text in texts)
    middle = round(min(WIDEST_OPTION * INSIDE, widest + 30))
    rows += [_option(option, text, middle) for option, text in texts]
    return _stacked([*rows, _text(view.folded_words, 20, QUIET)] if view.folded_words else rows, gap=8)


def _option(option: Option, text: str, middle: int) -> Image.Image:
    """An option's text left of `middle`, its bar to the right, and its probability at the end."""
    colour, end = INK if option.chosen else QUIET, INSIDE - 116
    label = _text(text, 24, colour, lines=OPTION_LINES, width=middle - 24)
    image = Image.new("RGB", (INSIDE, label.height + 4), GROUND)
    image.paste(label, (0, 2))
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle((middle, 9, end, 27), 4, RAIL)
    if filled := round((end - middle) * option.share):
        draw.rounded_rectangle((middle, 9, middle + filled, 27), 4, MARK if option.chosen else BAR)
    words = sure_words(option.share)
    draw.text((INSIDE, 18), words, colour, font_for(words, 24), anchor="rm")
    return image


def _footer(view: AnswerView) -> Image.Image:
    """What the answer cost, by stages, its warnings, and one small line about the video and the map."""
    stages = [f"{stage.name} {share_words(stage.share)}" for stage in view.bill[:-1]]
    cost = f"{view.compute} ({', '.join(stages)})" if view.compute else ""
    evidence = view.answer.selection.evidence
    shown = f"importance: {MAP_WORDS[evidence.kind]}" if evidence else ""
    source = "   |   ".join(filter(None, (view.video_name, shown)))
    lines = [_text(cost, 24, INK, lines=2)] if cost else []
    warnings = [f"warning: {warning}" for warning in view.warnings]
    if missing := missing_letters((view.answer.question.text, *(option.text for option in view.options), source)):
        warnings.append(f"{len(missing)} characters are drawn as boxes: install a font that has them, such as Noto")
    lines += [_text(warning, 20, WARN, lines=2) for warning in warnings]
    return _stacked([*lines, _text(source, 18, QUIET)], gap=8)


# The contact sheet.


@dataclass(frozen=True)
class Sheet:
    """Tiles in rows, with a gap around each."""

    columns: int
    rows: int
    tile: tuple[int, int]
    gap: int

    @classmethod
    def of(cls, view: AnswerView, *, width: int, height: int) -> "Sheet":
        """The largest tiles that fit, in the aspect ratio of the kept frames."""
        evidence = view.answer.selection.evidence
        grid = evidence.grid if evidence else Grid.holding(len(view.answer.pool))
        aspect = min(FLATTEST, max(1 / FLATTEST, view.aspect))
        gap = 6 if grid.k <= 16 else 4 if grid.k <= 32 else 2
        wide = min(width / grid.k, height / grid.rows * aspect) - gap
        return cls(grid.k, grid.rows, (max(SMALLEST, int(wide)), max(SMALLEST, round(wide / aspect))), gap)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole sheet."""
        return self.columns * (self.tile[0] + self.gap), self.rows * (self.tile[1] + self.gap)

    def corner(self, index: int) -> tuple[int, int]:
        """The upper left corner of a frame's tile."""
        row, column = divmod(index, self.columns)
        return tuple(  # type: ignore[return-value]
            place * (side + self.gap) + self.gap // 2 for place, side in zip((column, row), self.tile, strict=True)
        )


def draw_sheet(view: AnswerView, sheet: Sheet) -> Image.Image:
    """All frames of the pool."""
    image = Image.new("RGB", sheet.size, GROUND)
    draw = ImageDraw.Draw(image)
    kept = set(view.kept)
    for index, share in enumerate(view.brightness):
        corner = sheet.corner(index)
        if index in view.pixels:
            tile = _fit_picture(view.pixels[index], sheet.tile, view.aspect)
        else:
            tile = Image.new("RGB", sheet.tile, BLANK)
        image.paste(_dimmed(tile, share), corner)
        if index in kept:
            _outline(draw, corner, sheet.tile, thick=max(1, sheet.gap // 2))
    return image


def _dimmed(tile: Image.Image, share: float) -> Image.Image:
    """The tile at this share of its brightness, or at the share at which it can still be seen."""
    if share < 1:
        share = min(1.0, max(share, DARKEST / max(1.0, ImageStat.Stat(tile.convert("L")).mean[0])))
    return Image.blend(Image.new("RGB", tile.size), tile, share)


def _outline(draw: ImageDraw.ImageDraw, corner: tuple[int, int], size: tuple[int, int], *, thick: int) -> None:
    """A frame around a picture, outside of it."""
    (x, y), (width, height) = corner, size
    box = (x - thick, y - thick, x + width + thick - 1, y + height + thick - 1)
    draw.rectangle(box, outline=MARK, width=thick)


def _fit_picture(pixels: Pixels, size: tuple[int, int], aspect: float) -> Image.Image:
    """The frame in this size and aspect ratio, with bars where it does not fill the size."""
    width, height = size
    inside = max(1, round(min(width, height * aspect))), max(1, round(min(height, width / aspect)))
    smaller = inside[0] < pixels.shape[1]
    filter = Image.Resampling.BILINEAR if smaller else Image.Resampling.BICUBIC
    scaled = Image.fromarray(pixels).resize(inside, filter, reducing_gap=2.0 if smaller else None)
    if abs(inside[0] - width) <= 1 and abs(inside[1] - height) <= 1:
        return scaled.resize(size) if scaled.size != size else scaled
    canvas = Image.new("RGB", size, (0, 0, 0))
    canvas.paste(scaled, ((width - inside[0]) // 2, (height - inside[1]) // 2))
    return canvas


# Text.


def font_for(text: str, size: int) -> FreeTypeFont:
    """The font of this size that contains the most characters of the text; Pillow's default font wins ties."""
    return _font(_best_font(frozenset(text[:LONGEST]).difference(STAND_INS)), size) or _own(size)


@lru_cache(maxsize=256)
def _best_font(letters: frozenset[str]) -> str:
    """The name or file of the font with the most of these letters; empty for Pillow's default."""
    best, fewest = "", len(_unknown(letters, _own(PROBE)))
    for name in chain(OTHER_FONTS, _font_files()) if fewest else ():
        font = _font(name, PROBE)
        if font and (lacking := len(_unknown(letters, font))) < fewest:
            best, fewest = name, lacking
        if not fewest:
            break
    return best


@lru_cache(maxsize=1)
def _font_files() -> tuple[str, ...]:
    """The fonts in the folders in which systems keep them."""
    folders = (Path(name).expanduser() for name in FONT_FOLDERS)
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix.lower() in FONT_ENDINGS)
    return tuple(map(str, islice(files, MOST_FONTS)))


@lru_cache(maxsize=32)
def _own(size: int) -> FreeTypeFont:
    return cast(FreeTypeFont, ImageFont.load_default(size=size))


@lru_cache(maxsize=64)
def _font(name: str, size: int) -> FreeTypeFont | None:
    try:
        return ImageFont.truetype(name, size) if name else None
    except OSError:
        return None


def _unknown(letters: Iterable[str], font: FreeTypeFont) -> set[str]:
    """The characters that the font lacks: it draws its placeholder for them."""
    unknown = bytes(font.getmask("\uffff"))
    return {letter for letter in letters if not letter.isspace() and bytes(font.getmask(letter)) == unknown}


def _spelled(text: str, font: FreeTypeFont) -> str:
    """Replace characters that the font lacks: ü by u, × by x. Others stay and are drawn as boxes."""
    return text.translate({ord(letter): _relative(letter) for letter in _unknown(set(text), font)})


def _relative(letter: str) -> str:
    """What is drawn for a character that the font lacks; nothing for one that only changes its neighbour."""
    return "" if category(letter) in ("Cf", "Mn") else STAND_INS.get(letter) or normalize("NFKD", letter)[0]


def missing_letters(texts: Iterable[str]) -> set[str]:
    """The characters of these texts that are drawn as boxes."""
    return {
        letter for text in texts for letter in _unknown(set(text), font_for(text, 24)) if _relative(letter) == letter
    }


def fit_line(text: str, font: FreeTypeFont, width: float) -> str:
    """The text, cut with an ellipsis if it is too long."""
    spelled = _spelled(text[:LONGEST], font)
    if len(text) <= LONGEST and font.getlength(spelled) <= width:
        return spelled
    return spelled[: _longest(spelled, font, width - font.getlength("…"))].rstrip() + "…"


def fit_lines(text: str, font: FreeTypeFont, width: float, lines: int) -> list[str]:
    """Wrap the text into at most `lines` lines, at spaces if possible."""
    text = _spelled(text[: LONGEST * lines], font)
    done: list[str] = []
    while text and len(done) < lines - 1:
        end = _longest(text[:LONGEST], font, width)
        if end < len(text):
            end = text.rfind(" ", 0, end + 1) if " " in text[: end + 1].strip() else max(1, end)
        done.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*done, fit_line(text, font, width)] if text else done


def _longest(text: str, font: FreeTypeFont, width: float) -> int:
    """The number of characters that fit."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font.getlength(text[:middle]) <= width else (low, middle - 1)
    return low
