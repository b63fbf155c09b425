"""Is it there? A model is asked yes or no about each proposed segment; then the borders are sampled more densely."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from gridprobe._util import report
from gridprobe.errors import UsageError, VideoError
from gridprobe.models.base import Cost, Posterior, Request, choose, score_rotated
from gridprobe.plan import Plan
from gridprobe.question import Question, wording
from gridprobe.selectors.base import Encoder
from gridprobe.selectors.gridprobe import overview_request
from gridprobe_find.build import sampled
from gridprobe_find.index import Vectors
from gridprobe_find.propose import Curve, Proposal, crossing

ASKED = "Is there {query} in the video?"
"""What the model is asked; a query that is a question itself is asked as it is."""
FRAMES = 8
"""Frames that the model sees of a segment."""
TOGETHER = 8
"""Segments that one call of the model reads."""
CERTAIN = 1e-9
"""The least probability, so that odds are finite."""


@dataclass(frozen=True)
class SegmentCheck:
    """What the model says about one segment."""

    probability: float
    """Of yes."""
    cost: Cost
    notes: tuple[str, ...] = ()


def question_about(query: str, *, template: str | None = None, asked: str = ASKED) -> Question:
    """The yes/no question."""
    if "{query}" not in asked:
        raise UsageError(f'the question must say where the query goes, as in "{ASKED}"; got {asked!r}')
    text = query if query.endswith("?") else asked.replace("{query}", query)
    question = Question(text, ("yes", "no"))
    return question if template is None else replace(question, template=wording(template, question.template))


def check_segments(
    plan: Plan, question: Question, segments: Sequence[tuple[str, Proposal]], *, frames: int = FRAMES
) -> Iterator[SegmentCheck | VideoError]:
    """For each segment, with the path of its video: the probability of yes, or why its frames cannot be read."""
    waiting = iter(segments)
    done = 0
    while some := list(islice(waiting, TOGETHER)):
        requests = [_request(plan, question, path, segment, frames) for path, segment in some]
        readable = [request for request in requests if isinstance(request, Request)]
        answers = iter(_answers(plan, question, readable))
        for request in requests:
            if isinstance(request, VideoError):
                yield request
                continue
            answer = next(answers)
            yield SegmentCheck(answer.probabilities[question.labels[0]], answer.cost, answer.warnings)
        done += len(some)
        report("model", done, len(segments))


def _request(plan: Plan, question: Question, path: str, segment: Proposal, frames: int) -> Request | VideoError:
    assert plan.overview is not None
    about = replace(question, subtitles=segment.text) if segment.text else question
    try:
        pool = sampled(path, ((segment.start, segment.end),), frames, plan.pool_size(frames))
    except VideoError as error:
        return error
    return overview_request(pool, about, view=plan.overview)


def _answers(plan: Plan, question: Question, requests: list[Request]) -> list[Posterior]:
    if plan.rotations == 1:
        return choose(plan.model, requests) if requests else []
    return [score_rotated(plan.model, each, question, rotations=plan.rotations) for each in requests]


def weighed(checked: Sequence[tuple[Proposal, float]]) -> list[tuple[Proposal, float]]:
    """Most similar first, each with the mean, in log odds, of the model's yes there and at its similarity in general.

    In general is the mean of its yes over segments of about that similarity, which never falls as the similarity rises
    (isotonic regression). So one yes among denied segments that are as similar or more so does not count, and a
    lukewarm answer among confirmed ones does. A similarity that says nothing about the model's yes changes little.
    """
    ordered = sorted(checked, key=lambda each: (-each[0].score, each[1]))
    levels: list[tuple[float, int]] = []  # a mean, and of how many segments
    for segment, chance in ordered:
        if not segment.score:  # it is said there, not seen
            continue
        total, count = chance, 1
        while levels and levels[-1][0] < total / count:
            mean, before = levels.pop()
            total, count = total + mean * before, count + before
        levels.append((total / count, count))
    usual = iter([mean for mean, count in levels for _ in range(count)])
    return [(each, _between(chance, next(usual) if each.score else chance)) for each, chance in ordered]


def _between(first: float, second: float) -> float:
    """The probability half way between two in log odds."""
    odds = [max(each, CERTAIN) / max(1 - each, CERTAIN) for each in (first, second)]
    middle = math.sqrt(odds[0] * odds[1])
    return middle / (1 + middle)


def refined(
    path: str, segment: Proposal, curve: Curve, encoder: Encoder, *, query: Vectors, precision: float
) -> tuple[float, float, int]:
    """The borders of a segment to `precision` seconds, and how many frames were encoded for them.

    A border lies where the similarity crosses the middle between the segment's usual one and that just outside.
    """
    step = curve.step
    inside = (curve.times >= segment.start) & (curve.times <= segment.end)
    if not step or step <= precision or not inside.any():
        return segment.start, segment.end, 0
    usual = float(np.median(curve.scores[inside]))
    borders, encoded = [segment.start, segment.end], 0
    for place, rising in ((0, True), (1, False)):
        border = borders[place]
        outside = curve.times < segment.start if rising else curve.times > segment.end
        if not outside.any():  # the video begins or ends with it
            borders[place] = 0.0 if rising else border
            continue
        beyond = float(curve.scores[outside][-1 if rising else 0])
        near = (max(0.0, border - step), border + step)
        pool = sampled(path, (near,), max(2, round(2 * step / precision)), encoder.image_size)
        encoded += len(pool)
        scores = (encoder.images(pool) @ query).astype(np.float64)
        found = crossing(np.array(pool.times), scores, (usual + beyond) / 2, rising=rising)
        borders[place] = border if found is None else found
    return borders[0], max(borders[1], borders[0] + precision), encoded
