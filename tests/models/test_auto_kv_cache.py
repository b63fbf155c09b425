"""Every family of transformers keeps the frames it has read, goes on from them, and says what a question looks at."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForImageTextToText

import gridprobe as gp
from auto_checkpoints import TINY, new_enough, usual_of
from gridprobe.errors import UsageError
from gridprobe.models import Choose, Model, Posterior, Request, SamplingParams, choose, generate, load_model
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.transformers.attention import Watch
from gridprobe.models.transformers.engine import Auto
from gridprobe.selectors import GridProbe
from gridprobe.selectors.gridprobe import NO_ATTENTION
from scoring import noise_pool, shown

pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]
each_family = pytest.mark.parametrize("family", usual_of(TINY))
MIXING = ("qwen3_5", "minicpmv4_6")
each_softmax_family = pytest.mark.parametrize("family", usual_of(family for family in TINY if family not in MIXING))
LABELS = ("A", "B", "C")
QUESTIONS = ("Question: what?\nA. x\nB. y\nC. z", "Question: which of them is the other way round?\nA. x\nB. y\nC. z")
POOL = noise_pool(5, width=96, height=64)


@pytest.fixture
def model(family: str, auto_model: Callable[[str], Model]) -> Auto:
    found = auto_model(family)
    assert isinstance(found, Auto)
    found.kept.clear()
    return found


def about(prompt: str = QUESTIONS[0], **changes: Any) -> Request:
    return shown(POOL, prompt, LABELS, **changes)


def logprobs(posteriors: Sequence[Posterior]) -> list[float]:
    return [value for each in posteriors for value in each.logprobs]


@each_family
def test_questions_about_kept_frames_equal_fresh_ones(model: Auto) -> None:
    fresh = [about(prompt) for prompt in QUESTIONS]
    expected = logprobs([choose(model, [request])[0] for request in fresh])
    model.kept.clear()
    kept = [replace(request, keep_kv=True) for request in fresh]

    together, after, alone = choose(model, kept), choose(model, kept), [choose(model, [each])[0] for each in kept]

    for answers in (together, after, alone):
        assert logprobs(answers) == pytest.approx(expected, abs=1e-4)


@each_family
def test_a_question_in_parts_equals_the_whole(model: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    request = about(QUESTIONS[0] * 4, keep_kv=True, attention=True)
    whole = choose(model, [request])[0]
    monkeypatch.setattr("gridprobe.models.transformers.engine.most_scores", lambda device: 1)
    monkeypatch.setattr("gridprobe.models.transformers.attention.most_scores", lambda device: 1)

    parts = choose(model, [request])[0]

    assert parts.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
    assert parts.attention == pytest.approx(whole.attention, abs=1e-5)


@each_family
def test_the_map_is_the_attention_of_transformers(model: Auto, family: str, auto_folder: Callable[[str], Path]) -> None:
    request = about(attention=True)
    job = PreparedRequest(0, request, model._layout(request))
    inputs = model._inputs([(job, len(job.layout))], Counter())
    eager = AutoModelForImageTextToText.from_pretrained(
        auto_folder(family), attn_implementation="eager", dtype=torch.float32
    ).eval()
    config = eager.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    full = [number for number, kind in enumerate(kinds) if kind == "full_attention"]
    with torch.inference_mode():
        weights = eager(**inputs, output_attentions=True, use_cache=False).attentions
    weights = [each for each in weights if each is not None]
    by_layer = dict(zip(range(len(kinds)) if len(weights) == len(kinds) else full, weights, strict=True))
    layers = [number for number in full if number < len(kinds) - 1] or full
    looks = [by_layer[layer][0, :, job.layout.prefix :, : job.layout.prefix] for layer in layers]
    expected = np.stack(
        [
            np.concatenate([look[..., job.layout.owners == unit].sum(-1).amax(-1).numpy() for look in looks])
            for unit in range(len(POOL))
        ],
        axis=1,
    )

    answer = choose(model, [request])[0]

    assert answer.heads is not None and answer.heads.shape == expected.shape and len(expected) == 2 * len(layers)
    assert answer.heads == pytest.approx(expected, abs=1e-4)
    assert answer.attention == pytest.approx(expected.mean(0), abs=1e-4)
    assert answer.logprobs == pytest.approx(choose(model, [about()])[0].logprobs, abs=1e-4)
    together = choose(model, [request, replace(request, prompt=QUESTIONS[1]), about()])
    assert together[0].heads == pytest.approx(expected, abs=1e-4) and together[2].heads is None


def test_heads_of_layers_with_other_numbers_of_them_stand_in_the_order_of_layers() -> None:
    watch = Watch(torch.zeros(4, dtype=torch.long), 3, torch.tensor([2]), frozenset({1, 3}))
    watch.most = {3: torch.full((1, 4, 3), 0.3), 1: torch.full((1, 2, 3), 0.1)}

    assert watch.heads[0, :, 0].tolist() == pytest.approx([0.1] * 2 + [0.3] * 4)


@each_family
def test_a_follow_up_computes_a_twentieth_of_the_first_question(model: Auto) -> None:
    one = model.cost(shown(noise_pool(1, width=64, height=64), timestamps="none")).visual_tokens
    pool = noise_pool(min(144, 6000 // one), width=64, height=64)
    first, second = (shown(pool, prompt, LABELS, keep_kv=True) for prompt in QUESTIONS)
    counted = []
    for request in (first, second):
        with FlopCounterMode(display=False) as counter:
            answer = choose(model, [request])[0]
        counted.append((counter.get_total_flops(), answer.cost.flops_computed))

    for whole, follow_up in zip(*counted, strict=True):
        assert 0 < follow_up <= 0.05 * whole


@each_softmax_family
def test_a_text_that_sees_some_frames_sees_no_others(model: Auto) -> None:
    """Frames are mixed by attention between them, so what comes before is the same and what comes after is masked."""
    other = noise_pool(5, width=96, height=64, seed=9)
    changed = replace(POOL, data=np.concatenate([POOL.pixels[:2], other.pixels[2:]]), source="changed")

    def answers(seen: tuple[int, ...]) -> list[Posterior]:
        return choose(model, [shown(pool, QUESTIONS[0], LABELS, visible_frames=seen) for pool in (POOL, changed)])

    (one, two), (all_one, all_two) = answers((0, 1)), answers((0, 1, 2, 3, 4))

    assert one.logprobs == pytest.approx(two.logprobs, abs=1e-4)
    assert all_one.logprobs != pytest.approx(all_two.logprobs, abs=1e-3)
    assert all_one.logprobs == pytest.approx(choose(model, [about()])[0].logprobs, abs=1e-4)
    some = [about(visible_frames=seen) for seen in ((0, 1), (3,), (0, 1, 2, 3, 4))]
    for request, together in zip(some, choose(model, some), strict=True):
        assert together.logprobs == pytest.approx(choose(model, [request])[0].logprobs, abs=1e-4)


@pytest.mark.parametrize("family", MIXING)
def test_linear_attention_refuses_to_look_at_some_frames(model: Auto) -> None:
    assert not model.capabilities.masks_frames and model.capabilities.attention_map
    with pytest.raises(UsageError, match=r"^linear attention mixes what it has read, so this model cannot look at"):
        choose(model, [about(visible_frames=(1,))])


@each_softmax_family
def test_texts_after_kept_frames_equal_fresh_ones(model: Auto) -> None:
    params = SamplingParams(limit=5, temperature=1.0, samples=2, seed=3)
    requests = [about(QUESTIONS[0]), about(QUESTIONS[1]), shown(POOL.take([1, 2]), QUESTIONS[0], LABELS)]
    fresh = [[text.ids for text in texts] for texts in generate(model, requests, params)]
    model.kept.clear()

    kept = generate(model, [*(replace(each, keep_kv=True) for each in requests[:2]), requests[2]], params)

    assert [[text.ids for text in texts] for texts in kept] == fresh


@each_family
def test_a_session_locates_its_answer_by_attention(model: Auto) -> None:
    question = gp.Question("What is it?", ["red", "blue", "green"])

    with gp.Session(noise_pool(9), model=model, k=3, effort="quick") as session:
        answer = session.ask(question, show_map=True)

    assert answer.selection.evidence is not None and NO_ATTENTION not in answer.warnings
    assert answer.selection.evidence.kind in ("attention", "evidence")
    assert GridProbe(model, probes="attention").select(noise_pool(9), question).evidence is not None


def test_a_kept_prefix_is_counted_in_bytes_and_may_be_dropped(auto_model: Callable[[str], Model]) -> None:
    model = auto_model("gemma3")
    assert isinstance(model, Auto)
    model.kept.clear()
    first = choose(model, [about(keep_kv=True)])[0]
    prefix = model.kept.get(PreparedRequest(0, about(), model._layout(about())).prefix, torch.device("cpu"))
    layers = [(layer.keys, layer.values) for layer in prefix.cache.layers]

    assert prefix.nbytes >= sum(tensor.nbytes for pair in layers for tensor in pair) > 0
    assert model.kept.bytes[0] >= prefix.nbytes
    spread = replace(prefix, homes=(torch.device("meta"), *prefix.homes[1:]))
    kinds = [layer.keys.device.type for layer in spread.to(torch.device("cuda")).cache.layers]
    assert kinds[0] == "meta" and set(kinds[1:]) == {"cpu"}, "each layer where it belongs"
    assert all(layer.keys.device.type == "cpu" for layer in prefix.cpu().cache.layers)
    assert all(keys.device.type == "cpu" for keys, _ in layers)
    model.kept.clear()
    assert choose(model, [about(keep_kv=True)])[0].logprobs == pytest.approx(first.logprobs, abs=1e-5)


def test_kernels_that_cannot_be_watched_say_so(auto_folder: Callable[[str], Path]) -> None:
    model = load_model(str(auto_folder("smolvlm")), device="cpu", attn_implementation="eager")

    assert model.capabilities.kv_reuse and not model.capabilities.attention_map
    with pytest.raises(
        UsageError, match=r"^this model computes attention in a way that cannot be watched; use probes="
    ):
        choose(model, [about(attention=True)])
    assert choose(model, [Request("Question: ?", Choose(("A", "B")))])[0].labels == ("A", "B")
