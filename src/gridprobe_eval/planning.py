"""What a question about a video would take, before anything is decoded and before a model is loaded.

Every request is laid out as it would be sent, and counted. How many frames are kept is not known in advance, so the
focused pass is a range between the selector's bounds. A second look (refine) is not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gridprobe.limits import TIME_MARGIN, Pace, Price, UsageLimits, UsageTracker, in_words, read_pace
from gridprobe.models import CostModel
from gridprobe.models.base import Cost, choose
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.video import FramePool, FrameSize, Pending, VideoInfo


@dataclass(frozen=True)
class Stages:
    """What the questions so far cost, stage by stage."""

    overview: Cost = field(default_factory=Cost)
    probes: Cost = field(default_factory=Cost)
    least: Cost = field(default_factory=Cost)
    most: Cost = field(default_factory=Cost)
    longest: int = 0
    """Tokens of the longest pass."""

    def plus(self, question: Question, video: "BlankVideo", setup: Plan) -> "Stages":
        """With one more question about a video."""
        setup = setup.never_dearer(question, len(video.times), video.frames_at)
        pool, selector = video.frames(setup.pool_size(len(video.times))), setup.selector
        overview, probes, longest = self.overview, self.probes, self.longest
        if setup.overview is not None:
            (first,) = choose(setup.model, [overview_request(pool, question, setup.overview)])
            overview, longest = overview + first.cost, max(longest, first.cost.tokens)
            selector = selector.with_overview(first)
        if setup.effort == "all":
            return replace(self, least=self.least + first.cost, most=self.most + first.cost, longest=longest)
        if setup.effort == "quick":
            return replace(self, overview=overview, longest=longest)
        if selector.models:
            probes += selector.select(pool, question).cost
        bounds = (min(bound, setup.most_kept or bound) for bound in selector.bounds(len(pool)))
        few, many = (video.focus(count, question, setup) for count in bounds)
        return Stages(overview, probes, self.least + few, self.most + many, max(longest, many.tokens))


def price_grid(
    setup: Plan, question: Question, info: VideoInfo, *, kept: Sequence[int] = ()
) -> tuple[Cost, Stages, dict[int, Cost]]:
    """Price one question about a video of this size, with a setup whose models are cost models.

    Returns the cost of one pass over all frames at full size, those of the stages, and those of the focused pass for
    these numbers of kept frames or for the selector's bounds.
    """
    video = BlankVideo.of(info, setup)
    cells = len(video.times)
    counts = kept or setup.selector.bounds(cells)
    costs = Stages().plus(question, video, setup)
    whole = setup.focus_request(video.frames(setup.size_of(setup.shown, cells)), question)
    return setup.answerer.cost(whole), costs, {count: video.focus(count, question, setup) for count in counts}


@dataclass(frozen=True)
class BlankVideo:
    """The frames that a video would give, without pixels."""

    info: VideoInfo
    times: tuple[float, ...]

    @classmethod
    def of(cls, info: VideoInfo, setup: Plan, *, seconds: float | None = None) -> "BlankVideo":
        """A short video has fewer frames than the grid has cells; `seconds` is its length if that is known."""
        assert setup.sampling is not None
        cells = setup.sampling.num_frames
        start, end = setup.sampling.span((info.duration if seconds is None else seconds) or 0.0)
        frames = info.frames or cells
        if setup.sampling.window is not None and info.duration:
            frames = round(frames * (end - start) / info.duration)
        count = max(1, min(cells, frames))
        return cls(info, tuple(start + (i + 0.5) / count * (end - start) for i in range(count)))

    def frames(self, size: FrameSize) -> FramePool:
        """All of them at a size."""
        width, height = size.fit(self.info.width, self.info.height)
        shape = (len(self.times), height, width, 3)
        pixels = Pending(lambda rows: np.zeros((len(rows), *shape[1:]), np.uint8), shape)
        return FramePool(pixels, self.times, source=self.info.path, info=self.info)

    def focus(self, count: int, question: Question, setup: Plan) -> Cost:
        """The focused pass over this many kept frames, with the selector's extra frames and with the context."""
        selection = setup.select_evenly(count, self.frames(FrameSize()))
        return setup.answerer.cost(setup.focus_on(selection, question, self.frames_at))

    def frames_at(self, places: Sequence[int], size: FrameSize) -> FramePool:
        """Some of them at a size."""
        return self.frames(size).take(places)


TYPICAL = Question(
    "What does the person do right after the door has been closed?",
    ["opens the window", "sits down at the table", "leaves the room", "calls somebody"],
)
"""Stands for the question where none is given."""

Range = tuple[float, float]
Fits = Literal["yes", "maybe", "no"]


@dataclass(frozen=True)
class Models:
    """The models as cost models, and what their tokens cost."""

    model: CostModel
    answerer: CostModel
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
    """Frames at full size."""
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
    settings: Options, info: VideoInfo, models: Models, *, selector: str = "gridprobe", question: Question = TYPICAL
) -> list[Offer]:
    """What quick, auto and full answers about a video would take, and all frames; and whether that fits the limits.

    Seconds come from the pace that was measured when the model answered on this machine; they are None before that.
    """
    usual, most = _setup(settings, models, selector), settings.usage_limits.max_frames
    efforts = ("focus",) if usual.effort == "focus" else ("quick", "auto", "full")
    video = BlankVideo.of(info, usual)
    count = len(video.times)
    offered = []
    for effort in efforts:
        setup = _setup(settings.changed(effort=effort), models, selector)
        setup = setup.never_dearer(question, count, video.frames_at)
        bounds = [min(most or bound, setup.most_kept or bound, bound) for bound in setup.selector.bounds(count)]
        whole, stages, focus = price_grid(setup, question, info, kept=bounds)
        everything = _made("all frames", (count, count), [whole] * 2, models, [whole])
        everything = _checked(everything, settings.usage_limits, models)
        if setup.effort != "all":
            offered.append(_checked(_offer(effort, stages, focus, models), settings.usage_limits, models))
        elif everything.fits == "no" or (most or count) < count:  # the overview, which comes first, answers
            offered.append(replace(offered[0], name=effort))
        else:
            offered.append(replace(everything, name=effort))
    return [*offered, everything]


def _checked(offer: Offer, limits: UsageLimits, models: Models) -> Offer:
    """The offer, compared with limits; a server may use more than its estimate, by a margin."""
    slack = max(each.capabilities.cost_slack for each in (models.model, models.answerer))
    tracker = UsageTracker(limits, clock=lambda: 0.0)
    seconds = offer.seconds or (0.0, 0.0)
    verdicts: tuple[tuple[int, Fits, str], ...] = ((0, "no", "takes at least"), (1, "maybe", "may take"))
    for place, fits, verb in verdicts:
        tokens, tflops = slack * offer.tokens[place], slack * offer.tflops[place]
        price = Price(tokens, tflops, TIME_MARGIN * seconds[place], offer.memory_gb)
        if names := tracker.over(price):
            flags = " and ".join(map(limits.flag, names))
            return replace(offer, fits=fits, over=f"{verb} {in_words(names, price.amounts)}, more than {flags}")
    return offer


def _setup(settings: Options, models: Models, selector: str) -> Plan:
    made = settings.resolve(model=models.model, answer_model=models.answerer, selector=selector)
    return replace(made, selector=made.selector.loaded(weights=False))


def _offer(effort: str, stages: Stages, focus: Mapping[int, Cost], models: Models) -> Offer:
    least, most = min(focus), max(focus)
    costs = [stages.overview + stages.probes + focus[count] for count in (least, most)]
    frames, passes = (least, most), [stages.overview, *focus.values()]
    if effort == "quick":
        costs, frames, passes = [stages.overview] * 2, (0, 0), [stages.overview]
    if effort == "auto":
        costs, frames = [stages.overview, costs[1]], (0, most)
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
        models.answerer.capabilities.memory(longest)
        + (0.0 if len(paces) == 1 else models.model.capabilities.memory(0)),
        None if money[0] is None or money[1] is None else (money[0], money[1]),
    )
