"""Close-ups behind an overview in every family of transformers: the answer of one pass, at the price of what is new."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from auto_checkpoints import TINY, make_auto_checkpoint, new_enough
from gridprobe.models import (
    FrameGroup,
    Model,
    Posterior,
    Request,
    SamplingParams,
    View,
    choose,
    cost_model_of,
    generate,
    load_model,
)
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.transformers.engine import Auto
from gridprobe.models.transformers.prompt import FAMILY
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from scoring import noise_pool

pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]
ORDINARY = ("gemma3", "qwen2_5_vl", "qwen3_5")
"""Pictures that see themselves in both directions, positions in rows and columns, and linear attention."""


def each_of(families: Sequence[str]) -> pytest.MarkDecorator:
    """A few families always, the others before a release."""
    return pytest.mark.parametrize(
        "family",
        [pytest.param(family, marks=[] if family in ORDINARY else pytest.mark.release) for family in families],
    )


each_family = each_of(list(TINY))
QUESTION = Question("What colour is the triangle?", ["red", "green", "blue"])
OTHER = replace(QUESTION, text="Which of them is the other way round?")
SMALL, LARGE = View(FrameSize(max_side=64)), View(FrameSize(max_side=128))
POOL = noise_pool(5, width=128, height=96)


def behind(question: Question = QUESTION, kept: tuple[int, ...] = (1, 4), pool: FramePool = POOL) -> Request:
    """Some frames, large, behind all of them, small."""
    groups = [FrameGroup(pool.take(kept), LARGE), FrameGroup(POOL, SMALL)]
    return Request.about(question, groups, close_ups=True)


OVERVIEW = Request.about(QUESTION, [FrameGroup(POOL, SMALL)], keep_kv=True)


@pytest.fixture
def model(family: str, auto_model: Callable[[str], Model]) -> Auto:
    engine = auto_model(family)
    assert isinstance(engine, Auto)
    engine.kept.clear()
    return engine


def in_one_pass(model: Auto, request: Request) -> Posterior:
    """The answer from the whole sequence, read at once."""
    model.kept.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedRequest, "needs_kv", False)
        (posterior,) = choose(model, [request])
    model.kept.clear()
    return posterior


@each_family
def test_close_ups_behind_a_kept_overview_equal_one_pass_over_everything(model: Auto) -> None:
    fresh = in_one_pass(model, behind())
    choose(model, [OVERVIEW])

    (posterior,) = choose(model, [behind()])

    assert model.capabilities.close_ups
    assert posterior.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)
    assert posterior.cost.flops_computed == posterior.cost.flops < fresh.cost.flops_computed
    others = FramePool(255 - POOL.pixels, POOL.times, source="negative")
    changed = choose(model, [behind(pool=others)])[0]
    assert max(abs(a - b) for a, b in zip(changed.logprobs, posterior.logprobs, strict=True)) > 1e-3


@each_family
def test_several_questions_are_each_as_if_alone(model: Auto) -> None:
    requests = [behind(), behind(OTHER), behind(kept=(0, 2, 3)), OVERVIEW]
    expected = [in_one_pass(model, each).logprobs for each in requests]

    together = choose(model, requests)

    for posterior, logprobs, request in zip(together, expected, requests, strict=True):
        assert posterior.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert choose(model, [request])[0].logprobs == pytest.approx(logprobs, abs=1e-4)


@each_family
def test_long_ones_are_read_in_parts_that_cut_no_picture(model: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    request = behind(replace(QUESTION, text="What colour is the triangle? " * 9), (0, 1, 3, 4))
    fresh = in_one_pass(model, request)
    monkeypatch.setattr("gridprobe.models.transformers.engine.most_scores", lambda device: 1)
    job = PreparedRequest(0, request, model._layout(request))
    parts = list(model._parts(job, job.rest, 16))

    (posterior,) = choose(model, [request])

    assert posterior.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)
    assert [number for *_, units in parts for number in units] == list(job.behind) == [5, 6, 7, 8]
    assert len(parts) > 2 and all(end - start <= 16 or len(units) == 1 for start, end, units in parts)


@pytest.mark.release
@pytest.mark.parametrize(
    ("family", "more"), [("gemma3", {}), ("gemma4", {}), ("gemma4", {"use_bidirectional_attention": "vision"})]
)
@pytest.mark.parametrize("scores", [2**24, 1])
def test_a_window_may_be_shorter_than_the_overview(
    family: str, more: dict[str, str], scores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma's layers with a window keep only that much; the larger Gemma 4 let pictures see themselves in these."""

    tiny = TINY[family]

    def config(token: Callable[[str], int], size: int) -> dict[str, Any]:
        whole = tiny.config(token, size)
        return whole | {"text_config": whole["text_config"] | more | {"sliding_window": 40}}

    with monkeypatch.context() as patch:
        patch.setitem(TINY, family, replace(tiny, config=config))
        model = load_model(str(make_auto_checkpoint(family, tmp_path)), device="cpu")
    assert isinstance(model, Auto)
    fresh = in_one_pass(model, behind())
    choose(model, [OVERVIEW])
    monkeypatch.setattr("gridprobe.models.transformers.engine.most_scores", lambda device: scores)

    (posterior,) = choose(model, [behind()])

    assert posterior.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)


@each_family
def test_pixels_serve_where_features_cannot_be_handed_over(model: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = in_one_pass(model, behind())
    monkeypatch.setattr(model, "_reuses", False)
    choose(model, [OVERVIEW])

    (posterior,) = choose(model, [behind()])

    assert posterior.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)
    assert posterior.cost.flops_computed == posterior.cost.flops


@each_of([family for family in TINY if family != "qwen3_vl_moe"])  # torch cannot count grouped matrix products
def test_the_bill_is_what_torch_counts(model: Auto, family: str) -> None:
    """But for half of the pairs among what is new, which torch counts, and the head at every token in two families."""
    choose(model, [OVERVIEW])
    model.cost(behind())  # the vision tower is counted on pictures of a size that is new

    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        (posterior,) = choose(model, [behind()])

    rest, language = posterior.cost.tokens, model._language
    heads = (rest - 1) * language.head if family in ("video_llama_3", "minicpmv4_6") else 0
    expected = posterior.cost.flops_computed + language.pairs * rest * (rest - 1) / 2 + heads
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.02 if model._linear else 1e-6)


@each_family
def test_estimate_and_price_agree_and_say_what_is_reused(
    model: Auto, family: str, auto_folder: Callable[[str], Path]
) -> None:
    cost, overview = model.cost(behind()), model.cost(OVERVIEW)
    everything = model.cost(replace(behind(), close_ups=False))

    assert cost_model_of(str(auto_folder(family))).cost(behind()) == cost
    assert cost.visual_tokens + overview.visual_tokens == everything.visual_tokens
    assert cost.flops + cost.flops_reused == pytest.approx(everything.flops, rel=0.02)  # but for a line of text
    assert cost.flops_paper < everything.flops_paper


@each_of([family for family in TINY if FAMILY[family].writes])
def test_texts_behind_close_ups_are_those_of_one_pass(model: Auto) -> None:
    params = SamplingParams(limit=6, temperature=1.0, samples=2, seed=3)
    requests = [behind(), behind(kept=(0, 3))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedRequest, "needs_kv", False)
        fresh = [generate(model, [each], params)[0] for each in requests]
    model.kept.clear()
    choose(model, [OVERVIEW])

    texts = generate(model, requests, params)

    for some, others in zip(texts, fresh, strict=True):
        assert [each.ids for each in some] == [each.ids for each in others]
        assert [each.logprob for each in some] == pytest.approx([each.logprob for each in others], abs=1e-3)
    assert texts[0][0].cost.flops_computed < fresh[0][0].cost.flops_computed
