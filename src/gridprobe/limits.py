"""Limits on what a question may take, and models that keep to them. `docs/asking.md` says what each limit means.

Every pass is priced before it is run. What does not fit is refused with `OverLimit`, which names the price, the limit
and the smallest limit that would do. Costs of local models equal their estimates. A server's bill may differ from the
estimate, so its passes are priced with the model's `cost_slack`, or with the largest excess seen so far.
"""

import contextlib
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gridprobe._util import parse_json, usable_cores, write_whole
from gridprobe.errors import OverLimit, UsageError
from gridprobe.models.base import Cost, CostModel, Model, Request, Response, SamplingParams, cost_of
from gridprobe.models.wrappers import ModelWrapper
from gridprobe.open_ended import requests_about
from gridprobe.question import Question
from gridprobe.selectors import Selection, Selector
from gridprobe.selectors.base import Encoder, Vectors
from gridprobe.video import FramePool
from gridprobe.video.cache import cache_folder

if TYPE_CHECKING:
    from gridprobe.answer import Answer
    from gridprobe.plan import Plan

# Pace: how fast a model works on this machine, as measured; and where that is kept between runs.
#
# One small JSON file for each model and machine, in the folder `speeds` next to the frame cache. A file that is
# missing, damaged or cannot be written means that the pace is not known yet.

FADING = 0.7
"""What older measurements count for when a new one arrives."""


@dataclass
class Pace:
    """Work and the time it took. Newer measurements count more, so the pace follows the machine's load."""

    tflops: float = 0.0
    """What was computed; what was reused does not count."""
    tokens: float = 0.0
    seconds: float = 0.0
    excess: float = 1.0
    """The largest ratio of billed to estimated tokens that was seen; 1 for local models. It is not kept."""

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.seconds > 0

    def note(self, cost: Cost, seconds: float) -> None:
        """Add a measurement."""
        if seconds <= 0 or (cost.tflops_computed <= 0 and cost.tokens <= 0):
            return
        self.tflops = FADING * self.tflops + cost.tflops_computed
        self.tokens = FADING * self.tokens + cost.tokens
        self.seconds = FADING * self.seconds + seconds

    def seconds_for(self, cost: Cost) -> float:
        """How long work of this cost takes: by its operations, or by its tokens where those are not known."""
        if not self.known:
            return 0.0
        if cost.unpriced or not self.tflops:
            return cost.tokens / self.tokens * self.seconds if self.tokens else 0.0
        return cost.tflops / self.tflops * self.seconds


def _file(model: str, folder: Path | None) -> Path | None:
    if folder is None:
        frames = cache_folder()
        folder = None if frames is None else frames.parent / "speeds"
    key = hashlib.sha256(f"{platform.node()}/{usable_cores()}/{model}".encode()).hexdigest()[:16]
    return None if folder is None else folder / f"{key}.json"


def read_pace(model: str, *, folder: Path | None = None) -> Pace:
    """The pace of a model on this machine, by its name or identity; an unknown one if nothing was measured."""
    file = _file(model, folder)
    try:
        values = parse_json(file.read_bytes()) if file else {}
        pace = Pace(**{name: float(values[name]) for name in ("tflops", "tokens", "seconds")})
    except (OSError, ValueError, TypeError, KeyError):
        return Pace()
    return pace if all(math.isfinite(each) and each >= 0 for each in asdict(pace).values()) else Pace()


_PACES: dict[str, Pace] = {}


def pace_of(model: str) -> Pace:
    """The pace that all questions of this process share for a model; it begins with what was kept."""
    return _PACES.setdefault(model, read_pace(model))


def learn_pace(model: str, cost: Cost, seconds: float, *, folder: Path | None = None) -> None:
    """Add a measurement to what is kept about a model; what cannot be written is forgotten."""
    file, pace = _file(model, folder), read_pace(model, folder=folder)
    pace.note(cost, seconds)
    if file is None or not pace.known:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({"model": model, **asdict(pace)}, allow_nan=False).encode())


def learn_from(answer: "Answer", *, names: tuple[str, str]) -> None:
    """Keep how fast the models worked, by their identities and by the names they were loaded by.

    `names` are those of the model that is asked first and of the answering one.
    """
    selector_models, answerer = answer.models
    stages = [(names[1], answerer, answer.cost.focus, answer.seconds.focus)]
    if answer.reached.overview is not None:
        stages.append((names[0], selector_models[0], answer.cost.overview, answer.seconds.overview))
    for name, identity, cost, seconds in stages:
        for each in dict.fromkeys((name, identity)):
            learn_pace(each, cost, seconds)


T = TypeVar("T")

LIMITS = {
    "max_frames": "the most frames shown at full size",
    "max_tokens": "the most tokens of all passes together",
    "max_tflops": "the most TFLOPs of all passes together",
    "max_seconds": "the most seconds, as planned from the measured speed",
    "max_gpu_memory": "the most gigabytes for weights and the largest pass",
}
"""Every limit in a few words, for the command line."""
WHOLE = ("max_frames", "max_tokens")
TIME_MARGIN = 1.25
"""A pass is planned to take this many times what the measured pace says."""
ROUNDING = 1 + 1e-12
"""A sum of floating-point numbers may be this much larger if it is added up in another order."""


@dataclass(frozen=True)
class UsageLimits:
    """What one question may take. A limit that is None does not apply; one without any limit is false."""

    max_frames: int | None = None
    max_tokens: int | None = None
    max_tflops: float | None = None
    max_seconds: float | None = None
    max_gpu_memory: float | None = None
    """In units of 1e9 bytes."""

    def __post_init__(self) -> None:
        for name, value in self.describe().items():
            check_limit(name, value, whole=name in WHOLE)

    def __bool__(self) -> bool:
        return bool(self.describe())

    @property
    def priced(self) -> bool:
        """Whether passes must be priced; `max_frames` by itself only limits what is kept."""
        return bool(self.describe().keys() - {"max_frames"})

    def describe(self) -> dict[str, Any]:
        """The limits that apply, for records."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def flag(self, name: str) -> str:
        """A limit as it is given on the command line, such as "--max-tokens 20000"."""
        value = getattr(self, name)
        return f"{as_flag(name)} {int(value) if value == int(value) else value}"

    def tightened(self, others: Mapping[str, float]) -> "UsageLimits":
        """The same with some limits lowered; those that are lower already stay."""
        own = self.describe()
        lower = {name: value for name, value in others.items() if name not in own or value < own[name]}
        return UsageLimits(**{**own, **lower})


def as_flag(name: str) -> str:
    """The option of the command line for a limit."""
    return "--" + name.replace("_", "-")


def check_limit(name: str, value: Any, *, whole: bool) -> None:
    """Refuse what is no limit."""
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        kind = "a whole number of at least 1" if whole else "a finite number above 0"
        raise UsageError(f"{name} must be {kind}, got {value!r}")


@dataclass(frozen=True)
class Price:
    """The most that one or more passes take."""

    tokens: float = 0.0
    tflops: float = 0.0
    seconds: float = 0.0
    """0 as long as the model's pace is not known."""
    memory: float = 0.0
    """Gigabytes while they run."""

    def __add__(self, other: "Price") -> "Price":
        tokens, tflops, seconds = self.tokens + other.tokens, self.tflops + other.tflops, self.seconds + other.seconds
        return Price(tokens, tflops, seconds, max(self.memory, other.memory))

    def bounds(self, other: "Price") -> tuple["Price", "Price"]:
        """The least and the most of both, for each limit."""
        pairs = list(zip(astuple(self), astuple(other), strict=True))
        return Price(*map(min, pairs)), Price(*map(max, pairs))

    @property
    def amounts(self) -> dict[str, float]:
        """What it takes of each limit."""
        return {
            "max_tokens": self.tokens,
            "max_tflops": self.tflops,
            "max_seconds": self.seconds,
            "max_gpu_memory": self.memory,
        }


class UsageTracker:
    """What one question has spent, and whether what comes next fits its limits."""

    def __init__(
        self,
        limits: UsageLimits,
        *,
        clock: Callable[[], float] = time.perf_counter,
        paces: Callable[[str], Pace] = pace_of,
    ) -> None:
        """For a question that is asked now. `clock` and `paces`, which knows a model's pace, are for tests."""
        self.limits, self.clock, self.pace_of = limits, clock, paces
        self.spent = Cost()
        self.degraded: list[str] = []
        """What the limits cut, in sentences."""
        self.unplanned = False
        """Whether a pass was priced without knowing how many seconds it takes."""
        self._reserved = Price()
        self._started = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the question was asked."""
        return self.clock() - self._started

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know about a limit of seconds, which is only a plan."""
        if self.limits.max_seconds is None:
            return ()
        flag, elapsed = self.limits.flag("max_seconds"), self.elapsed
        late = f"the question took {elapsed:.1f} s, longer than planned: {flag}"
        unplanned = f"{flag} was not checked for every pass: how fast the model is here was not known yet"
        warnings = {late: elapsed > self.limits.max_seconds, unplanned: self.unplanned}
        return tuple(text for text, applies in warnings.items() if applies)

    def total(self, price: Price) -> dict[str, float]:
        """What would be taken of each limit, with a price on top of what is spent and reserved."""
        spent = Price(self.spent.tokens, self.spent.tflops, self.elapsed)
        return (spent + self._reserved + price).amounts

    def over(self, price: Price, *, timed: bool = True) -> list[str]:
        """The limits that a price would exceed; that of seconds only if it is `timed`."""
        total = self.total(price)
        limits = {name: most for name, most in self.limits.describe().items() if name in total}
        names = [name for name, most in limits.items() if total[name] > most * ROUNDING]
        return [name for name in names if timed or name != "max_seconds"]

    def require(self, price: Price, *, enough: Price | None = None, timed: bool = True) -> None:
        """Refuse what does not fit. `enough` is the most that may follow, where that is more than the price."""
        if not (over := self.over(price, timed=timed)):
            return
        flags, most = " and ".join(map(self.limits.flag, over)), self.total(enough or price)
        needs = " ".join(f"{as_flag(name)} {_digits(name, most[name])}" for name in self.over(enough or price))
        further = "" if over == ["max_gpu_memory"] else " more"
        raise OverLimit(
            f"this question takes at least {in_words(over, self.total(price))}, more than {flags}; {needs} is enough",
            limit=over[0],
            more=f"{in_words(over, price.amounts)}{further}, over {flags}",
        )

    @contextmanager
    def reserving(self, price: Price) -> Iterator[None]:
        """Passes in this context must leave this much for later."""
        before, self._reserved = self._reserved, self._reserved + price
        try:
            yield
        finally:
            self._reserved = before


UNITS = {"max_tokens": "tokens", "max_tflops": "TFLOPs", "max_seconds": "s", "max_gpu_memory": "GB"}


def _digits(name: str, value: float) -> str:
    """Three digits that are not below the value; tokens to the last one."""
    if name in WHOLE:
        return f"{math.ceil(value)}"
    step = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return f"{math.ceil(value / step) * step:.3g}"


def in_words(names: Sequence[str], amounts: Mapping[str, float]) -> str:
    """Amounts such as "31,200 tokens and 3.1 TFLOPs"."""
    texts = {name: _digits(name, amounts[name]) for name in names}
    return " and ".join(
        f"{int(text):,} tokens" if name in WHOLE else f"{text} {UNITS[name]}" for name, text in texts.items()
    )


class LimitedModel(ModelWrapper):
    """A model that counts what it spends, and refuses a call that does not fit the limits of its question."""

    def __init__(self, model: Model, tracker: UsageTracker, *, neighbours: float = 0.0) -> None:
        """Wrap a model; `neighbours` are the gigabytes of other models on its device."""
        super().__init__(model)
        self._tracker, self._neighbours = tracker, neighbours
        self._pace = tracker.pace_of(model.identity)

    @property
    def excess(self) -> float:
        """The factor that estimates are priced with."""
        return max(self._pace.excess, self.capabilities.cost_slack)

    def price(self, request: Request) -> Price:
        """What a request takes at most, if its texts are as long as they may be."""
        cost, limits = self._highest_cost(request), self._tracker.limits
        if cost.unpriced and limits.max_tflops is not None:
            raise UsageError(
                f"what {self.identity} computes is not known, so --max-tflops cannot be kept; use --max-tokens"
            )
        timed = limits.max_seconds is not None
        self._tracker.unplanned |= timed and not self._pace.known
        seconds = TIME_MARGIN * self._pace.seconds_for(cost) if timed else 0.0
        memory = 0.0 if limits.max_gpu_memory is None else self._memory(self._width(request, cost))
        return Price(math.ceil(self.excess * cost.tokens), self.excess * cost.tflops, seconds, memory)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Answer the requests, unless that would exceed a limit."""
        self._tracker.require(sum(map(self.price, requests), Price()), timed=False)
        generates = any(isinstance(request.task, SamplingParams) for request in requests)
        alone = (
            generates or self._tracker.limits.max_gpu_memory is not None
        )  # one call's requests are in memory together
        responses: list[Response] = []
        for batch in [[each] for each in requests] if alone else [requests]:
            responses += self._run(batch)
        return responses

    def _highest_cost(self, request: Request) -> Cost:
        """What a request costs; some servers read it once for each of its texts."""
        if isinstance(task := request.task, SamplingParams) and self.excess > 1.0:
            return sum([self.cost(replace(request, task=replace(task, samples=1)))] * task.samples, Cost())
        return self.cost(request)

    def _width(self, request: Request, cost: Cost) -> int:
        """The tokens that are in memory in a pass: a question to the memory of frames needs theirs, too."""
        return (
            cost.tokens
            if request.visible_frames is None
            else self.cost(replace(request.prompt_only, visible_frames=None)).tokens
        )

    def _memory(self, tokens: int) -> float:
        if self.capabilities.weight_bytes is None:
            raise UsageError(
                f"the model {self.identity} does not say how much memory it takes, so --max-gpu-memory cannot be kept"
            )
        return self._neighbours + self.capabilities.memory(tokens)

    def _run(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Run what fits, count what it cost, and learn from how long it took."""
        expected = list(map(self._highest_cost, requests))
        tracker, start = self._tracker, self._tracker.clock()
        responses = self._model.run(requests)
        costs = list(map(cost_of, responses))
        tracker.spent += (spent := sum(costs, Cost()))
        self._pace.note(spent, tracker.clock() - start)
        if self.excess > 1.0:
            ratios = (cost.tokens / own.tokens for cost, own in zip(costs, expected, strict=True) if own.tokens)
            self._pace.excess = max([self._pace.excess, *ratios])
        return responses


class LimitedEncoder:
    """An encoder that counts what it spends, and refuses what does not fit; its seconds are not planned."""

    def __init__(self, encoder: Encoder, tracker: UsageTracker) -> None:
        self._encoder, self._tracker = encoder, tracker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def images(self, frames: FramePool) -> Vectors:
        """Encode the frames, unless that would exceed a limit."""
        return self._run(self._encoder.image_cost(frames), lambda: self._encoder.images(frames))

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Encode the texts, unless that would exceed a limit."""
        return self._run(self._encoder.text_cost(texts), lambda: self._encoder.texts(texts))

    def _run(self, cost: Cost, work: Callable[[], Vectors]) -> Vectors:
        self._tracker.require(Price(cost.tokens, cost.tflops), timed=False)
        vectors = work()
        self._tracker.spent += cost
        return vectors


# What the stages of a question take at most, before they run.


def price_of_asking(model: Model, question: Question, show: Callable[[Question], Request], plan: "Plan") -> Price:
    """What asking a limited model takes, with all that may follow from the answers."""
    assert isinstance(model, LimitedModel)
    requests = requests_about(model, question, show, rotations=plan.rotations)
    return sum(map(model.price, requests), Price())


def price_of_selecting(plan: "Plan", pool: FramePool, choose: Callable[[Selector], Selection]) -> Price:
    """What the plan's selector takes to choose frames, if it has to take all its rounds."""
    selector, model, prices = plan.selector, plan.model, []
    encoder = getattr(selector, "encoder", None)
    if isinstance(encoder, LimitedEncoder):
        prices.append(Price(tflops=encoder.image_cost(pool).tflops))
    if isinstance(model, LimitedModel) and model.identity in selector.models:

        def note_price(request: Request) -> Cost:
            prices.append(model.price(request))
            return Cost()

        choose(selector.with_model(CostModel(model.identity, model.capabilities, note_price)))
    return sum(prices, Price())
