"""The same question with its options in other orders: averaging over them removes a model's liking for a letter."""

import math
from collections.abc import Sequence
from dataclasses import replace

from gridprobe.backends.base import Backend, Posterior, ScoreRequest
from gridprobe.errors import UsageError
from gridprobe.flops import Cost
from gridprobe.question import Question

__all__ = ["check_rotations", "rotations_of", "score_rotated"]


def check_rotations(count: int) -> None:
    """Refuse a number of orders that makes no sense."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"rotations must be a whole number of at least 1 (1 is off), got {count!r}")


def score_rotated(model: Backend, request: ScoreRequest, question: Question, *, rotations: int) -> Posterior:
    """Score a request about a question, and again with the options moved up by one, two and so on.

    The mean of the probabilities of each option counts. No more orders are tried than there are options, spread evenly
    over them. What the frames cost is paid once by a model that keeps it.
    """
    requests = rotations_of(request, question, rotations=rotations)
    return (
        model.score(requests)[0] if len(requests) == 1 else _mean(model.score(requests), _shifts(question, rotations))
    )


def rotations_of(request: ScoreRequest, question: Question, *, rotations: int) -> list[ScoreRequest]:
    """The request with the options in every order that is tried."""
    shifts = _shifts(question, rotations)
    if shifts == [0]:
        return [request]
    if question.verbatim:
        raise UsageError("a prompt that another program wrote has one order of options; leave out rotations")
    first = replace(request, again=True)
    return [first, *(replace(first, prompt=rotated(question, by=by).prompt, attention=False) for by in shifts[1:])]


def _shifts(question: Question, rotations: int) -> list[int]:
    count = len(question.labels)
    return [i * count // min(rotations, count) for i in range(min(rotations, count))]


def rotated(question: Question, *, by: int) -> Question:
    """The question whose option A is the present option number `by`; its known answer is left out."""
    return replace(question, options=(*question.options[by:], *question.options[:by]), answer=None)


def _mean(posteriors: Sequence[Posterior], shifts: Sequence[int]) -> Posterior:
    labels, count = posteriors[0].labels, len(posteriors[0].labels)
    sums = [0.0] * count
    for posterior, shift in zip(posteriors, shifts, strict=True):
        for place, logprob in enumerate(posterior.logprobs):
            sums[(place + shift) % count] += math.exp(logprob) / len(posteriors)
    return replace(
        posteriors[0],
        logprobs=tuple(math.log(p) if p > 0 else -math.inf for p in sums),
        cost=sum((posterior.cost for posterior in posteriors), Cost()),
        mass=min(posterior.mass for posterior in posteriors),
        notes=tuple(dict.fromkeys(note for posterior in posteriors for note in posterior.notes)),
        labels=labels,
    )
