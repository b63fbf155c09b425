"""The same question with its options in other orders: averaging over them removes a model's liking for a letter."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import Choose, Cost, FrameGroup, Model, Posterior, Request, View, choose
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize


def check_rotations(count: int) -> None:
    """Refuse a number of orders that makes no sense."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"rotations must be a whole number of at least 1 (1 is off), got {count!r}")


def score_rotated(model: Model, request: Request, question: Question, *, rotations: int) -> Posterior:
    """Score a request about a question, and again with the options moved up by one, two and so on.

    The mean of the probabilities of each option counts. No more orders are tried than there are options, spread evenly
    over them. What the frames cost is paid once by a model that keeps it.
    """
    requests = rotations_of(request, question, rotations=rotations)
    return (
        choose(model, requests)[0]
        if len(requests) == 1
        else _mean(choose(model, requests), _shifts(question, rotations))
    )


def rotations_of(request: Request, question: Question, *, rotations: int) -> list[Request]:
    """The request with the options in every order that is tried."""
    shifts = _shifts(question, rotations)
    if shifts == [0]:
        return [request]
    if question.verbatim:
        raise UsageError("a prompt that another program wrote has one order of options; leave out rotations")
    first = replace(request, keep_kv=True)
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


# Frames as one picture: the paper's cheapest variant, with the tokens of one image for any number of them.

CANVAS = 2048


def collage(frames: FramePool) -> FramePool:
    """One 2048×2048 frame of ceil(√n)² tiles in reading order; frames keep their aspect, empty tiles stay black."""
    side = math.isqrt(len(frames) - 1) + 1
    tile = CANVAS // side
    canvas = Image.new("RGB", (CANVAS, CANVAS))
    scale = tile / max(frames.width, frames.height)
    size = (max(1, round(frames.width * scale)), max(1, round(frames.height * scale)))
    for position, pixels in enumerate(frames.pixels):
        row, column = divmod(position, side)
        corner = (column * tile + (tile - size[0]) // 2, row * tile + (tile - size[1]) // 2)
        canvas.paste(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC), corner)
    source = hashlib.sha256(repr(frames.keys).encode()).hexdigest()  # another set of frames is another picture
    return replace(frames, data=np.array(canvas)[None], times=frames.times[:1], source=source)


def collage_request(frames: FramePool, question: Question) -> Request:
    """The question about a picture of these frames, without their times; what is said between them comes after it."""
    whole = View(FrameSize(max_pixels=CANVAS * CANVAS), timestamps="none")
    text = "\n".join(filter(None, question.between(sorted(frames.times))))
    prompt = f"{text}\n{question.prompt}" if text else question.prompt
    return Request(prompt, Choose(question.labels), (FrameGroup(collage(frames), whole),))


# Which tokens mean which option letter.

SURFACE_FORMS = ("{}", " {}", "({}")
"""How a model may begin its answer: "A", " A" or "(A"."""


def single_tokens(encode: Callable[[str], Sequence[int]], labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """For each label the ids of its surface forms that are single tokens.

    The sets must be disjoint. A form of several tokens is left out instead of being represented by its first token: if
    "(" were a token, "(A" and "(B" would begin with the same one.
    """
    tokens: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for label in labels:
        encoded = [encode(form.format(label)) for form in SURFACE_FORMS]
        tokens[label] = tuple(dict.fromkeys(ids[0] for ids in encoded if len(ids) == 1))
        if not tokens[label]:
            raise ModelError(f"this tokenizer has no single token for the option letter {label}")
        for token in tokens[label]:
            if owner.setdefault(token, label) != label:
                raise ModelError(f"token {token} begins both {owner[token]} and {label}; letters cannot be told apart")
    return tokens
