"""Texts at the model boundary: what may be asked, and the backends around other backends."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridprobe import MockModel
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import Choose, Model, Request, choose, cost_model_of, generate
from gridprobe.models.base import SamplingParams, cut_at, seed_of
from gridprobe.models.wrappers import CachedModel
from gridprobe_world.embedded import Embedded, Vocabulary
from scoring import cost_of_texts, noise_pool, shown
from videos_of_arrays import gray_pool, levels

BALLS = {"a red ball": 0.6, "a blue ball": 0.3, "no ball": 0.1}
DRAWN = SamplingParams(temperature=1.0, samples=200)


def asked(prompt: str = "What is it?", **changes: Any) -> Request:
    return shown(gray_pool(5), prompt, (), **changes)


def scripted() -> MockModel:
    return MockModel(lambda request: dict.fromkeys(request.labels, 1.0), text=lambda request: BALLS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": 0}, "limit and samples must be at least 1, got 0 and 1"),
        ({"samples": 0, "temperature": 1.0}, "limit and samples must be at least 1, got 64 and 0"),
        ({"temperature": -0.1}, "the temperature must be a number from 0 up, got -0.1"),
        ({"temperature": math.nan}, "the temperature must be a number from 0 up, got nan"),
        ({"temperature": math.inf}, "the temperature must be a number from 0 up, got inf"),
        ({"samples": 2}, "2 samples at temperature 0 would be the same text; raise the temperature"),
        ({"stop": "END"}, "stop must be a tuple of texts that are not empty, got 'END'"),
        ({"stop": ("",)}, "stop must be a tuple of texts that are not empty"),
    ],
)
def test_writing_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SamplingParams(**given)
    assert message in str(caught.value)


def test_the_first_stop_text_cuts() -> None:
    assert cut_at("one two three", ("three", "two")) == ("one ", True)
    assert cut_at("one", ("two",)) == ("one", False) == cut_at("one", ())


def test_seeds_differ_by_seed_prompt_and_sample() -> None:
    seeds = {
        seed_of(SamplingParams(seed=seed), prompt, n) for seed in (0, 1) for prompt in (b"a", b"b") for n in (0, 1)
    }

    assert len(seeds) == 8 and seed_of(SamplingParams(), b"a", 0) == seed_of(SamplingParams(limit=3), b"a", 0)


class TestScripted:
    def test_it_writes_the_heaviest_text_or_draws(self) -> None:
        model = scripted()

        ((greedy,),) = generate(model, [asked()], SamplingParams())
        drawn = Counter(text.text for text in generate(model, [asked()], DRAWN)[0])
        cold = Counter(text.text for text in generate(model, [asked()], replace(DRAWN, temperature=0.2))[0])

        assert greedy.text == "a red ball" and greedy.logprob == pytest.approx(math.log(0.6))
        assert set(drawn) == set(BALLS) and abs(drawn["a red ball"] - 120) < 25
        assert cold["a red ball"] > 180
        assert len(model.requests) == 3

    def test_the_function_sees_the_frames_and_memory_is_these_alone(self) -> None:
        model = MockModel(lambda _: {}, text=lambda request: {str(levels(request.frames)): 1.0})

        (every,), (some,) = generate(model, [asked(), asked(visible_frames=(1, 3))], SamplingParams())

        assert every.text == "[0, 1, 2, 3, 4]" and some.text == "[1, 3]"
        assert some.cost.flops < every.cost.flops

    def test_without_a_function_it_does_not_write(self) -> None:
        model = MockModel(lambda _: {})

        assert not model.capabilities.generates
        with pytest.raises(UsageError, match="the model scripted:scripted cannot"):
            generate(model, [asked()], SamplingParams())

    @pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": math.nan}])
    def test_weights_must_be_weights(self, weights: dict[str, float]) -> None:
        with pytest.raises(ModelError, match="weights from 0 up and one above 0"):
            generate(MockModel(lambda _: {}, text=lambda _: weights), [asked()], SamplingParams())


class TestMemo:
    def test_the_same_texts_are_written_once(self) -> None:
        model = scripted()
        memo = CachedModel(model)

        first = generate(memo, [asked(), asked("Why?")], DRAWN)
        second = generate(memo, [asked("Why?"), asked(), asked()], DRAWN)

        assert (
            second == [first[1], first[0], first[0]] == generate(scripted(), [asked("Why?"), asked(), asked()], DRAWN)
        )
        assert len(model.requests) == 2 and memo.hits == 3

    def test_other_settings_and_kinds_are_other_questions(self) -> None:
        model = scripted()
        memo = CachedModel(model)
        request = replace(asked(), task=Choose(("A", "B")))

        generate(memo, [request], SamplingParams())
        generate(memo, [request], SamplingParams(limit=5))
        choose(memo, [request])
        generate(memo, [request], SamplingParams())

        assert len(model.requests) == 3 and memo.hits == 1

    def test_it_writes_if_its_model_does(self) -> None:
        memo = CachedModel(MockModel(lambda _: {}))

        assert CachedModel(scripted()).capabilities.generates and not memo.capabilities.generates
        with pytest.raises(UsageError, match="cannot write text"):
            generate(memo, [asked()], SamplingParams())
        assert cost_of_texts(CachedModel(scripted()), asked(), [3]) == cost_of_texts(scripted(), asked(), [3])


class TestEmbedded:
    WORDS = Vocabulary(frozenset({"what", "is", "it", "a", "red", "ball"}))

    def test_unknown_words_lead_to_a_note(self) -> None:
        model = Embedded(scripted(), self.WORDS, "embedded:toy")

        (known,), (unknown,) = generate(model, [asked(), asked("What is a dog?")], SamplingParams())

        assert known.notes == () and '"dog"' in unknown.notes[0]

    def test_a_model_that_nobody_named_refuses_them(self) -> None:
        model = Embedded(scripted(), self.WORDS, "embedded:toy", implied=True)

        assert generate(model, [asked()], SamplingParams())[0][0].text == "a red ball"
        with pytest.raises(UsageError, match='has never seen "dog"'):
            generate(model, [asked("What is a dog?")], SamplingParams())

    def test_an_engine_that_does_not_write(self) -> None:
        model = Embedded(MockModel(lambda _: {}), self.WORDS, "embedded:toy")

        assert not model.capabilities.generates
        with pytest.raises(UsageError, match="cannot write text"):
            generate(model, [asked()], SamplingParams())


class TestGauge:
    def test_texts_are_as_long_as_they_may_be(self, tiny_checkpoint: Path, tiny_model: Model) -> None:
        gauged, request = cost_model_of(str(tiny_checkpoint)), shown(noise_pool(3), "What is it?", ())
        writing = SamplingParams(limit=7, temperature=1.0, samples=3)

        (texts,) = generate(gauged, [request], writing)

        assert len({text.text for text in texts}) == 3 and {text.tokens for text in texts} == {7}
        whole = sum((text.cost for text in texts[1:]), texts[0].cost)
        assert whole == cost_of_texts(tiny_model, request, [7, 7, 7])

    def test_a_released_model_is_priced_by_its_name(self) -> None:
        gauged = cost_model_of("Qwen/Qwen3-VL-2B-Instruct")

        assert gauged.capabilities.generates
        assert cost_of_texts(gauged, asked(), [64]).flops > gauged.cost(asked()).flops

    def test_a_gauge_without_prices_for_texts(self, tiny_checkpoint: Path) -> None:
        gauged = cost_model_of(str(tiny_checkpoint))
        gauged = replace(gauged, capabilities=replace(gauged.capabilities, generates=False))

        assert not gauged.capabilities.generates
        with pytest.raises(UsageError, match="is not known"):
            gauged.cost(replace(asked(), task=SamplingParams()))
