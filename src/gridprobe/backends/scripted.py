"""A backend that answers from a Python function, and remembers what it was asked.

It ships in the product: the demo, the documentation, unit tests and anyone who wants to try an idea without a model use
it. The function sees the real frames.

    def eyes(request):                       # sure of B whenever a frame is mostly red
        red = request.frames.pixels[..., 0].mean() > 150
        return {"A": 0.1, "B": 0.9} if red else {"A": 0.5, "B": 0.5}

    model = Scripted(eyes)
"""

from collections.abc import Callable, Mapping, Sequence

from gridprobe.backends.base import Posterior, ScoreRequest, group_times
from gridprobe.errors import ModelError
from gridprobe.flops import QWEN3_VL, Cost, ModelDims, price
from gridprobe.progress import report

__all__ = ["Scripted"]

MARKER_TOKENS = 8
"""A time marker and the two delimiters around a frame group cost about this many tokens."""
CHARACTERS_PER_TOKEN = 4


class Scripted:
    """A fake model. Its compute is what a real model of the given dimensions would spend on the same requests."""

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

    def estimate(self, request: ScoreRequest) -> Cost:
        """The price for a real model; text tokens are guessed at four characters each."""
        vision = self._dims.vision
        width, height = request.pixels.fit(request.frames.width, request.frames.height)
        rows, columns = height // vision.patch, width // vision.patch
        groups = len(group_times(request.times, request.packing))
        visual = groups * rows * columns // vision.merge**2
        text = groups * MARKER_TOKENS + len(request.prompt) // CHARACTERS_PER_TOKEN
        return price(self._dims, visual + text, [(groups, rows, columns)])
