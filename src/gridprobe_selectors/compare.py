"""compare(): one question about one video, answered from the frames of several selectors, with the bill of each.

Its result is shown in a terminal, as a page and as JSON: which frames each selector showed and how, and what it cost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.text import Text

from gridprobe._util import report
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.errors import UsageError
from gridprobe.importance import Fixed
from gridprobe.models import Model
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.record import WHOLE
from gridprobe.registry import SELECTORS
from gridprobe.report.answer_page import thumbnails
from gridprobe.report.format import MARK, amount, clock, hex_colour, percent, share_words
from gridprobe.report.html import asset, render_page, write_whole
from gridprobe.report.terminal import STRIP_WIDTH, Terminal
from gridprobe.report.view import AnswerView
from gridprobe.video import FramePool, Video
from gridprobe_eval.metrics import Match, match

CONTROLS = ("all-small", "uniform")
"""What any selector has to beat: all frames small in one pass, and as many evenly spaced frames."""


@dataclass(frozen=True, eq=False)
class Compared:
    """One selector's answer."""

    selector: str
    """Its name as it was given, such as "uncertainty:4"."""
    answer: Answer
    control: bool = False
    """Whether it is a control that nobody named."""


def compare(
    video: str | Path | Video | FramePool,
    question: Question,
    *,
    selectors: Sequence[str],
    model: Model,
    answer_model: Model | None = None,
    settings: Options | None = None,
    controls: bool = True,
) -> list[Compared]:
    """Ask the question once for each selector; frames are decoded once, and no answer uses another one's work.

    Args:
        video: as for `gridprobe.ask`.
        question: what to ask.
        selectors: names from `gridprobe list selectors`.
        model: the model that selectors ask, loaded.
        answer_model: the model that answers; the same one without it.
        settings: everything else. A number of frames is for the selectors that take one.
        controls: whether to add the rows `all-small` and `uniform`. Without a number of frames in the settings,
            `uniform` and `random` keep as many as the first selector that decides for itself.
    """
    settings = settings or Options()
    added = [name for name in CONTROLS if controls and name not in selectors]
    names = list(dict.fromkeys([*selectors, *added]))
    if not names:
        raise UsageError("name at least one selector, such as --selectors gridprobe,frag")
    needing = [name for name in names if SELECTORS.find(name)[0].frames == "needed"]
    first = next((name for name in names if SELECTORS.find(name)[0].frames == "optional"), None)
    if needing and first is None and not isinstance(settings.rule, Fixed):
        raise UsageError(f"the selector {needing[0]!r} needs a number of frames, such as frames=8 (--frames 8)")

    def setup(name: str, frames: int | str) -> Plan:
        changed = settings.changed(frames="auto" if SELECTORS.find(name)[0].frames == "none" else frames)
        return changed.resolve(model=model, answer_model=answer_model, selector=name)

    setups = {name: setup(name, 1 if name in needing else settings.frames) for name in names}  # mistakes come first
    footage = setups[names[0]].open(video) if isinstance(video, str | Path) else video
    answers: dict[str, Answer] = {}
    for done, name in enumerate([name for name in names if name not in needing] + needing):
        report("selectors", done, len(names))
        if name in needing:
            frames = (
                answers[first].selection.kept if first and not isinstance(settings.rule, Fixed) else settings.frames
            )
            setups[name] = setup(name, frames)
        answers[name] = Session(footage, setup=setups[name], reuse=False).ask(question, show_map=True)
    report("selectors", len(names), len(names))
    return [Compared(name, answers[name], name in added) for name in names]


# The comparison in a terminal, as a page and as JSON.

SCHEMA = "gridprobe.comparison/1"
TimeRange = tuple[float, float]
"""From when to when, in seconds."""
Mark = Literal["native", "seen", "small"]
MARKS: dict[Mark, str] = {
    "native": "kept, at full size",
    "seen": "where the overview looked",
    "small": "shown small",
}
"""How a frame was shown, most important first."""
SIGNS: dict[Mark, tuple[str, str]] = {"native": ("█", "#"), "seen": ("▓", "+"), "small": ("░", "-")}
"""Unicode and ASCII."""
ORDER = ("compute", "sure", "frames", "covered", "precision", "TFLOPs", "passes", "seconds")
"""Columns of the terminal's table in the order in which they get room."""
NAME_WIDTH = 16
LEAST_ANSWER = 6
"""Columns for the answers, at least: a letter and the start of a text."""
RAIL = 1000
"""Width of a page's timeline in its own units; it is stretched to the width of the page."""
TICK = 5
HEIGHTS: dict[Mark, tuple[int, int]] = {"native": (1, 26), "seen": (1, 26), "small": (10, 8)}
"""Top and height of a tick."""
MOST_FRAMES, MOST_BYTES = 24, 200_000
"""Limits for the thumbnails of one selector."""


def marks(answer: Answer) -> dict[int, Mark]:
    """Position in the pool -> how the frame was shown to the pass that the answer was read from."""
    selection, settings = answer.selection, answer.settings
    overview = answer.reached.by == "overview"
    small: set[int] = {index for each in selection.extra_frames for index in each.indices}
    if overview or settings.get("context"):
        small = set(range(selection.pool))
    marks: dict[int, Mark] = dict.fromkeys(small, "small")
    all_of_it = overview and selection.evidence is None  # an overview without a map points at nothing
    for index in () if all_of_it else selection.indices:
        marks[index] = "seen" if overview else "native" if answer.reached.native else "small"
    return marks


def _matched(answer: Answer, evidence: Sequence[TimeRange]) -> Match | None:
    """The kept frames against the evidence; None without any, or for an answer that kept no frames."""
    if not evidence or answer.reached.by in WHOLE:
        return None
    return match(answer.selection.timestamps, evidence)


def cells(row: Compared, evidence: Sequence[TimeRange]) -> dict[str, str]:
    """The bill of a row in words, by column; with evidence there are `covered` and `precision` as well."""
    answer = row.answer
    cost, whole, matched = answer.cost, answer.cost.baseline, _matched(row.answer, evidence)
    spent = (cost.tflops, whole.tflops) if cost.priced else (cost.total.tokens, whole.tokens)
    words = {
        "answer": AnswerView(answer).labelled_text,
        "sure": percent(answer.confidence),
        "frames": f"{answer.shown_native}" if answer.shown_native else f"{answer.selection.pool} small",
        "compute": share_words(spent[0] / spent[1] if spent[1] else None),
        "TFLOPs": amount(cost.tflops) if cost.priced else "unknown",
        "passes": f"{cost.total.calls:,}",
        "seconds": f"{answer.seconds.total - answer.seconds.decode:.2f}",
    }
    if evidence:
        words |= {
            "covered": percent(matched.recall, 0) if matched else "–",
            "precision": percent(matched.precision, 0) if matched else "–",
        }
    return words


def comparison_dict(rows: Sequence[Compared], evidence: Sequence[TimeRange]) -> dict[str, Any]:
    """The comparison as plain values; each answer is of the schema `gridprobe.answer/3`."""
    return {
        "schema": SCHEMA,
        "evidence": [list(span) for span in evidence],
        "rows": [
            {
                "selector": row.selector,
                "control": row.control,
                "answer": row.answer.to_dict(),
                "evidence": _match_dict(_matched(row.answer, evidence)),
            }
            for row in rows
        ],
    }


def _match_dict(matched: Match | None) -> dict[str, float] | None:
    if matched is None:
        return None
    return {name: getattr(matched, name) for name in ("precision", "recall", "f1", "distance")}


def _warnings(rows: Sequence[Compared]) -> list[str]:
    return list(dict.fromkeys(f"{row.selector}: {warning}" for row in rows for warning in row.answer.warnings))


# The terminal: one timeline for all, then answers and bills next to each other.


def comparison_view(
    rows: Sequence[Compared], *, evidence: Sequence[TimeRange] = (), width: int, color: bool, unicode: bool
) -> Text:
    """The question, the timelines and the table, in lines of at most `width` columns, 40 or more."""
    terminal = Terminal(width=max(40, width), color=color, unicode=unicode)
    lines = terminal.wrap(rows[0].answer.question.text, "bold")
    lines += [Text(), *_timelines(rows, evidence, terminal), Text(), *_table(rows, evidence, terminal)]
    for warning in _warnings(rows):
        lines += terminal.wrap(f"warning: {warning}", "yellow")
    return Text("\n").join(lines)


def _timelines(rows: Sequence[Compared], evidence: Sequence[TimeRange], terminal: Terminal) -> list[Text]:
    names = [terminal.line(row.selector) for row in rows]
    room = min(NAME_WIDTH, max(map(cell_len, (*names, "evidence" if evidence else ""))))
    strip, length = min(STRIP_WIDTH, terminal.width - room - 1), AnswerView(rows[0].answer).length
    first, last = clock(0.0), clock(length)
    gap = " " * max(1, strip - len(first) - len(last))
    lines = [Text(" " * (room + 1) + first + gap + last, terminal.style("dim"))]
    if evidence:
        places = {place for span in evidence for place in _columns(span, length, strip)}
        drawn = "".join(("━" if terminal.unicode else "=") if i in places else " " for i in range(strip))
        lines.append(Text(terminal.pad("evidence", room) + " ").append(drawn.rstrip(), terminal.style("green")))
    used: set[Mark] = set()
    for row, name in zip(rows, names, strict=True):
        by_column = _strip(row, length, strip)
        used.update(by_column.values())
        line = Text(terminal.pad(name, room) + " ")
        for column in range(strip):
            line.append_text(_sign(by_column.get(column), terminal))
        lines.append(line)
    legend = [Text().append_text(_sign(mark, terminal)).append(f" {MARKS[mark]}") for mark in MARKS if mark in used]
    return [*lines, *legend]


def _strip(row: Compared, length: float, width: int) -> dict[int, Mark]:
    """Column -> the most important mark of the frames in it."""
    rank, by_column = list(MARKS), dict[int, Mark]()
    for index, mark in marks(row.answer).items():
        (column,) = _columns((row.answer.pool.times[index],) * 2, length, width)
        if column not in by_column or rank.index(mark) < rank.index(by_column[column]):
            by_column[column] = mark
    return by_column


def _columns(span: TimeRange, length: float, width: int) -> Iterable[int]:
    """The columns that an interval touches."""
    first, last = (min(width - 1, max(0, int(time / length * width))) for time in span)
    return range(first, last + 1)


def _sign(mark: Mark | None, terminal: Terminal) -> Text:
    if mark is None:
        return Text(terminal.clean("·"), terminal.style("dim"))
    sign = SIGNS[mark][0 if terminal.unicode else 1]
    return Text(sign, terminal.style("dim" if mark == "small" else hex_colour(MARK)))


def _table(rows: Sequence[Compared], evidence: Sequence[TimeRange], terminal: Terminal) -> list[Text]:
    """A row for each selector; columns that do not fit are left out, the least important first."""
    bills = [cells(row, evidence) for row in rows]
    names = [terminal.line(row.selector) for row in rows]
    room = min(NAME_WIDTH, max(map(cell_len, (*names, "selector"))))
    left, shown = terminal.width - room - 1 - LEAST_ANSWER, []
    widths = {key: max(len(key), *(len(bill[key]) for bill in bills)) for key in ORDER if key in bills[0]}
    for key, wide in widths.items():
        if wide + 2 <= left:
            shown.append(key)
            left -= wide + 2
    texts = [terminal.line(bill["answer"]) for bill in bills]
    answer = min(left + LEAST_ANSWER, max(map(cell_len, (*texts, "answer"))))
    head = f"{'selector':{room}} {terminal.pad('answer', answer)}" + "".join(f"  {key:>{widths[key]}}" for key in shown)
    lines = [Text(head, terminal.style("dim"))]
    for name, text, bill in zip(names, texts, bills, strict=True):
        numbers = "".join(f"  {terminal.clean(bill[key]):>{widths[key]}}" for key in shown)
        lines.append(Text(f"{terminal.pad(name, room)} {terminal.pad(text, answer)}{numbers}"))
    return [*lines, *terminal.wrap("compute: share of all frames at full size", "dim")]


# The page: one timeline, answers, bills, and the kept frames.


def save_comparison(rows: Sequence[Compared], path: Path, *, evidence: Sequence[TimeRange] = ()) -> None:
    """Write the page."""
    write_whole(path, render_comparison(rows, evidence=evidence).encode("utf-8", "replace"))


def render_comparison(rows: Sequence[Compared], *, evidence: Sequence[TimeRange] = ()) -> str:
    """The page as HTML."""
    if not rows:
        raise UsageError("a comparison needs at least one answer, got none")
    view = AnswerView(rows[0].answer)
    question, used = view.answer.question, {mark for row in rows for mark in marks(row.answer).values()}
    keys = {mark: words for mark, words in MARKS.items() if mark in used} | ({"gold": "evidence"} if evidence else {})
    bills = [cells(row, evidence) for row in rows]
    return render_page(
        "comparison.html.j2",
        "Selectors compared",
        style=asset("answer.css") + asset("comparison.css"),
        source=" · ".join(filter(None, (view.video_name, view.model))),
        question=question,
        options=zip(question.labels, question.options, strict=True),
        rail=RAIL,
        length=view.length,
        lanes=[_lane(row, view.length) for row in rows],
        gold=[_gold(span, view.length) for span in evidence],
        keys=keys,
        columns=list(bills[0]),
        bills=bills,
        warnings=_warnings(rows),
    )


def _lane(row: Compared, length: float) -> dict[str, Any]:
    """A selector with its timeline and its frames."""
    view, times = AnswerView(row.answer), row.answer.pool.times
    ticks = [
        {
            "mark": mark,
            "x": min(RAIL - TICK, max(0.0, times[index] / length * RAIL - TICK / 2)),
            "y": HEIGHTS[mark][0],
            "width": TICK,
            "height": HEIGHTS[mark][1],
            "words": f"{clock(times[index], tenths=True)}, {MARKS[mark]}",
        }
        for index, mark in sorted(marks(row.answer).items())
    ]
    pictures = thumbnails(view, most=MOST_FRAMES, most_bytes=MOST_BYTES)
    return {"row": row, "view": view, "ticks": ticks, "thumbnails": pictures}


def _gold(span: TimeRange, length: float) -> dict[str, Any]:
    """The band of an evidence interval."""
    start, end = (min(1.0, max(0.0, time / length)) * RAIL for time in span)
    words = f"evidence, {clock(span[0], tenths=True)} to {clock(span[1], tenths=True)}"
    return {"mark": "gold", "x": start, "y": 0, "width": max(2.0, end - start), "height": 28, "words": words}
