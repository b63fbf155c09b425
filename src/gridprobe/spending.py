"""Spending: keeps one question within its allowance, decides what gives, and says what gave.

What gives, in this order: kept frames, down to `min_frames`; the context, which is shown smaller and then left out;
the map, in whose place evenly spaced frames are kept; the focused pass, so that the overview answers; the size of the
frames in the overview, and then their number. The models are `Metered`, so a stage that was planned too cheaply is
refused, and what is known by then is the answer.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace

from gridprobe.allowance import Allowance
from gridprobe.answer import Answer
from gridprobe.backends.base import Backend, FrameGroup, ScoreRequest, View
from gridprobe.backends.metered import Claim, Meter, Metered, MeteredEncoder
from gridprobe.budget import LEAST, spread
from gridprobe.errors import OverBudget
from gridprobe.flops import Cost
from gridprobe.given import Given, Thinned
from gridprobe.pace import Pace, learn_pace, pace_of
from gridprobe.prices import Prices, Source
from gridprobe.question import Question
from gridprobe.selectors import Selection, Selector, Uniform
from gridprobe.selectors.base import OVERVIEW
from gridprobe.setup import Setup
from gridprobe.shrinking import Smaller, Way, grid_side, largest, resized, smaller_views, ways_of
from gridprobe.stages import Overview
from gridprobe.video import Footage, FramePool, FrameSize

__all__ = ["Spending", "learn_from"]

FRAME_SECONDS = 0.05
"""What decoding a frame of a video takes, before it was measured."""


@dataclass(eq=False)
class Spending:
    """What one question spends."""

    setup: Setup
    """With metered models, and with an overview that fits once `begin` was called."""
    meter: Meter
    gave: list[str] = field(default_factory=list)
    """What had to give, in sentences."""

    @classmethod
    def of(
        cls,
        setup: Setup,
        *,
        clock: Callable[[], float] = time.perf_counter,
        paces: Callable[[str], Pace] | None = None,
    ) -> "Spending":
        """For one question that is asked now. `clock` and `paces`, which knows a model's pace, are for tests."""
        meter = Meter(setup.allowance, clock=clock)
        return cls(_metered(setup, meter, paces or pace_of), meter)

    @property
    def allowance(self) -> Allowance:
        """The limits."""
        return self.meter.allowance

    def begin(self, footage: Source, question: Question, pool_size: FrameSize) -> Source:
        """The frames to begin with, and in `setup` how they are looked over; OverBudget if nothing fits."""
        count = len(footage.undecoded(pool_size))
        prices = Prices(self.setup, footage, question, pool_size)
        self._measure(footage, question, pool_size)
        if self.setup.overview is None:
            one = self._evenly(footage.undecoded(pool_size), 1)
            self._require(prices.focus(one), "1 kept frame alone")
            return footage
        return self._looked_over(prices, self.setup.overview, count)

    def _looked_over(self, prices: Prices, view: View, count: int) -> Source:
        """The frames of the overview: all, if that fits; else smaller; else fewer."""
        everything = tuple(range(count))
        limit = self.meter.lacking(prices.overview(view, everything))
        if limit is None:
            return prices.footage
        sizes = self._sizes(view, prices, everything)
        for smaller, _, side in sizes[1:]:
            if self.meter.lacking(prices.overview(smaller, everything)) is None:
                self._answer_quickly(smaller, limit)
                self._give(f"the overview shows frames at {side} px instead of {sizes[0].side}", limit)
                return prices.footage
        smallest, _, side = sizes[-1]

        def fits(number: int) -> bool:
            return self.meter.lacking(prices.overview(smallest, spread(count, number))) is None

        number = largest(fits, 1, count)
        if not number:
            self._require(prices.overview(smallest, spread(count, 1)), f"1 frame of {side} px")
        self._answer_quickly(smallest, limit)
        shown = f" at {side} px instead of {sizes[0].side}" if side != sizes[0].side else ""
        self._give(f"the overview shows {number} of {count} frames{shown}", limit)
        return Thinned(_whole(prices.footage), spread(count, number))

    def _sizes(self, view: View, prices: Prices, places: Sequence[int]) -> list[Smaller]:
        """The view of the overview, and smaller ones."""
        frames, multiple = prices.footage.undecoded(prices.pool_size).take(places), self.setup.model.multiple
        return smaller_views(view, lambda each: max(FrameGroup(frames, each).size(multiple)))

    def _answer_quickly(self, overview: View, limit: str) -> None:
        if self.setup.effort != "quick":
            self._give("answered from the overview", limit)
        self.setup = replace(self.setup, overview=overview, effort="quick", refine=False)

    def chosen(
        self, choose: Callable[[], Selection], pool: FramePool, prices: Prices, first: Overview | None
    ) -> Selection:
        """What a selector chooses, as far as the focused pass can be paid; OverBudget if the overview is to answer."""
        least = replace(self._evenly(pool, self._floor(len(pool))), context=0.0)
        needed = prices.focus(least)
        limit = self.meter.lacking(needed)
        if limit is not None and first is not None:
            raise OverBudget("the kept frames cannot be shown", limit=limit)
        before = self.meter.spent
        try:
            with self.meter.reserving(needed):
                selection = choose()
        except OverBudget as refused:
            self._give("the map was left out, so evenly spaced frames were kept", refused.limit)
            wanted = min(self.setup.selector.bounds(len(pool))[1], grid_side(len(pool)))
            selection = replace(self._evenly(pool, max(wanted, least.kept)), cost=_minus(self.meter.spent, before))
        fitted = self._fitted(selection, pool, prices, first)
        self.meter.last = first is None
        return fitted

    def mapped(self, choose: Callable[[], Selection], pool: FramePool) -> Selection:
        """The map of an answer that is settled, if it can be paid."""
        before = self.meter.spent
        try:
            return choose()
        except OverBudget as refused:
            self._give("the map was left out", refused.limit)
            everything = Selection.of(OVERVIEW, pool, tuple(range(len(pool))))
            return replace(everything, cost=_minus(self.meter.spent, before))

    def _fitted(self, chosen: Selection, pool: FramePool, prices: Prices, first: Overview | None) -> Selection:
        """The selection with as many frames, and as large a context, as can be paid."""
        native, most = self.setup.selector.view is None, self.allowance.max_frames
        selection = resized(chosen, pool, max(chosen.kept, min(self.allowance.min_frames or 0, len(pool))))
        wanted = min(selection.kept, most) if native and most else selection.kept
        floor = min(wanted, self._floor(len(pool)))

        def lacking(number: int, way: Way) -> str | None:
            return self.meter.lacking(prices.focus(way.of(resized(selection, pool, number))))

        ways = ways_of(selection, pool, self.setup)
        limit = lacking(wanted, ways[0])
        way = next((way for way in ways if lacking(floor, way) is None), None) if limit else ways[0]
        if way is None and first is not None:
            raise OverBudget("the kept frames cannot be shown", limit=limit or "")
        shown, number = way or ways[-1], wanted
        if limit:
            number = largest(lambda count: lacking(count, shown) is None, floor if way else 1, wanted)
        if not number:
            self._require(prices.focus(shown.of(resized(selection, pool, 1))), "1 kept frame alone")
        if number < selection.kept:
            self._give(f"{number} of {selection.kept} frames kept", limit or "max_frames")
        elif number > chosen.kept:
            self._give(f"{number} frames kept instead of {chosen.kept}", "min_frames")
        if shown.gives:
            self._give(shown.gives, limit or "")
        return shown.of(resized(selection, pool, number))

    def refined(self, look_again: Callable[[], Answer | None], first: Overview, *, focus: Claim) -> Answer | None:
        """What a second look finds, if it leaves enough for the focused pass."""
        overview = first.posterior.cost
        again = Claim(2 * overview.tokens, 2 * overview.tflops, 2 * first.seconds)
        limit = self.meter.lacking(focus + focus + again)
        if limit is None:
            try:
                with self.meter.reserving(focus):
                    return look_again()
            except OverBudget as refused:
                limit = refused.limit
        self._give("hot stretches were not sampled again", limit)
        return None

    def unfocused(self, refused: OverBudget) -> None:
        """The focused pass did not fit, and the overview answers."""
        self._give("answered from the overview", refused.limit)

    def settled(self, answer: Answer, *, baseline: Cost) -> Answer:
        """The answer with everything that was spent, and with what gave."""
        cost = answer.cost
        if cost.total.calls != self.meter.spent.calls:
            cost = replace(cost, probe=_minus(_minus(self.meter.spent, cost.overview), cost.focus))
        most, took = self.allowance.max_seconds, self.meter.elapsed
        if most is not None and took > most:
            self._give(f"took {took:.1f} s, longer than planned", "max_seconds")
        gave = tuple(dict.fromkeys(self.gave))
        return replace(
            answer,
            cost=replace(cost, baseline=baseline),
            warnings=(*answer.warnings, *gave),
            reached=replace(answer.reached, gave=gave),
        )

    def _measure(self, footage: Source, question: Question, pool_size: FrameSize) -> None:
        """Two passes over one frame, the second of which counts, with models whose pace is not known."""
        if self.allowance.max_seconds is None:
            return
        setup = self.setup
        asked = [setup.model] if setup.overview is not None or setup.selector.models else []
        for model in dict.fromkeys(map(id, [*asked, setup.answerer])):
            known = next(each for each in (setup.model, setup.answerer) if id(each) == model)
            assert isinstance(known, Metered)
            if not known.pace.known:
                view = setup.overview or setup.shown
                group = FrameGroup(footage.frames([0], pool_size), view)
                request = ScoreRequest(question.prompt, question.labels or ("A", "B"), (group,))
                with suppress(OverBudget):
                    known.score([request])
                    known.pace.forget()
                    known.score([request])

    def frame_seconds(self, footage: Source, first: Overview | None) -> float:
        """What decoding a frame takes, as far as that matters and is known."""
        if self.allowance.max_seconds is None or not isinstance(_whole(footage), Footage):
            return 0.0
        return first.decoding / len(first.pool) if first is not None else FRAME_SECONDS

    def _floor(self, pool: int) -> int:
        """The fewest frames that are kept as long as anything else can give."""
        least = self.allowance.min_frames or math.ceil(LEAST * grid_side(pool))
        return max(1, min(least, self.allowance.max_frames or least, pool))

    def _evenly(self, pool: FramePool, count: int) -> Selection:
        indices = spread(len(pool), min(count, len(pool)))
        return Selection.of(Uniform.name, pool, indices)

    def _require(self, claim: Claim, what: str) -> None:
        """Refuse a question of which not even the least fits, and name the smallest limits that would do."""
        limit = self.meter.lacking(claim)
        if limit is None:
            return
        needs = {
            "max_tokens": f"{math.ceil(self.meter.spent.tokens + claim.tokens)}",
            "max_tflops": _rounded_up(self.meter.spent.tflops + claim.tflops),
            "max_seconds": _rounded_up(self.meter.elapsed + claim.seconds),
            "max_gpu_memory": _rounded_up(claim.memory),
        }
        short = [name for name in needs if _short_of(self.meter, name, claim)]
        wanted = " and ".join(f"--{name.replace('_', '-')} {needs[name]}" for name in short)
        given = " and ".join(self.allowance.flag(name) for name in short)
        raise OverBudget(f"{given} is too little even for {what}; give at least {wanted}", limit=limit)

    def _give(self, what: str, limit: str) -> None:
        self.gave.append(f"{what}: {self.allowance.flag(limit)}" if limit else what)


def _metered(setup: Setup, meter: Meter, paces: Callable[[str], Pace]) -> Setup:
    """The setup with models, and an encoder, that are paid from a meter."""
    model, answerer = setup.model, setup.answerer
    apart = answerer is not model
    asked = Metered(model, meter, paces(model.identity), beside=_weights(answerer) if apart else 0.0)
    answering = asked
    if apart:
        answering = Metered(answerer, meter, paces(answerer.identity), beside=_weights(model) if asks(setup) else 0.0)
    metered = setup.using(asked, answering)
    return replace(metered, selector=_with_encoder(metered.selector, meter))


def asks(setup: Setup) -> bool:
    """Whether the first of two models is asked at all."""
    return setup.overview is not None or setup.model.identity in setup.selector.models


def _weights(model: Backend) -> float:
    """Gigabytes of a model's weights, if it says so."""
    measure = getattr(model, "memory", None)
    return float(measure(0)) if measure is not None else 0.0


def _with_encoder(selector: Selector, meter: Meter) -> Selector:
    encoder = getattr(selector, "encoder", None)
    if encoder is None or not is_dataclass(selector):
        return selector
    found: Selector = replace(selector, encoder=MeteredEncoder(encoder, meter))
    return found


def _whole(footage: Source) -> Footage | Given:
    return footage.footage if isinstance(footage, Thinned) else footage


def _minus(cost: Cost, other: Cost) -> Cost:
    return Cost(*(getattr(cost, each.name) - getattr(other, each.name) for each in fields(Cost)))


def _short_of(meter: Meter, name: str, claim: Claim) -> bool:
    """Whether a claim breaks this limit, whatever it does to the others."""
    value = getattr(meter.allowance, name)
    if value is None:
        return False
    alone = Meter(Allowance(**{name: value}), clock=lambda: meter.elapsed)
    alone._started, alone.spent, alone.reserved = 0.0, meter.spent, meter.reserved
    return alone.lacking(claim) is not None


def _rounded_up(value: float) -> str:
    """Three digits that are not below the value."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return f"{math.ceil(value / step * (1 + 1e-12)) * step:.3g}"


def learn_from(answer: Answer, *, names: tuple[str, str]) -> None:
    """Keep how fast the models worked, by their identities and by the names they were loaded by.

    `names` are those of the model that is asked first and of the answering one.
    """
    asked, answerer = answer.models
    stages = [(names[1], answerer, answer.cost.focus, answer.seconds.focus)]
    if answer.reached.overview is not None:
        stages.append((names[0], asked[0], answer.cost.overview, answer.seconds.overview))
    for name, identity, cost, seconds in stages:
        for each in dict.fromkeys((name, identity)):
            learn_pace(each, cost, seconds)
