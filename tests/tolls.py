"""A fast model for tests of limits: it knows what requests cost without looking at a pixel, and remembers the bill.

A remote one bills up to a fifth more or less than it estimates. Its map is flat, peaked, random or full of ties.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gridprobe.limits import Pace
from gridprobe.models import Capabilities, Completion, Posterior, Request, Response, SamplingParams
from gridprobe.models.base import Completions, Cost, by_task
from gridprobe.models.openai.model import SLACK
from gridprobe.video import FramePool, Pending

MAPS = ("flat", "peaked", "random", "ties")
SPEED = 2e-3
"""TFLOPs in a second."""
BASE_MEMORY = 1.0


def undecodable(count: int, width: int, height: int) -> FramePool:
    """Frames whose pixels nobody may look at."""

    def decode(rows: Sequence[int]) -> np.ndarray:
        raise AssertionError("a price needs no pixels")

    return FramePool(Pending(decode, (count, height, width, 3)), tuple(float(i) for i in range(count)), source="toll")


@dataclass(eq=False)
class Toll:
    """Prices like a small model; answers by its map."""

    seed: int = 0
    kind: str = "random"
    remote: bool = False
    kv_reuse: bool = True
    confidence: float = 0.5
    """Of all frames together."""
    identity: str = "toll"
    now: float = 0.0
    """Seconds on its own clock, which only its work moves."""
    tokens: int = 0
    flops: float = 0.0
    widest: float = 0.0
    """Gigabytes of its largest pass."""
    asked: list[Request] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            kv_reuse=self.kv_reuse,
            attention_map=self.kv_reuse,
            generates=True,
            frame_multiple=32,
            cost_slack=SLACK if self.remote else 1.0,
            weight_bytes=int(BASE_MEMORY * 1e9),
            pass_bytes=100_000,
        )

    @property
    def pace(self) -> Pace:
        return Pace(tflops=SPEED, tokens=1.0, seconds=1.0)

    def cost(self, request: Request) -> Cost:
        if isinstance(task := request.task, SamplingParams):
            return self._cost_of_texts(request, [task.limit] * task.samples)
        own = self._read(request)
        before = self._shown(request) if request.visible_frames is not None else 0
        flops = 1e6 * own + 50.0 * own * (own + before) + (1e5 if request.attention else 0.0)
        return Cost(1, own, flops=flops, flops_paper=flops, flops_computed=flops)

    def _cost_of_texts(self, request: Request, tokens: Sequence[int]) -> Cost:
        prompt = self.cost(request.prompt_only)
        flops = sum(1e6 * count for count in tokens)
        return prompt + Cost(tokens=sum(tokens), flops=flops, flops_paper=flops, flops_computed=flops)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        return by_task(self, requests, self._choose, self._generate)

    def _choose(self, requests: Sequence[Request]) -> list[Posterior]:
        widths = [self._read(each) + (self._shown(each) if each.visible_frames is not None else 0) for each in requests]
        owns = [self._read(each) for each in requests]
        if requests:
            tokens = max(widths) + (len(requests) - 1) * max(owns)
            self.widest = max(self.widest, self.capabilities.memory(tokens))
        return [self._posterior(request) for request in requests]

    def _generate(self, requests: Sequence[Request], writing: SamplingParams) -> list[Completions]:
        found = []
        for request in requests:
            lengths = [1 + (self.seed + place) % writing.limit for place in range(writing.samples)]
            self.asked.append(request)
            first = self._billed(self._cost_of_texts(request, lengths))
            texts = [f"text {(self.seed + place) % 3}" for place in range(writing.samples)]
            costs = [first, *[Cost()] * (writing.samples - 1)]
            found.append(tuple(Completion(text, 1, -1.0, True, cost) for text, cost in zip(texts, costs, strict=True)))
        return found

    def _posterior(self, request: Request) -> Posterior:
        self.asked.append(request)
        count = sum(len(group.frames) for group in request.groups)
        frames = range(count) if request.visible_frames is None else request.visible_frames
        likely = self.confidence if len(frames) == count else 0.3 + 0.6 * max(map(self._score, frames))
        rest = (1.0 - likely) / (len(request.labels) - 1)
        weights = dict.fromkeys(request.labels, rest) | {request.labels[-1]: likely}
        found = Posterior.from_probabilities(weights, self._billed(self.cost(request)))
        looks = np.array([list(map(self._score, range(count)))]) if request.attention else None
        return Posterior(found.labels, found.logprobs, found.cost, heads=looks)

    def _score(self, frame: int) -> float:
        """A number from 0 to 1 for a frame."""
        if self.kind == "flat":
            return 0.5
        if self.kind == "peaked":
            return 0.9 if frame % 50 == self.seed % 50 else 0.1
        value = ((frame + 1) * 2654435761 + self.seed * 40503) % 1009 / 1009
        return round(value * 3) / 3 if self.kind == "ties" else value

    def _billed(self, cost: Cost) -> Cost:
        factor = random.Random(f"{self.seed}:{len(self.asked)}").uniform(0.8, 1.2) if self.remote else 1.0
        tokens, flops = int(cost.tokens * factor), cost.flops * factor
        self.tokens, self.flops, self.now = self.tokens + tokens, self.flops + flops, self.now + flops / 1e12 / SPEED
        return Cost(cost.calls, tokens, flops=flops, flops_paper=flops, flops_computed=flops)

    def _read(self, request: Request) -> int:
        text = len(request.prompt) // 4 + 1
        return text if request.visible_frames is not None else text + self._shown(request)

    def _shown(self, request: Request) -> int:
        total = 0
        for group in request.groups:
            width, height = group.size(32)
            total += -(-len(group.frames) // group.view.step) * (width * height // 1024 + 4)
        return total
