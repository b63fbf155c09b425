"""A model that answers from a Python function, and remembers what it was asked.

It is part of the package, for tests, documentation and experiments without a model. The function sees the real frames.

    def eyes(request):                       # confident in B if the frames are mostly red
        red = request.frames.pixels[..., 0].mean() > 150
        return {"A": 0.1, "B": 0.9} if red else {"A": 0.5, "B": 0.5}

    model = MockModel(eyes)

With a second function it also writes: `MockModel(eyes, text=lambda request: {"a red ball": 0.8, "a blue ball": 0.2})`.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gridprobe._util import report
from gridprobe.errors import ModelError
from gridprobe.models.base import (
    CHARACTERS_PER_TOKEN,
    Capabilities,
    Completion,
    Completions,
    Cost,
    FrameGroup,
    Posterior,
    Request,
    Response,
    SamplingParams,
    about_tokens,
    check_tasks,
    cut_at,
    seed_of,
)
from gridprobe.models.qwen3vl.pricing import QWEN3_VL, ModelDims, price_roughly, price_text_roughly


class MockModel:
    """A fake model. Its cost is what a real model of the given dimensions would cost for the same requests.

    Its attention to a frame is how confident the function is about that frame alone. The function for text gives each
    text that the model might write a weight: it takes the heaviest, or draws by weight^(1/temperature).
    """

    def __init__(
        self,
        answer: Callable[[Request], Mapping[str, float]],
        *,
        text: Callable[[Request], Mapping[str, float]] | None = None,
        name: str = "scripted",
        priced_as: ModelDims = QWEN3_VL["2B"],
    ) -> None:
        self._answer = answer
        self._text = text
        self._dims = priced_as
        self.identity = f"scripted:{name}"
        self.capabilities = Capabilities(
            kv_reuse=True,
            masks_frames=True,
            attention_map=True,
            close_ups=True,
            generates=text is not None,
            frame_multiple=priced_as.vision.frame_multiple,
        )
        self.requests: list[Request] = []

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Ask the functions about each request."""
        check_tasks(self, requests)
        responses: list[Response] = []
        for done, request in enumerate(requests, start=1):
            self.requests.append(request)
            if isinstance(request.task, SamplingParams):
                responses.append(self._texts(request, request.task))
            else:
                responses.append(self._choice(request))
            report("model", done, len(requests))
        return responses

    def _texts(self, request: Request, params: SamplingParams) -> Completions:
        """Texts of the function, about four characters to a token."""
        texts = [self._drawn(request, params, sample) for sample in range(params.samples)]
        first, *more = (price_text_roughly(self._dims, request, each.tokens) for each in texts)
        costs = [self.cost(request.prompt_only) + first, *more]
        return tuple(replace(each, cost=cost) for each, cost in zip(texts, costs, strict=True))

    def _weights(self, request: Request) -> dict[str, float]:
        """What the function says about text, with weights that sum to 1."""
        assert self._text is not None, "a model without a function for text does not generate"
        weights = self._text(_as_seen(request, request.visible_frames))
        total = math.fsum(weights.values())
        if not total > 0 or any(not weight >= 0 for weight in weights.values()):
            raise ModelError(f"the script for text must give weights from 0 up and one above 0, got {dict(weights)}")
        return {text: weight / total for text, weight in weights.items()}

    def _drawn(self, request: Request, writing: SamplingParams, sample: int) -> Completion:
        weights = self._weights(request)
        text = max(weights, key=lambda each: weights[each])
        if writing.temperature:
            powers = [weight ** (1 / writing.temperature) for weight in weights.values()]
            chance = random.Random(seed_of(writing, request.prompt.encode(), sample))
            (text,) = chance.choices(list(weights), powers)
        logprob = math.log(weights[text])
        text, _ = cut_at(text, writing.stop)
        tokens = about_tokens(text)
        if tokens > writing.limit:
            shorter = text[: writing.limit * CHARACTERS_PER_TOKEN].strip()
            return Completion(shorter, writing.limit, logprob, finished=False)
        return Completion(text.strip(), tokens, logprob, finished=True)

    def _choice(self, request: Request) -> Posterior:
        posterior = self._posterior(request, request.visible_frames)
        if not request.attention:
            return posterior
        count = sum(len(group.frames) for group in request.groups)
        looks = [self._posterior(request, (i,)).confidence for i in range(count)]
        return replace(posterior, heads=np.array([looks]))

    def _posterior(self, request: Request, visible_frames: tuple[int, ...] | None) -> Posterior:
        """What the function answers; with only some frames visible, what it would say if it were shown only these."""
        cost = self.cost(request)
        request = _as_seen(request, visible_frames)
        weights = self._answer(request)
        if set(weights) != set(request.labels):
            raise ModelError(f"the script answered for {sorted(weights)}, but the labels are {request.labels}")
        return Posterior.from_probabilities({label: weights[label] for label in request.labels}, cost)

    def cost(self, request: Request) -> Cost:
        """The cost for a real model; text tokens are estimated at four characters each."""
        return price_roughly(self._dims, request)


def _as_seen(request: Request, visible_frames: tuple[int, ...] | None) -> Request:
    """The request as the function is asked; with only some frames visible it is shown these alone."""
    if visible_frames is None:
        return request
    return replace(request, groups=_only(request, visible_frames), visible_frames=None, attention=False, between=())


def _only(request: Request, visible_frames: Sequence[int]) -> tuple[FrameGroup, ...]:
    """The groups of a request with none but these frames, by their places in the order shown."""
    places = [(unit.group, member) for unit in request.units for member in unit.members]
    seen = sorted(places[i] for i in set(visible_frames))
    return tuple(
        FrameGroup(group.frames.take([member for owner, member in seen if owner == number]), group.view)
        for number, group in enumerate(request.groups)
        if number in {owner for owner, _ in seen}
    )
