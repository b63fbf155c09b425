"""A backend that answers from a Python function, and remembers what it was asked.

It is part of the package, for tests, documentation and experiments without a model. The function sees the real frames.

    def eyes(request):                       # confident in B if the frames are mostly red
        red = request.frames.pixels[..., 0].mean() > 150
        return {"A": 0.1, "B": 0.9} if red else {"A": 0.5, "B": 0.5}

    model = Scripted(eyes)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from gridprobe.backends.base import FrameGroup, Posterior, ScoreRequest
from gridprobe.backends.qwen3vl.pricing import QWEN3_VL, ModelDims, price, price_recall, with_attention
from gridprobe.errors import ModelError
from gridprobe.flops import Cost
from gridprobe.progress import report

__all__ = ["Scripted"]

MARKER_TOKENS = 8
"""Tokens of a time marker and of the two delimiters around a frame, roughly."""
CHARACTERS_PER_TOKEN = 4


class Scripted:
    """A fake model. Its cost is what a real model of the given dimensions would cost for the same requests.

    Its attention to a frame is how confident the function is about that frame alone.
    """

    recalls: ClassVar[bool] = True

    def __init__(
        self,
        answer: Callable[[ScoreRequest], Mapping[str, float]],
        *,
        name: str = "scripted",
        priced_as: ModelDims = QWEN3_VL["2B"],
    ) -> None:
        self._answer = answer
        self._dims = priced_as
        self.identity = f"scripted:{name}"
        self.requests: list[ScoreRequest] = []

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Ask the function about each request."""
        posteriors = []
        for done, request in enumerate(requests, start=1):
            self.requests.append(request)
            posterior = self._posterior(request, request.sees)
            if request.attention:
                count = sum(len(group.frames) for group in request.groups)
                looks = (self._posterior(request, (i,)).confidence for i in range(count))
                posterior = replace(posterior, attention=tuple(looks))
            posteriors.append(posterior)
            report("model", done, len(requests))
        return posteriors

    def _posterior(self, request: ScoreRequest, sees: tuple[int, ...] | None) -> Posterior:
        """What the function answers; its memory of some frames is what it would say if it were shown only these."""
        cost = self.estimate(request)
        if sees is not None:
            request = replace(request, groups=_only(request, sees), sees=None, attention=False, between=())
        weights = self._answer(request)
        if set(weights) != set(request.labels):
            raise ModelError(f"the script answered for {sorted(weights)}, but the labels are {request.labels}")
        return Posterior.from_probabilities({label: weights[label] for label in request.labels}, cost)

    @property
    def multiple(self) -> int:
        """As the model it is priced as."""
        return self._dims.vision.patch * self._dims.vision.merge

    def estimate(self, request: ScoreRequest) -> Cost:
        """The cost for a real model; text tokens are estimated at four characters each."""
        grids = [self._grid(group) for group in request.groups]
        visual = sum(units * rows * columns for units, rows, columns in grids) // self._dims.vision.merge**2
        frames = visual + len(request.units) * MARKER_TOKENS
        prompt = len(request.prompt) // CHARACTERS_PER_TOKEN
        known = round(frames * len(request.seen_units) / max(1, len(request.units)))
        if request.sees is not None:
            cost = price_recall(self._dims, prompt, known=known)
        else:
            cost = price(self._dims, frames + prompt, grids)
        return with_attention(cost, self._dims, prompt, known=known) if request.attention else cost

    def _grid(self, group: FrameGroup) -> tuple[int, int, int]:
        """Units of the group, and their rows and columns of patches."""
        width, height = group.size(self.multiple)
        patch = self._dims.vision.patch
        return len(group.units(0)), height // patch, width // patch


def _only(request: ScoreRequest, sees: Sequence[int]) -> tuple[FrameGroup, ...]:
    """The groups of a request with none but these frames, by their places in the order shown."""
    places = [(unit.group, member) for unit in request.units for member in unit.members]
    seen = sorted(places[i] for i in set(sees))
    return tuple(
        FrameGroup(group.frames.take([member for owner, member in seen if owner == number]), group.view)
        for number, group in enumerate(request.groups)
        if number in {owner for owner, _ in seen}
    )
