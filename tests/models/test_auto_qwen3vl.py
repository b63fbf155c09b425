"""The generic backend on Qwen3-VL equals our own engine for it, on the embedded model: letters, mass and cost."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from auto_checkpoints import new_enough
from gridprobe.models import Choose, FrameGroup, Request, View, choose
from gridprobe.models.local.kv_cache import CAUTION
from gridprobe.models.qwen3vl import cost_model as own_cost_model
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.transformers.engine import Auto, cost_model, load_engine
from gridprobe.video import FrameSize
from gridprobe_world.dataset import items, pool_of
from gridprobe_world.embedded import WEIGHTS
from scoring import load_qwen, noise_pool, shown

pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]
NANO = WEIGHTS / "nano"
POOL = noise_pool(6)


@pytest.fixture(scope="module")
def own() -> Qwen3VL:
    return load_qwen(str(NANO), device="cpu", min_letter_mass=0.0)


@pytest.fixture(scope="module")
def generic() -> Auto:
    """With the wording of times that Qwen3-VL was trained with."""

    def words(times: Sequence[float]) -> str:
        return f"<{times[0]:.1f} seconds>" if times else ""

    return load_engine("nano", NANO, device="cpu", min_letter_mass=0.0, time=words)


def requests() -> list[Request]:
    small = FrameGroup(POOL.take([0, 2, 3, 5]), View(FrameSize(max_side=64)))
    large = FrameGroup(POOL.take([1, 4]), View(FrameSize()))
    asked = items(2)
    worlds = [FrameGroup(pool_of(item, cells=9, size=64), View(FrameSize(max_side=64))) for item in asked]
    return [
        shown(POOL, "Question: what?\nA. red\nB. blue", "AB"),
        shown(noise_pool(3, width=200, height=100), "Question: ?", "ABC", pixels=FrameSize(max_side=64)),
        Request("Question: ?", Choose(("A", "B"))),
        Request("Question: ?", Choose(("A", "B", "C")), (large, small)),
        shown(POOL, "Question: ?", "AB", prompt_order="text_first"),
        shown(POOL, "Question: ?", "AB", between=("red", "", "a blue ring", "", "", "digit", "end")),
        shown(POOL, "Question: ?", "AB", timestamps="none"),
        *(Request.about(item.asked.question, (group,)) for item, group in zip(asked, worlds, strict=True)),
        shown(POOL, "Question: ?", "AB", visible_frames=(1, 4)),
        shown(POOL, "Question: ?", "AB", visible_frames=tuple(range(6))),
        Request.about(asked[0].asked.question, (large, worlds[0]), close_ups=True),
    ]


def test_letters_and_cost_equal_those_of_our_engine(own: Qwen3VL, generic: Auto) -> None:
    asked = requests()
    for ours, theirs in zip(choose(own, asked), choose(generic, asked), strict=True):
        assert list(theirs.probabilities.values()) == pytest.approx(list(ours.probabilities.values()), abs=1e-4)
        assert theirs.mass == pytest.approx(ours.mass, abs=1e-4)
    for request in asked:
        assert generic.cost(request) == own.cost(request)
    assert generic.capabilities.frame_multiple == own.capabilities.frame_multiple
    assert generic.capabilities.tokens_per_image is None


def test_what_a_question_looks_at_equals_that_of_our_engine(own: Qwen3VL, generic: Auto) -> None:
    item = items(1)[0]
    pool = pool_of(item, cells=64, size=64)
    request = replace(
        Request.about(item.asked.question, (FrameGroup(pool, View(FrameSize(max_side=64))),)), attention=True
    )
    some = [request, replace(request, visible_frames=tuple(range(0, 64, 3)))]

    for ours, theirs in zip(choose(own, some), choose(generic, some), strict=True):
        assert ours.heads is not None and len(ours.heads) > 1
        assert theirs.heads == pytest.approx(ours.heads, abs=1e-4)
        assert theirs.logprobs == pytest.approx(ours.logprobs, abs=1e-4)


def test_the_gauge_agrees_about_memory() -> None:
    ours, theirs = own_cost_model("nano", NANO), cost_model("nano", NANO)

    assert ours is not None and CAUTION == 2
    assert theirs.capabilities == replace(ours.capabilities, frame_pairs=False)
    assert ours.capabilities.kv_reuse and ours.capabilities.weight_bytes
