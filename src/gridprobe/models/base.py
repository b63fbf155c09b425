"""The one model boundary: a backend turns ScoreRequests into Posteriors."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

import numpy as np

from gridprobe.errors import ModelError, UsageError
from gridprobe.models.cost import Cost
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.frames import Pixels, contact_sheet

__all__ = [
    "ASSUMED_FPS",
    "CHARACTERS_PER_TOKEN",
    "Basis",
    "Completion",
    "CostModel",
    "FrameGroup",
    "GeneratingModel",
    "Model",
    "Packing",
    "Posterior",
    "PromptOrder",
    "Request",
    "SamplingParams",
    "Timestamps",
    "Unit",
    "View",
    "about_tokens",
    "check_requests",
    "cut_at",
    "fuses",
    "recalls",
    "require_labels",
    "require_plain",
    "seed_of",
    "writer",
    "writes",
]

Basis = Literal["letters", "written", "drafts", "tokens"]
"""What probabilities are: those of the letters of options; of writing a text in any of its wordings; the share of
drafts that say it; or the mean probability of a longer text's tokens."""
Packing = Literal["single", "pairs"]
Timestamps = Literal["true", "paper", "none"]
PromptOrder = Literal["frames_first", "text_first"]

ASSUMED_FPS = 24.0
"""The frame rate that Qwen3-VL's processor assumes for frames without metadata, as in the authors' code."""

MAX_SHEET = 8
SMALL_TOKENS = 28
"""What Qwen3-VL spends on a frame of 224×128."""

LOW_MASS = 0.1
"""If the option letters get less than this share of the probability, the posterior carries a warning."""


@dataclass(frozen=True)
class View:
    """How frames are shown to a model."""

    pixels: FrameSize
    """The size of each frame."""
    packing: Packing = "single"
    """`single` shows each frame by itself; `pairs` fuses frames two by two, as Qwen3-VL does with video."""
    timestamps: Timestamps = "true"
    """`true` gives the model each frame's presentation time, `paper` the times of the authors' code, `none` no time."""
    sheet: int = 1
    """How many frames stand side by side in a contact sheet: n × n of them are one picture. 0 leaves it to the model,
    see `suiting`; until then it is 1."""

    def __post_init__(self) -> None:
        if isinstance(self.sheet, bool) or not isinstance(self.sheet, int) or not 0 <= self.sheet <= MAX_SHEET:
            raise UsageError(f"a contact sheet has 1 to {MAX_SHEET} frames side by side, got {self.sheet!r}")
        if self.sheet > 1 and self.packing != "single":
            raise UsageError(f"a contact sheet shows single frames; packing={self.packing} needs sheet=1")

    def suiting(self, model: "Model") -> "View":
        """The same view with the number of frames in a picture that suits a model, where that was left to it.

        A picture of a model that spends the same number of tokens on every one holds so many frames that each costs
        about what a small frame costs in Qwen3-VL. For all other models it holds one. A model that is not loaded yet
        decides later.
        """
        if self.sheet or getattr(model, "pending", False):
            return self
        tokens: int = getattr(model, "picture_tokens", None) or SMALL_TOKENS
        side = round(math.sqrt(tokens / SMALL_TOKENS)) if self.packing == "single" else 1
        return replace(self, sheet=min(MAX_SHEET, max(1, side)))

    def size_for(self, frames: int, multiple: int) -> FrameSize:
        """The rule for the size of so many frames, for a model whose pictures have sides that are multiples of this."""
        return self.pixels.shared(math.ceil(frames / self.step)).rounded_to(multiple)

    @property
    def step(self) -> int:
        """How many frames make one picture."""
        return max(1, self.sheet) ** 2 if self.packing == "single" else 2

    def describe(self) -> dict[str, Any]:
        """Plain values, for records; frames that stand alone are not mentioned."""
        sheet = {"sheet": self.sheet} if self.sheet > 1 else {}
        return {"pixels": self.pixels.describe(), "packing": self.packing, "timestamps": self.timestamps, **sheet}


@dataclass(frozen=True, eq=False)
class FrameGroup:
    """Frames that are shown under one view."""

    frames: FramePool
    view: View

    def units(self, number: int) -> list["Unit"]:
        """The frames as the model sees them: one by one, in pairs or on sheets. `number` is the group's index."""
        count, step = len(self.frames), self.view.step
        members = [tuple(range(i, min(i + step, count))) for i in range(0, count, step)]
        return [Unit(number, frames, self._time(frames)) for frames in members]

    def pictures(self, units: Sequence["Unit"]) -> Pixels:
        """What the model sees of some of its units: their frames, or one contact sheet for each unit."""
        side, pixels = self.view.sheet, self.frames.pixels
        if side <= 1:
            rows = [i for unit in units for i in unit.members]
            run = rows == list(range(rows[0], rows[-1] + 1))
            return pixels[slice(rows[0], rows[-1] + 1) if run else rows]  # adjacent frames are not copied
        return np.stack([contact_sheet(pixels[list(unit.members)], side) for unit in units])

    def _time(self, members: Sequence[int]) -> float:
        """The mean of the first and the last frame's time; the published chain repeats an odd last frame one later."""
        if self.view.timestamps == "paper":
            return (members[0] / ASSUMED_FPS + (members[0] + self.view.step - 1) / ASSUMED_FPS) / 2
        return (self.frames.times[members[0]] + self.frames.times[members[-1]]) / 2

    def size(self, multiple: int) -> tuple[int, int]:
        """Width and height at which each picture is shown; frames that were decoded at that size stay as they are."""
        rule, frames = self.view.size_for(len(self.frames), multiple), self.frames
        stored = frames.width, frames.height
        source = frames.info and rule.fit(frames.info.width, frames.info.height)
        width, height = stored if stored == source else rule.fit(*stored)
        side = max(1, self.view.sheet)
        return side * width, side * height


class Unit(NamedTuple):
    """What the model sees as one picture: a frame, two that are fused, or a contact sheet."""

    group: int
    """The number of its group in the request."""
    members: tuple[int, ...]
    """Its frames' positions in the group; an odd last frame of fused pairs is alone, a last contact sheet not full."""
    time: float
    """The time given to the model: the mean of its frames' times."""


@dataclass(frozen=True)
class Request:
    """One question to a model: which of these labels, given this text and any number of groups of frames?

    The frames of one group are shown in the order given. Those of several groups are merged in time order.
    """

    prompt: str
    labels: tuple[str, ...]
    """Empty for an open request, which can be answered only with text; see `gridprobe.models.base`."""
    groups: tuple[FrameGroup, ...] = ()
    prompt_order: PromptOrder = "frames_first"
    """Frames first, as Qwen3-VL was trained, so that another question about them can reuse them as its prefix; or the
    text first, so that a long text is read once for many probes."""
    again: bool = False
    """More questions about these frames will follow, so the backend should keep what it can reuse."""
    between: tuple[str, ...] = ()
    """Texts that stand before each frame in the order shown, and one after the last; empty if there are none."""
    sees: tuple[int, ...] | None = None
    """Which frames, by their places in the order shown, the text after them may look at; None is all. The frames are
    read together all the same, so this is a question to the memory of some of them. See `recalls`."""
    attention: bool = False
    """Whether the posterior is to say how much the text looks at each frame. See `recalls`."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or len(self.labels) == 1:
            raise UsageError(f"a model needs at least 2 different labels to choose from, got {self.labels}")
        count = sum(len(group.frames) for group in self.groups)
        if self.between and len(self.between) != count + 1:
            raise UsageError(f"{count} frames need {count + 1} texts, got {len(self.between)}")
        if len(self.groups) > 1:
            _check_mergeable(self.groups, texts=bool(self.between))
        if (self.sees is not None or self.attention) and self.prompt_order != "frames_first":
            raise UsageError('the memory of frames can be questioned only with prompt_order="frames_first"')
        if self.sees is not None and not set(self.sees) <= set(range(count)):
            raise UsageError(f"a question cannot see the frames {self.sees} of {count}")

    @classmethod
    def about(
        cls,
        question: Question,
        groups: Sequence[FrameGroup] = (),
        *,
        prompt_order: PromptOrder = "frames_first",
        again: bool = False,
    ) -> "Request":
        """A request for a question about these frames, with its subtitles, if any, between them."""
        times = [time for group in groups for time in group.frames.times]
        between = question.between(times if len(groups) == 1 else sorted(times))
        return cls(question.prompt, question.labels, tuple(groups), prompt_order, again, between)

    @classmethod
    def open(cls, prompt: str, groups: Sequence[FrameGroup] = (), **changes: Any) -> "Request":
        """A request without labels; `changes` are the other fields."""
        return cls(prompt, (), tuple(groups), **changes)

    @property
    def frames(self) -> FramePool:
        """The frames of a request that shows one group."""
        if len(self.groups) != 1:
            raise UsageError(f"this request shows {len(self.groups)} groups of frames; look at request.groups")
        return self.groups[0].frames

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """What the model sees, in the order it sees it."""
        units = [unit for number, group in enumerate(self.groups) for unit in group.units(number)]
        return tuple(sorted(units, key=lambda unit: unit.time) if len(self.groups) > 1 else units)

    @property
    def texts(self) -> tuple[str, ...]:
        """What stands before each unit, and after the last; text inside a fused pair comes after it."""
        if not self.between:
            return ("",) * (len(self.units) + 1)
        texts: list[list[str]] = [[]]
        place = 0
        for unit in self.units:
            before, *inside = self.between[place : place + len(unit.members)]
            texts[-1].append(before)
            texts.append(inside)
            place += len(unit.members)
        texts[-1].append(self.between[-1])
        return tuple("\n".join(filter(None, each)) for each in texts)

    @property
    def seen_units(self) -> tuple[int, ...]:
        """The numbers of the units that hold a frame the text may look at."""
        seen = None if self.sees is None else set(self.sees)
        return tuple(n for n, places in enumerate(self._places) if seen is None or seen.intersection(places))

    def by_frame(self, units: Sequence[float] | None) -> tuple[float, ...] | None:
        """A number for every frame, in the order shown, from one for every unit; fused frames share theirs."""
        if units is None:
            return None
        return tuple(value for value, places in zip(units, self._places, strict=True) for _ in places)

    @property
    def _places(self) -> Iterator[range]:
        """The places of every unit's frames in the order shown."""
        start = 0
        for unit in self.units:
            yield range(start, start + len(unit.members))
            start += len(unit.members)

    def times_of(self, unit: Unit) -> tuple[float, ...]:
        """The times a model is to be given for a unit: one, or those of every frame of a contact sheet; or none."""
        view = self.groups[unit.group].view
        if view.timestamps == "none" or (view.timestamps == "paper" and view.sheet > 1):
            return ()
        if view.sheet > 1:
            times = self.groups[unit.group].frames.times
            return tuple(times[i] for i in unit.members)
        return (unit.time,)

    def frames_of(self, unit: Unit) -> FramePool:
        """The frames a unit shows."""
        return self.groups[unit.group].frames.take(unit.members)


def _check_mergeable(groups: Sequence[FrameGroup], *, texts: bool) -> None:
    for group in groups:
        if group.view.timestamps == "paper":
            raise UsageError('several groups of frames are merged by their true times; timestamps="paper" hides them')
        if texts and group.view.packing == "pairs":
            raise UsageError('subtitles between frames of several groups need packing="single"')
        if any(later < earlier for earlier, later in pairwise(group.frames.times)):
            raise UsageError("several groups of frames are merged in time order, so each must be in time order itself")


@dataclass(frozen=True)
class Posterior:
    """The model's probabilities for the question's own labels."""

    labels: tuple[str, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms; the probabilities sum to 1 over the labels."""
    cost: Cost = field(default_factory=Cost)
    mass: float = 1.0
    """The share of the model's next-token probability that was on the labels before normalizing."""
    notes: tuple[str, ...] = ()
    """Warnings of the backend, worded to follow "in the focused pass"."""
    attention: tuple[float, ...] | None = None
    """How much the question looks at each frame, in the order shown, if the request asked for it: from 0 to 1."""
    basis: Basis = "letters"
    """Probabilities of texts are normalised too; `mass` is what they have together, and the rest is any other text."""
    windows: int = 1
    """In how many windows the frames were shown; see `gridprobe.models.wrappers`."""

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
        """From non-negative weights, which are normalized."""
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
        """The highest probability (the paper's c(S, q), eq. 1)."""
        return min(1.0, max(self.shares))

    @property
    def shares(self) -> tuple[float, ...]:
        """The probability of each label; those of texts leave room for other texts."""
        share = self.mass if self.basis in ("written", "drafts", "tokens") else 1.0
        return tuple(math.exp(value) * share for value in self.logprobs)

    @property
    def choice(self) -> str:
        """The most likely label; the first of equal ones."""
        return self.labels[self.logprobs.index(max(self.logprobs))]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the answer should know."""
        if self.mass >= LOW_MASS or self.basis != "letters":
            return self.notes
        return (*self.notes, f"the model puts only {self.mass:.1%} of its probability on the option letters")


class Model(Protocol):
    """A vision-language model, local or remote.

    One that has `recalls = True` besides answers requests that limit what the question `sees`, or ask for its
    `attention`. One that has `fuses = False` refuses requests with packing="pairs". One that spends the same number of
    tokens on every picture has that number as `picture_tokens`. One that cannot read any number of tokens or frames at
    once has the most as `context_tokens` or `context_frames`. Some also write text: see `gridprobe.models.base`.
    One whose bill may exceed its estimate says by which factor in `slack`. One that takes memory here says how many
    gigabytes in `memory(tokens)`: its weights, and a pass of so many tokens.
    """

    @property
    def identity(self) -> str:
        """Model, revision, dtype and settings: goes into cache keys and records."""
        ...

    @property
    def multiple(self) -> int:
        """Frames are shown with sides that are multiples of this; 1 if the model takes any size."""
        ...

    def score(self, requests: Sequence[Request]) -> list[Posterior]:
        """One posterior for each request, in order. The probes of a question arrive together."""
        ...

    def estimate(self, request: Request) -> Cost:
        """What scoring the request would cost, without running it."""
        ...


def recalls(backend: Model) -> bool:
    """Whether a backend `recalls`; one that does not say so does not."""
    return bool(getattr(backend, "recalls", False))


def fuses(backend: Model) -> bool:
    """Whether a backend shows frames in fused pairs; one that does not say otherwise does."""
    return bool(getattr(backend, "fuses", True))


def require_labels(requests: Sequence[Request]) -> None:
    """Refuse open requests."""
    if not all(request.labels for request in requests):
        raise UsageError("a request without labels cannot be scored; let the model write an answer, or give 2 labels")


def require_plain(request: Request) -> None:
    """Refuse what only a backend can do that `recalls` and `fuses`."""
    if request.sees is not None or request.attention:
        raise UsageError("this model cannot be questioned about its memory of frames; use probes=fresh")
    if any(group.view.packing == "pairs" for group in request.groups):
        raise UsageError(
            'this model cannot fuse frames in pairs; use packing="single", as every preset but "paper" does'
        )


# Text from a backend: `write` lets the model write an answer. It is optional; `writes(backend)` says who has it.

CHARACTERS_PER_TOKEN = 4
"""Roughly, where no tokenizer can be asked."""


@dataclass(frozen=True)
class SamplingParams:
    """How text is written. No token is excluded or penalised, whatever a checkpoint recommends."""

    limit: int = 64
    """The most tokens of a text, with the one that ends it."""
    temperature: float = 0.0
    """0 takes the likeliest token each time."""
    samples: int = 1
    """How many texts are written for each request."""
    seed: int = 0
    """The same seed gives the same texts for a request, whatever other requests come with it."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these."""

    def __post_init__(self) -> None:
        if self.limit < 1 or self.samples < 1:
            raise UsageError(f"limit and samples must be at least 1, got {self.limit} and {self.samples}")
        if not 0.0 <= self.temperature < math.inf:
            raise UsageError(f"the temperature must be a number from 0 up, got {self.temperature}")
        if self.temperature == 0.0 and self.samples > 1:
            raise UsageError(f"{self.samples} samples at temperature 0 would be the same text; raise the temperature")
        if isinstance(self.stop, str) or not all(self.stop):
            raise UsageError(f"stop must be a tuple of texts that are not empty, got {self.stop!r}")


@dataclass(frozen=True)
class Completion:
    """A text that a model wrote."""

    text: str
    """Without special tokens, the stop text, and white space around it."""
    tokens: int
    """How many tokens the model wrote, with the one that ended the text and with those of a stop text."""
    logprob: float | None
    """The log-probability of these tokens at temperature 1, a sum; None if a server does not say. The end counts with
    the probability of all tokens that would end the text."""
    finished: bool
    """Whether the model ended the text, or a stop text did; otherwise the limit cut it off."""
    cost: Cost = field(default_factory=Cost)
    """The first text of a request has the cost of reading the prompt; the costs of all texts add up to the whole."""
    notes: tuple[str, ...] = ()
    """Warnings of the backend, as in `Posterior`."""
    ids: tuple[int, ...] = field(default=(), repr=False)
    """The tokens, where the backend knows them."""
    windows: int = 1
    """In how many windows the frames were shown; see `gridprobe.models.wrappers`."""


class GeneratingModel(Model, Protocol):
    """A backend that writes."""

    def write(self, requests: Sequence[Request], writing: SamplingParams) -> list[tuple[Completion, ...]]:
        """For each request, in order, as many texts as there are samples."""
        ...

    def estimate_texts(self, request: Request, tokens: Sequence[int]) -> Cost:
        """What texts of so many tokens each would cost, with the prompt read once for all of them."""
        ...


def writes(backend: Model) -> TypeGuard[GeneratingModel]:
    """Whether a backend has `write`: its attribute `writes` says so."""
    return bool(getattr(backend, "writes", False))


def writer(backend: Model) -> GeneratingModel:
    """The backend, if it writes."""
    if not writes(backend):
        raise UsageError(f"the model {backend.identity} cannot write text; give the question options")
    return backend


def check_requests(requests: Sequence[Request]) -> None:
    """Refuse what no text comes with."""
    if any(request.attention for request in requests):
        raise UsageError("a text comes without its attention to frames; score the request for that")


def cut_at(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop text, and whether there was one."""
    places = [place for place in map(text.find, stop) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def about_tokens(text: str) -> int:
    """How many tokens a text has, with its end, where no tokenizer can be asked."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN) + 1


def seed_of(writing: SamplingParams, prompt: bytes, sample: int) -> int:
    """The seed of one text of a request, which is known by its prompt."""
    digest = hashlib.sha256(f"{writing.seed}/{sample}/".encode() + prompt)
    return int.from_bytes(digest.digest()[:8], "big")


# Gauge: what requests to a model cost and how much memory they take, without loading it.


@dataclass(frozen=True)
class CostModel:
    """Prices requests. As a backend it answers every question with equal probabilities, at the model's price."""

    identity: str
    """The model's name."""
    estimate: Callable[[Request], Cost]
    multiple: int
    exact: bool
    """Whether text is counted by the model's own tokenizer; otherwise four characters count as a token."""
    weights: int
    """Bytes of the weights."""
    pass_bytes: int
    """Bytes of memory for each token of a pass."""
    recalls: bool = True
    """Whether the memory of frames can be questioned; see `gridprobe.models.base.recalls`."""
    texts: Callable[[Request, Sequence[int]], Cost] | None = None
    """What texts of so many tokens each cost for a request, if the model writes."""
    slack: float = 1.0
    """How much larger a bill may be than its estimate."""

    @property
    def writes(self) -> bool:
        """Whether it can price texts."""
        return self.texts is not None

    def estimate_texts(self, request: Request, tokens: Sequence[int]) -> Cost:
        """What texts of so many tokens each would cost, with the prompt read once for all of them."""
        if self.texts is None:
            raise UsageError(f"what texts of {self.identity} cost is not known")
        return self.texts(request, tokens)

    def write(self, requests: Sequence[Request], writing: SamplingParams) -> list[tuple[Completion, ...]]:
        """As many different texts as asked for, each as long as it may be; the first one has the cost of all."""
        check_requests(requests)
        count, limit = writing.samples, writing.limit
        found = []
        for request in requests:
            costs = [self.estimate_texts(request, [limit] * count), *[Cost()] * (count - 1)]
            found.append(
                tuple(Completion(f"text {n}", limit, None, True, cost) for n, cost in enumerate(costs, start=1))
            )
        return found

    def score(self, requests: Sequence[Request]) -> list[Posterior]:
        """Equal probabilities, so that a selector can run and its cost be measured."""
        require_labels(requests)
        return [self._posterior(request) for request in requests]

    def _posterior(self, request: Request) -> Posterior:
        posterior = Posterior.from_probabilities(dict.fromkeys(request.labels, 1.0), self.estimate(request))
        count = sum(len(group.frames) for group in request.groups)
        return replace(posterior, attention=(0.0,) * count) if request.attention else posterior

    def memory(self, tokens: int) -> float:
        """Gigabytes for the weights and one pass over this many tokens."""
        return (self.weights + tokens * self.pass_bytes) / 1e9
