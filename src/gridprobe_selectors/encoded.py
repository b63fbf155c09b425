"""What selectors have in common that compare frames with the question in an encoder's space."""

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError
from gridprobe.importance import Budget, Grid, ImportanceMap, Ties, top
from gridprobe.models.base import Cost
from gridprobe.question import Question
from gridprobe.selectors.base import FLAT, Encoder, LazyEncoder, Parts, Selection, Selector, Vectors
from gridprobe.video import FramePool, FrameSize

Query = Literal["question", "question and options"]
"""What frames are compared with."""
DIGITS = 6
"""Cosines are rounded to this: float32 means no more, and equal frames of two batches must compare equal."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Similarities:
    """Frames and a question in one space."""

    frames: Vectors
    text: Vectors
    """One row."""
    cost: Cost = field(default_factory=Cost)

    @property
    def cosines(self) -> Floats:
        """Of every frame with the question."""
        products: Floats = self.frames.astype(np.float64) @ self.text[0].astype(np.float64)
        if not np.isfinite(products).all():
            raise ModelError("the encoder's vectors are not numbers (NaN); check its weights, or use float32")
        rounded: Floats = np.round(products.clip(-1.0, 1.0), DIGITS)
        return rounded


def similarities_of(encoder: Encoder, pool: FramePool, text: str) -> Similarities:
    """Encode the frames and the text, and count what that costs."""
    cost = encoder.image_cost(pool) + encoder.text_cost([text])  # before: what is known is not computed
    return Similarities(encoder.images(pool), encoder.texts([text]), cost)


def with_best(chosen: Collection[int], scores: Floats, kept: int) -> tuple[int, ...]:
    """The chosen positions and the best of the others, `kept` together, ascending."""
    others = np.array([i for i in range(len(scores)) if i not in chosen], dtype=np.int64)
    missing = kept - len(chosen)
    more = others[list(top(scores[others], missing))].tolist() if missing else ()
    return tuple(sorted((*chosen, *more)))


def similarity_map(cosines: Floats) -> ImportanceMap:
    """Importance of each frame: (1 + cosine) / 2."""
    scores = (1.0 + cosines) / 2.0
    return ImportanceMap(Grid.holding(len(scores)), by_frame=tuple(scores.tolist()), kind="encoder")


def unit_range(values: Floats) -> Floats:
    """Values from 0, the lowest, to 1, the highest; zeros if all are the same."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


@dataclass(frozen=True)
class Comparing(Selector):
    """Has an encoder, and keeps as many frames as a budget says: a fixed number, or a rule for a map by frames."""

    encoder: Encoder
    budget: Budget
    ties: Ties = "spread"
    query: ClassVar[Query] = "question"
    published: ClassVar[str] = "siglip"
    """The encoder of its paper, or the nearest one that we have."""

    @classmethod
    def make(cls, argument: str, parts: Parts) -> "Comparing":
        """The function of the registry."""
        return cls(encoder_of(parts, cls.published, argument=argument), parts.budget, parts.ties)

    @property
    def input_size(self) -> FrameSize:
        """The encoder's size."""
        return self.encoder.image_size

    @property
    def models(self) -> tuple[str, ...]:
        """The encoder."""
        return (self.encoder.identity,)

    def text(self, question: Question) -> str:
        """What frames are compared with."""
        return question.text if self.query == "question" else " ".join((question.text, *question.options))

    def selection(
        self, pool: FramePool, question: Question, indices: tuple[int, ...], *, evidence: ImportanceMap, cost: Cost
    ) -> Selection:
        """These frames, with the map and the notes."""
        notes = self.encoder.notes(self.text(question))
        notes = (*notes, FLAT) if self.budget.flat(evidence) else notes
        return Selection.of(self.name, pool, indices, evidence=evidence, cost=cost, notes=notes)

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def loaded(self, **options: Any) -> "Comparing":
        """The same with its encoder loaded."""
        return replace(self, encoder=self.encoder.loaded(**options))

    def describe(self) -> dict[str, Any]:
        """Everything that decides its choice."""
        return {
            "name": self.name,
            "encoder": self.encoder.identity,
            "query": self.query,
            "budget": self.budget.describe(),
            "ties": self.ties,
        }


@dataclass(frozen=True)
class Encoded(Comparing):
    """Compares every frame with the question; a class that derives from it chooses which ones are kept."""

    @abstractmethod
    def choose(self, similarities: Similarities, kept: int) -> tuple[int, ...]:
        """Positions of this many frames, ascending; `kept` is at least 1 and less than the number of frames."""

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Compare, decide how many, choose."""
        similarities = similarities_of(self.encoder, pool, self.text(question))
        evidence = similarity_map(similarities.cosines)
        kept = self.budget.kept(evidence)
        indices = self.choose(similarities, kept) if kept < len(pool) else tuple(range(len(pool)))
        return self.selection(pool, question, indices, evidence=evidence, cost=similarities.cost)


def encoder_of(parts: Parts, default: str, *, argument: str = "") -> Encoder:
    """The encoder that the selector's argument names, else the preset's, else the one of the selector's paper."""
    if argument:
        return LazyEncoder(argument, cache=not isinstance(parts.encoder, LazyEncoder) or parts.encoder.cache)
    return parts.encoder.or_else(default) if isinstance(parts.encoder, LazyEncoder) else parts.encoder


def seed_and_rest(argument: str) -> tuple[int, str]:
    """The seed that a selector's argument begins with, 0 if it has none, and the rest of the argument."""
    first, _, rest = argument.partition(":")
    return (int(first), rest) if first.isascii() and first.isdigit() else (0, argument)


# Peaks of a signal, by the rules of scipy.signal.find_peaks, which gridprobe does not require.


def find_peaks(signal: Floats, *, height: float, prominence: float, distance: int) -> tuple[int, ...]:
    """Positions of local maxima, ascending.

    Args:
        signal: the values.
        height: the least value of a peak.
        prominence: by how much it must exceed the higher one of the two valleys between it and higher ground.
        distance: how many positions apart peaks must be; the higher ones stay.
    """
    peaks = [place for place in _maxima(signal) if signal[place] >= height]
    kept: list[int] = []
    for place in sorted(peaks, key=lambda each: (-signal[each], -each)):
        if all(abs(place - other) >= distance for other in kept):
            kept.append(place)
    return tuple(sorted(place for place in kept if _prominence(signal, place) >= prominence))


def _maxima(signal: Floats) -> list[int]:
    """The middle of every run of equal values between lower ones; a run at either end is none."""
    runs, start = [], 0
    for value, run in groupby(signal.tolist()):
        stop = start + len(list(run))
        runs.append((value, start, stop))
        start = stop
    inner = zip(runs, runs[1:], runs[2:], strict=False)
    return [(run[1] + run[2] - 1) // 2 for before, run, after in inner if before[0] < run[0] > after[0]]


def _prominence(signal: Floats, place: int) -> float:
    higher = np.flatnonzero(signal > signal[place])
    left = int(higher[higher < place].max(initial=-1)) + 1
    right = int(higher[higher > place].min(initial=len(signal)))
    return float(signal[place] - max(signal[left : place + 1].min(), signal[place:right].min()))


# CLIP (Radford et al., arXiv 2103.00020) and SigLIP (Zhai et al., arXiv 2303.15343) as frame selectors: top-m.
#
# The frames that are most similar to the question are kept. `clip` uses CLIP ViT-L/14 and `siglip` SigLIP so400m,
# unless their argument names another encoder. With a rule for frames the map decides how many, which is the follow-up
# that the paper proposes: the shape rule on similarities.
#
# The query is the bare question. Equal similarities are resolved by `ties`, as in a map of probes.


@dataclass(frozen=True)
class TopMatches(Encoded):
    """The most similar frames."""

    name: str = "clip"

    def choose(self, similarities: Similarities, kept: int) -> tuple[int, ...]:
        """Those that the budget chooses from the map."""
        return self.budget.choose(similarity_map(similarities.cosines), ties=self.ties)


def clip(argument: str, parts: Parts) -> TopMatches:
    """The function of the registry, for "clip"."""
    return TopMatches(encoder_of(parts, "clip", argument=argument), parts.budget, parts.ties, "clip")


def siglip(argument: str, parts: Parts) -> TopMatches:
    """The function of the registry, for "siglip"."""
    return TopMatches(encoder_of(parts, "siglip", argument=argument), parts.budget, parts.ties, "siglip")
