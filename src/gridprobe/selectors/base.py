"""Selection: which frames of the pool a selector keeps, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.importance import Budget, ImportanceMap, Shape, Ties, spread, top
from gridprobe.models.base import Model, Posterior, PromptOrder, View
from gridprobe.models.cost import Cost
from gridprobe.question import Question
from gridprobe.selectors.encoders import Encoder, LazyEncoder
from gridprobe.video import FramePool, FrameSize, Sampling

__all__ = ["FLAT", "OVERVIEW", "PROBE", "PROBE_SIDE", "ExtraFrames", "Parts", "Selection", "Selector", "doubts"]

OVERVIEW = "overview"
"""In place of a selector's name: all frames, because the overview settled the question and nobody asked for a map."""
PROBE_SIDE = 224
"""Probes see small frames: the paper's 224."""
PROBE = FrameSize(max_side=PROBE_SIDE)
FLAT = "no frame stands out from the others, so the map does not say where the answer is"


class ExtraFrames(NamedTuple):
    """Frames that are shown in addition to the kept ones, smaller than these."""

    indices: tuple[int, ...]
    share: float
    """Their side, as a share of a kept frame's side."""


def doubts(asked: Sequence[Posterior]) -> tuple[str, ...]:
    """What a reader should know about answers to probes: how many are doubtful, and the worst warning."""
    doubtful = [probe for probe in asked if probe.warnings]
    if not doubtful:
        return ()
    worst = min(doubtful, key=lambda probe: probe.mass)
    return (f"in {len(doubtful)} of {len(asked)} probes {worst.warnings[0]}",)


@dataclass(frozen=True, eq=False)
class Selection:
    """The kept frames. Positions must ascend, so they are always in time order."""

    selector: str
    indices: tuple[int, ...]
    timestamps: tuple[float, ...]
    pool: int
    """The number of frames to choose from."""
    cost: Cost = field(default_factory=Cost)
    evidence: ImportanceMap | None = None
    probes: tuple[Posterior, ...] = ()
    """What the model answered to every probe: rows, then columns."""
    notes: tuple[str, ...] = ()
    """Warnings of the selector."""
    extra_frames: tuple[ExtraFrames, ...] = ()
    """Frames that are shown smaller, for selectors that use several sizes; they do not count as kept."""

    def __post_init__(self) -> None:
        if not self.indices or list(self.indices) != sorted(set(self.indices)):
            raise ValueError(f"kept positions must ascend and be distinct, got {self.indices}")
        if self.indices[0] < 0 or self.indices[-1] >= self.pool or len(self.timestamps) != len(self.indices):
            raise ValueError(f"{self.indices} with {len(self.timestamps)} times do not fit a pool of {self.pool}")
        shown = [*self.indices, *(index for each in self.extra_frames for index in each.indices)]
        if len(set(shown)) < len(shown) or not set(shown) <= set(range(self.pool)):
            raise ValueError(f"extra frames must be others of the pool, each once, got {self.extra_frames}")

    @classmethod
    def of(cls, selector: str, pool: FramePool, indices: Sequence[int], **details: Any) -> "Selection":
        """The frames of a pool at these positions; `details` are the other fields."""
        return cls(selector, tuple(indices), tuple(pool.times[i] for i in indices), len(pool), **details)

    def best(self, count: int) -> "Selection":
        """The same with only this many kept frames: the most important; evenly spaced ones without scores."""
        if count >= self.kept:
            return self
        scores = None if self.scores is None else np.array([self.scores[i] for i in self.indices])
        places = spread(self.kept, count) if scores is None else top(scores, count)
        indices, times = tuple(self.indices[i] for i in places), tuple(self.timestamps[i] for i in places)
        return replace(self, indices=indices, timestamps=times)

    @property
    def kept(self) -> int:
        """How many frames were kept (the paper's M_eff)."""
        return len(self.indices)

    @property
    def scores(self) -> tuple[float, ...] | None:
        """The importance of every frame of the pool, in time order, for selectors that make a map."""
        return tuple(self.evidence.scores.tolist()) if self.evidence else None

    @property
    def importance(self) -> npt.NDArray[np.float64] | None:
        """The K×K map, for selectors that make one."""
        return self.evidence.matrix if self.evidence else None

    @property
    def shape(self) -> Shape | None:
        """Skew, excess kurtosis and sigma of the map."""
        return self.evidence.shape if self.evidence else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the answer should know about the choice."""
        return (*self.notes, *doubts(self.probes))


class Selector(Protocol):
    """Chooses frames for a question. A class that derives from this one needs only a `name` and `select`."""

    @property
    def name(self) -> str:
        """Its name in records and reports."""
        ...

    @property
    def input_size(self) -> FrameSize | None:
        """The size its pool is decoded at; None if it needs no pixels, so that only kept frames are decoded."""
        return None

    @property
    def models(self) -> tuple[str, ...]:
        """Identities of the models it asks."""
        return ()

    @property
    def view(self) -> View | None:
        """How the kept frames are shown to the answering model; None shows them as the settings say."""
        return None

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Choose at least one frame of the pool."""
        ...

    def bounds(self, pool: int) -> tuple[int, int]:
        """The fewest and the most frames it may keep of a pool."""
        return 1, pool

    def extra_frames(self, kept: int, pool: int) -> tuple[tuple[int, float], ...]:
        """For each smaller size: how many frames it shows in addition to `kept` ones, and the share of their side."""
        return ()

    def with_model(self, model: Model) -> "Selector":
        """The same selector with another model; itself if it asks none."""
        return self

    def loaded(self, **options: Any) -> "Selector":
        """The same selector with the encoder that it only names loaded; itself if it has none.

        With `weights=False` the encoder knows only what it costs, for `gridprobe plan`.
        """
        return self

    def keeping_kv(self) -> "Selector":
        """The same selector, prepared for more questions about the same frames; it selects the same."""
        return self

    def with_overview(self, overview: Posterior) -> "Selector":
        """The same selector, given what its model answered to all frames; itself if it has no use for it."""
        return self

    def locate(self, pool: FramePool, question: Question, overview: Posterior) -> Selection:
        """The frames that show what its model is sure of after the overview; those it would keep, by default."""
        return self.with_overview(overview).select(pool, question)

    def describe(self) -> dict[str, Any]:
        """Everything that decides its choice, as plain values, for records."""
        return {"name": self.name}


@dataclass(frozen=True)
class Parts:
    """What a selector that is given by name is made of."""

    model: Model
    budget: Budget
    small_view: View
    """How probes are shown."""
    probes: Literal["fresh", "attention"] = "fresh"
    """How the map is made; see `gridprobe.selectors.gridprobe`."""
    decoded: FrameSize | None = None
    """The size frames are decoded at for probes; None decodes them straight to the size of the view."""
    collage: bool = False
    """Whether a probe shows its frames as one picture."""
    ties: Ties = "spread"
    prompt_order: PromptOrder = "frames_first"
    sampling: Sampling = "middle"
    """How evenly spaced frames are chosen: as the video is sampled."""
    encoder: Encoder = field(default_factory=LazyEncoder)
    """What compares frames with the question; one without a name is the selector's own."""
