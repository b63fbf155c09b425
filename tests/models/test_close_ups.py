"""Close-ups behind an overview: the same answer as one pass over the whole sequence, at the price of what is new."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridprobe.errors import UsageError
from gridprobe.models import FrameGroup, Request
from gridprobe.models.base import CLOSER, Capabilities, CostModel, View, choose
from gridprobe.models.local.base import LocalModel
from gridprobe.models.local.kv_cache import Store
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.openai.client import ServerOptions
from gridprobe.models.openai.requests import ImageCache, message_parts
from gridprobe.models.openai.selftest import ServerPricing, TokenRule
from gridprobe.models.qwen3vl.pricing import QWEN3_VL, price_roughly
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from gridprobe_world import embedded
from gridprobe_world.embedded import Embedded

QUESTION = Question("What colour is the triangle?", ["red", "green", "blue", "cyan"])
SMALL, LARGE = View(FrameSize(max_side=64)), View(FrameSize(max_side=128))


def pool(count: int = 9) -> FramePool:
    """Frames of noise, each of its own."""
    pixels = np.random.default_rng(7).integers(0, 256, (count, 128, 128, 3), dtype=np.uint8)
    return FramePool.from_arrays(pixels, [2.0 * number for number in range(count)])


@pytest.fixture(scope="module")
def nano() -> Embedded:
    return embedded.load("nano", dtype="float32")


def kept_by(model: Embedded) -> Store:
    assert isinstance(model.engine, LocalModel)
    return model.engine.kept


def request(kept: tuple[int, ...] = (2, 5), question: Question = QUESTION) -> Request:
    frames = pool()
    return Request.about(question, [FrameGroup(frames.take(kept), LARGE), FrameGroup(frames, SMALL)], close_ups=True)


def test_all_frames_come_first_and_close_ups_behind_them_with_their_true_times() -> None:
    shown = request()
    assert [unit.group for unit in shown.units] == [1] * 9 + [0] * 2
    assert [unit.time for unit in shown.units[-2:]] == [4.0, 10.0]
    assert shown.texts == ("",) * 9 + (CLOSER, "", "")
    assert shown.prefix_units == 9


@pytest.mark.parametrize("keep", [False, True])
def test_continuing_the_overview_equals_one_pass_over_everything(
    nano: Embedded, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    kept_by(nano).clear()
    with monkeypatch.context() as patch:
        patch.setattr(PreparedRequest, "needs_kv", False)  # so nothing is read by itself
        (fresh,) = choose(nano, [request()])
    kept_by(nano).clear()
    overview = Request.about(QUESTION, [FrameGroup(pool(), SMALL)], keep_kv=True)
    choose(nano, [overview])
    (behind,) = choose(nano, [replace(request(), keep_kv=keep)])
    np.testing.assert_allclose(behind.logprobs, fresh.logprobs, atol=1e-4)
    assert behind.cost.flops_computed < 0.6 * fresh.cost.flops_computed  # the overview was read before


def test_the_bill_is_what_is_new_and_says_what_was_reused(nano: Embedded) -> None:
    cost = nano.cost(request())
    everything = nano.cost(replace(request(), close_ups=False))
    overview = nano.cost(Request.about(QUESTION, [FrameGroup(pool(), SMALL)]))
    assert cost.flops < everything.flops
    assert cost.flops + cost.flops_reused == pytest.approx(everything.flops, rel=0.05)  # but for a line of text
    assert cost.visual_tokens == 2 * 4 * 4 and overview.visual_tokens == 9 * 2 * 2


def test_several_questions_about_the_same_close_ups_are_each_as_if_alone(nano: Embedded) -> None:
    others = [replace(QUESTION, text=text) for text in ("What colour is the circle?", "What colour is the triangle?")]
    requests = [request(question=each) for each in others] + [request((0, 1, 8))]
    together = choose(nano, requests)
    for one, each in zip(requests, together, strict=True):
        np.testing.assert_allclose(each.logprobs, choose(nano, [one])[0].logprobs, atol=1e-4)


@pytest.mark.parametrize("changes", [{"attention": True}, {"visible_frames": (0,)}, {"prompt_order": "text_first"}])
def test_close_ups_are_answered_from_all_that_is_shown(changes: Any) -> None:
    with pytest.raises(UsageError, match=r"close-ups|frames_first"):
        replace(request(), **changes)


def test_a_server_is_sent_the_overview_unchanged_and_then_the_close_ups() -> None:
    images = ImageCache()
    overview = message_parts(Request.about(QUESTION, [FrameGroup(pool(), SMALL)]), images, multiple=32)
    behind = message_parts(request(), images, multiple=32)
    assert behind[: 2 * 9] == overview[: 2 * 9]  # its prefix cache holds them
    assert behind[18:22:2] == [f"{CLOSER}\n<4.0 seconds>", "<10.0 seconds>"] and len(behind) == 2 * 11 + 1


def test_a_server_bills_the_whole_sequence() -> None:
    model = CostModel("m", Capabilities(), lambda each: price_roughly(QWEN3_VL["2B"], each))
    pricing = ServerPricing(ServerOptions(), TokenRule(overhead=10, fixed=2, per_pixel=1 / 1024, least=2), None)
    known = ServerPricing(ServerOptions(), pricing.rule, model)
    for each in (pricing, known):
        assert each.estimate(request()).tokens == each.estimate(replace(request(), close_ups=False)).tokens
