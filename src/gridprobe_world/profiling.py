"""Profiling: what a model can do, measured with needles, instead of constants that were tuned on another model.

    reads      single frames at full size: right answers, the letters' share, a liking for one letter
    small      the smallest frames in which it still reads what it reads at full size
    k          how many frames in one pass before needles get lost, in every third of the video
    map        which attention heads find the evidence; without attention, asking when, then fresh probes
    close-ups  kept frames behind the overview or among it: which of them it reads better
    exit       the confidence at which overviews were right

Needles that choose something are never those that confirm it. `short` measures the map alone.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gridprobe._util import report
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.early_exit import CAUTIOUS, choose_threshold
from gridprobe.models import FrameGroup, Model, Posterior, Request, View
from gridprobe.models.base import Heads, choose
from gridprobe.models.profile import HeadWeights, MapFrom, Profile
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.selectors.gridprobe import map_of_heads, overview_request
from gridprobe.video import FrameSize
from gridprobe_world.needles import PLACES, Needle, NeedleKind, Wording, needles

NEEDLES = 12
"""How many needles each step has, at most."""
MOST_OVERVIEWS = 60
SIDES = (64, 96, 128, 160, 224, 320, 448)
"""Small frames that are tried, by their longer side."""
GRIDS = (12, 8, 6, 4)
FEW = 8
"""Frames of the needles that show how small frames may be; and of which the evidence should be among the best."""
FEWER = 2 / 3
"""The share of K large frames that is tried. Four of twelve read 93% of micro's fine questions, eight 99%: a dozen
needles cannot tell these apart, so fewer are not tried."""
SLACK = 1
"""How many needles fewer may be right than at full size."""
RIGHT = 0.6
"""The least share of needles that a map has to find, or a model to read."""
LEAST_LOG_ODDS = 1.5
"""A head counts if the log-odds of its AUC are above this, so from an AUC of 0.82 on."""
MOST_HEADS = 64
BIASED = 0.25
"""A liking for one letter that is worth several orders of the options."""
EPSILON, DELTA = 0.05, 0.1
"""Exits are mistaken in at most this share of questions, with this risk."""
Way = Literal["small", "overview"]


class Stop(Exception):
    """Nothing more can be measured."""


@dataclass
class Profiler:
    """One model, and what is known about it so far."""

    model: Model
    wording: Wording
    seed: int = 2026
    profile: Profile = field(init=False)
    exits: list[tuple[float, bool]] = field(default_factory=list)
    """The confidence of every overview, and whether its answer was wrong."""

    def __post_init__(self) -> None:
        self.profile = Profile(self.model.identity)

    def measure(self, *, short: bool = False) -> Profile:
        """All steps, or the map alone."""
        start = time.monotonic()
        steps = [self.map] if short else [self.reads, self.small, self.map, self.close_ups, self.exit]
        try:
            for done, step in enumerate(steps):
                report("profile", done, len(steps))
                step()
        except Stop:
            pass
        report("profile", len(steps), len(steps))
        self._note(seconds=round(time.monotonic() - start, 1))
        return self.profile

    def _note(self, **changes: Any) -> None:
        self.profile = replace(self.profile, **changes)

    def _needles(self, step: str, count: int = NEEDLES, kind: NeedleKind = "plain", **options: Any) -> list[Needle]:
        """Needles of this step alone."""
        seed = self.seed + sum(step.encode())
        return list(needles(seed, count, wording=self.wording, kind=kind, **options))

    def seconds_of_overview(self) -> float:
        """How long it takes to look over as many frames as it may be shown at most."""
        (needle,) = self._needles("pace", 1, frames=GRIDS[0] ** 2)
        start = time.monotonic()
        self._overview(needle, self._plan(GRIDS[0]))
        return time.monotonic() - start

    # The steps.

    def reads(self) -> None:
        """Single frames at full size."""
        shown = self._needles("reads", frames=FEW)
        posteriors = self._choose([_request(needle, needle.evidence[:1], None) for needle in shown])
        right = sum(_is_right(each, needle) for each, needle in zip(posteriors, shown, strict=True))
        without = [next(place for place in range(FEW) if place not in needle.evidence) for needle in shown]
        blind = self._choose([_request(needle, [place], None) for needle, place in zip(shown, without, strict=True)])
        liked = float(np.exp([each.logprobs for each in blind]).mean(0).max())
        fair = 1 / len(posteriors[0].labels)
        self._note(
            reads=right / len(shown),
            mass=round(float(np.mean([each.mass for each in posteriors])), 3),
            order_bias=round(max(0.0, (liked - fair) / (1 - fair)), 3),
        )
        if right < RIGHT * len(shown):
            self._note(probes="none")
            raise Stop

    def small(self) -> None:
        """The smallest frames in which it reads as well as at full size, among a few others."""
        shown = self._needles("small", frames=FEW)
        full = max(shown[0].frames.width, shown[0].frames.height)
        goal = self._right(shown, None) - SLACK
        for side in (side for side in SIDES if side < full):
            if self._right(shown, side) >= goal:
                self._note(small=side)
                return
        self._note(small=full)

    def _right(self, shown: Sequence[Needle], side: int | None) -> int:
        """How many needles are read from all their frames at a size."""
        requests = [_request(needle, range(len(needle.frames)), side) for needle in shown]
        return sum(_is_right(each, needle) for each, needle in zip(self._choose(requests), shown, strict=True))

    def map(self) -> None:
        """How many frames in one pass, and which map finds the evidence among them."""
        for k in GRIDS:
            plan = self._plan(k)
            shown = self._needles(f"map {k}", frames=k * k)
            overviews = [self._overview(needle, plan) for needle in shown]
            if k == GRIDS[-1] or self._finds_everywhere(shown, overviews):
                break
        self._note(k=k)
        for overview, needle in zip(overviews, shown, strict=True):
            self.exits.append((overview.confidence, not _is_right(overview, needle)))
        if self.model.capabilities.attention_map:
            heads = [overview.heads for overview in overviews if overview.heads is not None]
            self._note(heads=chosen_heads(heads, [needle.evidence for needle in shown]))
        self._confirm(k)

    def _finds_everywhere(self, shown: Sequence[Needle], overviews: Sequence[Posterior]) -> bool:
        """Whether needles are read in every third of the video."""
        right = dict.fromkeys(PLACES, 0)
        for needle, overview in zip(shown, overviews, strict=True):
            right[needle.place] += _is_right(overview, needle)
        each = len(shown) // len(PLACES)
        return all(count >= RIGHT * each for count in right.values())

    def _overview(self, needle: Needle, plan: Plan) -> Posterior:
        """All frames, small, and what the question looks at, if the model says so."""
        assert plan.overview is not None
        request = overview_request(needle.frames, needle.question, plan.overview, keep_kv=True)
        self._note(overviews=self.profile.overviews + 1)
        return choose(self.model, [replace(request, attention=self.model.capabilities.attention_map)])[0]

    def _confirm(self, k: int) -> None:
        """The cheapest way to make a map that finds the evidence of other needles."""
        ways: list[MapFrom] = ["attention"] if self.model.capabilities.attention_map else []
        for way in [*ways, "when", "fresh"]:
            count = NEEDLES if way == "attention" else NEEDLES // 2
            shown = self._needles("confirm", count, "fine", frames=k * k)
            found = sum(_is_found(self._located(needle, way), needle) for needle in shown)
            self._note(probes=way, found=found, needles=count)
            if found >= RIGHT * count:
                return
        self._note(probes="none", heads=())
        raise Stop

    def _located(self, needle: Needle, way: MapFrom) -> npt.NDArray[np.floating[Any]]:
        """The map of a needle, made in a way."""
        plan = self._plan(self.profile.k or GRIDS[0], probes=way)
        if way == "attention":
            overview = self._overview(needle, plan)
            assert overview.heads is not None
            return map_of_heads(overview.heads, self.profile.heads)
        self._note(overviews=self.profile.overviews + (1 if way == "when" else 2))  # fresh probes show frames twice
        selection = plan.selector.select(needle.frames, needle.question)
        return np.asarray(selection.scores)

    def close_ups(self) -> None:
        """Whether close-ups are read that the overview could not read, and where they stand."""
        k = self.profile.k or GRIDS[0]
        shown = self._needles("close-ups", NEEDLES, "fine", frames=k * k)
        among = self._right_of(shown, "small", k)
        behind = self._right_of(shown, "overview", k) if self.model.capabilities.close_ups else -1
        best: Way = "overview" if behind >= among - SLACK else "small"
        fewer = max(1, round(FEWER * k))
        enough = self._right_of(shown, best, fewer) >= (behind if best == "overview" else among)
        self._note(context=best, large=fewer if enough else k)

    def _right_of(self, shown: Sequence[Needle], way: Way, large: int) -> int:
        """How many needles are read with that many large frames, shown in this way."""
        k = self.profile.k or GRIDS[0]
        plan = self._plan(k, effort="full", context=way, frames=large).suiting(replace(self.profile, context=None))
        answers = [self._answered(needle, plan) for needle in shown]
        return sum(answer.right is True for answer in answers)

    def _answered(self, needle: Needle, plan: Plan) -> Answer:
        if not plan.close_ups:  # they go on from an overview that was read before
            self._note(overviews=self.profile.overviews + 1)
        with Session(needle.frames, setup=plan) as session:
            answer = session.ask(needle.question)
        if answer.reached.overview is not None and not plan.close_ups:
            self.exits.append((answer.reached.overview.confidence, not _is_right(answer.reached.overview, needle)))
        return answer

    def exit(self) -> None:
        """The confidence at which overviews were right; the cautious one where there are too few."""
        confidences, wrong = zip(*self.exits, strict=True)
        chosen = choose_threshold(confidences, wrong, epsilon=EPSILON, delta=DELTA).threshold
        if chosen is None:
            mistaken = any(bad and confidence >= CAUTIOUS for confidence, bad in self.exits)
            chosen = 1.0 if mistaken else CAUTIOUS
        self._note(exit=chosen)

    # What they share.

    def _plan(self, k: int, **settings: Any) -> Plan:
        """The default method with what is known so far."""
        if self.profile.small is not None:
            settings["small"] = FrameSize(max_side=self.profile.small)
        options = Options.from_preset("gridworld" if self.wording == "world" else "default", k=k, **settings)
        return replace(options.resolve(model=self.model), profile="off").loaded()

    def _choose(self, requests: Sequence[Request]) -> list[Posterior]:
        return choose(self.model, requests)


def _request(needle: Needle, frames: Sequence[int], side: int | None) -> Request:
    """The question about some frames of a needle at a size; by default full size."""
    view = View(FrameSize() if side is None else FrameSize(max_side=side))
    return Request.about(needle.question, [FrameGroup(needle.frames.take(tuple(frames)), view)])


def _is_right(posterior: Posterior, needle: Needle) -> bool:
    return posterior.choice == needle.question.answer


def _is_found(scores: npt.NDArray[np.floating[Any]], needle: Needle) -> bool:
    """Whether a frame that shows the evidence is among the best."""
    return recall(scores, needle.evidence) > 0


def chosen_heads(heads: Sequence[Heads], evidence: Sequence[Sequence[int]]) -> HeadWeights:
    """Weights by needles, unless the mean of all heads finds more of the evidence of needles left out of choosing."""
    by_weights, by_mean = 0.0, 0.0
    for place, (looks, shown) in enumerate(zip(heads, evidence, strict=True)):
        others = [number for number in range(len(heads)) if number != place]
        weights = head_weights([heads[number] for number in others], [evidence[number] for number in others])
        by_weights += recall(map_of_heads(looks, weights), shown)
        by_mean += recall(map_of_heads(looks, ()), shown)
    return head_weights(heads, evidence) if by_weights >= by_mean else ()


def recall(scores: npt.NDArray[np.floating[Any]], evidence: Sequence[int]) -> float:
    """The share of the evidence that is among the best frames."""
    best = set(np.argsort(-scores, kind="stable")[:FEW].tolist())
    return len(best.intersection(evidence)) / len(evidence)


def head_weights(heads: Sequence[Heads], evidence: Sequence[Sequence[int]]) -> HeadWeights:
    """The heads that find the evidence of needles, by the log-odds of their mean AUC; none if no head does."""
    mean = np.mean([aucs(each, shown) for each, shown in zip(heads, evidence, strict=True)], axis=0)
    weights = np.clip(np.log((mean + 1e-3) / (1 - mean + 1e-3)) - LEAST_LOG_ODDS, 0.0, None)
    best = [int(number) for number in np.argsort(-weights, kind="stable")[:MOST_HEADS] if weights[number] > 0]
    whole = float(sum(weights[number] for number in best))
    return tuple((number, round(float(weights[number]) / whole, 4)) for number in sorted(best))


def aucs(heads: Heads, evidence: Sequence[int]) -> npt.NDArray[np.float64]:
    """For each head, how likely it looks more at a frame of the evidence than at another; half for a tie."""
    shown = np.zeros(heads.shape[1], dtype=bool)
    shown[list(evidence)] = True
    mine, others = heads[:, shown, None], heads[:, None, ~shown]
    wins: npt.NDArray[np.float64] = ((mine > others) + 0.5 * (mine == others)).mean(axis=(1, 2))
    return wins


PATIENCE = 20.0
"""Seconds that a model's first question may wait for its map to be measured."""


def short_profile(model: Model) -> Profile | None:
    """Which heads make the map; None if that would take too long, which the first overview tells."""
    profiler = Profiler(model, wording_for(model))
    if profiler.seconds_of_overview() * (2 * NEEDLES) > PATIENCE:
        return None
    return profiler.measure(short=True)


def wording_for(model: Model) -> Wording:
    """Gridworld's own for the embedded models, which know no other."""
    return "world" if model.identity.startswith("embedded:") else "plain"


def steps_of(profile: Profile) -> Iterator[tuple[str, str]]:
    """What was measured, in rows for people."""
    if profile.reads is not None:
        yield "reads", f"{profile.reads:.0%} of single frames at full size"
    if profile.mass is not None:
        yield "letters", f"{profile.mass:.0%} of its probability is on the option letters"
    if profile.order_bias is not None:
        advice = "; use --set rotations=4" if profile.order_bias > BIASED else ""
        yield "order bias", f"{profile.order_bias:.0%}: how much it likes one letter where it sees no answer{advice}"
    if profile.small is not None:
        yield "small frames", f"{profile.small} px: it reads there what it reads at full size"
    if profile.k is not None:
        yield "frames in a pass", f"{profile.k**2}: needles are found in every third"
    if profile.probes is not None:
        heads = f" of {len(profile.heads)} heads" if profile.heads else ""
        yield "map", f"{profile.probes}{heads}: evidence of {profile.found} of {profile.needles} other needles found"
    if profile.context is not None:
        where = {"small": "among the small frames", "overview": "behind the overview"}[profile.context]
        yield "close-ups", f"read {where}; {profile.large} large frames are enough"
    if profile.exit is not None:
        yield "exit", f"confidence {profile.exit:g}, measured on needles and not on your questions"
    yield "took", f"{profile.overviews} overviews, {profile.seconds:.0f} s"
