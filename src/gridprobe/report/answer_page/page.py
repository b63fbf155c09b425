"""Answers as one self-contained HTML page: no scripts, no network requests, all text escaped, light and dark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from gridprobe.answer import Answer
from gridprobe.errors import UsageError
from gridprobe.flops import CONVENTIONS
from gridprobe.report.answer_page.map import map_svg, strip_svg
from gridprobe.report.answer_page.style import POLICY, STYLE
from gridprobe.report.answer_page.thumbnails import thumbnails
from gridprobe.report.files import write_whole
from gridprobe.report.html import document, pairs, table
from gridprobe.report.words import (
    Stage,
    amount,
    bill,
    clock,
    compute_saved,
    frames_title,
    limit_hint,
    model_words,
    percent,
    reached_words,
    share_words,
    video_name,
)

__all__ = ["render", "save_report"]

Ways = Mapping[str, Sequence[Answer]]
"""Name of a method of selecting frames -> its answers."""


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
            f"{answer.confidence:.1%}",
            _source_of(answer),
            compute_saved(answer.cost.tflops, answer.cost.baseline.tflops),
            *(_said(each[number - 1]) for each in others.values()),
        ]
        for number, answer in enumerate(answers, start=1)
    ]
    head = ["question", "answer", "confidence", "read from", "compute", *map(escape, others)]
    score = f"<p>{'; '.join(scores)}.</p>" if scores else ""
    return f'<section class="overview"><h2>Answers</h2>{score}{table(head, rows)}</section>'


def _source_of(answer: Answer) -> str:
    """The stage and the number of frames at native size."""
    return "overview" if answer.reached.by == "overview" else f"{answer.selection.kept} / {answer.selection.pool}"


def _score(name: str, answers: Sequence[Answer]) -> str:
    """For example "4 of 5 right" or "uniform: 2 of 5 right"; empty if no correct answers are known."""
    judged = [answer.right for answer in answers if answer.right is not None]
    return f"{escape(name)}{': ' if name else ''}{sum(judged)} of {len(judged)} right" if judged else ""


def _said(answer: Answer) -> str:
    return f'<span dir="auto">{answer.choice}. {escape(_shortened(answer.text))}</span> {_verdict(answer)}'


def _shortened(text: str, length: int = 90) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _article(answer: Answer, number: int, *, hint: bool = False) -> str:
    evidence = answer.selection.evidence
    picture = map_svg(answer, evidence) if evidence else strip_svg(answer)
    heading = "Importance map" if evidence else "Timeline"
    return f"""<article id="answer-{number}">
<p class="source">{escape(_source(answer))}</p>
<h2 dir="auto">{escape(answer.question.text)}</h2>
{_options(answer)}
{_reached(answer, hint=hint)}
{_warnings(answer)}
<section><h3>{heading}</h3>{picture}</section>
<section><h3>{frames_title(answer)}</h3>{thumbnails(answer)}</section>
<section><h3>Compute and time</h3>{_cost(answer)}</section>
<details><summary>Settings</summary>{pairs(_settings(answer))}</details>
</article>"""


def _reached(answer: Answer, *, hint: bool) -> str:
    """How the answer was reached, and what each stage believed of every option."""
    advice = f'<p class="source">{escape(limit_hint(answer))}</p>' if hint else ""
    stages = {"overview": answer.reached.overview, "focus": answer.reached.focus}
    known = {name: each for name, each in stages.items() if each is not None}
    if len(known) < 2:
        return f'<section class="reached"><p>{escape(reached_words(answer))}</p>{advice}</section>'
    rows = [
        [
            f"<strong>{name}</strong>" if each is answer.posterior else name,
            *(_believed(share, label == each.choice) for label, share in each.probabilities.items()),
        ]
        for name, each in known.items()
    ]
    believed = table(["stage", *answer.posterior.probabilities], rows)
    return f'<section class="reached"><p>{escape(reached_words(answer))}</p>{advice}{believed}</section>'


def _believed(share: float, best: bool) -> str:
    bar = f'<span class="bar"><span style="width:{share:.2%}"></span></span>'
    return f"{f'<strong>{percent(share)}</strong>' if best else percent(share)}{bar}"


def _source(answer: Answer) -> str:
    info = answer.pool.info
    length = clock(info.duration) if info and info.duration is not None else ""
    return " · ".join(part for part in (video_name(answer), length, model_words(answer)) if part)


def _options(answer: Answer) -> str:
    """The options with their probabilities; the chosen option is highlighted."""
    items = []
    for label, share in answer.posterior.probabilities.items():
        chosen = label == answer.choice
        notes = _verdict(answer) if chosen else ""
        if label == answer.question.answer and not chosen:
            notes = '<span class="note right">right answer</span>'
        items.append(
            f'<li{" class=chosen" if chosen else ""}><span class="label">{label}</span>'
            f'<span class="text"><span dir="auto">{escape(answer.question.option(label))}</span> {notes}</span>'
            f'<span class="percent">{share:.1%}</span>'
            f'<span class="bar"><span style="width:{share:.2%}"></span></span></li>'
        )
    return f'<ul class="options">{"".join(items)}</ul>'


def _verdict(answer: Answer) -> str:
    """A note on the chosen option: right or wrong, if the correct answer is known."""
    if answer.right is None:
        return '<span class="note">chosen</span>'
    right = answer.right
    return f'<span class="note {"right" if right else "wrong"}">{"✓ right" if right else "✗ wrong"}</span>'


def _warnings(answer: Answer) -> str:
    items = "".join(f'<li dir="auto">{escape(warning)}</li>' for warning in answer.warnings)
    return f'<aside class="warnings"><h3>Warnings</h3><ul>{items}</ul></aside>' if items else ""


def _cost(answer: Answer) -> str:
    """The bill by stages: share of the compute for all frames, seconds, and compute by both conventions."""
    cost = answer.cost
    stages = [_cost_row(stage, f"{stage.seconds:.2f}", priced=cost.priced) for stage in bill(answer)]
    rows = [["decode", "", f"{answer.seconds.decode:.2f}"], *stages]
    everything = Stage(f"all {answer.selection.pool} frames at native size", cost.baseline, None, 0.0)
    known = cost.baseline.tflops or not cost.priced
    rows.append(_cost_row(replace(everything, share=1.0 if known else None), "", priced=cost.priced))
    honest = compute_saved(cost.tflops, cost.baseline.tflops)
    published = compute_saved(cost.tflops_paper, cost.baseline.tflops_paper)
    if honest:
        strong = map("<strong>{}</strong>".format, ("", "", honest, published))
        rows.append(["<strong>compared with all frames</strong>", *strong])
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
