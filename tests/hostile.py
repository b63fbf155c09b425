"""Models with the faults that a profile must notice, made of a model without them.

DilutedModel(model, extra=100)       # 100 more attention heads that look at sinks and at late frames
TemperedModel(model, 0.3)            # too sure; 3 is not sure enough
LetterModel(model, bias=2.0)         # likes the letter A
ShortSightedModel(model, side=160)   # sees nothing but the mean colour of frames smaller than that
ForgetfulModel(model, beyond=48)     # does not see the middle third of longer sequences
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gridprobe.models import FrameGroup, Model, Posterior, Request
from gridprobe.models.base import Response
from gridprobe.models.wrappers import ModelWrapper

Heads = npt.NDArray[np.float64]


def dilute(heads: npt.ArrayLike, extra: int, seed: int = 0) -> Heads:
    """Heads × frames with `extra` more heads, which look at sinks and at late frames, the same whatever is asked.

    They are as strong as the strongest of the others. Only their noise differs from question to question.
    """
    mine = np.asarray(heads, dtype=np.float64)
    frames = mine.shape[1]
    rng = np.random.default_rng([seed, extra, frames])
    sinks = rng.dirichlet(np.full(frames, 0.05), size=extra)
    late = np.linspace(0.2, 1.8, frames) ** rng.uniform(0, 3, size=(extra, 1))
    pattern = sinks / sinks.max(axis=1, keepdims=True) + late / late.max(axis=1, keepdims=True)
    noise = np.random.default_rng([seed, zlib.crc32(mine.tobytes())]).gamma(2.0, 0.1, size=(extra, frames))
    return np.concatenate([mine, np.minimum(1.0, mine.max() * (pattern + 0.3 * noise))])


class FaultyModel(ModelWrapper):
    """A model with a fault, in what it sees or in what it answers."""

    def __init__(self, model: Model, fault: str) -> None:
        super().__init__(model)
        self._fault = fault

    @property
    def identity(self) -> str:
        return f"{self._model.identity}+{self._fault}"

    def run(self, requests: Sequence[Request]) -> list[Response]:
        responses = self._model.run([self.seen(request) for request in requests])
        return [self.said(each) if isinstance(each, Posterior) else each for each in responses]

    def seen(self, request: Request) -> Request:
        """The request as the model behind it gets it."""
        return request

    def said(self, posterior: Posterior) -> Posterior:
        """Its answer as everybody else gets it."""
        return posterior


class DilutedModel(FaultyModel):
    """(a) Most heads do not look where the question points.

    A posterior with `heads`, heads × frames, gets more of them.
    """

    def __init__(self, model: Model, *, extra: int, seed: int = 0) -> None:
        super().__init__(model, f"{extra}-heads")
        self._extra, self._seed = extra, seed

    def said(self, posterior: Posterior) -> Posterior:
        if posterior.heads is None:
            return posterior
        return replace(posterior, heads=dilute(posterior.heads, self._extra, self._seed))


class TemperedModel(FaultyModel):
    """(b) Confidences that are too high, or too low."""

    def __init__(self, model: Model, temperature: float) -> None:
        super().__init__(model, f"temperature-{temperature:g}")
        self._temperature = temperature

    def said(self, posterior: Posterior) -> Posterior:
        return with_scores(posterior, [value / self._temperature for value in posterior.logprobs])


class LetterModel(FaultyModel):
    """(c) The letter A has better chances than the others."""

    def __init__(self, model: Model, *, bias: float = 2.0) -> None:
        super().__init__(model, f"likes-A-{bias:g}")
        self._bias = bias

    def said(self, posterior: Posterior) -> Posterior:
        labelled = zip(posterior.labels, posterior.logprobs, strict=True)
        return with_scores(posterior, [value + self._bias * (label == "A") for label, value in labelled])


class ShortSightedModel(FaultyModel):
    """(d) Of frames whose shorter side is below `side` pixels it sees the mean colour; they cost the same tokens."""

    def __init__(self, model: Model, *, side: int = 160) -> None:
        super().__init__(model, f"blind-below-{side}")
        self._side = side

    def seen(self, request: Request) -> Request:
        return replace(request, groups=tuple(map(self._group, request.groups)))

    def _group(self, group: FrameGroup) -> FrameGroup:
        picture = min(group.size(self.capabilities.frame_multiple))
        readable = picture / max(1, group.view.sheet) >= self._side
        return group if readable else without_detail(group, range(len(group.frames)))


class ForgetfulModel(FaultyModel):
    """(e) In a sequence of more than `beyond` frames it does not see the middle third."""

    def __init__(self, model: Model, *, beyond: int = 2) -> None:
        super().__init__(model, f"forgets-beyond-{beyond}")
        self._beyond = beyond

    def seen(self, request: Request) -> Request:
        order = [(unit.group, member) for unit in request.units for member in unit.members]
        if len(order) <= self._beyond:
            return request
        middle = order[len(order) // 3 : 2 * len(order) // 3]
        groups = (
            without_detail(group, [member for mine, member in middle if mine == number])
            for number, group in enumerate(request.groups)
        )
        return replace(request, groups=tuple(groups))


def with_scores(posterior: Posterior, scores: Sequence[float]) -> Posterior:
    """The posterior with other scores, which are normalised."""
    most = max(scores)
    total = most + math.log(math.fsum(math.exp(score - most) for score in scores))
    return replace(posterior, logprobs=tuple(score - total for score in scores))


def without_detail(group: FrameGroup, rows: Sequence[int]) -> FrameGroup:
    """The group with each of these frames in its mean colour."""
    if not len(rows):
        return group
    pixels = group.frames.pixels.copy()
    pixels[list(rows)] = pixels[list(rows)].mean(axis=(1, 2), keepdims=True).round().astype(np.uint8)
    # Another source, as frames of one source and time count as equal.
    frames = replace(group.frames, data=pixels, source=f"{group.frames.source}:without:{list(rows)}")
    return replace(group, frames=frames)
