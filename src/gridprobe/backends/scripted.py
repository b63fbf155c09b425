"""A backend that answers from a Python function, and remembers what it was asked.

It is part of the package, for tests, documentation and experiments without a model. The function sees the real frames.

    def eyes(request):                       # confident in B if the frames are mostly red
        red = request.frames.pixels[..., 0].mean() > 150
        return {"A": 0.1, "B": 0.9} if red else {"A": 0.5, "B": 0.5}

    model = Scripted(eyes)
"""

from collections.abc import Callable, Mapping, Sequence

from gridprobe.backends.base import FrameGroup, Posterior, ScoreRequest
from gridprobe.backends.qwen3vl.pricing import QWEN3_VL, ModelDims, price
from gridprobe.errors import ModelError
from gridprobe.flops import Cost
from gridprobe.progress import report

__all__ = ["Scripted"]

MARKER_TOKENS = 8
"""Tokens of a time marker and of the two delimiters around a frame, roughly."""
CHARACTERS_PER_TOKEN = 4


class Scripted:
    """A fake model. Its cost is what a real model of the given dimensions would cost for the same requests."""

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
            weights = self._answer(request)
            if set(weights) != set(request.labels):
                raise ModelError(f"the script answered for {sorted(weights)}, but the labels are {request.labels}")
            ordered = {label: weights[label] for label in request.labels}
            posteriors.append(Posterior.from_probabilities(ordered, self.estimate(request)))
            report("model", done, len(requests))
        return posteriors

    @property
    def multiple(self) -> int:
        """As the model it is priced as."""
        return self._dims.vision.patch * self._dims.vision.merge

    def estimate(self, request: ScoreRequest) -> Cost:
        """The cost for a real model; text tokens are estimated at four characters each."""
        grids = [self._grid(group) for group in request.groups]
        visual = sum(units * rows * columns for units, rows, columns in grids) // self._dims.vision.merge**2
        text = len(request.units) * MARKER_TOKENS + len(request.prompt) // CHARACTERS_PER_TOKEN
        return price(self._dims, visual + text, grids)

    def _grid(self, group: FrameGroup) -> tuple[int, int, int]:
        """Units of the group, and their rows and columns of patches."""
        size = group.view.pixels.rounded_to(self.multiple)
        width, height = size.fit(group.frames.width, group.frames.height)
        patch = self._dims.vision.patch
        return len(group.units(0)), height // patch, width // patch
