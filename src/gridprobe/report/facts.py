"""Options with their probabilities, the stages and the bill of an answer, and the details that reports fold away."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridprobe.answer import Answer
from gridprobe.backends import Posterior
from gridprobe.backends.base import Basis
from gridprobe.drafts import exact_match
from gridprobe.flops import Cost
from gridprobe.report.words import (
    MAP_WORDS,
    amount,
    model_words,
    percent,
    score_words,
    share_words,
    sure_words,
)

__all__ = [
    "Option",
    "Stage",
    "answer_words",
    "basis_words",
    "bill",
    "compute_words",
    "details",
    "folded_words",
    "options",
    "options_title",
    "said_words",
    "split_options",
    "stage_words",
    "total_words",
    "verdict_words",
]

FOLDED = 0.0005
"""Options below this probability share one line."""
ELSE, DOES_NOT_SAY = "(anything else)", "The video does not say"
BASIS_WORDS: dict[Basis, str] = {
    "letters": "how likely the model chooses it among the candidates it wrote",
    "written": "how likely the model writes it, in any wording that was drafted",
    "drafts": "the share of drafts that say it",
    "tokens": "the mean probability of its tokens",
}
NAMED = 60
"""The texts of folded options are listed up to this many characters."""


class Option(NamedTuple):
    """A possible answer."""

    label: str
    text: str
    share: float
    chosen: bool
    right: bool
    """Whether it is known to be the right answer."""


def options(answer: Answer) -> list[Option]:
    """The chosen option, then the others, most likely first; for an answer in words, what else could be written."""
    asked, posterior = answer.question, answer.posterior
    found = []
    for label, share in zip(posterior.labels, posterior.shares, strict=True):
        chosen = label == answer.choice
        if asked.open:
            right = asked.answer is not None and exact_match(label, asked.answer)
            found.append(Option("", label, share, chosen, right))
        else:
            found.append(Option(label, asked.option(label), share, chosen, label == asked.answer))
    rest = 1.0 - sum(option.share for option in found)
    if asked.open and posterior.basis != "tokens" and rest >= FOLDED:
        found.append(Option("", ELSE, rest, chosen=False, right=False))
    return sorted(found, key=lambda option: (not option.chosen, option.text == ELSE, -option.share))


def split_options(answer: Answer) -> tuple[list[Option], list[Option]]:
    """The options to show one by one, and those to fold into one line; a right answer is never folded."""
    shown, folded = list[Option](), list[Option]()
    for option in options(answer):
        (shown if option.share >= FOLDED or option.chosen or option.right else folded).append(option)
    return (shown, folded) if len(folded) > 1 else (shown + folded, [])


def folded_words(folded: list[Option]) -> str:
    """For example "7 others below 0.05 % each: purple, green, …"; empty for none."""
    if not folded:
        return ""
    texts = ", ".join(option.text for option in folded)
    short = texts if len(texts) <= NAMED else texts[: NAMED - 1].rstrip(", ") + "…"
    return f"{len(folded)} others below {percent(FOLDED, 2)} each: {short}"


def verdict_words(answer: Answer) -> str:
    """Whether the answer is right, and what is; empty if that is not known."""
    if answer.right is None:
        return ""
    truth = answer.question.answer or ""
    return (
        "right" if answer.right else f"wrong: it is {truth if answer.question.open else answer.question.option(truth)}"
    )


def said_words(answer: Answer) -> str:
    """The answer as a headline: its text, or that the video does not say."""
    return DOES_NOT_SAY if answer.kind == "not said" else answer.text


def answer_words(answer: Answer) -> str:
    """The answer in a table, with its letter if it has one."""
    return said_words(answer) if answer.question.open else f"{answer.choice}. {answer.text}"


def options_title(answer: Answer) -> str:
    """The heading of the options."""
    return f"Candidates: {basis_words(answer)}" if answer.question.open else "Options"


def basis_words(answer: Answer) -> str:
    """What the percentages of an answer in words are; empty for options."""
    return BASIS_WORDS[answer.basis] if answer.question.open else ""


def total_words(answers: Sequence[Answer]) -> str:
    """For example "3 of 4 right"; empty if no right answer is known."""
    judged = [answer.right for answer in answers if answer.right is not None]
    unknown = len(answers) - len(judged)
    rest = f"; the right answer of {unknown} is not known" if unknown else ""
    return f"{sum(judged)} of {len(judged)} right{rest}" if judged else ""


def stage_words(answer: Answer) -> list[str]:
    """What each stage preferred, for example "overview: green 43.0 %"; empty for an answer with one stage."""
    stages = {"overview": answer.reached.overview, "focus": answer.reached.focus}
    known = {name: each for name, each in stages.items() if each is not None}
    return [f"{name}: {_preferred(answer, each)}" for name, each in known.items()] if len(known) > 1 else []


def _preferred(answer: Answer, posterior: Posterior) -> str:
    said = posterior.choice if answer.question.open else answer.question.option(posterior.choice)
    return f"{said} {sure_words(posterior.confidence)}"


@dataclass(frozen=True)
class Stage:
    """One line of an answer's bill."""

    name: str
    cost: Cost
    share: float | None
    """Of the compute for all frames at native size, by the honest convention, or of the tokens if that is not known."""
    seconds: float


def bill(answer: Answer) -> list[Stage]:
    """The stages that were taken, then their total; decoding needs no compute and is not among them."""
    cost, seconds, reached = answer.cost, answer.seconds, answer.reached
    lines = {
        "overview": (cost.overview, seconds.overview, reached.overview is not None or bool(cost.overview.calls)),
        "probes": (cost.probe, seconds.probe, answer.selection.evidence is not None or bool(cost.probe.calls)),
        "focus": (cost.focus, seconds.focus, reached.by == "focus" or bool(cost.focus.calls)),
        "total": (cost.total, seconds.total, True),
    }
    whole = _size(cost.baseline, priced=cost.priced)
    return [
        Stage(name, spent, _size(spent, priced=cost.priced) / whole if whole > 0 else None, taken)
        for name, (spent, taken, shown) in lines.items()
        if shown
    ]


def _size(spent: Cost, *, priced: bool) -> float:
    return spent.tflops if priced else spent.tokens


def compute_words(answer: Answer) -> str:
    """For example "17 % of the compute of showing all 144 frames at native size"; empty if nothing is known."""
    share = bill(answer)[-1].share
    if not share:
        return ""
    what = "compute" if answer.cost.priced else "tokens"
    return f"{share_words(share)} of the {what} of showing all {answer.selection.pool} frames at native size"


def details(answer: Answer) -> dict[str, str]:
    """The mathematics of the map, compute by both conventions, tokens and models, by name."""
    cost, evidence = answer.cost, answer.selection.evidence
    found = {"selector": answer.selection.selector}
    if evidence is not None:
        low, high = (score_words(value, 3) for value in (evidence.scores.min(), evidence.scores.max()))
        shape = evidence.shape
        found["map"] = f"{MAP_WORDS[evidence.kind]}; from {low} to {high}"
        found["shape"] = f"σ {shape.sigma:.2f}, skew {shape.skew:.2f}, excess kurtosis {shape.excess_kurtosis:.2f}"
        found["rows"] = " ".join(f"{value:.2f}" for value in evidence.row_confidence)
        found["columns"] = " ".join(f"{value:.2f}" for value in evidence.column_confidence)
    found["compute"] = _compute(cost.tflops, cost.baseline.tflops)
    found["published"] = f"{_compute(cost.tflops_paper, cost.baseline.tflops_paper)}, by the published convention"
    if not cost.priced:
        found |= {"compute": "TFLOPs unknown, as the server's model is not known", "published": ""}
    found |= {"tokens": _tokens(cost.total), "model": model_words(answer), "confidence": basis_words(answer)}
    return {name: value for name, value in found.items() if value}


def _compute(spent: float, baseline: float) -> str:
    return f"{amount(spent)} TFLOPs" + (f" instead of {amount(baseline)}" if baseline > 0 else "")


def _tokens(total: Cost) -> str:
    passes = "1 pass" if total.calls == 1 else f"{total.calls} passes"
    cached = f", {total.cached_tokens:,} from the server's cache" if total.cached_tokens else ""
    money = f", for {total.money:.3g} at the given prices" if total.money else ""
    return f"{total.tokens:,}, {total.visual_tokens:,} of them visual{cached}, in {passes}{money}"
