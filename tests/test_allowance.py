"""What a limit may be, how it travels, and what a meter makes of it."""

import math
from dataclasses import replace
from typing import Any

import pytest

import gridprobe as gp
from gridprobe.allowance import Allowance
from gridprobe.backends import ScoreRequest
from gridprobe.backends.metered import Claim, Meter, Metered, MeteredEncoder
from gridprobe.backends.writing import Writing
from gridprobe.errors import OverBudget, UsageError
from gridprobe.flops import Cost
from gridprobe.settings import Settings
from gridprobe.setup import make_setup
from small_selectors import encoder
from tolls import Toll
from videos_of_arrays import gray_pool

REQUEST = ScoreRequest("x" * 400, ("A", "B"))


@pytest.mark.parametrize("name", ["max_frames", "max_tokens", "min_frames"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True, "8", math.inf])
def test_counts_are_whole_numbers_above_0(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a whole number of at least 1, got"):
        Allowance(**{name: value})


@pytest.mark.parametrize("name", ["max_tflops", "max_seconds", "max_gpu_memory"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, True, "8"])
def test_amounts_are_finite_numbers_above_0(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a finite number above 0, got"):
        Allowance(**{name: value})


def test_the_least_cannot_be_more_than_the_most() -> None:
    with pytest.raises(UsageError, match="min_frames=9 is more than max_frames=8"):
        Allowance(min_frames=9, max_frames=8)


def test_no_limit_is_false_and_a_limit_is_described_as_it_is_given() -> None:
    assert not Allowance() and Allowance(max_tokens=5)
    assert Allowance(max_tokens=5, max_seconds=2.0).describe() == {"max_tokens": 5, "max_seconds": 2.0}
    assert Allowance(max_gpu_memory=2.0).flag("max_gpu_memory") == "--max-gpu-memory 2"
    assert Allowance(max_tokens=5).tightened({"max_tokens": 9, "max_tflops": 1.0}) == Allowance(
        max_tokens=5, max_tflops=1.0
    )


def test_a_setup_describes_limits_only_if_there_are_any_and_no_calibration_depends_on_them() -> None:
    settings = Settings.from_preset("default", allowance={"max_frames": 3})
    limited, free = (make_setup(model=Toll(), settings=each) for each in (settings, Settings()))
    assert limited.describe()["allowance"] == {"max_frames": 3} and "allowance" not in free.describe()
    assert limited.calibrated_for == free.calibrated_for


def test_an_unknown_limit_is_named() -> None:
    with pytest.raises(UsageError, match="the setting 'allowance' has the fields max_frames"):
        Settings.from_preset("default", allowance={"frames": 3})


def test_a_call_that_does_not_fit_is_refused_before_it_is_made() -> None:
    model = Toll()
    each = model.estimate(REQUEST).tokens
    metered = Metered(model, Meter(Allowance(max_tokens=3 * each)))
    metered.score([REQUEST, REQUEST])
    with pytest.raises(OverBudget, match=f"would exceed --max-tokens {3 * each}"):
        metered.score([REQUEST, REQUEST])
    assert len(model.asked) == 2 and metered.meter.spent.tokens == 2 * each
    metered.score([REQUEST])
    assert metered.score([]) == []


def test_what_is_reserved_is_left() -> None:
    meter = Meter(Allowance(max_tokens=10))
    with meter.reserving(Claim(tokens=6)):
        assert meter.lacking(Claim(tokens=5)) == "max_tokens" and meter.lacking(Claim(tokens=4)) is None
    assert meter.lacking(Claim(tokens=5)) is None


def test_texts_are_reserved_at_their_limit_and_paid_at_their_length() -> None:
    model = Toll()
    most = model.estimate_texts(REQUEST, [32] * 4).tokens
    writing = Writing(limit=32, samples=4, temperature=1.0)
    with pytest.raises(OverBudget):
        Metered(model, Meter(Allowance(max_tokens=most - 1))).write([REQUEST], writing)
    metered = Metered(model, Meter(Allowance(max_tokens=most)))
    metered.write([REQUEST], writing)
    assert metered.meter.spent.tokens == model.tokens < most


def test_a_server_that_bills_more_than_its_margin_is_reserved_with_what_it_billed() -> None:
    class Dear(Toll):
        def _billed(self, cost: Cost) -> Cost:
            return super()._billed(replace(cost, tokens=2 * cost.tokens))

    model = Dear(remote=True)
    metered = Metered(model, Meter(Allowance(max_tokens=10**6)))
    assert metered.excess == 1.25
    metered.score([REQUEST])
    assert 1.6 <= metered.excess <= 2.4
    assert metered.claim(REQUEST, model.estimate(REQUEST)).tokens > 1.5 * model.estimate(REQUEST).tokens


def test_operations_that_are_not_known_cannot_be_limited() -> None:
    class Unpriced(Toll):
        def estimate(self, request: ScoreRequest) -> Cost:
            return replace(super().estimate(request), unpriced=1)

    with pytest.raises(UsageError, match="so --max-tflops cannot be kept; use --max-tokens"):
        Metered(Unpriced(), Meter(Allowance(max_tflops=1.0))).score([REQUEST])


def test_an_encoder_is_paid_too() -> None:
    frames, own = gray_pool(4), encoder()
    each = own.image_cost(frames).tflops
    metered = MeteredEncoder(own, Meter(Allowance(max_tflops=1.5 * each)))
    metered.images(frames)
    with pytest.raises(OverBudget, match="--max-tflops"):
        metered.images(frames)
    assert metered.meter.spent.tflops == each


def test_a_selector_with_an_encoder_that_cannot_be_paid_leaves_evenly_spaced_frames() -> None:
    def ask(**limits: Any) -> gp.Answer:
        made = make_setup(model=Toll(), selector="clip", settings=Settings(frames=4, allowance=Allowance(**limits)))
        setup = replace(made, selector=replace(made.selector, encoder=encoder()))  # type: ignore[type-var]
        return gp.Session(gray_pool(36), setup=setup).ask(gp.Question("?", ["a", "b"]))

    free = ask()
    answer = ask(max_tflops=free.cost.focus.tflops + 0.5 * free.cost.probe.tflops)
    assert free.cost.probe.tflops > 0 and free.selection.selector == "clip"
    assert answer.selection.selector == "uniform" and answer.selection.kept == 4
    assert answer.cost.tflops <= free.cost.focus.tflops + 0.5 * free.cost.probe.tflops
    assert any("the map was left out" in text for text in answer.reached.gave)
