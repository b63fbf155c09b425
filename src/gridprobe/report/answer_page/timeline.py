"""The timeline and the contact sheet of an answer as HTML."""

import base64
import io
from html import escape

from gridprobe.answer import Answer
from gridprobe.report.sheet import Sheet, draw_sheet
from gridprobe.report.where import is_short, kept_frames, length_of, levels, main_spans, sheet_words, spans, where_words
from gridprobe.report.words import clock, mark_words, score_words

__all__ = ["sheet_html", "timeline_html"]

RAIL, HIGH = 1000, 46
"""Width and height of the timeline in its own units."""
WIDEST = 16.0
"""The width of a frame's column, at most."""
NARROW, LETTER = 320, 8.5
"""The narrowest timeline and the width of a letter, in pixels; times that would overlap there are left out."""
SHEET_WIDTHS = (1008, 720, 480)
SHEET_BYTES = 250_000
"""The sheet gets the largest of these widths that stays within the limit."""
HIGHEST = 760
"""The height of the sheet on the page, in pixels."""
TIMES = 70
"""Room for the times of rows."""
MOST_CELLS = 1024
"""Sheets of more frames do not show the time of each under the pointer."""
MOST_LABELS = 12
"""At most so many rows have their time written beside them."""


def timeline_html(answer: Answer) -> str:
    """The whole video from left to right; columns show importance, and bright ones the kept frames."""
    length, times, kept = length_of(answer), answer.pool.times, set(kept_frames(answer))
    wide = min(WIDEST, max(2.0, 0.8 * RAIL / len(times)))
    parts = [_rect("again", start, end, length) for start, end in answer.reached.stretches]
    for index, level in enumerate(levels(answer) or ()):
        x, high = times[index] / length * RAIL - wide / 2, level * HIGH
        if index not in kept:
            parts.append(
                f'<rect class="level" x="{x:.1f}" y="{HIGH - high:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'
            )
    for index in kept_frames(answer):
        x = min(RAIL - 7, max(0.0, times[index] / length * RAIL - 3.5))
        words = f"{clock(times[index], tenths=True)}, {mark_words(answer)}"
        parts.append(f'<rect class="kept" x="{x:.1f}" y="0" width="7" height="{HIGH}"><title>{words}</title></rect>')
    return (
        f'<figure class="timeline"><div class="moments">{_moments(answer, length)}</div>'
        f'<svg role="img" aria-label="{escape(where_words(answer))}" viewBox="0 0 {RAIL} {HIGH}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
        f'<figcaption class="ends"><span>{clock(0)}</span><span>{clock(length)}</span></figcaption></figure>'
    )


def _rect(name: str, start: float, end: float, length: float) -> str:
    x, width = start / length * RAIL, (end - start) / length * RAIL
    return f'<rect class="{name}" x="{x:.1f}" y="0" width="{width:.1f}" height="{HIGH}"/>'


def _moments(answer: Answer, length: float) -> str:
    """The times of the stretches above the rail; at the ends they stay within it."""
    labels, taken = [], -1.0
    for span in main_spans(answer) or spans(answer):
        share = min(1.0, (span.start + span.end) / 2 / length)
        wide = LETTER * len(span.words)
        left = share * (NARROW - wide)
        if left > taken:
            place = f"left:{share:.2%};transform:translateX(-{share:.2%})"
            labels.append(f'<span style="{place}">{span.words}</span>')
            taken = left + wide
    return "".join(labels)


def sheet_html(answer: Answer) -> str:
    """All frames as one picture, with the time of each row at its left and of each frame under the pointer."""
    sheet, jpeg = _jpeg(answer)
    step = -(-sheet.rows // MOST_LABELS)
    starts = range(0, sheet.rows, step)
    times = [clock(answer.pool.times[row * sheet.columns], tenths=is_short(answer)) for row in starts]
    labels = "".join(
        f'<span style="flex:{min(step, sheet.rows - row)}">{time}</span>'
        for row, time in zip(starts, times, strict=True)
    )
    source = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}"
    wide = round(HIGHEST * sheet.size[0] / sheet.size[1]) + TIMES
    words = f"contact sheet of {answer.selection.pool} frames in rows of {sheet.columns}"
    return (
        f'<figure class="sheet"><div class="sheet-body" style="max-width:{wide}px">'
        f'<div class="row-times">{labels}</div>'
        f'<div class="tiles"><img src="{source}" alt="{words}">{_cells(answer, sheet)}'
        "</div></div>"
        f"<figcaption>{escape(sheet_words(answer))}</figcaption></figure>"
    )


def _jpeg(answer: Answer) -> tuple[Sheet, bytes]:
    for width in SHEET_WIDTHS:
        sheet = Sheet.of(answer, width=width, height=2 * width)
        content = io.BytesIO()
        draw_sheet(answer, sheet).save(content, "JPEG", quality=78, optimize=True)
        if content.tell() <= SHEET_BYTES:
            break
    return sheet, content.getvalue()


def _cells(answer: Answer, sheet: Sheet) -> str:
    """A transparent field over each frame that says its time and importance."""
    if len(answer.pool) > MOST_CELLS:
        return ""
    scores, kept = answer.selection.scores, set(kept_frames(answer))
    fields = "".join(
        f'<span title="{clock(time, tenths=True)}'
        + (f", importance {score_words(scores[index], 3)}" if scores is not None else "")
        + (f', {mark_words(answer)}"' if index in kept else '"')
        + "></span>"
        for index, time in enumerate(answer.pool.times)
    )
    shape = f"grid-template:repeat({sheet.rows},1fr)/repeat({sheet.columns},1fr)"
    return f'<div class="cells" style="{shape}">{fields}</div>'
