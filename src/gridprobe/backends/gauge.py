"""Gauge: what requests to a model cost and how much memory they take, without loading it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gridprobe.backends.base import Posterior, ScoreRequest
from gridprobe.flops import Cost

__all__ = ["Gauge"]


@dataclass(frozen=True)
class Gauge:
    """Prices requests. As a backend it answers every question with equal probabilities, at the model's price."""

    identity: str
    """The model's name."""
    estimate: Callable[[ScoreRequest], Cost]
    multiple: int
    exact: bool
    """Whether text is counted by the model's own tokenizer; otherwise four characters count as a token."""
    weights: int
    """Bytes of the weights."""
    pass_bytes: int
    """Bytes of memory for each token of a pass."""
    recalls: bool = True
    """Whether the memory of frames can be questioned; see `gridprobe.backends.base.recalls`."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Equal probabilities, so that a selector can run and its cost be measured."""
        return [self._posterior(request) for request in requests]

    def _posterior(self, request: ScoreRequest) -> Posterior:
        posterior = Posterior.from_probabilities(dict.fromkeys(request.labels, 1.0), self.estimate(request))
        count = sum(len(group.frames) for group in request.groups)
        return replace(posterior, attention=(0.0,) * count) if request.attention else posterior

    def memory(self, tokens: int) -> float:
        """Gigabytes for the weights and one pass over this many tokens."""
        return (self.weights + tokens * self.pass_bytes) / 1e9
