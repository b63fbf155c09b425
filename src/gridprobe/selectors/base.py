"""Selection: which frames of the pool a selector keeps, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError
from gridprobe.importance import Budget, ImportanceMap, Shape, Ties, spread, top
from gridprobe.models.base import Cost, Model, Posterior, PromptOrder, View
from gridprobe.question import Question
from gridprobe.registry import ENCODERS, explain_missing
from gridprobe.video import FramePool, FrameSize, Sampling

OVERVIEW = "overview"
"""In place of a selector's name: all frames, because the overview settled the question and nobody asked for a map."""
Probes = Literal["fresh", "attention", "when"]
"""What the map of `gridprobe` is made from; see `gridprobe.selectors.gridprobe`."""
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

    def widened(self, selection: Selection, pool: FramePool) -> Selection:
        """A selection with the frames to show where these leave doubt."""
        return selection

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


Vectors = npt.NDArray[np.float32]
"""Rows of length 1."""


class Encoder(Protocol):
    """An image encoder and a text encoder with a common space, such as CLIP.

    Costs count one call for every picture and for every piece of text, however they are batched. The published
    convention of `Cost` has no rule for encoders, so both conventions count the same floating-point operations. Tokens
    of an encoder are not counted, since they are not tokens of the model that answers.
    """

    @property
    def identity(self) -> str:
        """Name, fingerprint and dtype, behind the word "encoder": goes into cache keys and records."""
        ...

    @property
    def image_size(self) -> FrameSize:
        """The size a pool should be decoded at: large enough for the encoder, and with its aspect ratio."""
        ...

    @property
    def scale(self) -> float:
        """What cosines are multiplied by in the encoder's own loss."""
        ...

    @property
    def bias(self) -> float:
        """What is added then; 0 for CLIP, which has none."""
        ...

    def images(self, frames: FramePool) -> Vectors:
        """One row for each frame."""
        ...

    def texts(self, texts: Sequence[str]) -> Vectors:
        """One row for each text; that of a long text is the mean of its pieces."""
        ...

    def image_cost(self, frames: FramePool) -> Cost:
        """What encoding these frames costs; `flops_computed` leaves out those whose features are known by now."""
        ...

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """What encoding these texts costs; `flops_computed` leaves out those that are known by now."""
        ...

    def notes(self, text: str) -> tuple[str, ...]:
        """Warnings about a text, for the answer."""
        return ()

    def loaded(self, **options: Any) -> "Encoder":
        """The encoder, loaded; itself if it is. With `weights=False` only its price is known."""
        return self


# Encoders: CLIP and its kin, which compare frames with a text without reading either. Names are in `registry`.
#
# `LazyEncoder` is one that is not loaded yet. A selector that has one can be described, and sent to another process.


def load_encoder(name: str, **options: Any) -> Encoder:
    """Load an encoder by name.

    Args:
        name: "embedded", "clip", "siglip", or one of the last two with a folder or a Hugging Face id, such as
            "siglip:google/siglip2-so400m-patch14-384".
        **options: `device`, `dtype`, `cache`; with `weights=False` only its price is known.
    """
    entry, _ = ENCODERS.find(name)
    with explain_missing(entry.extra):
        load, argument = ENCODERS.resolve(name)
        encoder: Encoder = load(argument, **options)
    return encoder


@dataclass(frozen=True)
class LazyEncoder(Encoder):
    """An encoder that is not loaded yet; without a name it is the one that a selector's paper uses."""

    name: str = ""
    cache: bool = True
    """Whether features are to be kept on disk."""

    def __post_init__(self) -> None:
        if self.name:
            ENCODERS.find(self.name)

    def or_else(self, name: str) -> "LazyEncoder":
        """This one, or that of the given name if it has none."""
        return self if self.name else replace(self, name=name)

    @property
    def identity(self) -> str:
        """The name, until it is loaded."""
        return f"encoder:{self.name}"

    @property
    def image_size(self) -> FrameSize:
        """Not known before it is loaded."""
        return FrameSize()

    @property
    def scale(self) -> float:
        """Refuse: it is not known yet."""
        raise self._error()

    @property
    def bias(self) -> float:
        """Refuse: it is not known yet."""
        raise self._error()

    def loaded(self, *, weights: bool = True, **options: Any) -> Encoder:
        """Load it, or a gauge of it."""
        if not weights:
            return load_encoder(self.name, weights=False)
        return load_encoder(self.name, cache=self.cache, **options)

    def images(self, frames: FramePool) -> Vectors:
        """Refuse: there is nothing to encode with yet."""
        raise self._error()

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Refuse: there is nothing to encode with yet."""
        raise self._error()

    def image_cost(self, frames: FramePool) -> Cost:
        """Refuse: its price is not known yet."""
        raise self._error()

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """Refuse: its price is not known yet."""
        raise self._error()

    def _error(self) -> ModelError:
        return ModelError(f"the encoder {self.name} is not loaded")


@dataclass(frozen=True)
class Parts:
    """What a selector that is given by name is made of."""

    model: Model
    budget: Budget
    small_view: View
    """How probes are shown."""
    probes: Probes = "fresh"
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
