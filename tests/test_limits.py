"""Limits hold: whatever the map, the selector and the model, none is exceeded, and what they cut is stated."""

import math
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe.ask import Session
from gridprobe.errors import OverLimit, UsageError
from gridprobe.limits import LimitedEncoder, LimitedModel, Pace, Price, UsageLimits, UsageTracker
from gridprobe.models import Choose, Request, choose, generate
from gridprobe.models.base import Cost, SamplingParams
from gridprobe.options import Options
from gridprobe.plan import Plan
from scoring import cost_of_texts
from small_selectors import encoder
from tolls import MAPS, Toll, undecodable
from videos_of_arrays import gray_pool

CASES = 500
PAST = (878, 926, 2817)
"""Cases that failed once."""
QUESTION = gp.Question("When does it happen?", ["early", "late", "never"])
OPEN = gp.Question("What happens?")
SELECTORS = (
    ("gridprobe", 12),
    ("uniform", 2),
    ("random", 1),
    ("all", 1),
    ("all-small", 1),
    ("uniform-like", 1),
    ("frag", 1),
    ("uncertainty:4", 1),
    ("q-frame", 2),
    ("videoagent", 2),
    ("videoatlas", 1),
    ("avua", 1),
)
"""All that need no encoder and no file, and how often each is drawn."""
PRICED = ("max_tokens", "max_tflops", "max_seconds", "max_gpu_memory")


@dataclass(frozen=True)
class Case:
    """A question about a pool, without limits."""

    seed: int
    pool: gp.FramePool
    question: gp.Question
    selector: str
    settings: Options
    show_map: bool
    model: dict[str, Any]

    def toll(self) -> Toll:
        return Toll(seed=self.seed, **self.model)

    def setup(self, model: Toll, **limits: Any) -> Plan:
        setup = self.settings.resolve(model=model, selector=self.selector)
        return replace(setup, usage_limits=UsageLimits(**limits))

    def ask(self, model: Toll, **limits: Any) -> gp.Answer:
        session = Session(self.pool, setup=self.setup(model, **limits), reuse=False)
        with tracked_by(model):
            return session.ask(self.question, show_map=self.show_map)


@contextmanager
def tracked_by(model: Toll, pace: Pace | None = None) -> Iterator[None]:
    """Seconds are those of the model's own clock, and its pace is known."""
    tracker = partial(UsageTracker, clock=lambda: model.now, paces=lambda _: pace or model.pace)
    with patch.object(sys.modules["gridprobe.ask"], "UsageTracker", tracker):
        yield


@cache
def settings_of(changes: tuple[tuple[str, Any], ...]) -> Options:
    """Options, which take as long to check as a question takes here."""
    return Options.from_preset("default", **dict(changes))


def drawn_case(seed: int) -> Case:
    draw = random.Random(seed)
    names, weights = zip(*SELECTORS, strict=True)
    selector = draw.choices(names, weights)[0]
    asks_much = selector in ("frag", "q-frame", "avua", "uncertainty:4") or draw.random() < 0.6
    count = max(1, round((60 if asks_much else 400) ** draw.random()))
    gridprobe = selector == "gridprobe"
    number: Any = draw.choice([1, 3, 8, 40]) if selector in ("uniform", "random") or draw.random() < 0.2 else "auto"
    number = draw.choice(["noise", "shape"]) if number == "auto" else number
    open_one = draw.random() < 0.1 and gridprobe
    changes: dict[str, Any] = {
        "k": 20,
        "frames": "auto" if selector in ("all", "all-small") else number,
        "effort": draw.choice(["quick", "auto", "full"] if open_one else ["quick", "auto", "full", "focus", None]),
        "rotations": draw.choice([1, 1, 1, 2]),
        "exit_confidence": 0.7,
        "probes": draw.choice(["attention", "attention", "attention", "fresh"])
        if gridprobe and count < 80
        else "attention",
    }
    if draw.random() < 0.3:
        changes["context"] = draw.choice(["none", "small"])
    kv_reuse = draw.random() < 0.7
    model = {
        "kind": draw.choice(MAPS),
        "remote": not kv_reuse,
        "kv_reuse": kv_reuse,
        "confidence": draw.choice([0.5, 0.9]),
    }
    width, height = draw.choice([(64, 32), (320, 180), (1280, 720), (480, 854)])
    return Case(
        seed,
        undecodable(count, width, height),
        OPEN if open_one else QUESTION,
        selector,
        settings_of(tuple(changes.items())),
        draw.random() < 0.3,
        model,
    )


def drawn_limits(seed: int, free: Toll, kept: int) -> dict[str, Any]:
    """Limits around what the question takes without any."""
    draw = random.Random(f"limits {seed}")

    def share() -> float:
        return draw.choice([draw.uniform(0.02, 1.1), draw.uniform(0.5, 1.05), 1.0, 1.3])

    values: dict[str, Any] = {
        "max_tokens": max(1, round(share() * free.tokens)),
        "max_tflops": share() * free.flops / 1e12,
        "max_seconds": share() * free.now,
        "max_gpu_memory": 1.0 + share() * (free.widest - 1.0),
        "max_frames": draw.randint(1, kept + 3),
    }
    return {name: values[name] for name in draw.sample(list(values), draw.choice([1, 1, 2, 3]))}


def trace(model: Toll) -> list[Any]:
    """What a model was asked, without the frames themselves."""
    return [
        (request.visible_frames, request.attention, [(group.frames.times, group.view) for group in request.groups])
        for request in model.asked
    ]


def kept_to(limits: dict[str, Any], model: Toll, answer: gp.Answer | None) -> bool:
    """Whether no limit was exceeded, by the model's own books."""
    taken: dict[str, float] = {
        "max_tokens": model.tokens,
        "max_tflops": model.flops / 1e12,
        "max_seconds": model.now,
        "max_gpu_memory": model.widest,
        "max_frames": answer.shown_native if answer else 0,
    }
    return all(taken[name] <= most * (1 + 1e-12) for name, most in limits.items() if name in taken)


def test_no_limit_is_ever_exceeded_and_what_they_cut_is_stated() -> None:
    outcomes = {"cut": 0, "nothing cut": 0, "refused": 0}
    for seed in (*range(CASES), *PAST):
        case = drawn_case(seed)
        free, limited = case.toll(), case.toll()
        unlimited = case.ask(free)
        limits = drawn_limits(seed, free, unlimited.selection.kept)
        where = f"seed {seed}: {case.selector}, {len(case.pool)} frames, {limits}"
        try:
            answer = case.ask(limited, **limits)
        except OverLimit as error:
            overview = case.setup(limited).overview is not None
            assert kept_to(limits, limited, None), where
            assert not (overview and limited.asked), f"{where}: it was refused after something was computed"
            assert_named_limits_do(case, limits, str(error), where)
            outcomes["refused"] += 1
            continue
        assert kept_to(limits, limited, answer), where
        assert answer.cost.total.tokens == limited.tokens, f"{where}: the bill is not what was spent"
        same = trace(limited) == trace(free) and answer.selection.indices == unlimited.selection.indices
        assert bool(answer.reached.degraded) != same, f"{where}: {answer.reached.degraded}"
        assert set(answer.reached.degraded) <= set(answer.warnings)
        assert not unlimited.reached.degraded
        outcomes["nothing cut" if same else "cut"] += 1
    assert min(outcomes.values()) > CASES // 20, outcomes


def assert_named_limits_do(case: Case, limits: dict[str, Any], sentence: str, where: str) -> None:
    """The limits that the error names are enough."""
    named = re.findall(r"--([a-z-]+) ([0-9.e+-]+)", sentence.split("; ")[1])
    assert named, f"{where}: {sentence}"
    enough = {name.replace("-", "_"): float(value) for name, value in named}
    raised = {**limits, **{name: int(v) if name == "max_tokens" else v for name, v in enough.items()}}
    model = case.toll()
    answer = case.ask(model, **raised)
    assert kept_to(raised, model, answer), where


def ask(
    model: Toll, pool: int = 144, *, question: gp.Question = QUESTION, pace: Pace | None = None, **options: Any
) -> gp.Answer:
    limits = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    settings = Options.from_preset("default", **options, usage_limits=UsageLimits(**limits))
    session = Session(undecodable(pool, 640, 360), setup=settings.resolve(model=model), reuse=False)
    with tracked_by(model, pace):
        return session.ask(question)


def test_what_does_not_fit_is_refused_with_the_price_and_the_limit_that_is_enough() -> None:
    model = Toll()
    overview = ask(Toll(), effort="quick").cost.total.tokens
    with pytest.raises(OverLimit) as refused:
        ask(model, effort="full", max_tokens=overview - 1)
    assert str(refused.value) == (
        f"this question takes at least {overview:,} tokens, more than --max-tokens {overview - 1}; "
        f"--max-tokens {overview} is enough"
    )
    assert refused.value.limit == "max_tokens" and not model.asked
    assert ask(model, effort="full", max_tokens=overview).reached.by == "overview"


def test_the_overview_answers_if_the_focused_pass_does_not_fit_and_says_so() -> None:
    free = ask(Toll(kind="peaked", seed=7), effort="full")
    most = free.cost.total.tokens - 1
    answer = ask(Toll(kind="peaked", seed=7), effort="full", max_tokens=most)
    needed = free.cost.probe.tokens + free.cost.focus.tokens
    sentence = f"answered from the overview: a focused pass would take {needed:,} tokens more, "
    assert answer.reached.by == "overview"
    assert answer.reached.degraded == (f"{sentence}over --max-tokens {most}",)
    assert set(answer.reached.degraded) <= set(answer.warnings)


def test_a_cap_on_frames_keeps_the_most_important_and_needs_no_prices() -> None:
    model = Toll(kind="random", seed=3)
    free = ask(model, effort="full", frames=30)
    capped = ask(Toll(kind="random", seed=3), effort="full", frames=30, max_frames=12)
    assert capped.reached.degraded == ("12 of 30 frames kept: --max-frames 12",)
    scores = free.selection.scores
    assert scores is not None and capped.shown_native == 12
    best = sorted(free.selection.indices, key=lambda i: -scores[i])[:12]
    assert capped.selection.indices == tuple(sorted(best))
    setup = Options(usage_limits=UsageLimits(max_frames=12)).resolve(model=model)
    assert setup.limited(UsageTracker(setup.usage_limits)) is setup


@pytest.mark.parametrize("effort", ["auto", "quick"])
def test_a_description_keeps_to_its_limits_although_the_overview_is_sure(effort: str) -> None:
    question = gp.Question("Describe the video.")
    free = ask(Toll(confidence=0.9), question=question, effort=effort, exit_confidence=0.7)
    assert free.reached.by == "focus" and free.shown_native == 12
    assert (
        ask(Toll(confidence=0.9), question=question, effort=effort, exit_confidence=0.7, max_frames=3).shown_native == 3
    )
    most = free.cost.total.tokens
    answer = ask(Toll(confidence=0.9), question=question, effort=effort, exit_confidence=0.7, max_tokens=most - 1)
    assert answer.reached.by == "overview" and answer.cost.total.tokens < most


def test_without_an_overview_the_cheapest_focused_pass_must_fit_before_anything_runs() -> None:
    model = Toll()
    with pytest.raises(OverLimit, match="takes at least"):
        ask(model, effort="focus", max_tokens=100)
    assert not model.asked


def test_requests_are_in_memory_one_at_a_time_before_anything_is_cut() -> None:
    free, model = Toll(kind="random"), Toll(kind="random")
    ask(free, effort="full", probes="fresh")
    answer = ask(model, effort="full", probes="fresh", max_gpu_memory=1 + 0.7 * (free.widest - 1))
    assert model.widest <= 1 + 0.7 * (free.widest - 1)
    assert answer.reached.degraded == () and len(model.asked) == len(free.asked)


def test_a_model_that_does_not_say_its_memory_is_refused() -> None:
    limits = UsageLimits(max_gpu_memory=8)
    setup = Options(usage_limits=limits).resolve(model=MockModel(lambda r: dict.fromkeys(r.labels, 1.0)))
    with pytest.raises(UsageError, match="does not say how much memory"):
        Session(undecodable(16, 64, 32), setup=setup).ask(QUESTION)


def test_an_unknown_pace_refuses_nothing_and_the_answer_says_so() -> None:
    model, pace = Toll(kind="peaked"), Pace()
    answer = ask(model, 16, effort="quick", pace=pace, max_seconds=1e-9)
    assert answer.reached.degraded == () and len(model.asked) == 1
    assert any("--max-seconds 1e-09 was not checked for every pass" in text for text in answer.warnings)
    assert any("longer than planned: --max-seconds 1e-09" in text for text in answer.warnings)
    assert pace.tflops / pace.seconds == pytest.approx(0.002), "it is measured by the way"
    with pytest.raises(OverLimit, match="--max-seconds 1e-09"):
        ask(model, 16, effort="quick", pace=pace, max_seconds=1e-9)


def test_a_slower_machine_than_planned_is_followed() -> None:
    hopeful = Pace(tflops=1.0, tokens=1.0, seconds=1.0)
    answer = ask(Toll(kind="random"), effort="full", pace=hopeful, max_seconds=2.0)
    assert answer.reached.by == "overview", "the overview took longer than planned, and nothing followed"
    assert hopeful.tflops / hopeful.seconds < 1.0


# What a limit may be, and what a tracker and a limited model make of it.

REQUEST = Request("x" * 400, Choose(("A", "B")))


@pytest.mark.parametrize("name", ["max_frames", "max_tokens"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True, "8", math.inf])
def test_counts_are_whole_numbers_above_0(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a whole number of at least 1, got"):
        UsageLimits(**{name: value})


@pytest.mark.parametrize("name", ["max_tflops", "max_seconds", "max_gpu_memory"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, True, "8"])
def test_amounts_are_finite_numbers_above_0(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a finite number above 0, got"):
        UsageLimits(**{name: value})


def test_no_limit_is_false_and_a_limit_is_described_as_it_is_given() -> None:
    assert not UsageLimits() and UsageLimits(max_tokens=5)
    assert UsageLimits(max_tokens=5, max_seconds=2.0).describe() == {"max_tokens": 5, "max_seconds": 2.0}
    assert UsageLimits(max_gpu_memory=2.0).flag("max_gpu_memory") == "--max-gpu-memory 2"
    assert UsageLimits(max_tokens=5).tightened({"max_tokens": 9, "max_tflops": 1.0}) == UsageLimits(
        max_tokens=5, max_tflops=1.0
    )


def test_a_setup_describes_limits_only_if_there_are_any_and_no_calibration_depends_on_them() -> None:
    settings = Options.from_preset("default", usage_limits={"max_frames": 3})
    limited, free = (each.resolve(model=Toll()) for each in (settings, Options()))
    assert limited.describe()["usage_limits"] == {"max_frames": 3} and "usage_limits" not in free.describe()
    assert limited.calibrated_for == free.calibrated_for


def test_an_unknown_limit_is_named() -> None:
    with pytest.raises(UsageError, match="usage_limits must be an object with max_frames"):
        Options.from_preset("default", usage_limits={"frames": 3})


def test_a_call_that_does_not_fit_is_refused_before_it_is_made() -> None:
    model = Toll()
    each = model.cost(REQUEST).tokens
    tracker = UsageTracker(UsageLimits(max_tokens=3 * each))
    limited = LimitedModel(model, tracker)
    choose(limited, [REQUEST, REQUEST])
    with pytest.raises(OverLimit, match=f"at least {4 * each:,} tokens, more than --max-tokens {3 * each}; "):
        choose(limited, [REQUEST, REQUEST])
    assert len(model.asked) == 2 and tracker.spent.tokens == 2 * each
    choose(limited, [REQUEST])
    assert choose(limited, []) == []


def test_what_is_reserved_is_left() -> None:
    tracker = UsageTracker(UsageLimits(max_tokens=10))
    with tracker.reserving(Price(tokens=6)):
        assert tracker.over(Price(tokens=5)) == ["max_tokens"] and not tracker.over(Price(tokens=4))
    assert not tracker.over(Price(tokens=5))


def test_a_limit_that_is_reached_exactly_is_not_exceeded_by_rounding() -> None:
    tracker = UsageTracker(UsageLimits(max_tflops=0.3))
    assert 0.1 + 0.2 > 0.3 and not tracker.over(Price(tflops=0.1) + Price(tflops=0.2))


def test_every_limit_that_is_exceeded_is_named() -> None:
    tracker = UsageTracker(UsageLimits(max_tokens=10, max_tflops=1.0, max_gpu_memory=8))
    with pytest.raises(OverLimit) as refused:
        tracker.require(Price(tokens=20_000, tflops=1.2345), enough=Price(tokens=30_000, tflops=2.0, memory=9))
    assert str(refused.value) == (
        "this question takes at least 20,000 tokens and 1.24 TFLOPs, more than --max-tokens 10 and --max-tflops 1; "
        "--max-tokens 30000 --max-tflops 2 --max-gpu-memory 9 is enough"
    )


def test_texts_are_priced_at_their_limit_and_counted_at_their_length() -> None:
    model = Toll()
    most = cost_of_texts(model, REQUEST, [32] * 4).tokens
    writing = SamplingParams(limit=32, samples=4, temperature=1.0)
    with pytest.raises(OverLimit):
        generate(LimitedModel(model, UsageTracker(UsageLimits(max_tokens=most - 1))), [REQUEST], writing)
    tracker = UsageTracker(UsageLimits(max_tokens=most))
    generate(LimitedModel(model, tracker), [REQUEST], writing)
    assert tracker.spent.tokens == model.tokens < most


def test_a_server_that_bills_more_than_its_margin_is_priced_with_what_it_billed() -> None:
    class Dear(Toll):
        def _billed(self, cost: Cost) -> Cost:
            return super()._billed(replace(cost, tokens=2 * cost.tokens))

    model = Dear(remote=True)
    limited = LimitedModel(model, UsageTracker(UsageLimits(max_tokens=10**6), paces=lambda _: Pace()))
    assert limited.excess == 1.25
    choose(limited, [REQUEST])
    assert 1.6 <= limited.excess <= 2.4
    assert limited.price(REQUEST).tokens > 1.5 * model.cost(REQUEST).tokens


def test_operations_that_are_not_known_cannot_be_limited() -> None:
    class Unpriced(Toll):
        def cost(self, request: Request) -> Cost:
            return replace(super().cost(request), unpriced=1)

    with pytest.raises(UsageError, match="so --max-tflops cannot be kept; use --max-tokens"):
        choose(LimitedModel(Unpriced(), UsageTracker(UsageLimits(max_tflops=1.0))), [REQUEST])


def test_an_encoder_counts_too() -> None:
    frames, own = gray_pool(4), encoder()
    each = own.image_cost(frames).tflops
    tracker = UsageTracker(UsageLimits(max_tflops=1.5 * each))
    limited = LimitedEncoder(own, tracker)
    limited.images(frames)
    with pytest.raises(OverLimit, match="--max-tflops"):
        limited.images(frames)
    assert tracker.spent.tflops == each


@pytest.mark.parametrize("effort", ["focus", "full"])
def test_a_selector_with_an_encoder_is_priced_before_it_runs(effort: str) -> None:
    def ask(**limits: Any) -> gp.Answer:
        settings = Options(frames=4, effort=effort, usage_limits=UsageLimits(**limits))  # type: ignore[arg-type]
        made = settings.resolve(model=Toll(), selector="clip")
        setup = replace(made, selector=replace(made.selector, encoder=encoder()))  # type: ignore[type-var]
        return gp.Session(gray_pool(36), setup=setup).ask(gp.Question("?", ["a", "b"]))

    free = ask()
    assert free.cost.probe.tflops > 0 and free.selection.selector == "clip"
    assert ask(max_tflops=free.cost.tflops).selection.indices == free.selection.indices
    if effort == "focus":
        with pytest.raises(OverLimit, match=r"this question takes at least .* TFLOPs"):
            ask(max_tflops=0.99 * free.cost.tflops)
    else:
        answer = ask(max_tflops=0.99 * free.cost.tflops)
        assert answer.reached.by == "overview" and answer.cost.tflops == free.cost.overview.tflops
