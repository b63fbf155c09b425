"""Texts of the generic backend: those of transformers' own `generate`, in every family that writes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from auto_checkpoints import TINY, new_enough, usual_of
from gridprobe.errors import UsageError
from gridprobe.models import FrameGroup, Model, Request, View, cost_model_of, generate
from gridprobe.models.base import SamplingParams
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.transformers.engine import Auto
from gridprobe.models.transformers.prompt import FAMILY
from gridprobe.video import FramePool, FrameSize
from scoring import cost_of_texts, shown

pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]
PIXELS = np.random.default_rng(1).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
POOL = FramePool(PIXELS, (0.0, 12.25, 3600.5), source="noise")
LIMIT = 12
DRAWN = SamplingParams(limit=5, temperature=0.9, samples=3, seed=3)
WRITERS = [family for family in TINY if FAMILY[family].writes]
each_writer = pytest.mark.parametrize("family", usual_of(WRITERS))


def requests() -> list[Request]:
    small = FrameGroup(POOL.take([0, 2]), View(FrameSize(max_side=64)))
    return [
        shown(POOL, "What happens?", ()),
        Request("Why?", groups=(*[FrameGroup(POOL.take([1]), View(FrameSize())), small],)),
        Request("Who is it that comes in through the door?"),
        shown(POOL.take([1]), "Where?", (), timestamps="none"),
        shown(POOL.take([0, 1]), "When?", (), prompt_order="text_first"),
    ]


@pytest.fixture
def model(family: str, auto_model: Callable[[str], Model]) -> Auto:
    found = auto_model(family)
    assert isinstance(found, Auto)
    return found


@torch.inference_mode()
def generated(model: Auto, request: Request) -> list[int]:
    layout = model._layout(request)
    given = model._inputs([(PreparedRequest(0, request, layout), len(layout))], Counter())
    out = model._model.generate(
        **given,
        max_new_tokens=LIMIT,
        do_sample=False,
        eos_token_id=list(model._generator.ends),
        pad_token_id=model._filler,
    )
    found: list[int] = out[0, given["input_ids"].shape[1] :].tolist()
    return found


@torch.inference_mode()
def logprob_of(model: Auto, request: Request, tokens: Sequence[int]) -> float:
    """The log-probability of a text's tokens, from one pass without a cache; all tokens that end it count as one."""
    layout, ends = model._layout(request), model._generator.ends
    longer = replace(layout, ids=np.concatenate([layout.ids, np.array(tokens, dtype=np.int64)]))
    logits = model._model(
        **model._inputs([(PreparedRequest(0, request, longer), len(longer))], Counter()), use_cache=False
    ).logits[0]
    rows = zip(tokens, logits[-len(tokens) - 1 : -1].double().log_softmax(-1), strict=True)
    return sum(float(row[list(ends if token in ends else [token])].logsumexp(-1)) for token, row in rows)


@each_writer
def test_every_token_is_that_of_generate(model: Auto) -> None:
    together = generate(model, requests(), SamplingParams(limit=LIMIT))

    for request, (written,) in zip(requests(), together, strict=True):
        assert list(written.ids) == generated(model, request)
    assert len({written.ids for (written,) in together}) > 2


@each_writer
def test_logprobs_are_those_of_a_pass_without_a_cache(model: Auto) -> None:
    for request, (written,) in zip(requests(), generate(model, requests(), SamplingParams(limit=LIMIT)), strict=True):
        assert written.logprob == pytest.approx(logprob_of(model, request, written.ids), abs=1e-3)


@pytest.mark.parametrize("family", ["internvl", "llava_onevision", "smolvlm"])
def test_a_seed_decides_and_company_does_not(model: Auto) -> None:
    together = generate(model, requests(), DRAWN)

    for request, texts in zip(requests(), together, strict=True):
        assert [text.ids for text in generate(model, [request], DRAWN)[0]] == [text.ids for text in texts]
        assert len({text.ids for text in texts}) == 3


@each_writer
def test_costs_add_up_to_the_estimate(model: Auto, family: str, auto_folder: Callable[[str], Path]) -> None:
    request = requests()[0]
    (texts,) = generate(model, [request], DRAWN)
    whole = sum((text.cost for text in texts[1:]), texts[0].cost)
    counts = [text.tokens for text in texts]

    expected = cost_of_texts(model, request, counts)

    assert replace(whole, flops_computed=expected.flops_computed) == expected
    assert texts[1].cost.calls == 0 and texts[1].cost.flops < 0.2 * texts[0].cost.flops
    gauged = cost_model_of(str(auto_folder(family)))
    assert cost_of_texts(gauged, request, counts) == expected


@pytest.mark.parametrize("family", [family for family in TINY if family not in WRITERS])
def test_linear_attention_does_not_write(
    family: str, auto_model: Callable[[str], Model], auto_folder: Callable[[str], Path]
) -> None:
    model = auto_model(family)
    assert isinstance(model, Auto) and not model.capabilities.generates
    gauged = cost_model_of(str(auto_folder(family)))
    assert not gauged.capabilities.generates

    with pytest.raises(UsageError, match=r"cannot write text; give the question options"):
        generate(model, requests(), DRAWN)
