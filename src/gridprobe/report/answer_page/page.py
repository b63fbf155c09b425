"""Answers as one self-contained HTML page: no scripts, no network requests, all text escaped, light and dark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.flops import CONVENTIONS
from gridprobe.report.answer_page.style import POLICY, STYLE
from gridprobe.report.answer_page.thumbnails import thumbnails
from gridprobe.report.answer_page.timeline import sheet_html, timeline_html
from gridprobe.report.facts import (
    Stage,
    bill,
    compute_words,
    details,
    folded_words,
    options_title,
    said_words,
    split_options,
    stage_words,
    total_words,
)
from gridprobe.report.files import write_whole
from gridprobe.report.html import document, pairs, table
from gridprobe.report.where import where_words
from gridprobe.report.words import amount, clock, limit_hint, reached_words, share_words, sure_words, video_name

__all__ = ["render", "save_report"]

Ways = Mapping[str, Sequence[Answer]]
"""Name of a method of selecting frames -> its answers."""
LONG = 60
"""Answers of more letters are written smaller."""
RIGHT_NOTE = '<span class="note right">right answer</span>'


def save_report(
    answers: Sequence[Answer], path: Path, *, title: str = "GridProbe report", others: Ways | None = None
) -> None:
    """Write these answers as one self-contained page.

    Args:
        answers: what the page shows.
        path: the file to write.
        title: the heading of the page.
        others: answers of other methods to the same questions, by method name; shown in the table of answers.
    """
    write_whole(path, render(answers, title=title, others=others).encode("utf-8", "replace"))


def render(answers: Sequence[Answer], *, title: str = "GridProbe report", others: Ways | None = None) -> str:
    """The page as HTML."""
    if not answers:
        raise UsageError("a report needs at least one answer, got none")
    hinted = next((number for number, answer in enumerate(answers, start=1) if limit_hint(answer)), 0)
    articles = "\n".join(_article(answer, n, hint=n == hinted) for n, answer in enumerate(answers, start=1))
    overview = _overview(answers, others or {}) if len(answers) > 1 else ""
    return document(title, f"{overview}\n{articles}", style=STYLE, policy=POLICY)


def _overview(answers: Sequence[Answer], others: Ways) -> str:
    """A table with one row for each answer, linked to its section; other methods are the last columns."""
    scores = [text for name, each in {"": answers, **others}.items() if (text := _score(name, each))]
    rows = [
        [
            f'<a href="#answer-{number}" dir="auto">{escape(_shortened(answer.question.text))}</a>',
            _said(answer),
            sure_words(answer.confidence),
            escape(where_words(answer)),
            share_words(bill(answer)[-1].share),
            *(_said(each[number - 1]) for each in others.values()),
        ]
        for number, answer in enumerate(answers, start=1)
    ]
    head = ["question", "answer", "sure", "where", "compute", *map(escape, others)]
    score = f"<p>{'; '.join(scores)}.</p>" if scores else ""
    return f'<section class="overview"><h2>Answers</h2>{score}{table(head, rows, stacked=True)}</section>'


def _score(name: str, answers: Sequence[Answer]) -> str:
    """For example "4 of 5 right" or "uniform: 2 of 5 right"; empty if no correct answers are known."""
    total = total_words(answers)
    return f"{escape(name)}{': ' if name else ''}{total}" if total else ""


def _said(answer: Answer) -> str:
    return f'<span dir="auto">{escape(_shortened(said_words(answer)))}</span> {_verdict(answer)}'


def _shortened(text: str, length: int = 90) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _article(answer: Answer, number: int, *, hint: bool = False) -> str:
    """Where the answer is, then what it was read from, then the rest; mathematics and settings are folded away."""
    return f"""<article id="answer-{number}">
<p class="source">{escape(_source(answer))}</p>
<h2 dir="auto">{escape(answer.question.text)}</h2>
{_said_large(answer)}
<p class="where">{escape(where_words(answer))}</p>
{timeline_html(answer)}
{thumbnails(answer)}
{sheet_html(answer)}
<section><h3>{escape(options_title(answer))}</h3>{_options(answer)}</section>
<section><h3>How it was answered</h3>{_reached(answer, hint=hint)}{_bill(answer)}</section>
{_warnings(answer)}
<details><summary>Details</summary>{pairs(details(answer))}{_cost(answer)}</details>
<details><summary>Settings</summary>{pairs(_settings(answer))}</details>
</article>"""


def _said_large(answer: Answer) -> str:
    """The answer, its probability and, if known, whether it is right."""
    size = " long" if len(answer.text) > LONG else ""
    said = f'<strong dir="auto">{escape(said_words(answer))}</strong> <span>{sure_words(answer.confidence)}</span>'
    return f'<p class="headline{size}">{said} {_verdict(answer)}</p>'


def _reached(answer: Answer, *, hint: bool) -> str:
    """How the answer was reached, and what each stage preferred."""
    lines = [f"<p>{escape(reached_words(answer))}</p>"]
    lines += [f'<p dir="auto">{escape("; ".join(stages))}.</p>' for stages in [stage_words(answer)] if stages]
    if hint:
        lines.append(f'<p class="source">{escape(limit_hint(answer))}</p>')
    return "".join(lines)


def _bill(answer: Answer) -> str:
    """The share of the compute and the seconds of each stage."""
    rows = [["decode", "", f"{answer.seconds.decode:.1f} s"]]
    rows += [[stage.name, share_words(stage.share), f"{stage.seconds:.1f} s"] for stage in bill(answer)]
    words = f"<p><strong>{escape(compute_words(answer))}</strong></p>" if compute_words(answer) else ""
    return f'{words}<div class="bill">{table(["stage", "compute", "time"], rows)}</div>'


def _source(answer: Answer) -> str:
    info = answer.pool.info
    length = clock(info.duration) if info and info.duration is not None else ""
    return " · ".join(part for part in (video_name(answer), length) if part)


def _options(answer: Answer) -> str:
    """The options with their probabilities, the chosen one first; unlikely ones share a line."""
    shown, folded = split_options(answer)
    items = "".join(
        f'<li{" class=chosen" if option.chosen else ""}><span class="label">{escape(option.label)}</span>'
        f'<span class="text"><span dir="auto">{escape(option.text)}</span>{RIGHT_NOTE if option.right else ""}</span>'
        f'<span class="percent">{sure_words(option.share)}</span>'
        f'<span class="bar"><span style="width:{option.share:.2%}"></span></span></li>'
        for option in shown
    )
    rest = f'<p class="source" dir="auto">{escape(folded_words(folded))}</p>' if folded else ""
    return f'<ul class="options">{items}</ul>{rest}'


def _verdict(answer: Answer) -> str:
    """Whether the answer is right; empty if that is not known."""
    if answer.right is None:
        return ""
    return '<span class="note right">✓ right</span>' if answer.right else '<span class="note wrong">✗ wrong</span>'


def _warnings(answer: Answer) -> str:
    items = "".join(f'<li dir="auto">{escape(warning)}</li>' for warning in answer.warnings)
    return f'<aside class="warnings"><h3>Warnings</h3><ul>{items}</ul></aside>' if items else ""


def _cost(answer: Answer) -> str:
    """The whole bill: shares, seconds, compute by both conventions, tokens and passes."""
    cost = answer.cost
    stages = [_cost_row(stage, f"{stage.seconds:.2f}", priced=cost.priced) for stage in bill(answer)]
    rows = [["decode", "", f"{answer.seconds.decode:.2f}"], *stages]
    everything = Stage(f"all {answer.selection.pool} frames at native size", cost.baseline, None, 0.0)
    known = cost.baseline.tflops or not cost.priced
    rows.append(_cost_row(replace(everything, share=1.0 if known else None), "", priced=cost.priced))
    head = ["", "share of all frames", "seconds", "TFLOPs, honest", "TFLOPs, published"]
    head += ["tokens", "visual tokens", "passes"]
    meanings = "".join(f"<li>{escape(meaning)}</li>" for meaning in CONVENTIONS.values())
    return f'{table(head, rows)}<ul class="fine">{meanings}</ul>'


def _cost_row(stage: Stage, seconds: str, *, priced: bool) -> list[str]:
    cost = stage.cost
    counts = [f"{count:,}" for count in (cost.tokens, cost.visual_tokens, cost.calls)]
    flops = [amount(value) if priced else "unknown" for value in (cost.tflops, cost.tflops_paper)]
    return [stage.name, share_words(stage.share), seconds, *flops, *counts]


def _settings(answer: Answer) -> dict[str, Any]:
    """Everything that determined the answer; nested settings get names such as "view.packing"."""
    values = {"selecting model": " + ".join(answer.models[0]), "answering model": answer.models[1]}
    return values | dict(_flat(answer.settings))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value
