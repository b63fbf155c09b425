"""What every backend promises, run over each of them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gridprobe.backends import Backend, ScoreRequest, Scripted
from gridprobe.backends.embedded import Embedded, Vocabulary
from gridprobe.flops import Cost
from gridprobe.video import FramePool, FrameSize

RNG = np.random.default_rng(0)
POOL = FramePool(RNG.integers(0, 256, (6, 64, 96, 3), dtype=np.uint8), tuple(float(i) for i in range(6)), "noise")


def request(count: int = 4, labels: str = "ABC", **changes: object) -> ScoreRequest:
    return ScoreRequest(
        POOL.take(range(count)), "Question: what?\nA. x\nB. y\nC. z", tuple(labels), FrameSize(), **changes
    )


@pytest.fixture(params=["scripted", "qwen3vl", "embedded"])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "scripted":
        return Scripted(lambda asked: {label: 1.0 + i for i, label in enumerate(asked.labels)})
    model = request.getfixturevalue("tiny_model")
    return Embedded(model, Vocabulary(frozenset()), "embedded:tiny") if request.param == "embedded" else model


def test_one_posterior_per_request_in_order(backend: Backend) -> None:
    requests = [request(4), request(1, "AB"), request(6, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), request(4)]

    posteriors = backend.score(requests)

    assert [p.labels for p in posteriors] == [r.labels for r in requests]
    assert posteriors[0].logprobs == pytest.approx(posteriors[3].logprobs, abs=1e-4)


def test_probabilities_sum_to_one_over_the_questions_own_labels(backend: Backend) -> None:
    for posterior in backend.score([request(labels="AB"), request(labels="ABCDE")]):
        assert math.fsum(posterior.probabilities.values()) == pytest.approx(1.0, abs=1e-9)
        assert posterior.confidence == max(posterior.probabilities.values())
        assert posterior.probabilities[posterior.choice] == posterior.confidence
        assert 0.0 < posterior.mass <= 1.0


def test_nothing_asked_nothing_answered(backend: Backend) -> None:
    assert backend.score([]) == []


def test_asking_twice_gives_the_same_answer(backend: Backend) -> None:
    assert backend.score([request()])[0] == backend.score([request()])[0]


def test_the_estimate_is_the_cost(backend: Backend) -> None:
    for packing in ("single", "pairs"):
        asked = request(5, packing=packing)
        spent = backend.score([asked])[0].cost
        assert replace(spent, flops_computed=spent.flops) == backend.estimate(asked)


def test_cost_counts_visual_tokens_by_packing(backend: Backend) -> None:
    single, pairs = (backend.estimate(request(5, packing=packing)) for packing in ("single", "pairs"))

    assert single.visual_tokens == 5 * 2 * 3  # five frames of 96×64: 3 × 2 tokens of 32 pixels each
    assert pairs.visual_tokens == 3 * 2 * 3  # two pairs and the odd frame, fused with itself
    assert single.calls == 1 and single.tokens > single.visual_tokens
    assert single.flops > 0 and single.flops_paper > 0
    assert isinstance(single, Cost)


def test_identity_is_a_name(backend: Backend) -> None:
    assert backend.identity and "\n" not in backend.identity
