"""Show a comparison of selectors in a terminal: one timeline for all, then answers and bills side by side."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from gridprobe.comparison import Compared
from gridprobe.report.colours import MARK, hex_colour
from gridprobe.report.comparison import MARKS, Mark, Span, cells, marks
from gridprobe.report.terminal_lines import Look, padded, wrapped
from gridprobe.report.terminal_map import STRIP_WIDTH
from gridprobe.report.where import length_of
from gridprobe.report.words import clock
from gridprobe.text import one_line

__all__ = ["comparison_view"]

SIGNS: dict[Mark, tuple[str, str]] = {"native": ("█", "#"), "seen": ("▓", "+"), "small": ("░", "-")}
"""Unicode and ASCII."""
ORDER = ("compute", "sure", "frames", "covered", "precision", "TFLOPs", "passes", "seconds")
"""Columns in the order in which they get room."""
NAME_WIDTH = 16
LEAST_ANSWER = 6
"""Columns for the answers, at least: a letter and the start of a text."""


def comparison_view(
    rows: Sequence[Compared], *, evidence: Sequence[Span] = (), width: int, color: bool, unicode: bool
) -> Text:
    """The question, the timelines and the table, in lines of at most `width` columns, 40 or more."""
    look = Look(width=max(40, width), color=color, unicode=unicode)
    question = look.clean(one_line(rows[0].answer.question.text))
    lines = wrapped(question, look, "bold")
    lines += [Text(), *_timelines(rows, evidence, look), Text(), *_table(rows, evidence, look)]
    noted = dict.fromkeys(look.clean(one_line(f"{r.selector}: {w}")) for r in rows for w in r.answer.warnings)
    for warning in noted:
        lines += wrapped(f"warning: {warning}", look, "yellow")
    return Text("\n").join(lines)


def _timelines(rows: Sequence[Compared], evidence: Sequence[Span], look: Look) -> list[Text]:
    names = [_name(row, look) for row in rows]
    room = min(NAME_WIDTH, max(map(cell_len, (*names, "evidence" if evidence else ""))))
    strip, length = min(STRIP_WIDTH, look.width - room - 1), length_of(rows[0].answer)
    first, last = clock(0.0), clock(length)
    lines = [Text(" " * (room + 1) + first + " " * max(1, strip - len(first) - len(last)) + last, look.style("dim"))]
    if evidence:
        places = {place for span in evidence for place in _columns(span, length, strip)}
        drawn = "".join(("━" if look.unicode else "=") if i in places else " " for i in range(strip))
        lines.append(Text(padded("evidence", room, look) + " ").append(drawn.rstrip(), look.style("green")))
    used: set[Mark] = set()
    for row, name in zip(rows, names, strict=True):
        found = _strip(row, length, strip)
        used.update(found.values())
        line = Text(padded(name, room, look) + " ")
        for column in range(strip):
            line.append_text(_sign(found.get(column), look))
        lines.append(line)
    legend = [Text().append_text(_sign(mark, look)).append(f" {MARKS[mark]}") for mark in MARKS if mark in used]
    return [*lines, *legend]


def _strip(row: Compared, length: float, width: int) -> dict[int, Mark]:
    """Column -> the most important mark of the frames in it."""
    rank, found = list(MARKS), dict[int, Mark]()
    for index, mark in marks(row.answer).items():
        (column,) = _columns((row.answer.pool.times[index],) * 2, length, width)
        if column not in found or rank.index(mark) < rank.index(found[column]):
            found[column] = mark
    return found


def _columns(span: Span, length: float, width: int) -> Iterable[int]:
    """The columns that an interval touches."""
    first, last = (min(width - 1, max(0, int(time / length * width))) for time in span)
    return range(first, last + 1)


def _sign(mark: Mark | None, look: Look) -> Text:
    if mark is None:
        return Text(look.clean("·"), look.style("dim"))
    sign = SIGNS[mark][0 if look.unicode else 1]
    return Text(sign, look.style("dim" if mark == "small" else hex_colour(MARK)))


def _table(rows: Sequence[Compared], evidence: Sequence[Span], look: Look) -> list[Text]:
    """A row for each selector; columns that do not fit are left out, the least important first."""
    bills = [cells(row, evidence) for row in rows]
    names = [_name(row, look) for row in rows]
    room = min(NAME_WIDTH, max(map(cell_len, (*names, "selector"))))
    left, shown = look.width - room - 1 - LEAST_ANSWER, []
    widths = {key: max(len(key), *(len(bill[key]) for bill in bills)) for key in ORDER if key in bills[0]}
    for key, wide in widths.items():
        if wide + 2 <= left:
            shown.append(key)
            left -= wide + 2
    texts = [look.clean(one_line(bill["answer"])) for bill in bills]
    answer = min(left + LEAST_ANSWER, max(map(cell_len, (*texts, "answer"))))
    head = f"{'selector':{room}} {padded('answer', answer, look)}" + "".join(f"  {key:>{widths[key]}}" for key in shown)
    lines = [Text(head, look.style("dim"))]
    for name, text, bill in zip(names, texts, bills, strict=True):
        numbers = "".join(f"  {look.clean(bill[key]):>{widths[key]}}" for key in shown)
        lines.append(Text(f"{padded(name, room, look)} {padded(text, answer, look)}{numbers}"))
    note = "compute: share of all frames at native size"
    return [*lines, *wrapped(note, look, "dim")]


def _name(row: Compared, look: Look) -> str:
    return look.clean(one_line(row.selector))
