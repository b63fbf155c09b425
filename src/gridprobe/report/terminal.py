"""Show an answer in a terminal: with or without colour, in Unicode or ASCII, at 40 columns or more."""

from rich.cells import cell_len
from rich.text import Text

from gridprobe.answer import Answer
from gridprobe.report.colours import MARK, hex_colour
from gridprobe.report.facts import (
    bill,
    compute_words,
    details,
    folded_words,
    options_title,
    said_words,
    split_options,
    stage_words,
    verdict_words,
)
from gridprobe.report.terminal_lines import Look, padded, shortened, wrapped
from gridprobe.report.terminal_map import map_lines, picture_lines, timeline_lines
from gridprobe.report.where import main_spans, spans, where_words
from gridprobe.report.words import limit_hint, mark_words, reached_words, share_words, sure_words
from gridprobe.text import one_line

__all__ = ["answer_view", "headline"]

QUESTION_LINES, VERDICT_LINES = 4, 2
MOST_MOMENTS = 12
"""At most this many times or stretches are listed."""
KEY_WIDTH = 10
EIGHTHS = " ▏▎▍▌▋▊▉█"


def answer_view(
    answer: Answer, *, width: int, color: bool, unicode: bool, hint: bool = True, all_details: bool = False
) -> Text:
    """Where the answer is, the timeline, the kept frames, the sheet, the options, the stages and the bill.

    Args:
        answer: what to show.
        width: columns of the terminal, at least 40; no line is longer.
        color: whether to use colours; otherwise characters show importance.
        unicode: whether the terminal can show characters outside ASCII.
        hint: whether to say that a limit is the default and how to find a better one.
        all_details: whether to add the mathematics of the map, TFLOPs, tokens and models.
    """
    look = Look(width=max(20, width), color=color, unicode=unicode)
    blocks = [
        [*wrapped(look.clean(one_line(answer.question.text)), look, "dim", QUESTION_LINES), *headline(answer, look)],
        timeline_lines(answer, look),
        picture_lines(answer, look) + _moments(answer, look),
        map_lines(answer, look),
        _options(answer, look),
        _reached(answer, look, hint=hint) + _bill(answer, look),
        _details(answer, look) if all_details else [],
        [line for warning in answer.warnings for line in _warning(warning, look)],
    ]
    lines = [line for block in blocks if block for line in (*block, Text())]
    return Text("\n").join(lines[:-1])


def headline(answer: Answer, look: Look) -> list[Text]:
    """The answer with its probability and, if known, whether it is right; below it, where it is."""
    sure = look.clean(f" {sure_words(answer.confidence)}")
    line = Text(shortened(look.clean(one_line(said_words(answer))), look.width - len(sure), look), look.style("bold"))
    line.append(sure, look.style(f"bold {hex_colour(MARK)}"))
    verdict = look.clean(one_line(verdict_words(answer)))
    if answer.right and line.cell_len + len(verdict) + 2 <= look.width:
        line.append(f", {verdict}", look.style("green"))
        verdict = ""
    judged = wrapped(verdict, look, "green" if answer.right else "red", VERDICT_LINES) if verdict else []
    return [line, *judged, *wrapped(look.clean(where_words(answer)), look, "bold")]


def _moments(answer: Answer, look: Look) -> list[Text]:
    """The times of all kept frames; empty if the headline has them already."""
    found = spans(answer)
    if found == main_spans(answer):
        return []
    items = [span.words + (f" ({len(span.indices)})" if len(span.indices) > 1 else "") for span in found]
    rest = f" and {len(items) - MOST_MOMENTS} more" if len(items) > MOST_MOMENTS else ""
    words = f"{mark_words(answer)}: {', '.join(items[:MOST_MOMENTS])}{rest}"
    return wrapped(look.clean(words), look, "none")


def _options(answer: Answer, look: Look) -> list[Text]:
    """A bar for each option, the chosen one first; unlikely ones share a line."""
    shown, folded = split_options(answer)
    texts = [look.clean(one_line(f"{option.label} {option.text}".strip())) for option in shown]
    room = min(max(map(cell_len, texts)), look.width * 2 // 5)
    bar = min(40, look.width - room - 13)
    lines = wrapped(look.clean(options_title(answer)), look, "dim") if answer.question.open else []
    for option, text in zip(shown, texts, strict=True):
        weight = "bold" if option.chosen else "none"
        line = Text(f"{look.clean('▸' if option.chosen else ' ')} {padded(text, room, look)} ", look.style(weight))
        line.append(_bar(option.share, bar, look), look.style(hex_colour(MARK) if option.chosen else "dim"))
        lines.append(line.append(f" {look.clean(sure_words(option.share)):>8}", look.style(weight)))
    if folded:
        lines.append(
            Text(shortened(look.clean(f"  {one_line(folded_words(folded))}"), look.width, look), look.style("dim"))
        )
    return lines


def _bar(share: float, width: int, look: Look) -> str:
    """A bar with a resolution of an eighth of a column, or of a whole column in ASCII."""
    if not look.unicode:
        return ("#" * round(share * width)).ljust(width)
    whole, rest = divmod(round(share * width * 8), 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def _reached(answer: Answer, look: Look, *, hint: bool) -> list[Text]:
    """The sentence about how the answer was reached, and what each stage preferred."""
    lines = wrapped(look.clean(reached_words(answer)), look, "none")
    if stages := stage_words(answer):
        lines += wrapped(look.clean(one_line(f"{'; '.join(stages)}.")), look, "dim")
    if hint and (advice := limit_hint(answer)):
        lines += wrapped(advice, look, "dim")
    return lines


def _bill(answer: Answer, look: Look) -> list[Text]:
    """The share of the compute, and one line for each stage with its share and its seconds."""
    rows = [("decode", "", answer.seconds.decode)]
    rows += [(stage.name, share_words(stage.share), stage.seconds) for stage in bill(answer)]
    stages = [
        Text(look.clean(f"{name:<{KEY_WIDTH}}{share:>8}{taken:>8.1f} s"), look.style("dim"))
        for name, share, taken in rows
    ]
    return [*wrapped(look.clean(compute_words(answer)), look, "bold"), *stages]


def _details(answer: Answer, look: Look) -> list[Text]:
    """The details in two columns."""
    lines = []
    for name, value in details(answer).items():
        found = wrapped(look.clean(one_line(value)), Look(look.width - KEY_WIDTH, look.color, look.unicode), "none")
        for key, line in zip([name, *[""] * (len(found) - 1)], found, strict=True):
            lines.append(Text(key.ljust(KEY_WIDTH), look.style("dim")).append_text(line))
    return lines


def _warning(warning: str, look: Look) -> list[Text]:
    return wrapped(f"warning: {look.clean(one_line(warning))}", look, "yellow")
