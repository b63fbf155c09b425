"""The one model boundary: a model turns requests into responses, each a posterior or texts."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError, UsageError
from gridprobe.models.profile import Profile
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from gridprobe.video.frames import Pixels, contact_sheet

CONVENTIONS = {
    "tflops": "honest: causal attention, true query width, vocabulary head at the last position, vision tower included",
    "tflops_computed": "as tflops, less what was reused: features of frames, keys and values of prefixes",
    "tflops_paper": "published: all-pairs attention, hidden size as query width, vocabulary head everywhere, no vision",
}


@dataclass(frozen=True)
class Cost:
    """Tokens and floating-point operations of one or more forward passes; `a + b` adds two costs."""

    calls: int = 0
    tokens: int = 0
    visual_tokens: int = 0
    flops: float = 0.0
    """By the honest convention."""
    flops_paper: float = 0.0
    """By the published convention."""
    flops_computed: float = 0.0
    """By the honest convention, less what did not have to be computed because it was known from before."""
    cached_tokens: int = 0
    """Tokens that a server found in its cache."""
    flops_reused: float = 0.0
    """By the honest convention, what the same sequences would have taken in addition without the KV cache of the
    overview that close-ups continue."""
    unpriced: int = 0
    """Calls of models whose floating-point operations are not known; they are missing from the three numbers above."""
    money: float = 0.0
    """What a server charges, in the currency of the prices that it was loaded with; 0 without prices."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def share_of(self, whole: "Cost") -> float:
        """What part of another cost it is: by floating-point operations, or by tokens where those are not known."""
        if self.unpriced or whole.unpriced or not whole.flops:
            return self.tokens / whole.tokens if whole.tokens else 0.0
        return self.flops / whole.flops

    @property
    def tflops(self) -> float:
        """Honest convention, in units of 1e12."""
        return self.flops / 1e12

    @property
    def tflops_paper(self) -> float:
        """Published convention, in units of 1e12."""
        return self.flops_paper / 1e12

    @property
    def tflops_computed(self) -> float:
        """What was really computed, in units of 1e12."""
        return self.flops_computed / 1e12


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
        if self.sheet or not model.capabilities.loaded:
            return self
        tokens = model.capabilities.tokens_per_image or SMALL_TOKENS
        side = round(math.sqrt(tokens / SMALL_TOKENS)) if self.packing == "single" else 1
        return replace(self, sheet=min(MAX_SHEET, max(1, side)))

    def size_for(self, frames: int, multiple: int) -> FrameSize:
        """The rule for the size of that many frames, for a model whose pictures have sides that are multiples of it."""
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
class Choose:
    """The task to choose one of some labels."""

    labels: tuple[str, ...] = ()
    """Empty for an open request: it can be priced, and answered with text, but not be answered by a choice."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or len(self.labels) == 1:
            raise UsageError(f"a model needs at least 2 different labels to choose from, got {self.labels}")


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
    """Warnings of the model, as in `Posterior`."""
    ids: tuple[int, ...] = field(default=(), repr=False)
    """The tokens, where the model knows them."""
    windows: int = 1
    """In how many windows the frames were shown; see `gridprobe.models.wrappers`."""


Task = Choose | SamplingParams


Heads = npt.NDArray[np.floating[Any]]
"""How much each attention head of a model looks at each frame, in the order shown: heads × frames, from 0 to 1."""
CLOSER = "Some of these frames again, larger:"
"""What stands between an overview and its close-ups."""


@dataclass(frozen=True)
class Request:
    """One question to a model: a text, any number of groups of frames, and whether to choose or to generate.

    The frames of one group are shown in the order given. Those of several groups are merged in time order, unless the
    others are close-ups behind the last one.
    """

    prompt: str
    task: Task = Choose()
    groups: tuple[FrameGroup, ...] = ()
    prompt_order: PromptOrder = "frames_first"
    """Frames first, as Qwen3-VL was trained, so that another question about them can reuse them as its prefix; or the
    text first, so that a long text is read once for many probes."""
    keep_kv: bool = False
    """More questions about these frames will follow, so the model should keep what it can reuse."""
    between: tuple[str, ...] = ()
    """Texts that stand before each frame in the order shown, and one after the last; empty if there are none."""
    visible_frames: tuple[int, ...] | None = None
    """Which frames, by their places in the order shown, the text after them may look at; None is all. The frames are
    read together all the same, so this is a question to the KV cache of some of them. See `Capabilities.kv_reuse`."""
    attention: bool = False
    """Whether the posterior is to say how much the text looks at each frame. See `Capabilities.attention_map`."""
    close_ups: bool = False
    """Whether the last group, an overview, is shown first and all others behind it: some of its frames again, larger.
    A model that keeps the overview's KV cache goes on from there."""

    def __post_init__(self) -> None:
        count = sum(len(group.frames) for group in self.groups)
        if self.between and len(self.between) != count + 1:
            raise UsageError(f"{count} frames need {count + 1} texts, got {len(self.between)}")
        if len(self.groups) > 1:
            _check_mergeable(self.groups, texts=bool(self.between))
        goes_on = self.visible_frames is not None or self.attention or self.close_ups
        if goes_on and self.prompt_order != "frames_first":
            raise UsageError('the KV cache of frames can be asked only with prompt_order="frames_first"')
        if self.visible_frames is not None and not set(self.visible_frames) <= set(range(count)):
            raise UsageError(f"a question cannot see the frames {self.visible_frames} of {count}")
        if self.close_ups and (len(self.groups) < 2 or self.visible_frames is not None or self.attention):
            raise UsageError("close-ups are shown behind an overview, and answered from both")

    @classmethod
    def about(
        cls,
        question: Question,
        groups: Sequence[FrameGroup] = (),
        *,
        prompt_order: PromptOrder = "frames_first",
        keep_kv: bool = False,
        close_ups: bool = False,
    ) -> "Request":
        """A request for a question about these frames, with its subtitles, if any, between them."""
        times = [time for group in groups[-1 if close_ups else 0 :] for time in group.frames.times]
        between = question.between(times if len(groups) == 1 else sorted(times))
        if close_ups:
            *texts, ending = between or ("",) * (len(times) + 1)
            count = sum(len(group.frames) for group in groups[:-1])
            between = (*texts, "\n".join(filter(None, [ending, CLOSER])), *[""] * count)
        task = Choose(question.labels)
        return cls(question.prompt, task, tuple(groups), prompt_order, keep_kv, between, close_ups=close_ups)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels to choose from; none if a text is wanted."""
        return self.task.labels if isinstance(self.task, Choose) else ()

    @property
    def prompt_only(self) -> "Request":
        """The request without its task, whose cost is that of reading it."""
        return replace(self, task=Choose())

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
        if len(self.groups) > 1:
            last = len(self.groups) - 1
            units.sort(key=lambda unit: (self.close_ups and unit.group != last, unit.time))
        return tuple(units)

    @property
    def prefix_groups(self) -> tuple[FrameGroup, ...]:
        """The groups that other requests may begin with."""
        return self.groups[-1:] if self.close_ups else self.groups

    @property
    def prefix_units(self) -> int:
        """How many of the units, the first ones, show these."""
        last = len(self.groups) - 1
        return sum(not self.close_ups or unit.group == last for unit in self.units)

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
        seen = None if self.visible_frames is None else set(self.visible_frames)
        return tuple(n for n, places in enumerate(self._places) if seen is None or seen.intersection(places))

    def by_frame(self, units: Heads | None) -> Heads | None:
        """A column for every frame, in the order shown, from one for every unit; fused frames share theirs."""
        return None if units is None else np.repeat(units, [len(places) for places in self._places], axis=1)

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
    """Warnings of the model, worded to follow "in the focused pass"."""
    heads: Heads | None = field(default=None, compare=False, repr=False)
    """How much the question looks at each frame, if the request asked for it."""
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
    def attention(self) -> tuple[float, ...] | None:
        """The mean of all heads: how much the question looks at each frame, from 0 to 1."""
        return None if self.heads is None else tuple(self.heads.mean(0).tolist())

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
        doubt = letter_doubt(self.mass) if self.basis == "letters" else ""
        return (*self.notes, doubt) if doubt else self.notes


def letter_doubt(mass: float) -> str:
    """What speaks against a choice of letters that have little of the probability; empty if they have enough."""
    return "" if mass >= LOW_MASS else f"the model puts only {mass:.1%} of its probability on the option letters"


Completions = tuple[Completion, ...]
"""The texts for one request, as many as it has samples; the first one has the cost of reading the prompt."""
Response = Posterior | Completions
K = TypeVar("K", Posterior, Completions)


@dataclass(frozen=True)
class Capabilities:
    """What a model can do beyond choosing among labels, and what limits it."""

    kv_reuse: bool = False
    """Whether it keeps the KV cache of frames that it has read, and answers requests with `visible_frames` from it."""
    masks_frames: bool = False
    """Whether these `visible_frames` may be some of the frames; else they are all, as with linear attention, which
    mixes what it has read."""
    attention_map: bool = False
    """Whether it says how much the text looks at each frame."""
    close_ups: bool = False
    """Whether it goes on from the KV cache of an overview with frames."""
    logprobs: bool = True
    """Whether it gives probabilities of labels; else they are counts of answers that it draws."""
    generates: bool = False
    """Whether it writes text."""
    frame_pairs: bool = True
    """Whether it shows frames in fused pairs; one that does not refuses packing="pairs"."""
    frame_multiple: int = 1
    """Frames are shown with sides that are multiples of this; 1 if the model takes any size."""
    tokens_per_image: int | None = None
    """The number of tokens of every picture, if it is the same for all sizes."""
    context_tokens: int | None = None
    """The most tokens it reads at once."""
    context_frames: int | None = None
    """The most frames it reads at once."""
    cost_slack: float = 1.0
    """How much larger a bill may be than its estimate."""
    weight_bytes: int | None = None
    """Bytes of memory for the weights; None if it does not say what memory it takes."""
    pass_bytes: int = 0
    """Bytes of memory for each token of a pass."""
    summary: str = ""
    """One sentence about what a server was found to do."""
    profile: Profile | None = None
    """What was measured on it before it was shipped."""
    loaded: bool = True
    """Whether it can be asked; what one that is not loaded can do is not known yet."""

    def memory(self, tokens: int) -> float:
        """Gigabytes for the weights and one pass over this many tokens, as far as that is known."""
        return ((self.weight_bytes or 0) + tokens * self.pass_bytes) / 1e9


class Model(Protocol):
    """A vision-language model, local or remote."""

    @property
    def identity(self) -> str:
        """Model, revision, dtype and settings: goes into cache keys and records."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do, and what limits it."""
        ...

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        """A response to each request, in order: a posterior if it chooses, else the texts. Probes arrive together."""
        ...

    def cost(self, request: Request) -> Cost:
        """What the request would cost, without running it; texts count as if each were as long as it may be.

        Questions are priced while others are answered, so it may be called while `run` is at work in another thread.
        """
        ...


def choose(model: Model, requests: Sequence[Request]) -> list[Posterior]:
    """Which of its labels answers each request, with probabilities."""
    return posteriors(model.run(requests))


def posteriors(responses: Iterable[Response]) -> list[Posterior]:
    """The responses to requests that choose."""
    return [_of_kind(each, Posterior) for each in responses]


def generate(model: Model, requests: Sequence[Request], params: SamplingParams) -> list[Completions]:
    """Texts for each request, as many as the parameters say, whatever its own task is."""
    return completions(model.run([replace(request, task=params) for request in requests]))


def completions(responses: Iterable[Response]) -> list[Completions]:
    """The responses to requests that generate."""
    return [_of_kind(each, tuple) for each in responses]


def cost_of(response: Response) -> Cost:
    """What a response cost."""
    return response.cost if isinstance(response, Posterior) else sum((text.cost for text in response), Cost())


def _of_kind(response: Response, kind: type[K]) -> K:
    if not isinstance(response, kind):
        raise ModelError(f"a model must answer with {kind.__name__} here, got {type(response).__name__}")
    return response


def by_task(
    model: Model,
    requests: Sequence[Request],
    choose: Callable[[Sequence[Request]], Sequence[Posterior]],
    generate: Callable[[Sequence[Request], SamplingParams], Sequence[Completions]],
) -> list[Response]:
    """The responses to requests, in order: one call for all that choose, and one for all with equal parameters."""
    check_tasks(model, requests)
    places: dict[SamplingParams | None, list[int]] = {}
    for place, request in enumerate(requests):
        places.setdefault(request.task if isinstance(request.task, SamplingParams) else None, []).append(place)
    responses: dict[int, Response] = {}
    for params, some in places.items():
        batch = [requests[place] for place in some]
        responses.update(zip(some, choose(batch) if params is None else generate(batch, params), strict=True))
    return [responses[place] for place in range(len(requests))]


def check_tasks(model: Model, requests: Sequence[Request]) -> None:
    """Refuse tasks that the model cannot do, or nobody can."""
    for request in requests:
        if isinstance(request.task, Choose):
            if not request.task.labels:
                raise UsageError(
                    "a request without labels cannot be scored; let the model write an answer, or give 2 labels"
                )
        elif not model.capabilities.generates:
            raise UsageError(f"the model {model.identity} cannot write text; give the question options")
        elif request.attention:
            raise UsageError("a text comes without its attention to frames; score the request for that")


def require_plain(request: Request) -> None:
    """Refuse what only a model can do that has `kv_reuse`, `attention_map` and `frame_pairs`."""
    if request.visible_frames is not None or request.attention:
        raise UsageError("this model does not keep the KV cache of frames to be asked about; use probes=fresh")
    require_single(request)


def require_single(request: Request) -> None:
    """Refuse what only a model can do that has `frame_pairs`."""
    if any(group.view.packing == "pairs" for group in request.groups):
        raise UsageError(
            'this model cannot fuse frames in pairs; use packing="single", as every preset but "paper" does'
        )


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


@dataclass(frozen=True)
class CostModel:
    """Prices requests without loading a model. As a model it gives every label the same probability, at that price."""

    identity: str
    """The model's name."""
    capabilities: Capabilities
    price: Callable[[Request], Cost]
    """What a request costs."""
    exact: bool = True
    """Whether text is counted by the model's own tokenizer; otherwise four characters count as a token."""

    def cost(self, request: Request) -> Cost:
        """What a request would cost, with the prompt read once for all its texts."""
        if isinstance(request.task, SamplingParams) and not self.capabilities.generates:
            raise UsageError(f"what texts of {self.identity} cost is not known")
        return self.price(request)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Equal probabilities and texts of full length, so that a selector can run and its cost be measured."""
        return by_task(self, requests, lambda some: [self._posterior(each) for each in some], self._texts)

    def _posterior(self, request: Request) -> Posterior:
        posterior = Posterior.from_probabilities(dict.fromkeys(request.labels, 1.0), self.cost(request))
        count = sum(len(group.frames) for group in request.groups)
        return replace(posterior, heads=np.zeros((1, count))) if request.attention else posterior

    def _texts(self, requests: Sequence[Request], params: SamplingParams) -> list[Completions]:
        costs = [[self.cost(request), *[Cost()] * (params.samples - 1)] for request in requests]
        return [
            tuple(Completion(f"text {n}", params.limit, None, True, cost) for n, cost in enumerate(some, start=1))
            for some in costs
        ]


# The same question with its options in other orders: averaging over them removes a liking for a letter.


def score_rotated(model: Model, request: Request, question: Question, *, rotations: int) -> Posterior:
    """Score a request about a question, and again with the options moved up by one, two and so on.

    The mean of the probabilities of each option counts. No more orders are tried than there are options, spread evenly
    over them. What the frames cost is paid once by a model that keeps it.
    """
    requests = rotations_of(request, question, rotations=rotations)
    return (
        choose(model, requests)[0]
        if len(requests) == 1
        else _mean(choose(model, requests), _shifts(question, rotations))
    )


def rotations_of(request: Request, question: Question, *, rotations: int) -> list[Request]:
    """The request with the options in every order that is tried."""
    shifts = _shifts(question, rotations)
    if shifts == [0]:
        return [request]
    if question.verbatim:
        raise UsageError("a prompt that another program wrote has one order of options; leave out rotations")
    first = replace(request, keep_kv=True)
    return [first, *(replace(first, prompt=rotated(question, by=by).prompt, attention=False) for by in shifts[1:])]


def _shifts(question: Question, rotations: int) -> list[int]:
    count = len(question.labels)
    return [i * count // min(rotations, count) for i in range(min(rotations, count))]


def rotated(question: Question, *, by: int) -> Question:
    """The question whose option A is the present option number `by`; its known answer is left out."""
    return replace(question, options=(*question.options[by:], *question.options[:by]), answer=None)


def _mean(posteriors: Sequence[Posterior], shifts: Sequence[int]) -> Posterior:
    labels, count = posteriors[0].labels, len(posteriors[0].labels)
    sums = [0.0] * count
    for posterior, shift in zip(posteriors, shifts, strict=True):
        for place, logprob in enumerate(posterior.logprobs):
            sums[(place + shift) % count] += math.exp(logprob) / len(posteriors)
    return replace(
        posteriors[0],
        logprobs=tuple(math.log(p) if p > 0 else -math.inf for p in sums),
        cost=sum((posterior.cost for posterior in posteriors), Cost()),
        mass=min(posterior.mass for posterior in posteriors),
        notes=tuple(dict.fromkeys(note for posterior in posteriors for note in posterior.notes)),
        labels=labels,
    )


# Which tokens mean which option letter.

SURFACE_FORMS = ("{}", " {}", "({}")
"""How a model may begin its answer: "A", " A" or "(A"."""


def single_tokens(encode: Callable[[str], Sequence[int]], labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """For each label the ids of its surface forms that are single tokens.

    The sets must be disjoint. A form of several tokens is left out instead of being represented by its first token: if
    "(" were a token, "(A" and "(B" would begin with the same one.
    """
    tokens: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for label in labels:
        encoded = [encode(form.format(label)) for form in SURFACE_FORMS]
        tokens[label] = tuple(dict.fromkeys(ids[0] for ids in encoded if len(ids) == 1))
        if not tokens[label]:
            raise ModelError(f"this tokenizer has no single token for the option letter {label}")
        for token in tokens[label]:
            if owner.setdefault(token, label) != label:
                raise ModelError(f"token {token} begins both {owner[token]} and {label}; letters cannot be told apart")
    return tokens
