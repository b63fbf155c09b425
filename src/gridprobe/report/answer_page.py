"""Answers as one self-contained HTML page: no scripts, no network requests, all text escaped, light and dark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.models.base import CONVENTIONS
from gridprobe.report.format import amount, clock, score_words, share_words
from gridprobe.report.html import asset, jpeg_source, render_page, write_whole
from gridprobe.report.picture import Sheet, draw_sheet, jpeg
from gridprobe.report.view import AnswerView, Stage, total_words
from gridprobe.video.frames import Pixels

AnswersByMethod = Mapping[str, Sequence[Answer]]
"""Name of a method of selecting frames -> its answers."""
LONG = 60
"""Answers of more letters are written smaller."""
RAIL, HIGH = 1000, 46
"""Width and height of the timeline in its own units."""
WIDEST = 16.0
"""The width of a frame's column, at most."""
NARROW, LETTER = 320, 8.5
"""The narrowest timeline and the width of a letter, in pixels; times that would overlap there are left out."""
SHEET_WIDTHS = (1008, 720, 480)
SHEET_BYTES = 250_000
"""The sheet gets the largest of these widths that stays within the limit."""
HIGHEST_SHEET, HIGHEST_FRAME = 760, 440
"""The height of the sheet and of a large frame on the page, in pixels."""
TIMES = 70
"""Room for the times of rows."""
MOST_CELLS = 1024
"""Sheets of more frames do not show the time of each under the pointer."""
MOST_LABELS = 12
"""At most this many rows have their time written next to them."""
MOST_LARGE = 8
"""How many kept frames a page shows large; all of them are on the contact sheet."""
THUMBNAIL_SIDES = {640: 2, 480: 4, 320: 16, 224: 48, 144: 144, 96: 144, 64: 144}
"""Longer side of a thumbnail in pixels -> the most frames it is used for."""
THUMBNAIL_BYTES = 400_000
"""Limit for all thumbnails of an answer."""


def save_report(
    answers: Sequence[Answer], path: Path, *, title: str = "GridProbe report", others: AnswersByMethod | None = None
) -> None:
    """Write these answers as one self-contained page.

    Args:
        answers: what the page shows.
        path: the file to write.
        title: the heading of the page.
        others: answers of other methods to the same questions, by method name; shown in the table of answers.
    """
    write_whole(path, render(answers, title=title, others=others).encode("utf-8", "replace"))


def render(answers: Sequence[Answer], *, title: str = "GridProbe report", others: AnswersByMethod | None = None) -> str:
    """The page as HTML."""
    if not answers:
        raise UsageError("a report needs at least one answer, got none")
    views, others = [AnswerView(answer) for answer in answers], others or {}
    totals = {"": total_words(answers)} | {f"{name}: ": total_words(each) for name, each in others.items()}
    return render_page(
        "answer.html.j2",
        title,
        style=asset("answer.css"),
        articles=[_article(view) for view in views],
        others={name: [AnswerView(answer) for answer in each] for name, each in others.items()},
        scores=[f"{name}{total}" for name, total in totals.items() if total],
        conventions=CONVENTIONS.values(),
    )


def _article(view: AnswerView) -> dict[str, Any]:
    """What the template shows of an answer and does not read from its view."""
    info = view.answer.pool.info
    length = clock(info.duration) if info and info.duration is not None else ""
    models = {"selecting model": " + ".join(view.answer.models[0]), "answering model": view.answer.models[1]}
    return {
        "view": view,
        "source": " · ".join(filter(None, (view.video_name, length))),
        "long": len(view.answer.text) > LONG,
        "timeline": _timeline(view),
        "thumbnails": thumbnails(view),
        "sheet": _sheet(view),
        "cost": _cost(view),
        "settings": models | dict(_flat(view.answer.settings)),
    }


# Pictures.


def thumbnails(view: AnswerView, *, most: int = MOST_LARGE, most_bytes: int = THUMBNAIL_BYTES) -> dict[str, Any]:
    """The kept frames for the template, in time order; of more than `most`, the most important ones.

    `wide` is the most pixels that a frame is wide on the page.
    """
    shown = view.large_frames(most)
    jpegs = _jpegs([view.pixels[index] for index in shown], most_bytes)
    times = [clock(view.answer.pool.times[index], tenths=True) for index in shown]
    frames = [
        {"time": time, "source": jpeg_source(content), "main": index in view.main_frames}
        for time, content, index in zip(times, jpegs, shown, strict=True)
    ]
    return {"frames": frames, "wide": round(HIGHEST_FRAME * view.aspect), "note": view.large_words(most)}


def _jpegs(frames: Sequence[Pixels], most_bytes: int) -> list[bytes]:
    """The frames as JPEGs, in the largest size whose total stays within the limit."""
    jpegs: list[bytes] = []
    for side, most in THUMBNAIL_SIDES.items():
        if len(frames) <= most:
            jpegs = [_small_jpeg(pixels, side) for pixels in frames]
            if sum(map(len, jpegs)) <= most_bytes:
                break
    return jpegs


def _small_jpeg(pixels: Pixels, side: int) -> bytes:
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.BILINEAR)
    return jpeg(image, quality=72)


def _timeline(view: AnswerView) -> dict[str, Any]:
    """Where the columns of the timeline are, in its own units."""
    times, length = view.answer.pool.times, view.length
    wide = min(WIDEST, max(2.0, 0.8 * RAIL / len(times)))
    kept = set(view.kept)
    return {
        "width": RAIL,
        "height": HIGH,
        "wide": wide,
        "moments": _moments(view),
        "stretches": [(a / length * RAIL, (b - a) / length * RAIL) for a, b in view.answer.reached.stretches],
        "levels": [
            (times[index] / length * RAIL - wide / 2, level * HIGH)
            for index, level in enumerate(view.levels or ())
            if index not in kept
        ],
        "kept": [
            (
                min(RAIL - 7, max(0.0, times[index] / length * RAIL - 3.5)),
                f"{clock(times[index], tenths=True)}, {view.mark}",
            )
            for index in view.kept
        ],
    }


def _moments(view: AnswerView) -> list[tuple[str, str]]:
    """Places and times of the spans above the rail; a time without room is left out."""
    labels, end = [], -1.0
    for span in view.moments:
        share = min(1.0, (span.start + span.end) / 2 / view.length)
        wide = LETTER * len(span.words)
        left = share * (NARROW - wide)
        if left > end:
            labels.append((f"{share:.2%}", span.words))
            end = left + wide
    return labels


def _sheet(view: AnswerView) -> dict[str, Any]:
    """The contact sheet, the times of its rows, and what is said of each frame under the pointer."""
    times = view.answer.pool.times
    sheet, content = _sheet_jpeg(view)
    step = -(-sheet.rows // MOST_LABELS)
    return {
        "source": jpeg_source(content),
        "wide": round(HIGHEST_SHEET * sheet.size[0] / sheet.size[1]) + TIMES,
        "rows": sheet.rows,
        "columns": sheet.columns,
        "starts": [
            (min(step, sheet.rows - row), clock(times[row * sheet.columns], tenths=view.is_short))
            for row in range(0, sheet.rows, step)
        ],
        "titles": [_title(view, index) for index in range(len(times))] if len(times) <= MOST_CELLS else [],
    }


def _sheet_jpeg(view: AnswerView) -> tuple[Sheet, bytes]:
    for width in SHEET_WIDTHS:
        sheet = Sheet.of(view, width=width, height=2 * width)
        content = jpeg(draw_sheet(view, sheet), quality=78)
        if len(content) <= SHEET_BYTES:
            break
    return sheet, content


def _title(view: AnswerView, index: int) -> str:
    """The time and importance of a frame."""
    scores, time = view.answer.selection.scores, clock(view.answer.pool.times[index], tenths=True)
    importance = "" if scores is None else f"importance {score_words(scores[index], 3)}"
    return ", ".join(filter(None, (time, importance, view.mark if index in view.kept else "")))


# Costs and settings.


def _cost(view: AnswerView) -> list[list[str]]:
    """The whole bill with its head: shares, seconds, compute by both conventions, tokens and passes."""
    cost = view.answer.cost
    head = ["", "share of all frames", "seconds", "TFLOPs, honest", "TFLOPs, published"]
    head += ["tokens", "visual tokens", "passes"]
    stages = [_cost_row(stage, f"{stage.seconds:.2f}", priced=cost.priced) for stage in view.bill]
    whole = Stage(f"{view.every_frame} at full size", cost.baseline, None, 0.0)
    if cost.baseline.tflops or not cost.priced:
        whole = replace(whole, share=1.0)
    decode = ["decode", "", f"{view.answer.seconds.decode:.2f}"]
    return [head, decode, *stages, _cost_row(whole, "", priced=cost.priced)]


def _cost_row(stage: Stage, seconds: str, *, priced: bool) -> list[str]:
    cost = stage.cost
    counts = [f"{count:,}" for count in (cost.tokens, cost.visual_tokens, cost.calls)]
    flops = [amount(value) if priced else "unknown" for value in (cost.tflops, cost.tflops_paper)]
    return [stage.name, share_words(stage.share), seconds, *flops, *counts]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Everything that determined the answer; nested settings get names such as "view.packing"."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value
