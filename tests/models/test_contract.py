"""What every backend promises, run over each of them."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from auto_checkpoints import TINY, USUAL, new_enough
from fake_server import Fake, Open, as_request, spoken_by, written_by
from gridprobe import MockModel
from gridprobe.errors import UsageError
from gridprobe.models import (
    Choose,
    Completion,
    FrameGroup,
    Model,
    Packing,
    Request,
    SamplingParams,
    View,
    choose,
    generate,
    load_model,
)
from gridprobe.models.base import Cost
from gridprobe.models.transformers.prompt import FAMILY
from gridprobe.registry import FAMILIES, MODELS
from gridprobe.video import FramePool, FrameSize
from gridprobe_world.embedded import Embedded, Vocabulary
from scoring import cost_of_texts, shown

RNG = np.random.default_rng(0)
POOL = FramePool(RNG.integers(0, 256, (6, 64, 96, 3), dtype=np.uint8), tuple(float(i) for i in range(6)), "noise")


pytestmark = pytest.mark.usefixtures("one_thread")
PROMPT = "Question: what?\nA. x\nB. y\nC. z"


def request(count: int = 4, labels: str = "ABC", packing: Packing = "single") -> Request:
    return shown(POOL.take(range(count)), PROMPT, labels, packing=packing)


def several(packing: Packing = "single") -> Request:
    """Two frames as they are among four small ones."""
    small = FrameGroup(POOL.take([0, 2, 3, 5]), View(FrameSize(max_side=64), packing))
    large = FrameGroup(POOL.take([1, 4]), View(FrameSize(), packing))
    return Request(PROMPT, Choose(("A", "B", "C")), (large, small))


NOTHING = Request(PROMPT, Choose(("A", "B", "C")))


PARAMETERS = [
    pytest.param(name, marks=[new_enough, *([] if name in USUAL else [pytest.mark.release])] if name in TINY else ())
    for name in ("scripted", *MODELS, *FAMILIES)
]


@pytest.fixture(params=PARAMETERS)
def backend(
    request: pytest.FixtureRequest,
    tiny_checkpoint: Path,
    tiny_model: Model,
    auto_model: Callable[[str], Model],
    open_server: Open,
) -> Model:
    """Every backend and model family there is; whoever adds one adds a way to build a small one."""
    served = Fake(
        voice=spoken_by(tiny_model),
        prose=written_by(tiny_model),
        count=lambda heard: tiny_model.cost(as_request(heard)).tokens,
    )
    known: dict[str, Callable[[], Model]] = {
        "scripted": lambda: MockModel(
            lambda asked: {label: 1.0 + i for i, label in enumerate(asked.labels)},
            text=lambda asked: {f"{asked.prompt} It is {what}.": 1.0 for what in ("a red ball", "a cat", "a door")},
        ),
        "embedded": lambda: Embedded(tiny_model, Vocabulary(frozenset()), "embedded:tiny"),
        "checkpoint": lambda: load_model(f"checkpoint:{tiny_checkpoint}", device="cpu"),
        "qwen3_vl": lambda: tiny_model,
        "server": lambda: open_server(served, priced_as=str(tiny_checkpoint)),
        **{family: partial(auto_model, family) for family in TINY},
    }
    assert request.param in known, f"there is no small model of {request.param} to test it with: add one here"
    return known[request.param]()


def test_one_posterior_per_request_in_order(backend: Model) -> None:
    requests = [request(4), request(1, "AB"), NOTHING, several(), request(6, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), request(4)]

    posteriors = choose(backend, requests)

    assert [p.labels for p in posteriors] == [r.labels for r in requests]
    assert posteriors[0].logprobs == pytest.approx(posteriors[-1].logprobs, abs=1e-4)


# Q02 of tests/reliability.md
def test_probabilities_sum_to_one_over_the_questions_own_labels(backend: Model) -> None:
    for posterior in choose(backend, [request(labels="AB"), request(labels="ABCDE")]):
        assert math.fsum(posterior.probabilities.values()) == pytest.approx(1.0, abs=1e-9)
        assert posterior.confidence == max(posterior.probabilities.values())
        assert posterior.probabilities[posterior.choice] == posterior.confidence
        assert 0.0 < posterior.mass <= 1.0


def test_nothing_asked_nothing_answered(backend: Model) -> None:
    assert choose(backend, []) == []


def test_asking_twice_gives_the_same_answer(backend: Model) -> None:
    first, second = choose(backend, [request()])[0], choose(backend, [request()])[0]

    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-6) and first.choice == second.choice
    assert first.cost.flops == second.cost.flops >= second.cost.flops_computed


def test_the_estimate_is_the_cost(backend: Model) -> None:
    pairs = (request(5, packing="pairs"), several("pairs")) if backend.capabilities.frame_pairs else ()
    for asked in (request(5), several(), *pairs, NOTHING):
        spent = choose(backend, [asked])[0].cost
        assert replace(spent, flops_computed=spent.flops) == backend.cost(asked)


def test_cost_counts_visual_tokens(backend: Model) -> None:
    five, one = backend.cost(request(5)), backend.cost(request(1))

    assert five.visual_tokens == 5 * one.visual_tokens > 0
    assert five.calls == 1 and five.tokens > five.visual_tokens
    assert five.flops > 0 and five.flops_paper > 0
    assert isinstance(five, Cost)
    assert backend.cost(NOTHING).visual_tokens == 0


def test_the_multiple_decides_how_many_tokens_a_frame_has(backend: Model) -> None:
    fixed = backend.capabilities.tokens_per_image
    small = backend.cost(several()).visual_tokens

    if fixed is None:
        side = backend.capabilities.frame_multiple
        tall = round(64 * 64 / 96 / side)  # small ones are 64 wide, and so high, in tokens
        assert backend.cost(request(1)).visual_tokens == (96 // side) * (64 // side)
        assert small == 2 * (96 // side) * (64 // side) + 4 * (64 // side) * tall
    else:
        assert small == 6 * backend.cost(request(1)).visual_tokens


def test_pairs_are_fused_or_refused(backend: Model) -> None:
    pairs = request(5, packing="pairs")
    if not backend.capabilities.frame_pairs:
        with pytest.raises(UsageError, match=r'^this model cannot fuse frames in pairs; use packing="single"'):
            choose(backend, [pairs])
        with pytest.raises(UsageError, match=r'^this model cannot fuse frames in pairs; use packing="single"'):
            backend.cost(pairs)
        return
    assert backend.cost(pairs).visual_tokens == 3 * 2 * 3  # two pairs and the odd frame, fused with itself


def test_frames_of_several_sizes_together_equal_each_alone(backend: Model) -> None:
    requests = [several(), request(3), NOTHING, *([several("pairs")] if backend.capabilities.frame_pairs else [])]

    together = choose(backend, requests)

    for a, single in zip(together, requests, strict=True):
        assert a.logprobs == pytest.approx(choose(backend, [single])[0].logprobs, abs=1e-4)


def test_identity_is_a_name(backend: Model) -> None:
    assert backend.identity and "\n" not in backend.identity


OPEN = "Describe what happens."
GREEDY, DRAWN = SamplingParams(limit=10), SamplingParams(limit=10, temperature=1.0, samples=3, seed=4)


def open_requests() -> list[Request]:
    return [
        replace(each, prompt=f"{OPEN} {n}", task=Choose(())) for n, each in enumerate((request(4), several(), NOTHING))
    ]


def told(texts: tuple[Completion, ...]) -> list[tuple[str, int, bool]]:
    return [(text.text, text.tokens, text.finished) for text in texts]


WRITERS = [each for each in PARAMETERS if (name := each.values[0]) not in FAMILY or FAMILY[str(name)].writes]
each_writer = pytest.mark.parametrize("backend", WRITERS, indirect=True)


def test_it_writes_unless_its_family_cannot(request: pytest.FixtureRequest, backend: Model) -> None:
    assert backend.capabilities.generates == (
        request.node.callspec.params["backend"] in [each.values[0] for each in WRITERS]
    )
    if not backend.capabilities.generates:
        with pytest.raises(UsageError, match="cannot write text; give the question options"):
            generate(backend, open_requests(), GREEDY)


def test_open_requests_are_not_scored(backend: Model) -> None:
    with pytest.raises(UsageError, match="a request without labels cannot be scored"):
        choose(backend, open_requests())


@each_writer
@pytest.mark.parametrize("writing", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_texts_are_the_same_again_and_in_any_company(backend: Model, writing: SamplingParams) -> None:
    model = backend
    together = generate(model, open_requests(), writing)

    assert [len(texts) for texts in together] == [writing.samples] * 3
    for asked, texts in zip(open_requests(), together, strict=True):
        assert told(generate(model, [asked], writing)[0]) == told(texts) == told(generate(model, [asked], writing)[0])


@each_writer
def test_nothing_asked_nothing_written(backend: Model) -> None:
    assert generate(backend, [], GREEDY) == []


@each_writer
@pytest.mark.parametrize("limit", [1, 4])
def test_the_limit_is_respected(backend: Model, limit: int) -> None:
    model = backend
    for (whole,), (cut,) in zip(
        generate(model, open_requests(), GREEDY),
        generate(model, open_requests(), SamplingParams(limit=limit)),
        strict=True,
    ):
        assert 1 <= cut.tokens <= limit and (cut.tokens == limit or cut.finished)
        assert whole.tokens <= GREEDY.limit and (cut.finished or whole.tokens > limit or not whole.finished)


@each_writer
def test_a_stop_text_is_honoured(backend: Model) -> None:
    model = backend
    asked = next(each for each in open_requests() if len(generate(model, [each], GREEDY)[0][0].text) > 3)
    text = generate(model, [asked], GREEDY)[0][0].text
    stop = text[len(text) // 2 :][:2].strip()

    (stopped,) = generate(model, [asked], replace(GREEDY, stop=(stop,)))[0]

    assert stopped.finished and stopped.text == text[: text.index(stop)].strip()


@each_writer
def test_a_text_s_logprob_is_one(backend: Model) -> None:
    for texts in generate(backend, open_requests(), DRAWN):
        assert all(text.logprob is not None and text.logprob < 0 for text in texts)


@each_writer
def test_costs_of_texts_are_positive_and_add_up(backend: Model) -> None:
    model = backend
    for asked, texts in zip(open_requests(), generate(model, open_requests(), DRAWN), strict=True):
        whole = sum((text.cost for text in texts[1:]), texts[0].cost)
        expected = cost_of_texts(model, asked, [text.tokens for text in texts])

        assert replace(whole, flops_computed=expected.flops) == expected
        assert whole.calls == 1 and whole.tokens == model.cost(asked).tokens + sum(text.tokens for text in texts)
        assert texts[0].cost.flops >= model.cost(asked).flops > 0
        assert all(text.cost.tokens == text.tokens > 0 for text in texts[1:])
        assert all(text.cost.flops > 0 and text.cost.flops_paper > 0 for text in texts if text.tokens > 1)
        assert cost_of_texts(model, asked, [5]).flops > cost_of_texts(model, asked, [4]).flops
