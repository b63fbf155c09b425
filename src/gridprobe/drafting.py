"""Open questions: what a model answers in words, from which candidates, and how sure it is.

The model writes its likeliest answer and some drawn at random. Those that say the same are one candidate, whose
probability is that of writing any of its wordings. If that is high enough, it is the answer. If not, and the frames are
the last to be looked at, then by `way`:

- `drafts` shows the candidates as lettered options about the same frames, and the letters decide;
- `text` draws no others and takes the likeliest answer.

docs/open-questions.md compares them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gridprobe.backends import Backend, Posterior, ScoreRequest
from gridprobe.backends.base import Basis, recalls
from gridprobe.backends.writing import Writing, Written, writer
from gridprobe.calibration import CAUTIOUS, Exit
from gridprobe.drafts import Draft, exact_match, kind_of, merge
from gridprobe.flops import Cost
from gridprobe.prompts import describes
from gridprobe.question import Question
from gridprobe.rotations import score_rotated

__all__ = ["NO_PLACE", "OpenRule", "OpenWay", "answer_open", "lettered", "remembered"]

OpenWay = Literal["drafts", "text"]

SAMPLES, TEMPERATURE = 4, 1.0
"""Drafts beside the likeliest one, and how freely they are drawn."""
CANDIDATES = 6
"""The most candidates of a question."""
PHRASE, SENTENCES = 32, 256
"""The most tokens of an answer."""
ABSENT, PRESENT = "not shown", "shown"
"""What stands beside a single candidate."""
NOTHING = "(no answer)"
"""Stands for the answer of a model that wrote nothing."""

TINY = 1e-9
"""The least probability of a candidate."""
Before = Sequence[str] | None

NO_PLACE = "no single place of the video decides this, so evenly spaced frames were shown large"


@dataclass(frozen=True)
class OpenRule:
    """How open questions are answered."""

    way: OpenWay = "drafts"
    rotations: int = 1
    """In how many orders candidates are shown as options."""
    exit: Exit | None = None
    """When an answer is sure."""

    def sure(self, posterior: Posterior) -> bool:
        """Whether what was written needs no choice among candidates."""
        return posterior.confidence >= (self.exit.threshold if self.exit else CAUTIOUS)


def answer_open(
    model: Backend, question: Question, show: Callable[[Question], ScoreRequest], *, rule: OpenRule, before: Before
) -> Posterior:
    """The probabilities of texts that answer an open question; they are the labels of the posterior.

    Args:
        model: who writes and chooses.
        question: an open question.
        show: a question with the frames that it is about.
        rule: how the answer is found.
        before: candidates of an earlier look, which may be chosen again; None if a closer look will follow.
    """
    request = replace(show(question), again=True)  # everything else is asked about the same frames
    texts = _write(model, question, request, alone=rule.way == "text")
    cost = sum((each.cost for each in texts), Cost())
    drafts = merge([each.text for each in texts], [each.logprob for each in texts])[:CANDIDATES]
    notes = tuple(dict.fromkeys(note for each in texts for note in each.notes))
    longer = describes(question.text)
    windows = max(each.windows for each in texts)
    posterior = replace(_posterior(drafts, texts[0], longer=longer), cost=cost, notes=notes, windows=windows)
    if before is None or rule.way == "text" or rule.sure(posterior) or longer:
        return posterior
    candidates = _union(posterior.labels, before)
    if len(candidates) < 2:
        return posterior
    lettered_candidates = replace(question, options=candidates, answer=None)
    again = remembered(model, show(lettered_candidates))
    chosen = score_rotated(model, again, lettered_candidates, rotations=rule.rotations)
    return replace(chosen, labels=candidates, cost=cost + chosen.cost, notes=(*notes, *chosen.notes))


def _write(model: Backend, question: Question, request: ScoreRequest, *, alone: bool) -> list[Written]:
    """The likeliest answer, and others unless it is to stay alone."""
    able = writer(model)
    if describes(question.text):
        return list(able.write([request], Writing(limit=SENTENCES))[0])
    ((likeliest,),) = able.write([request], Writing(limit=PHRASE))
    if alone:
        return [likeliest]
    (more,) = able.write([remembered(model, request)], Writing(limit=PHRASE, temperature=TEMPERATURE, samples=SAMPLES))
    return [likeliest, *more]


def remembered(model: Backend, request: ScoreRequest) -> ScoreRequest:
    """The request, with the frames taken from memory by a model that has just read them."""
    count = sum(len(group.frames) for group in request.groups)
    able = recalls(model) and request.prompt_order == "frames_first" and count
    return replace(request, again=True, sees=tuple(range(count))) if able else replace(request, again=True)


def _posterior(drafts: Sequence[Draft], likeliest: Written, *, longer: bool) -> Posterior:
    """The probabilities of candidates, normalised; `mass` is what they have together."""
    if not drafts:
        return Posterior((NOTHING,), (0.0,), mass=0.0, basis="written")
    basis: Basis = "written"
    weights = [draft.probability for draft in drafts]
    if longer and likeliest.logprob is not None:
        basis, weights = "tokens", [math.exp(min(0.0, likeliest.logprob / max(1, likeliest.tokens)))]
    elif None in weights:
        basis, weights = "drafts", [draft.share for draft in drafts]
    known = [max(weight or 0.0, TINY) for weight in weights]
    total = math.fsum(known)
    logprobs = tuple(math.log(weight / total) for weight in known)
    return Posterior(tuple(draft.text for draft in drafts), logprobs, mass=min(1.0, total), basis=basis)


def _union(found: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """The candidates of this look, and those of the one before that say something else."""
    old = [text for text in before if not any(exact_match(text, new) for new in found)]
    return tuple(text for text in (*found, *old) if text != NOTHING)[:CANDIDATES]


def lettered(question: Question, posterior: Posterior) -> tuple[Question, Posterior]:
    """An open question as selectors can ask it, with candidates as its options, and their probabilities by letters.

    A single candidate gets "not shown" beside it, or "shown" if it says that itself.
    """
    if not question.open:
        return question, posterior
    shares = dict(zip(posterior.labels, posterior.shares, strict=True))
    if len(shares) < 2:
        other = PRESENT if kind_of(posterior.choice) == "not said" else ABSENT
        shares[other] = max(TINY, 1.0 - sum(shares.values()))
    asked = replace(question, options=tuple(shares), answer=None)
    found = Posterior.from_probabilities(dict(zip(asked.labels, shares.values(), strict=True)), posterior.cost)
    return asked, replace(found, attention=posterior.attention)
