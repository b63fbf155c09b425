"""offers(): what quick, auto and full answers about one video would take, all frames, and what an allowance buys.

Nothing is decoded and no model is loaded: gauges price requests for frames of the video's size. Seconds come from the
pace that was measured when the model answered on this machine; they are None before that.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gridprobe.allowance import Allowance
from gridprobe.backends import Gauge
from gridprobe.errors import OverBudget
from gridprobe.evaluation.planning import GridPrice, blank_frames, price_grid
from gridprobe.flops import Cost
from gridprobe.pace import Pace, read_pace
from gridprobe.pipeline import Session
from gridprobe.question import Question
from gridprobe.registry import SELECTORS
from gridprobe.settings import Settings
from gridprobe.setup import Setup, make_setup
from gridprobe.spending import Spending
from gridprobe.video import VideoInfo

__all__ = ["TYPICAL", "Models", "Offer", "offers"]

TYPICAL = Question(
    "What does the person do right after the door has been closed?",
    ["opens the window", "sits down at the table", "leaves the room", "calls somebody"],
)
"""Stands for the question where none is given."""

Range = tuple[float, float]


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
    gave: tuple[str, ...] = ()
    """What has to give, or why nothing fits."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def offers(
    settings: Settings, info: VideoInfo, models: Models, *, selector: str = "gridprobe", question: Question = TYPICAL
) -> list[Offer]:
    """What the efforts would take for a question about a video, and what the settings' allowance buys."""
    free = replace(settings, allowance=Allowance())
    usual = _setup(free, models, selector)
    efforts = ("focus",) if usual.effort == "focus" else ("quick", "auto", "full")
    found = []
    for effort in efforts:
        setup = _setup(free.changed(effort=effort), models, selector)
        price = price_grid(setup, question, info)
        found.append(_offer(effort, price, models))
    found.append(_everything(price, models, info, usual))
    return [*found, *_bought(settings, info, models, selector=selector, question=question)]


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


def _everything(price: GridPrice, models: Models, info: VideoInfo, setup: Setup) -> Offer:
    count = len(blank_frames(info, setup))
    return _made("all frames", (count, count), [price.everything] * 2, models, [price.everything])


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


def _bought(settings: Settings, info: VideoInfo, models: Models, *, selector: str, question: Question) -> list[Offer]:
    """What the allowance buys for a question that the overview does not settle and whose map keeps most frames."""
    if not settings.allowance:
        return []
    paces = models.paces
    allowance = settings.allowance
    unplanned: tuple[str, ...] = ()
    if allowance.max_seconds is not None and not all(pace.known for pace in paces.values()):
        unplanned = ("--max-seconds is planned once the model's speed is known",)
        allowance = replace(allowance, max_seconds=None)
    setup = _setup(replace(settings, allowance=allowance), models, selector)
    pool = blank_frames(info, setup)
    if settings.frames == "auto" and SELECTORS.find(selector)[0].frames == "optional":
        most = setup.selector.bounds(len(pool))[1]
        setup = _setup(replace(settings, allowance=allowance, frames=most), models, selector)
    try:
        cost, kept, longest, gave = _simulated(setup, pool, question, paces)
    except OverBudget as error:
        nothing = _made("limited", (0, 0), [Cost()] * 2, models, [Cost()])
        return [replace(nothing, gave=(str(error),))]
    offer = _made("limited", (kept, kept), [cost] * 2, models, [Cost(tokens=longest)])
    return [replace(offer, gave=(*unplanned, *gave))]


def _simulated(
    setup: Setup, pool: Any, question: Question, paces: dict[str, Pace]
) -> tuple[Cost, int, int, tuple[str, ...]]:
    """The cost, the frames, the longest pass and what gave, if gauges answer; their clock is what they would take."""
    if not setup.allowance:
        answer = Session(pool, setup=setup, reuse=False).ask(question)
    else:
        session = Session(pool, setup=setup, reuse=False)
        spent: list[Spending] = []
        pace = paces[setup.answerer.identity]
        spending = Spending.of(
            session.setup,
            clock=lambda: pace.seconds_for(spent[0].meter.spent) if spent else 0.0,
            paces=lambda name: replace(paces[name]),
        )
        spent.append(spending)
        answer = session.ask_within(spending, question)
    passes = [answer.reached.overview, answer.reached.focus]
    longest = max(each.cost.tokens for each in passes if each is not None)
    return answer.cost.total, answer.shown_native, longest, answer.reached.gave
