"""A comparison of selectors as one self-contained HTML page: one timeline, answers, bills, and the kept frames.

No scripts and no requests; all text is escaped. The timelines are stretched to the width of the page, so that they can
be read on a phone.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from gridprobe.comparison import Compared
from gridprobe.errors import UsageError
from gridprobe.report.answer_page.style import POLICY, STYLE
from gridprobe.report.answer_page.thumbnails import thumbnails
from gridprobe.report.comparison import COLUMNS, MARKS, Mark, Span, cells, marks
from gridprobe.report.facts import answer_words
from gridprobe.report.files import write_whole
from gridprobe.report.html import document, table
from gridprobe.report.where import length_of
from gridprobe.report.words import clock, frames_title, model_words, percent, reached_words, video_name

__all__ = ["render_comparison", "save_comparison"]

RAIL = 1000
"""Width of a timeline in its own units."""
TICK = 5
MOST_FRAMES, MOST_BYTES = 24, 200_000
"""Limits for the thumbnails of one selector."""
HEIGHTS: dict[Mark, tuple[int, int]] = {"native": (1, 26), "seen": (1, 26), "small": (10, 8)}
"""Top and height of a tick."""
COMPARE_STYLE = """
.lane { margin: 0 0 14px; } .lane p { margin: 0 0 3px; display: flex; flex-wrap: wrap; gap: 0 10px; font-size: .92rem; }
.lane strong { overflow-wrap: anywhere; } .lane .said { color: var(--quiet); overflow-wrap: anywhere; }
.lane svg { display: block; width: 100%; height: 28px; background: var(--track); border-radius: 4px; }
.lane .gold { fill: var(--right); opacity: .3; } .lane .native { fill: var(--accent); }
.lane .seen { fill: var(--accent); opacity: .55; } .lane .small { fill: var(--quiet); opacity: .6; }
.ends { display: flex; justify-content: space-between; font-variant-numeric: tabular-nums; margin: -8px 0 12px; }
.key { display: flex; flex-wrap: wrap; gap: 2px 18px; list-style: none; padding: 0; margin: 0; font-size: .85rem; }
.key span { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
.key .native { background: var(--accent); } .key .seen { background: var(--accent); opacity: .55; }
.key .small { background: var(--quiet); opacity: .6; } .key .gold { background: var(--right); opacity: .45; }
.scroll td:nth-child(2), .scroll th:nth-child(2) { text-align: left; }
.scroll td:nth-child(2) { white-space: normal; min-width: 9rem; overflow-wrap: anywhere; }
"""


def save_comparison(rows: Sequence[Compared], path: Path, *, evidence: Sequence[Span] = ()) -> None:
    """Write the page."""
    write_whole(path, render_comparison(rows, evidence=evidence).encode("utf-8", "replace"))


def render_comparison(rows: Sequence[Compared], *, evidence: Sequence[Span] = ()) -> str:
    """The page as HTML."""
    if not rows:
        raise UsageError("a comparison needs at least one answer, got none")
    asked = rows[0].answer.question
    source = " · ".join(filter(None, (video_name(rows[0].answer), model_words(rows[0].answer))))
    options = "".join(
        f'<li><span class="label">{label}</span><span class="text" dir="auto">{escape(text)}</span></li>'
        for label, text in zip(asked.labels, asked.options, strict=True)
    )
    main = f"""<article>
<p class="source">{escape(source)}</p>
<h2 dir="auto">{escape(asked.text)}</h2>
<ul class="options">{options}</ul>
<section><h3>Frames on one timeline</h3>{_timelines(rows, evidence)}</section>
<section><h3>Answers and bills</h3>{_bills(rows, evidence)}</section>
{_warnings(rows)}
</article>
<article><h3>Frames of each selector</h3>{"".join(map(_frames, rows))}</article>"""
    return document("Selectors compared", main, style=STYLE + COMPARE_STYLE, policy=POLICY)


def _timelines(rows: Sequence[Compared], evidence: Sequence[Span]) -> str:
    length = length_of(rows[0].answer)
    gold = "".join(_gold(span, length) for span in evidence)
    lanes = "".join(_lane(row, gold, length) for row in rows)
    ends = f'<div class="ends source"><span>{clock(0.0)}</span><span>{clock(length)}</span></div>'
    used = {mark for row in rows for mark in marks(row.answer).values()}
    keys = [(mark, MARKS[mark]) for mark in MARKS if mark in used] + ([("gold", "evidence")] if evidence else [])
    key = "".join(f'<li><span class="{name}"></span>{words}</li>' for name, words in keys)
    return f'{lanes}{ends}<ul class="key">{key}</ul>'


def _lane(row: Compared, gold: str, length: float) -> str:
    answer = row.answer
    found = marks(answer)
    ticks = "".join(_tick(answer.pool.times[i], found[i], length) for i in sorted(found))
    said = answer_words(answer)
    words = f"{row.selector}: {reached_words(answer)}"
    return (
        f'<div class="lane"><p><strong dir="auto">{escape(row.selector)}</strong>'
        f'<span class="said" dir="auto">{escape(said)} ({percent(answer.confidence)})</span></p>'
        f'<svg role="img" aria-label="{escape(words)}" viewBox="0 0 {RAIL} 28" preserveAspectRatio="none">'
        f"{gold}{ticks}</svg></div>"
    )


def _gold(span: Span, length: float) -> str:
    start, end = (min(1.0, max(0.0, time / length)) * RAIL for time in span)
    words = f"evidence, {clock(span[0], tenths=True)} to {clock(span[1], tenths=True)}"
    wide = max(2.0, end - start)
    return f'<rect class="gold" x="{start:.1f}" y="0" width="{wide:.1f}" height="28"><title>{words}</title></rect>'


def _tick(time: float, mark: Mark, length: float) -> str:
    x = min(RAIL - TICK, max(0.0, time / length * RAIL - TICK / 2))
    top, high = HEIGHTS[mark]
    words = f"{clock(time, tenths=True)}, {MARKS[mark]}"
    return f'<rect class="{mark}" x="{x:.1f}" y="{top}" width="{TICK}" height="{high}"><title>{words}</title></rect>'


def _bills(rows: Sequence[Compared], evidence: Sequence[Span]) -> str:
    bills = [cells(row, evidence) for row in rows]
    head = ["selector", *COLUMNS, *(key for key in bills[0] if key not in COLUMNS)]
    body = [
        [f'<span dir="auto">{escape(row.selector)}</span>{" (control)" if row.control else ""}']
        + [f'<span dir="auto">{escape(bill[key])}</span>' for key in head[1:]]
        for row, bill in zip(rows, bills, strict=True)
    ]
    note = "compute: selecting and answering, as a share of one pass over all frames at native size, by the honest "
    note += "convention; seconds: without decoding, which all share"
    if evidence:
        note += "; covered: share of the evidence intervals that a kept frame shows; precision: share of the kept "
        note += "frames that lie in one"
    return f'{table(head, body)}<p class="source">{note}</p>'


def _warnings(rows: Sequence[Compared]) -> str:
    found = dict.fromkeys(f"{row.selector}: {warning}" for row in rows for warning in row.answer.warnings)
    items = "".join(f'<li dir="auto">{escape(warning)}</li>' for warning in found)
    return f'<aside class="warnings"><h3>Warnings</h3><ul>{items}</ul></aside>' if items else ""


def _frames(row: Compared) -> str:
    pictures = thumbnails(row.answer, most=MOST_FRAMES, most_bytes=MOST_BYTES)
    title = f"{row.selector} · {frames_title(row.answer)}"
    return f'<details><summary dir="auto">{escape(title)}</summary>{pictures}</details>'
