"""estimate_run(): what a run would cost, before a model is loaded.

Every probe is laid out as it would be sent, and counted. How many frames are kept is not known in advance, so the
focused pass is a range between the selector's bounds. Nor is it known how many questions the overview settles: those
need neither probes nor a focused pass. A second look (refine) is not counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gridprobe._util import report
from gridprobe.ask import focus_request
from gridprobe.benchmarks import Benchmark, Item
from gridprobe.errors import DataError, VideoError
from gridprobe.evaluation.tasks import Choice, Method, Shard, tasks_of
from gridprobe.limits import TIME_MARGIN, Pace, Price, UsageLimits, UsageTracker, in_words, read_pace
from gridprobe.models import CostModel, FrameGroup, Request
from gridprobe.models.base import choose
from gridprobe.models.cost import Cost
from gridprobe.options import Options, Plan
from gridprobe.question import Question
from gridprobe.selectors.gridprobe import overview_request
from gridprobe.video import FramePool, FrameSize, Pending, SampleSpec, VideoInfo, probe

__all__ = [
    "SCHEMA",
    "TYPICAL",
    "GridPrice",
    "Models",
    "Offer",
    "blank_frames",
    "estimate_run",
    "offers",
    "price_grid",
]

SCHEMA = "gridprobe.plan-run/1"


def estimate_run(
    benchmark: Benchmark,
    setup: Plan,
    *,
    model: CostModel,
    answerer: CostModel,
    choice: Choice | None = None,
    subtitles: str = "none",
) -> dict[str, Any]:
    """What asking a benchmark's questions would cost, with cost models in place of the models.

    Sizes are read from the videos' headers. A video that cannot be read is reported and counted with the
    most common size.
    """
    estimating = replace(setup, selector=setup.selector.loaded(weights=False)).using(model, answerer)
    method = Method.of(benchmark, estimating, subtitles=subtitles)
    setup = method.setup
    assert setup.sampling is not None
    items = (choice or Choice()).items(benchmark)
    tasks = tasks_of(items, Shard())
    videos = list(_headers([task.items[0] for task in tasks], benchmark, setup.sampling))
    infos = [info for info in videos if isinstance(info, VideoInfo)]
    usual = _usual(infos, videos)
    costs, done = _Stages(), 0
    for task, info in zip(tasks, videos, strict=True):
        video = _BlankVideo.of(task.items[0], info if isinstance(info, VideoInfo) else usual, setup)
        for item in task.items:
            costs = costs.plus(method.question(item), video, setup)
            done += 1
            report("estimate_run", done, len(items))
    return {
        "schema": SCHEMA,
        "questions": len(items),
        "videos": len(tasks),
        "hours": sum(_seconds(t.items[0], i) or 0.0 for t, i in zip(tasks, videos, strict=True)) / 3600,
        "unknown_length": sum(_seconds(t.items[0], i) is None for t, i in zip(tasks, videos, strict=True)),
        "unreadable": [info for info in videos if not isinstance(info, VideoInfo)],
        "frame_size": [usual.width, usual.height],
        "model": model.identity,
        "answer_model": answerer.identity,
        "text_tokens": "counted by the tokenizer"
        if model.exact and answerer.exact
        else "estimated at 4 characters each",
        "overview": _values(costs.overview),
        "settled_by_overview": setup.effort in ("quick", "auto"),
        "probes": _values(costs.probes),
        "focus": {"least": _values(costs.least), "most": _values(costs.most)},
        "memory_gb": {
            "weights": _weights(model, answerer),
            "largest_pass": round(answerer.capabilities.memory(costs.longest), 1),
        },
        "longest_pass_tokens": costs.longest,
    }


@dataclass(frozen=True)
class _Stages:
    """What the questions so far cost, stage by stage."""

    overview: Cost = field(default_factory=Cost)
    probes: Cost = field(default_factory=Cost)
    least: Cost = field(default_factory=Cost)
    most: Cost = field(default_factory=Cost)
    longest: int = 0
    """Tokens of the longest pass."""

    def plus(self, question: Question, video: "_BlankVideo", setup: Plan) -> "_Stages":
        """With one more question about a video."""
        pool, selector = video.frames(setup.pool_size(len(video.times))), setup.selector
        overview, probes, longest = self.overview, self.probes, self.longest
        if setup.overview is not None:
            (first,) = choose(setup.model, [overview_request(pool, question, setup.overview)])
            overview, longest = overview + first.cost, max(longest, first.cost.tokens)
            selector = selector.with_overview(first)
        if setup.effort == "quick":
            return replace(self, overview=overview, longest=longest)
        if selector.models:
            probes += selector.select(pool, question).cost
        few, many = (setup.answerer.cost(_focus(count, video, question, setup)) for count in selector.bounds(len(pool)))
        return _Stages(overview, probes, self.least + few, self.most + many, max(longest, many.tokens))


@dataclass(frozen=True)
class GridPrice:
    """What one question about K × K frames would cost."""

    k: int
    everything: Cost
    """One pass over all frames at full size."""
    overview: Cost
    selecting: Cost
    """The overview and the probes."""
    focus: Mapping[int, Cost]
    """Number of kept frames -> the focused pass over them."""


def price_grid(setup: Plan, question: Question, info: VideoInfo, *, kept: Sequence[int] = ()) -> GridPrice:
    """Price one question about a video of this size, for these numbers of kept frames or the selector's bounds.

    The models of the setup are cost models.
    """
    assert setup.sampling is not None
    video = _BlankVideo.of(Item("", question, Path(info.path), ""), info, setup)
    cells = len(video.times)
    counts = kept or setup.selector.bounds(cells)
    costs = _Stages().plus(question, video, setup)
    whole = focus_request(video.frames(setup.size_of(setup.shown, cells)), question, setup)
    return GridPrice(
        k=isqrt(setup.sampling.num_frames),
        everything=setup.answerer.cost(whole),
        overview=costs.overview,
        selecting=costs.overview + costs.probes,
        focus={count: setup.answerer.cost(_focus(count, video, question, setup)) for count in counts},
    )


def blank_frames(info: VideoInfo, setup: Plan) -> FramePool:
    """As many frames as a video of this size would give, at its own size, without pixels."""
    return _BlankVideo.of(Item("", Question("-"), Path(info.path), ""), info, setup).frames(FrameSize())


def _headers(items: Sequence[Item], benchmark: Benchmark, spec: SampleSpec) -> Iterator[VideoInfo | str]:
    """Each video's properties, or why they cannot be read."""
    for done, item in enumerate(items, start=1):
        try:
            yield benchmark.info(item) or probe(item.video, limits=spec.limits, stream=spec.stream)
        except VideoError as error:
            yield str(error)
        report("headers", done, len(items))


def _usual(infos: Sequence[VideoInfo], videos: Sequence[VideoInfo | str]) -> VideoInfo:
    """A video of the most common size."""
    if not infos:
        raise DataError(f"no video of the benchmark can be read: {videos[0]}")
    (size, _), *_ = Counter((info.width, info.height) for info in infos).most_common(1)
    return next(info for info in infos if (info.width, info.height) == size)


def _seconds(item: Item, info: VideoInfo | str) -> float | None:
    return item.duration if item.duration is not None or isinstance(info, str) else info.duration


def _focus(count: int, video: "_BlankVideo", question: Question, setup: Plan) -> Request:
    """The focused pass over this many kept frames, with the selector's extra frames and with the context."""
    kept = video.frames(setup.size_of(setup.shown, count)).take(range(count))
    extra_frames = setup.selector.extra_frames(count, len(video.times))
    shown = [(number, setup.smaller(kept, share)) for number, share in extra_frames]
    rest = len(video.times) - count - sum(number for number, _ in shown)
    if setup.context is not None and rest:
        shown.append((rest, setup.context))
    others, start = [], count
    for number, view in shown:
        frames = video.frames(setup.size_of(view, number)).take(range(start, start + number))
        others.append(FrameGroup(frames, view))
        start += number
    return focus_request(kept, question, setup, others=others)


@dataclass(frozen=True)
class _BlankVideo:
    """The frames that a video would give, without pixels."""

    info: VideoInfo
    times: tuple[float, ...]

    @classmethod
    def of(cls, item: Item, info: VideoInfo, setup: Plan) -> "_BlankVideo":
        """A short video has fewer frames than the grid has cells."""
        assert setup.sampling is not None
        cells = setup.sampling.num_frames
        seconds = _seconds(item, info) or 0.0
        count = max(1, min(cells, info.frames or cells))
        return cls(info, tuple((i + 0.5) / count * seconds for i in range(count)))

    def frames(self, size: FrameSize) -> FramePool:
        """All of them at a size."""
        width, height = size.fit(self.info.width, self.info.height)
        shape = (len(self.times), height, width, 3)
        pixels = Pending(lambda rows: np.zeros((len(rows), *shape[1:]), np.uint8), shape)
        return FramePool(pixels, self.times, source=self.info.path, info=self.info)


def _weights(*models: CostModel) -> float:
    return round(sum({each.identity: each.capabilities.weight_bytes or 0 for each in models}.values()) / 1e9, 1)


def _values(cost: Cost) -> Mapping[str, float]:
    return {
        "calls": cost.calls,
        "tokens": cost.tokens,
        "visual_tokens": cost.visual_tokens,
        "tflops": cost.tflops,
        "tflops_paper": cost.tflops_paper,
    }


# offers(): what quick, auto and full answers about one video would take, and all frames; and whether that fits limits.
#
# Nothing is decoded and no model is loaded: cost models price requests for frames of the video's size. Seconds come
# from the pace that was measured when the model answered on this machine; they are None before that.

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
        models.answerer.capabilities.memory(longest)
        + (0.0 if len(paces) == 1 else models.model.capabilities.memory(0)),
        None if money[0] is None or money[1] is None else (money[0], money[1]),
    )
