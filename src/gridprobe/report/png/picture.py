"""Draw the map of an answer: the grid of frames, tinted by importance, with the kept frames outlined."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.importance import ImportanceMap
from gridprobe.report.colours import MARK, RGB, Scale, mix, ramp
from gridprobe.report.files import write_whole
from gridprobe.report.pixels import decoded_frames
from gridprobe.report.png.layout import BARS, COLUMN_BARS, GAP, LINE, MARGIN, Box, Layout
from gridprobe.report.png.lettering import face, fitted, wrapped
from gridprobe.report.words import (
    MAP_WORDS,
    amount,
    clock,
    compute_saved,
    frames_title,
    mark_words,
    model_words,
    percent,
    reached_words,
    score_words,
    video_name,
)
from gridprobe.text import one_line
from gridprobe.video.frames import Pixels

__all__ = ["draw_map", "save_map"]

GROUND: RGB = (16, 18, 24)
INK: RGB = (236, 238, 242)
QUIET: RGB = (150, 156, 168)
BAR: RGB = (96, 104, 122)
EMPTY: RGB = (27, 30, 38)
BLANK: RGB = (48, 53, 64)
"""A frame that was not decoded."""
LABELLED = 84
"""Cells at least this wide show their time."""
HEAVY = 4_000_000
"""Images with more bytes than this are reduced to 256 colours."""


def save_map(answers: Sequence[Answer], path: Path) -> None:
    """Write the map of one answer as a PNG, at most about 2200 pixels wide."""
    if len(answers) != 1:
        raise UsageError(f"a map shows exactly one answer, got {len(answers)}; save a report for any other number")
    write_whole(path, _png(draw_map(answers[0])))


def _png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    if content.tell() > HEAVY:
        content = io.BytesIO()
        image.quantize(256).save(content, "PNG", optimize=True)
    return content.getvalue()


def draw_map(answer: Answer) -> Image.Image:
    """The map as an image in memory."""
    layout = Layout.of(answer)
    title = _title_lines(answer, layout.size[0])
    layout = replace(layout, title=LINE * (len(title) + 1) + 22)
    image = Image.new("RGB", layout.size, GROUND)
    draw = ImageDraw.Draw(image)
    _draw_title(draw, answer, layout)
    _draw_cells(image, draw, answer, layout)
    _draw_times(draw, answer, layout)
    evidence = answer.selection.evidence
    if evidence and layout.bars:
        _draw_row_bars(draw, evidence, layout)
        _draw_column_bars(draw, evidence, layout)
    _draw_legend(draw, answer, layout)
    return image


def _title_lines(answer: Answer, width: int) -> list[str]:
    question = one_line(answer.question.text)
    return wrapped(question, face(question, 26), width - 2 * MARGIN, 2)


def _draw_title(draw: ImageDraw.ImageDraw, answer: Answer, layout: Layout) -> None:
    width, y = layout.size[0], MARGIN
    for line in _title_lines(answer, width):
        draw.text((MARGIN, y), line, INK, face(line, 26))
        y += LINE
    percent = f"{answer.confidence:.1%}"
    text = f"{answer.choice}   {one_line(answer.text)}"
    font, room = face(text, 24), width - 2 * MARGIN - 110
    text = fitted(text, font, room)
    draw.text((MARGIN, y), text, MARK, font)
    draw.text((MARGIN + font.getlength(text) + 22, y), percent, INK, face(percent, 24))


def _draw_cells(image: Image.Image, draw: ImageDraw.ImageDraw, answer: Answer, layout: Layout) -> None:
    evidence, kept = answer.selection.evidence, set(answer.selection.indices)
    heats = _heats(evidence) if evidence else [None] * len(answer.pool)
    decoded = decoded_frames(answer)
    for index in range(layout.columns * layout.rows):
        box = layout.box(index, layout.inset)
        if index >= len(answer.pool):
            draw.rectangle(_inner(box), EMPTY)
            continue
        _draw_rings(draw, layout, index, index in kept, heats[index])
        if index in decoded:
            thumbnail = _thumbnail(decoded[index], layout)
            image.paste(thumbnail if index in kept else _dimmed(thumbnail, heats[index]), box[:2])
        else:
            draw.rectangle(_inner(box), heats[index] or BLANK)
        if layout.cell[0] >= LABELLED:
            _draw_label(draw, clock(answer.pool.times[index]), box, index in kept)


def _heats(evidence: ImportanceMap) -> list[RGB | None]:
    """The colour of every frame's importance."""
    scale = Scale.over(evidence.scores)
    return [ramp(scale.level(score)) for score in evidence.scores]


def _draw_rings(draw: ImageDraw.ImageDraw, layout: Layout, index: int, kept: bool, heat: RGB | None) -> None:
    """Draw the outline of a kept frame and, inside it, the colour of importance."""
    draw.rectangle(_inner(layout.box(index, GAP)), MARK if kept else GROUND)
    draw.rectangle(_inner(layout.box(index, GAP + layout.mark)), heat or (MARK if kept else EMPTY))


def _inner(box: Box) -> Box:
    """Pillow's rectangles include their last row and column."""
    return box[0], box[1], box[2] - 1, box[3] - 1


def _thumbnail(pixels: Pixels, layout: Layout) -> Image.Image:
    """The frame in the aspect ratio of the kept frames, with bars where it does not fill the cell."""
    (width, height), aspect = layout.picture, layout.aspect
    fitting = max(1, round(min(width, height * aspect))), max(1, round(min(height, width / aspect)))
    canvas = Image.new("RGB", layout.picture, GROUND)
    scaled = Image.fromarray(pixels).resize(fitting, Image.Resampling.BILINEAR, reducing_gap=2.0)
    canvas.paste(scaled, ((width - fitting[0]) // 2, (height - fitting[1]) // 2))
    return canvas


def _dimmed(thumbnail: Image.Image, heat: RGB | None) -> Image.Image:
    """Darken the thumbnail and, if its importance is known, tint it."""
    dark = Image.blend(thumbnail, Image.new("RGB", thumbnail.size, GROUND), 0.4)
    return Image.blend(dark, Image.new("RGB", thumbnail.size, heat), 0.45) if heat else dark


def _draw_label(draw: ImageDraw.ImageDraw, text: str, box: Box, kept: bool) -> None:
    font = face(text, 12)
    left, bottom = box[0], box[3]
    width = int(font.getlength(text)) + 8
    draw.rectangle((left, bottom - 17, left + width, bottom - 1), GROUND)
    draw.text((left + 4, bottom - 16), text, MARK if kept else QUIET, font)


def _draw_times(draw: ImageDraw.ImageDraw, answer: Answer, layout: Layout) -> None:
    """Write the time of each row's first frame; if rows are too narrow for text, skip some."""
    step = max(1, -(-18 // layout.cell[1]))
    for row in range(0, layout.rows, step):
        left, top, _, bottom = layout.box(row * layout.columns)
        text = clock(answer.pool.times[row * layout.columns])
        draw.text((left - 14, (top + bottom) // 2), text, QUIET, face(text, 16), anchor="rm")


def _draw_row_bars(draw: ImageDraw.ImageDraw, evidence: ImportanceMap, layout: Layout) -> None:
    left, thick = layout.grid[2] + 16, min(22, max(2, layout.cell[1] - 4))
    room = BARS - 16 - 50
    for row, value in enumerate(evidence.row_confidence):
        _, top, _, bottom = layout.box(row * layout.columns)
        y = (top + bottom - thick) // 2
        _draw_bar(draw, (left, y, left + room, y + thick), (left, y, left + round(room * value), y + thick))
        if layout.cell[1] >= 18:
            draw.text((left + room + 8, y + thick // 2), f"{value:.2f}", QUIET, face("0", 15), anchor="lm")


def _draw_column_bars(draw: ImageDraw.ImageDraw, evidence: ImportanceMap, layout: Layout) -> None:
    top, thick = layout.grid[3] + 12, min(22, max(2, layout.cell[0] - 4))
    room = COLUMN_BARS - 12 - 22
    for column, value in enumerate(evidence.column_confidence):
        left, _, right, _ = layout.box(column)
        x = (left + right - thick) // 2
        bottom = top + round(room * value)
        _draw_bar(draw, (x, top, x + thick, top + room), (x, top, x + thick, bottom))
        if layout.cell[0] >= 40:
            draw.text((x + thick // 2, top + room + 4), f"{value:.2f}", QUIET, face("0", 15), anchor="mt")


def _draw_bar(draw: ImageDraw.ImageDraw, track: Box, filled: Box) -> None:
    draw.rectangle(_inner(track), EMPTY)
    if filled[2] > filled[0] and filled[3] > filled[1]:
        draw.rectangle(_inner(filled), mix(BAR, INK, 0.35))


def _draw_legend(draw: ImageDraw.ImageDraw, answer: Answer, layout: Layout) -> None:
    """Draw the meaning of the colours, then kept frames, cost and model."""
    x, y, evidence = MARGIN, layout.legend, answer.selection.evidence
    if evidence:
        x = _draw_colour_bar(draw, evidence, x, y) + 40
    x = _draw_key(
        draw, x, y, "kept for the answer" if mark_words(answer) == "kept" else mark_words(answer), outline=MARK
    )
    if len(decoded_frames(answer)) < len(answer.pool):
        _draw_key(draw, x + 40, y, "not decoded", fill=BLANK)
    room = layout.size[0] - 2 * MARGIN
    for line, text in enumerate(_footer(answer)):
        font = face(text.replace("×", "x"), 17)  # a single character must not change the font of the line
        draw.text((MARGIN, y + 40 + 27 * line), fitted(text, font, room), QUIET if line > 2 else INK, font)


def _draw_key(
    draw: ImageDraw.ImageDraw, x: int, y: int, text: str, *, fill: RGB | None = None, outline: RGB | None = None
) -> int:
    """A sample of a cell with its meaning; returns the right edge."""
    font = face(text, 16)
    draw.rectangle((x, y + 2, x + 26, y + 18), fill, outline, 3)
    draw.text((x + 36, y + 10), text, QUIET, font, anchor="lm")
    return x + 36 + int(font.getlength(text))


def _draw_colour_bar(draw: ImageDraw.ImageDraw, evidence: ImportanceMap, x: int, y: int) -> int:
    """Draw the ramp from the lowest to the highest importance; returns the right edge."""
    scale, font, length = Scale.over(evidence.scores), face("0", 16), 180
    low, high = f"importance  {score_words(evidence.scores.min())}", score_words(evidence.scores.max())
    draw.text((x, y + 10), low, QUIET, font, anchor="lm")
    x += int(font.getlength(low)) + 12
    start, end = scale.level(evidence.scores.min()), scale.level(evidence.scores.max())
    for step in range(length):
        draw.line((x + step, y + 2, x + step, y + 18), ramp(start + (end - start) * step / (length - 1)))
    draw.text((x + length + 12, y + 10), high, QUIET, font, anchor="lm")
    return x + length + 12 + int(font.getlength(high))


def _footer(answer: Answer) -> list[str]:
    """How the answer was reached, the kept frames, the compute, what the map shows, and video and model."""
    cost = answer.cost
    saved = compute_saved(cost.tflops, cost.baseline.tflops)
    share = percent(cost.tflops / cost.baseline.tflops) if saved else ""
    comparison = f", {share} of {amount(cost.baseline.tflops)} for all frames at native size ({saved})" if saved else ""
    source = [one_line(part) for part in (video_name(answer), model_words(answer)) if part]
    return [
        reached_words(answer),
        f"{frames_title(answer)} ({one_line(answer.selection.selector)})",
        f"{amount(cost.tflops)} TFLOPs{comparison}" if cost.priced else f"{cost.total.tokens:,} tokens",
        _map_line(answer),
        "   |   ".join(source),
    ]


def _map_line(answer: Answer) -> str:
    evidence = answer.selection.evidence
    if evidence is None:
        return "no importance map"
    return f"The map shows {MAP_WORDS[evidence.kind]}; sigma {evidence.shape.sigma:.2f}"
