"""The answer as one picture: where it is, the timeline, the kept frames, the contact sheet, the options, the bill."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.report.colours import MARK, RGB
from gridprobe.report.facts import (
    Option,
    bill,
    compute_words,
    folded_words,
    options_title,
    said_words,
    split_options,
    verdict_words,
)
from gridprobe.report.files import write_whole
from gridprobe.report.lettering import face, fitted, wrapped
from gridprobe.report.pixels import decoded_frames
from gridprobe.report.sheet import GROUND, Sheet, draw_sheet, fitted_picture, outline
from gridprobe.report.where import (
    is_short,
    kept_frames,
    large_frames,
    large_words,
    length_of,
    levels,
    main_spans,
    sheet_words,
    spans,
    where_words,
)
from gridprobe.report.words import MAP_WORDS, clock, share_words, sure_words, video_name
from gridprobe.text import one_line

__all__ = ["FORMATS", "check_picture", "draw_answer", "draw_labelled_sheet", "encoded", "save_map"]

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The ending of a file's name -> what is written."""
INK: RGB = (238, 240, 244)
QUIET: RGB = (158, 164, 178)
RAIL: RGB = (38, 42, 53)
BAR: RGB = (104, 112, 132)
RIGHT: RGB = (123, 216, 143)
WRONG: RGB = (255, 138, 128)
WIDTH, MARGIN, GAP = 1280, 44, 30
INSIDE = WIDTH - 2 * MARGIN
SHEET_HEIGHT = 1000
LARGE_HEIGHT, LARGE_COLUMNS, MOST_LARGE = 430, 4, 8
"""The height of a large frame, how many stand side by side, and how many there are."""
RAIL_HEIGHT, WIDEST = 46, 20
"""Height of the timeline, and the width of a frame's column on it, at most."""
TIMES = 96
"""Width of the times at the left of the sheet."""


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


def draw_answer(answer: Answer) -> Image.Image:
    """The picture in memory."""
    parts = [_title(answer), _timeline(answer), *_large(answer), _sheet(answer), _options(answer), _footer(answer)]
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
    """The text in at most so many lines."""
    font = face(text, size)
    rows = wrapped(one_line(text), font, width, lines) or [""]
    height = round(size * 1.35)
    image = Image.new("RGB", (width, height * len(rows)), GROUND)
    draw = ImageDraw.Draw(image)
    for number, row in enumerate(rows):
        draw.text((0, height * number), row, colour, font)
    return image


# Parts.


def _title(answer: Answer) -> Image.Image:
    """The question, the answer with its probability, and where it is."""
    sure, font = sure_words(answer.confidence), face("0", 30)
    said = _text(said_words(answer), 46, MARK, lines=3, width=INSIDE - 190)
    headline = Image.new("RGB", (INSIDE, said.height), GROUND)
    headline.paste(said)
    words = face(said_words(answer), 46).getlength(one_line(said_words(answer))[:200])
    ImageDraw.Draw(headline).text((min(words + 30, INSIDE - 160), 14), sure, INK, font)
    lines = [_text(answer.question.text, 27, QUIET, lines=2), headline, _text(where_words(answer), 33, INK, lines=2)]
    if verdict := verdict_words(answer):
        lines.append(_text(verdict, 25, RIGHT if answer.right else WRONG))
    return _stacked(lines, gap=10)


def _timeline(answer: Answer) -> Image.Image:
    """The whole video from left to right; columns show importance, bright ones the kept frames."""
    length, known, kept = length_of(answer), levels(answer), kept_frames(answer)
    image = Image.new("RGB", (INSIDE, 34 + RAIL_HEIGHT + 32), GROUND)
    draw = ImageDraw.Draw(image)
    top, bottom = 34, 34 + RAIL_HEIGHT
    draw.rounded_rectangle((0, top, INSIDE - 1, bottom), 5, RAIL)
    for start, end in answer.reached.stretches:
        draw.rectangle((_x(start, length), top, _x(end, length), bottom), BAR)
    wide = min(WIDEST, max(2, INSIDE // max(1, len(answer.pool)) - 2))
    for index, level in enumerate(known or ()):
        x = _x(answer.pool.times[index], length) - wide // 2
        draw.rectangle((x, bottom - round(level * RAIL_HEIGHT), x + wide - 1, bottom), BAR)
    for index in kept:
        x = _x(answer.pool.times[index], length)
        draw.rectangle((x - 3, top, x + 3, bottom), MARK)
    _draw_moments(draw, answer, length)
    draw.text((0, bottom + 8), clock(0), QUIET, face("0", 20))
    draw.text((INSIDE, bottom + 8), clock(length), QUIET, face("0", 20), anchor="ra")
    return image


def _x(time: float, length: float) -> int:
    return round(3 + (INSIDE - 7) * min(1.0, max(0.0, time / length)))


def _draw_moments(draw: ImageDraw.ImageDraw, answer: Answer, length: float) -> None:
    """Write the times of the stretches above the rail; a time without room is left out."""
    font, taken = face("0", 24), -1.0
    for span in main_spans(answer) or spans(answer):
        text = span.words.replace("–", "-")
        half = font.getlength(text) / 2
        middle = min(INSIDE - half, max(half, _x((span.start + span.end) / 2, length)))
        if middle - half > taken:
            draw.text((middle, 26), text, MARK, font, anchor="ms")
            taken = middle + half + 16


def _large(answer: Answer) -> list[Image.Image]:
    """The kept frames with their times; empty if none were kept."""
    shown = large_frames(answer, MOST_LARGE)
    if not shown:
        return []
    columns = 3 if len(shown) in (5, 6) else min(LARGE_COLUMNS, len(shown))
    aspect = answer.frames.width / answer.frames.height
    width = min(INSIDE / columns - 14, LARGE_HEIGHT * aspect)
    size = max(8, round(width)), max(8, round(width / aspect))
    main = {index for span in main_spans(answer) for index in span.indices}
    decoded = decoded_frames(answer)
    step, rows = (size[0] + 14, size[1] + 46), -(-len(shown) // columns)
    image = Image.new("RGB", (INSIDE, step[1] * rows - 8), GROUND)
    draw = ImageDraw.Draw(image)
    for place, index in enumerate(shown):
        corner = 4 + place % columns * step[0], 4 + place // columns * step[1]
        image.paste(fitted_picture(decoded[index], size, aspect), corner)
        if index in main:
            outline(draw, corner, size, thick=4)
        words = clock(answer.pool.times[index], tenths=True)
        draw.text((corner[0], corner[1] + size[1] + 8), words, INK if index in main else QUIET, face(words, 22))
    note = large_words(answer, MOST_LARGE)
    return [_stacked([image, _text(note, 20, QUIET)], gap=6) if note else image]


def _sheet(answer: Answer) -> Image.Image:
    return _stacked([draw_labelled_sheet(answer), _text(sheet_words(answer), 20, QUIET)], gap=10)


def draw_labelled_sheet(answer: Answer) -> Image.Image:
    """The contact sheet with the time of each row's first frame."""
    sheet = Sheet.of(answer, width=INSIDE - TIMES, height=SHEET_HEIGHT)
    image = Image.new("RGB", (INSIDE, sheet.size[1]), GROUND)
    image.paste(draw_sheet(answer, sheet), (TIMES, 0))
    draw = ImageDraw.Draw(image)
    step = max(1, -(-24 // (sheet.tile[1] + sheet.gap)))
    for row in range(0, sheet.rows, step):
        text, y = (
            clock(answer.pool.times[row * sheet.columns], tenths=is_short(answer)),
            sheet.corner(row * sheet.columns)[1],
        )
        draw.text((TIMES - 14, y + sheet.tile[1] // 2), text, QUIET, face(text, 20), anchor="rm")
    return image


def _options(answer: Answer) -> Image.Image:
    """A bar for each option; unlikely ones share a line."""
    shown, folded = split_options(answer)
    rows = [_text(options_title(answer), 20, QUIET)] if answer.question.open else []
    rows += [_option(option) for option in shown]
    return _stacked([*rows, _text(folded_words(folded), 20, QUIET)] if folded else rows, gap=8)


def _option(option: Option) -> Image.Image:
    image = Image.new("RGB", (INSIDE, 36), GROUND)
    draw = ImageDraw.Draw(image)
    text, middle, end = f"{option.label}  {one_line(option.text)}".strip(), round(INSIDE * 0.52), INSIDE - 116
    font = face(text, 24)
    draw.text((0, 18), fitted(text, font, middle - 24), INK if option.chosen else QUIET, font, anchor="lm")
    draw.rounded_rectangle((middle, 9, end, 27), 4, RAIL)
    if filled := round((end - middle) * option.share):
        draw.rounded_rectangle((middle, 9, middle + filled, 27), 4, MARK if option.chosen else BAR)
    words = sure_words(option.share)
    draw.text((INSIDE, 18), words, INK if option.chosen else QUIET, face(words, 24), anchor="rm")
    return image


def _footer(answer: Answer) -> Image.Image:
    """What the answer cost, by stages, and one small line about the video and the map."""
    stages = [f"{stage.name} {share_words(stage.share)}" for stage in bill(answer)[:-1]]
    cost = f"{compute_words(answer)} ({', '.join(stages)})" if compute_words(answer) else ""
    evidence = answer.selection.evidence
    shown = f"importance: {MAP_WORDS[evidence.kind]}" if evidence else ""
    source = "   |   ".join(filter(None, (video_name(answer), shown)))
    lines = [_text(cost, 24, INK, lines=2)] if cost else []
    return _stacked([*lines, _text(source, 18, QUIET)], gap=8)
