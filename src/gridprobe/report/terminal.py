"""Show an answer in a terminal: with or without colour, in Unicode or ASCII, at 40 columns or more."""

from rich.cells import cell_len
from rich.text import Text

from gridprobe.answer import Answer
from gridprobe.report.colours import MARK, Scale, hex_colour
from gridprobe.report.terminal_lines import padded, shortened, wrapped
from gridprobe.report.terminal_map import Look, map_lines, strip_lines
from gridprobe.report.words import (
    amount,
    beliefs,
    bill,
    compute_saved,
    kept_times,
    kept_words,
    limit_hint,
    mark_words,
    model_words,
    percent,
    reached_words,
    share_words,
)
from gridprobe.text import one_line

__all__ = ["answer_view"]

QUESTION_LINES = 4
KEPT_ITEMS = 12
"""At most this many times or ranges are listed."""
KEY_WIDTH = 9
EIGHTHS = " ▏▎▍▌▋▊▉█"


def answer_view(answer: Answer, *, width: int, color: bool, unicode: bool, hint: bool = True) -> Text:
    """The answer, how it was reached, the map, the kept frames and the bill, in lines of at most `width` columns.

    Args:
        answer: what to show.
        width: columns of the terminal, at least 40.
        color: whether to use colours; otherwise characters show importance.
        unicode: whether the terminal can show characters outside ASCII.
        hint: whether to say that a limit is the default and how to find a better one.
    """
    look = Look(width=max(20, width), color=color, unicode=unicode)
    blocks = [_headline(answer, look), _posterior(answer, look), _reached(answer, look, hint=hint)]
    blocks += [_map(answer, look), _facts(answer, look)]
    blocks += [[line for warning in answer.warnings for line in _warning(warning, look)]]
    lines = [line for block in blocks if block for line in (*block, Text())]
    return Text("\n").join(lines[:-1])


def _headline(answer: Answer, look: Look) -> list[Text]:
    question = wrapped(look.clean(one_line(answer.question.text)), look, "dim", QUESTION_LINES)
    percent = f" {answer.confidence:.1%}"
    answered = look.clean(f"{answer.choice}. {one_line(answer.text)}")
    line = Text(shortened(answered, look.width - len(percent), look), look.style("bold"))
    return [*question, line.append(percent, look.style(f"bold {hex_colour(MARK)}"))]


def _posterior(answer: Answer, look: Look) -> list[Text]:
    """One bar for each option; the chosen option is marked."""
    texts = [look.clean(one_line(option)) for option in answer.question.options]
    room = min(max(map(cell_len, texts)), look.width * 2 // 5)
    bar = min(40, look.width - room - 13)
    lines = []
    for (label, share), text in zip(answer.posterior.probabilities.items(), texts, strict=True):
        chosen = label == answer.choice
        pointer = look.clean("▸" if chosen else " ")
        line = Text(f"{pointer} {label} {padded(text, room, look)} ", look.style("bold" if chosen else "none"))
        line.append(_bar(share, bar, look), look.style(hex_colour(MARK) if chosen else "dim"))
        lines.append(line.append(f" {share:6.1%}", look.style("bold" if chosen else "none")))
    return lines


def _bar(share: float, width: int, look: Look) -> str:
    """A bar with a resolution of an eighth of a column, or of a whole column in ASCII."""
    if not look.unicode:
        return ("#" * round(share * width)).ljust(width)
    whole, rest = divmod(round(share * width * 8), 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def _reached(answer: Answer, look: Look, *, hint: bool) -> list[Text]:
    """The sentence about how the answer was reached, and what each stage believed."""
    lines = wrapped(look.clean(reached_words(answer)), look, "none")
    if stages := beliefs(answer):
        told = ", ".join(f"{name} {choice} {percent(share)}" for name, (choice, share) in stages.items())
        lines += wrapped(f"Stages: {told}.", look, "dim")
    if hint and (advice := limit_hint(answer)):
        lines += wrapped(advice, look, "dim")
    return lines


def _map(answer: Answer, look: Look) -> list[Text]:
    evidence = answer.selection.evidence
    if evidence is None:
        return strip_lines(answer, look)
    return map_lines(answer, evidence, look) or strip_lines(answer, look, Scale.over(evidence.scores))


def _facts(answer: Answer, look: Look) -> list[Text]:
    """Kept frames, the bill by stages, compute by both conventions, tokens and models."""
    cost, everything = answer.cost, f" for all {answer.selection.pool} frames at native size"
    compute = _compute(cost.tflops, cost.baseline.tflops, everything)
    published = f"{_compute(cost.tflops_paper, cost.baseline.tflops_paper)} by the published convention"
    if not cost.priced:
        saved = compute_saved(cost.total.tokens, cost.baseline.tokens)
        compute = "TFLOPs unknown, as the server's model is not known"
        published = f"{cost.total.tokens:,} tokens instead of about {cost.baseline.tokens:,}{everything}, {saved}"
    facts = {
        mark_words(answer): _kept(answer),
        "compute": compute,
        "": published,
        "tokens": _tokens(answer),
        "model": model_words(answer),
    }
    lines = {key: _fact(key, look.clean(one_line(value)), look) for key, value in facts.items()}
    lines[""] += _bill(answer, look)
    return [line for fact in lines.values() for line in fact]


def _kept(answer: Answer) -> str:
    items = kept_times(answer.selection)
    rest = f" and {len(items) - KEPT_ITEMS} more" if len(items) > KEPT_ITEMS else ""
    return f"{kept_words(answer.selection)}: {', '.join(items[:KEPT_ITEMS])}{rest}"


def _compute(spent: float, baseline: float, reference: str = "") -> str:
    saved = compute_saved(spent, baseline)
    if not saved:
        return f"{amount(spent)} TFLOPs"
    return f"{amount(spent)} TFLOPs instead of {amount(baseline)}{reference}, {saved}"


def _bill(answer: Answer, look: Look) -> list[Text]:
    """One line for each stage: its share of the compute for all frames at native size, and its seconds."""
    rows = [("decode", "", answer.seconds.decode)]
    rows += [(stage.name, share_words(stage.share), stage.seconds) for stage in bill(answer)]
    keys = ["bill", *[""] * (len(rows) - 1)]
    return [
        Text().append(key.ljust(KEY_WIDTH), look.style("dim")).append(look.clean(f"{name:<9}{share:>8}{taken:>8.1f} s"))
        for key, (name, share, taken) in zip(keys, rows, strict=True)
    ]


def _tokens(answer: Answer) -> str:
    total = answer.cost.total
    passes = "1 pass" if total.calls == 1 else f"{total.calls} passes"
    cached = f", {total.cached_tokens:,} from the server's cache" if total.cached_tokens else ""
    money = f", for {total.money:.3g} at the given prices" if total.money else ""
    return f"{total.tokens:,}, {total.visual_tokens:,} of them visual{cached}, in {passes}{money}"


def _fact(key: str, value: str, look: Look) -> list[Text]:
    lines = wrapped(value, Look(look.width - KEY_WIDTH, look.color, look.unicode), "none")
    keys = [key, *[""] * (len(lines) - 1)]
    return [
        Text().append(name.ljust(KEY_WIDTH), look.style("dim")).append_text(line)
        for name, line in zip(keys, lines, strict=True)
    ]


def _warning(warning: str, look: Look) -> list[Text]:
    return wrapped(f"warning: {look.clean(one_line(warning))}", look, "yellow")
