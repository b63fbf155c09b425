"""The one model boundary: a backend turns ScoreRequests into Posteriors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gridprobe.errors import ModelError, UsageError
from gridprobe.flops import Cost
from gridprobe.video import FramePool, FrameSize

__all__ = ["ASSUMED_FPS", "Backend", "Packing", "Posterior", "PromptOrder", "ScoreRequest", "Timestamps", "group_times"]

Packing = Literal["single", "pairs"]
Timestamps = Literal["true", "paper", "none"]
PromptOrder = Literal["frames_first", "text_first"]

ASSUMED_FPS = 24.0
"""What Qwen3-VL's processor assumes of frames that come without metadata, as in the authors' code."""

LOW_MASS = 0.1
"""Below this share of the probability on the option letters a posterior carries a warning."""


@dataclass(frozen=True)
class ScoreRequest:
    """One question to a model: these frames, this text, which of these labels?"""

    frames: FramePool
    prompt: str
    labels: tuple[str, ...]
    pixels: FrameSize
    """The size each frame is shown at."""
    packing: Packing = "single"
    """`single` gives each frame its own place; `pairs` fuses frames two by two, as Qwen3-VL does with video."""
    timestamps: Timestamps = "true"
    """`true` tells the model when each frame is shown, `paper` what the authors' code told it, `none` nothing."""
    prompt_order: PromptOrder = "frames_first"
    """Frames first, as Qwen3-VL was trained, so that another question about them can begin where they end; or the text
    first, so that a long one is read once for many probes."""
    again: bool = False
    """More will be asked about these frames: what can serve the next question is worth keeping."""
    between: tuple[str, ...] = ()
    """Texts that stand before each frame, and one more after the last; empty for none at all."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            raise UsageError(f"a model needs at least 2 different labels to choose from, got {self.labels}")
        if self.between and len(self.between) != len(self.frames) + 1:
            raise UsageError(f"{len(self.frames)} frames need {len(self.frames) + 1} texts, got {len(self.between)}")

    @property
    def times(self) -> tuple[float, ...]:
        """When the model is told that each frame is shown."""
        if self.timestamps == "paper":
            return tuple(i / ASSUMED_FPS for i in range(len(self.frames)))
        return self.frames.times

    @property
    def texts(self) -> tuple[str, ...]:
        """What stands before each group of frames, and after the last; text inside a fused pair stands behind it."""
        if not self.between:
            return ("",) * (len(group_times(self.frames.times, self.packing)) + 1)
        if self.packing == "single":
            return self.between
        first, *rest = self.between
        joined = ["\n".join(filter(None, rest[i : i + 2])) for i in range(0, len(rest), 2)]
        return (first, *joined)


def group_times(times: Sequence[float], packing: Packing) -> tuple[float, ...]:
    """One time for each group of frames the model sees; a fused pair carries the mean, a last odd frame its own."""
    if packing == "single":
        return tuple(times)
    pairs = [(times[i], times[min(i + 1, len(times) - 1)]) for i in range(0, len(times), 2)]
    return tuple((first + last) / 2 for first, last in pairs)


@dataclass(frozen=True)
class Posterior:
    """What the model believes, over the question's own labels."""

    labels: tuple[str, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms; the probabilities sum to 1 over the labels."""
    cost: Cost = field(default_factory=Cost)
    mass: float = 1.0
    """The share of the model's whole next-token probability that lay on the labels before normalising."""
    notes: tuple[str, ...] = ()
    """What the backend itself has to say against this posterior, in words that follow "in the focused pass"."""

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.logprobs):
            raise ValueError(f"{len(self.logprobs)} log-probabilities for {len(self.labels)} labels")
        if any(math.isnan(value) for value in (*self.logprobs, self.mass)):
            raise ModelError("the model's output is not a number (NaN); try dtype float32, or check the weights")
        total = sum(map(math.exp, self.logprobs))
        if abs(total - 1.0) > 1e-4:
            raise ModelError(f"the option probabilities sum to {total:.4g} instead of 1")

    @classmethod
    def from_probabilities(cls, probabilities: Mapping[str, float], cost: Cost) -> "Posterior":
        """From positive weights, normalised here."""
        total = sum(probabilities.values())
        if not total > 0 or any(not p >= 0 for p in probabilities.values()):
            raise ModelError(f"probabilities must be non-negative with a positive sum, got {dict(probabilities)}")
        logs = (math.log(p / total) if p > 0 else -math.inf for p in probabilities.values())
        return cls(tuple(probabilities), tuple(logs), cost)

    @property
    def probabilities(self) -> dict[str, float]:
        """Label -> probability."""
        return {label: math.exp(value) for label, value in zip(self.labels, self.logprobs, strict=True)}

    @property
    def confidence(self) -> float:
        """The peak of the posterior (the paper's c(S, q), eq. 1)."""
        return min(1.0, math.exp(max(self.logprobs)))

    @property
    def choice(self) -> str:
        """The most likely label; of equal ones the first."""
        return self.labels[self.logprobs.index(max(self.logprobs))]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the answer should know."""
        if self.mass >= LOW_MASS:
            return self.notes
        return (*self.notes, f"the model puts only {self.mass:.1%} of its probability on the option letters")


class Backend(Protocol):
    """A vision-language model, wherever it runs."""

    @property
    def identity(self) -> str:
        """Model, revision, dtype and settings: goes into cache keys and records."""
        ...

    def score(self, requests: Sequence[ScoreRequest]) -> list[Posterior]:
        """One posterior for each request, in order. The probes of a question arrive together."""
        ...

    def estimate(self, request: ScoreRequest) -> Cost:
        """What scoring the request would cost, without running it."""
        ...
