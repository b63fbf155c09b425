"""Budgets hold: whatever the map, the selector and the model, no limit is exceeded, and what gave is stated."""

import random
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import gridprobe as gp
from gridprobe.allowance import Allowance
from gridprobe.backends import Scripted
from gridprobe.errors import OverBudget
from gridprobe.pace import Pace
from gridprobe.pipeline import Session
from gridprobe.settings import Settings
from gridprobe.setup import Setup, make_setup
from gridprobe.spending import Spending
from tolls import MAPS, Toll, undecodable

CASES, PARTS = 10_000, 20
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
    settings: Settings
    show_map: bool
    model: dict[str, Any]

    def toll(self) -> Toll:
        return Toll(seed=self.seed, **self.model)

    def setup(self, model: Toll, **limits: Any) -> Setup:
        setup = make_setup(model=model, selector=self.selector, settings=self.settings)
        return replace(setup, allowance=Allowance(**limits))

    def ask(self, model: Toll, **limits: Any) -> gp.Answer:
        session = Session(self.pool, setup=self.setup(model, **limits), reuse=False)
        if not limits:
            return session.ask(self.question, show_map=self.show_map)
        spending = Spending.of(session.setup, clock=lambda: model.now, paces=lambda _: model.pace)
        return session.ask_within(spending, self.question, show_map=self.show_map)


@cache
def settings_of(changes: tuple[tuple[str, Any], ...]) -> Settings:
    """Settings, which take as long to check as a question takes here."""
    return Settings.from_preset("default", **dict(changes))


def drawn_case(seed: int) -> Case:
    draw = random.Random(seed)
    names, weights = zip(*SELECTORS, strict=True)
    selector = draw.choices(names, weights)[0]
    asks_much = selector in ("frag", "q-frame", "avua", "uncertainty:4") or draw.random() < 0.6
    count = max(1, round((60 if asks_much else 400) ** draw.random()))
    gridprobe = selector == "gridprobe"
    number: Any = draw.choice([1, 3, 8, 40]) if selector in ("uniform", "random") or draw.random() < 0.2 else "auto"
    open_one = draw.random() < 0.1 and gridprobe
    changes: dict[str, Any] = {
        "k": 20,
        "frames": "auto" if selector in ("all", "all-small") else number,
        "effort": draw.choice(["quick", "auto", "full"] if open_one else ["quick", "auto", "full", "focus", None]),
        "rotations": draw.choice([1, 1, 1, 2]),
        "budget": draw.choice(["noise", "shape"]),
        "sure": 0.7,
        "probes": draw.choice(["attention", "fresh"]) if gridprobe and count < 80 else "attention",
    }
    if draw.random() < 0.3:
        changes["context"] = draw.choice(["none", "small"])
    recalls = draw.random() < 0.7
    model = {
        "kind": draw.choice(MAPS),
        "remote": not recalls,
        "recalls": recalls,
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
        "min_frames": draw.randint(1, 12),
    }
    limits = {name: values[name] for name in draw.sample(list(values), draw.choice([1, 1, 2, 3]))}
    if limits.get("min_frames", 0) > limits.get("max_frames", 1000):
        limits["max_frames"] = limits["min_frames"]
    return limits


def trace(model: Toll) -> list[Any]:
    """What a model was asked, without the frames themselves."""
    return [
        (request.sees, request.attention, [(group.frames.times, group.view) for group in request.groups])
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


@pytest.mark.parametrize("part", range(PARTS))
def test_no_limit_is_ever_exceeded_and_what_gave_is_stated(part: int) -> None:
    outcomes = {"gave": 0, "gave nothing": 0, "refused": 0}
    for seed in range(part, CASES, PARTS):
        case = drawn_case(seed)
        free, limited = case.toll(), case.toll()
        unlimited = case.ask(free)
        limits = drawn_limits(seed, free, unlimited.selection.kept)
        where = f"seed {seed}: {case.selector}, {len(case.pool)} frames, {limits}"
        try:
            answer = case.ask(limited, **limits)
        except OverBudget as error:
            assert not limited.asked, f"{where}: it was refused after something was computed"
            assert_named_limits_do(case, limits, str(error), where)
            outcomes["refused"] += 1
            continue
        assert kept_to(limits, limited, answer), where
        assert answer.cost.total.tokens == limited.tokens, f"{where}: the bill is not what was spent"
        same = trace(limited) == trace(free) and answer.selection.indices == unlimited.selection.indices
        if answer.reached.by == "focus":  # a least number of frames may be what gave
            same = same and answer.selection.kept >= min(limits.get("min_frames", 0), len(case.pool))
        assert bool(answer.reached.gave) != same, f"{where}: {answer.reached.gave}"
        assert set(answer.reached.gave) <= set(answer.warnings)
        assert not unlimited.reached.gave
        outcomes["gave nothing" if same else "gave"] += 1
    assert min(outcomes.values()) > 0, outcomes


def assert_named_limits_do(case: Case, limits: dict[str, Any], sentence: str, where: str) -> None:
    """The limits that the error names are enough."""
    named = re.findall(r"--([a-z-]+) ([0-9.e+-]+)", sentence.split("give at least")[1])
    assert named, f"{where}: {sentence}"
    enough = {name.replace("-", "_"): float(value) for name, value in named}
    raised = {**limits, **{name: int(v) if name == "max_tokens" else v for name, v in enough.items()}}
    model = case.toll()
    answer = case.ask(model, **raised)
    assert kept_to(raised, model, answer), where


def ask(model: Toll, pool: int = 144, *, question: gp.Question = QUESTION, **options: Any) -> gp.Answer:
    limits = {name: options.pop(name) for name in list(options) if name.startswith(("max_", "min_"))}
    settings = Settings.from_preset("default", **options, allowance=Allowance(**limits))
    setup = make_setup(model=model, settings=settings)
    session = Session(undecodable(pool, 640, 360), setup=setup, reuse=False)
    spending = Spending.of(session.setup, clock=lambda: model.now, paces=lambda _: model.pace)
    return session.ask_within(spending, question, show_map=False)


def test_what_gives_comes_in_the_stated_order() -> None:
    free = Toll(kind="peaked", seed=7)
    ask(free, effort="full", budget="fixed:30", max_tokens=10**9)
    shares = (1.0, 0.7, 0.55, 0.45, 0.4, 0.385, 0.37, 0.33, 0.15, 0.05, 0.005)
    said = [
        ask(
            Toll(kind="peaked", seed=7), effort="full", budget="fixed:30", max_tokens=round(share * free.tokens)
        ).reached.gave
        for share in shares
    ]
    order = [
        "frames kept",
        "other frames shown at",
        "other frames left out",
        "answered from the overview",
        "the overview shows frames at",
        "the overview shows",
    ]
    stages = [
        max((order.index(each) for each in order for text in texts if each in text), default=-1) for texts in said
    ]
    assert stages == sorted(stages) and stages[0] == -1 and stages[-1] == 5, said
    assert {0, 1, 2, 3} <= set(stages), said


def test_kept_frames_give_first_and_the_best_stay() -> None:
    model = Toll(kind="random", seed=3)
    all_of_them, fewer = (
        ask(model, effort="full", frames=30, max_tokens=10**9),
        ask(Toll(kind="random", seed=3), effort="full", frames=30, max_frames=12),
    )
    assert fewer.reached.gave == ("12 of 30 frames kept: --max-frames 12",)
    assert fewer.shown_native == 12 and fewer.selection.context == 1.0
    scores = all_of_them.selection.scores
    assert scores is not None
    best = sorted(all_of_them.selection.indices, key=lambda i: -scores[i])[:12]
    assert fewer.selection.indices == tuple(sorted(best))


def test_a_least_number_of_frames_is_kept_even_if_the_map_needs_fewer() -> None:
    few = ask(Toll(kind="peaked", seed=7), effort="full", max_tokens=10**9).selection.kept
    answer = ask(Toll(kind="peaked", seed=7), effort="full", min_frames=20)
    assert answer.shown_native == 20
    assert answer.reached.gave == (f"20 frames kept instead of {few}: --min-frames 20",)


def test_probes_that_cannot_be_paid_leave_evenly_spaced_frames() -> None:
    free = Toll(recalls=False, kind="random")
    ask(free, effort="focus", max_tokens=10**9)
    model = Toll(recalls=False, kind="random")
    answer = ask(model, effort="focus", max_tokens=free.tokens // 3)
    assert answer.selection.selector == "uniform" and answer.selection.evidence is None
    assert any(
        text.startswith("the map was left out, so evenly spaced frames were kept") for text in answer.reached.gave
    )


def test_memory_is_kept_to_by_smaller_batches_before_anything_gives() -> None:
    free, model = Toll(kind="random"), Toll(kind="random")
    ask(free, effort="full", probes="fresh", max_tokens=10**9)
    answer = ask(model, effort="full", probes="fresh", max_gpu_memory=1 + 0.7 * (free.widest - 1))
    assert model.widest <= 1 + 0.7 * (free.widest - 1)
    assert answer.reached.gave == () and len(model.asked) == len(free.asked)


def test_a_model_that_does_not_say_its_memory_is_refused() -> None:
    setup = make_setup(
        model=Scripted(lambda r: dict.fromkeys(r.labels, 1.0)), settings=Settings(allowance=Allowance(max_gpu_memory=8))
    )
    with pytest.raises(gp.errors.UsageError, match="does not say how much memory"):
        Session(undecodable(16, 64, 32), setup=setup).ask(QUESTION)


def test_an_unknown_pace_is_measured_with_two_small_passes_that_are_billed() -> None:
    model = Toll(kind="peaked")
    setup = make_setup(model=model, settings=Settings(effort="quick", allowance=Allowance(max_seconds=10.0)))
    given = undecodable(16, 64, 32)
    session = Session(given, setup=setup, reuse=False)
    paces: dict[str, Pace] = {}
    spending = Spending.of(session.setup, clock=lambda: model.now, paces=lambda name: paces.setdefault(name, Pace()))
    answer = session.ask_within(spending, QUESTION, show_map=False)
    assert [len(request.frames) for request in model.asked] == [1, 1, 16]
    assert answer.cost.total.tokens == model.tokens and answer.cost.probe.calls == 2
    assert paces["toll"].tflops / paces["toll"].seconds == pytest.approx(0.002)


def test_a_slower_machine_than_planned_is_followed() -> None:
    model = Toll(kind="random")
    hopeful = Pace(tflops=1.0, tokens=1.0, seconds=1.0)
    setup = make_setup(model=model, settings=Settings(effort="full", allowance=Allowance(max_seconds=2.0)))
    session = Session(undecodable(144, 640, 360), setup=setup, reuse=False)
    spending = Spending.of(session.setup, clock=lambda: model.now, paces=lambda _: hopeful)
    answer = session.ask_within(spending, QUESTION, show_map=False)
    assert answer.reached.by == "overview", "the overview took longer than planned, and nothing followed"
    assert hopeful.tflops / hopeful.seconds < 1.0
