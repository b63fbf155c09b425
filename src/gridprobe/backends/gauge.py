"""Gauge: what requests to a model cost and how much memory they take, without loading it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gridprobe.backends.base import Posterior, ScoreRequest, require_labels
from gridprobe.backends.writing import Writing, Written, check_requests
from gridprobe.errors import UsageError
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
    texts: Callable[[ScoreRequest, Sequence[int]], Cost] | None = None
    """What texts of so many tokens each cost for a request, if the model writes."""
    slack: float = 1.0
    """How much larger a bill may be than its estimate."""

    @property
    def writes(self) -> bool:
        """Whether it can price texts."""
        return self.texts is not None

    def estimate_texts(self, request: ScoreRequest, tokens: Sequence[int]) -> Cost:
        """What texts of so many tokens each would cost, with the prompt read once for all of them."""
        if self.texts is None:
            raise UsageError(f"what texts of {self.identity} cost is not known")
        return self.texts(request, tokens)

    def write(self, requests: Sequence[ScoreRequest], writing: Writing) -> list[tuple[Written, ...]]:
        """As many different texts as asked for, each as long as it may be; the first one has the cost of all."""
        check_requests(requests)
        count, limit = writing.samples, writing.limit
        found = []
        for request in requests:
            costs = [self.estimate_texts(request, [limit] * count), *[Cost()] * (count - 1)]
            found.append(tuple(Written(f"text {n}", limit, None, True, cost) for n, cost in enumerate(costs, start=1)))
        return found

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """Equal probabilities, so that a selector can run and its cost be measured."""
        require_labels(requests)
        return [self._posterior(request) for request in requests]

    def _posterior(self, request: ScoreRequest) -> Posterior:
        posterior = Posterior.from_probabilities(dict.fromkeys(request.labels, 1.0), self.estimate(request))
        count = sum(len(group.frames) for group in request.groups)
        return replace(posterior, attention=(0.0,) * count) if request.attention else posterior

    def memory(self, tokens: int) -> float:
        """Gigabytes for the weights and one pass over this many tokens."""
        return (self.weights + tokens * self.pass_bytes) / 1e9
