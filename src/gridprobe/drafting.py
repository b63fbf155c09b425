"""Open questions: candidates that the model writes become the options of a question that can be scored.

`drafts` lets the model write several answers, the likeliest one and some drawn at random. Those that say the same are
one candidate; "not shown in the video" is always another. The answer is then chosen among the candidates as among
options: from the overview if that is sure, else from the focused pass, in which the model writes once more, so that
what only large frames show can become a candidate. `text` takes the likeliest text as the answer and asks no more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Literal

from gridprobe.backends import Backend, Posterior, ScoreRequest
from gridprobe.backends.writing import Writing, Written, writer
from gridprobe.drafts import NOT_SAID, exact_match, merge
from gridprobe.flops import Cost
from gridprobe.prompts import describes
from gridprobe.question import Question
from gridprobe.rotations import score_rotated

__all__ = ["NO_PLACE", "OpenWay", "answer_open"]

OpenWay = Literal["drafts", "text"]

SAMPLES, TEMPERATURE = 4, 1.0
"""Drafts beside the likeliest one, and how freely they are drawn."""
CANDIDATES = 6
"""The most candidates of a question, beside "not shown in the video"."""
PHRASE, SENTENCES = 32, 256
"""The most tokens of an answer."""


NO_PLACE = "no single place of the video decides this, so evenly spaced frames were shown large"


def answer_open(
    model: Backend, question: Question, make: Callable[[Question], ScoreRequest], *, way: OpenWay, rotations: int
) -> tuple[Question, Posterior]:
    """An open question with candidates as its options, and what the model believes of them.

    Args:
        model: who writes and chooses.
        question: an open question, or one that has candidates already; these stay.
        make: a question with the frames that it is about.
        way: how the answer is found.
        rotations: in how many orders the candidates are shown.
    """
    origin = question.drafted_for or question
    request = replace(make(origin), again=True)  # the candidates will be asked about the same frames
    found = draft(model, origin, request, way=way, known=question.options)
    if way == "text":
        return found.question, as_posterior(found)
    posterior = score_rotated(model, make(found.question), found.question, rotations=rotations)
    return found.question, replace(posterior, cost=posterior.cost + found.cost)


@dataclass(frozen=True)
class Drafted:
    """An open question with its candidates, and what writing them cost."""

    question: Question
    cost: Cost
    likeliest: Written


def draft(
    model: Backend, question: Question, request: ScoreRequest, *, way: OpenWay, known: Sequence[str] = ()
) -> Drafted:
    """Let a model write answers to an open question.

    Args:
        model: who writes.
        question: the open question.
        request: the question with the frames it is about.
        way: `drafts`, or `text` for the likeliest answer alone.
        known: candidates from before; they stay.
    """
    limit = SENTENCES if describes(question.text) else PHRASE
    able = writer(model)
    ((likeliest,),) = able.write([request], Writing(limit=limit))
    written = [likeliest]
    if way == "drafts" and not describes(question.text):
        (more,) = able.write([request], Writing(limit=limit, temperature=TEMPERATURE, samples=SAMPLES))
        written += more
    cost = sum((each.cost for each in written), Cost())
    texts = [each.text for each in merge([each.text for each in written])]
    others = [text for text in texts if not any(exact_match(text, old) for old in (*known, NOT_SAID))]
    candidates = [*(text for text in known if text != NOT_SAID), *others][-CANDIDATES:]
    return Drafted(question.drafted([*(candidates or ["nothing"]), NOT_SAID]), cost, likeliest)


def as_posterior(found: Drafted) -> Posterior:
    """The likeliest text with its own probability, against everything else."""
    likely = exp(min(0.0, found.likeliest.logprob or 0.0))
    labels = found.question.labels
    rest = (1.0 - likely) / (len(labels) - 1)
    posterior = Posterior.from_probabilities(dict.fromkeys(labels, rest) | {labels[0]: likely}, found.cost)
    return replace(posterior, notes=found.likeliest.notes)
