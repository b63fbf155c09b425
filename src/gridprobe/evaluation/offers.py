"""offers(): what quick, auto and full answers about one video would take, and all frames; and whether that fits limits.

Nothing is decoded and no model is loaded: gauges price requests for frames of the video's size. Seconds come from the
pace that was measured when the model answered on this machine; they are None before that.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gridprobe.backends import Gauge
from gridprobe.evaluation.planning import GridPrice, blank_frames, price_grid
from gridprobe.flops import Cost
from gridprobe.limits import TIME_MARGIN, Price, UsageLimits, UsageTracker, in_words
from gridprobe.pace import Pace, read_pace
from gridprobe.question import Question
from gridprobe.settings import Settings
from gridprobe.setup import Setup, make_setup
from gridprobe.video import VideoInfo

__all__ = ["TYPICAL", "Models", "Offer", "offers"]

TYPICAL = Question(
    "What does the person do right after the door has been closed?",
    ["opens the window", "sits down at the table", "leaves the room", "calls somebody"],
)
"""Stands for the question where none is given."""

Range = tuple[float, float]
Fits = Literal["yes", "maybe", "no"]


@dataclass(frozen=True)
class Models:
    """The models as gauges, and what their tokens cost."""

    model: Gauge
    answerer: Gauge
    price_in: float = 0.0
    """Price of a million prompt tokens, if the models are on a server that has prices."""
    price_out: float = 0.0
    """Price of a million generated tokens."""

    @property
    def paces(self) -> dict[str, Pace]:
        """What is known of their speed on this machine."""
        return {each.identity: read_pace(each.identity) for each in (self.model, self.answerer)}

    def money(self, cost: Cost) -> float | None:
        """What a server would charge; None without prices. Every call generates one token."""
        priced = self.price_in or self.price_out
        return (cost.tokens * self.price_in + cost.calls * self.price_out) / 1e6 if priced else None


@dataclass(frozen=True)
class Offer:
    """What one way to ask takes; each pair is the least and the most."""

    name: str
    frames: tuple[int, int]
    """Frames at native size."""
    tokens: tuple[int, int]
    tflops: Range
    seconds: Range | None
    """Without decoding; None while the models' speed is not known."""
    memory_gb: float
    """Weights and the largest pass."""
    money: Range | None
    fits: Fits = "yes"
    """Whether it keeps to the limits given: its most, only its least, or not even that."""
    over: str = ""
    """What exceeds which limits, in words; empty if it fits."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def offers(
    settings: Settings, info: VideoInfo, models: Models, *, selector: str = "gridprobe", question: Question = TYPICAL
) -> list[Offer]:
    """What the efforts would take for a question about a video, and whether that fits the settings' limits."""
    usual, most = _setup(settings, models, selector), settings.usage_limits.max_frames
    efforts = ("focus",) if usual.effort == "focus" else ("quick", "auto", "full")
    count = len(blank_frames(info, usual))
    kept = [min(most or bound, bound) for bound in usual.selector.bounds(count)]
    offered = []
    for effort in efforts:
        price = price_grid(_setup(settings.changed(effort=effort), models, selector), question, info, kept=kept)
        offered.append(_offer(effort, price, models))
    offered.append(_made("all frames", (count, count), [price.everything] * 2, models, [price.everything]))
    return [_checked(offer, settings.usage_limits, models) for offer in offered]


def _checked(offer: Offer, limits: UsageLimits, models: Models) -> Offer:
    """The offer, compared with limits; a server's bill may be larger than its estimate by a margin."""
    tracker, slack = UsageTracker(limits, clock=lambda: 0.0), max(models.model.slack, models.answerer.slack)
    seconds = offer.seconds or (0.0, 0.0)
    verdicts: tuple[tuple[int, Fits, str], ...] = ((0, "no", "takes at least"), (1, "maybe", "may take"))
    for place, fits, verb in verdicts:
        tokens, tflops = slack * offer.tokens[place], slack * offer.tflops[place]
        price = Price(tokens, tflops, TIME_MARGIN * seconds[place], offer.memory_gb)
        if names := tracker.over(price):
            flags = " and ".join(map(limits.flag, names))
            return replace(offer, fits=fits, over=f"{verb} {in_words(names, price.amounts)}, more than {flags}")
    return offer


def _setup(settings: Settings, models: Models, selector: str) -> Setup:
    made = make_setup(model=models.model, answer_model=models.answerer, selector=selector, settings=settings)
    return replace(made, selector=made.selector.loaded(weights=False))


def _offer(effort: str, price: GridPrice, models: Models) -> Offer:
    least, most = min(price.focus), max(price.focus)
    costs = [price.selecting + price.focus[count] for count in (least, most)]
    frames, passes = (least, most), [price.overview, *price.focus.values()]
    if effort == "quick":
        costs, frames, passes = [price.overview] * 2, (0, 0), [price.overview]
    if effort == "auto":
        costs, frames = [price.overview, costs[1]], (0, most)
    return _made(effort, frames, costs, models, passes)


def _made(name: str, frames: tuple[int, int], costs: Sequence[Cost], models: Models, passes: Sequence[Cost]) -> Offer:
    """An offer from its least and its most cost, and the costs of its single passes."""
    low, high = costs
    paces, longest = models.paces, max(cost.tokens for cost in passes)
    pace = paces[models.answerer.identity]
    money = models.money(low), models.money(high)
    return Offer(
        name,
        frames,
        (low.tokens, high.tokens),
        (low.tflops, high.tflops),
        (pace.seconds_for(low), pace.seconds_for(high)) if pace.known else None,
        models.answerer.memory(longest) + (0.0 if len(paces) == 1 else models.model.memory(0)),
        None if money[0] is None or money[1] is None else (money[0], money[1]),
    )
