"""Texts at the model boundary: what may be asked, and the backends around other backends."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridprobe.errors import ModelError, UsageError
from gridprobe.models import MockModel, Model, Request, cost_model_of, writer, writes
from gridprobe.models.base import SamplingParams, cut_at, seed_of
from gridprobe.models.wrappers import CachedModel
from gridprobe_world.embedded import Embedded, Vocabulary
from scoring import noise_pool, shown
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

        ((greedy,),) = model.write([asked()], SamplingParams())
        drawn = Counter(text.text for text in model.write([asked()], DRAWN)[0])
        cold = Counter(text.text for text in model.write([asked()], replace(DRAWN, temperature=0.2))[0])

        assert greedy.text == "a red ball" and greedy.logprob == pytest.approx(math.log(0.6))
        assert set(drawn) == set(BALLS) and abs(drawn["a red ball"] - 120) < 25
        assert cold["a red ball"] > 180
        assert len(model.requests) == 3

    def test_the_function_sees_the_frames_and_memory_is_these_alone(self) -> None:
        model = MockModel(lambda _: {}, text=lambda request: {str(levels(request.frames)): 1.0})

        (every,), (some,) = model.write([asked(), asked(sees=(1, 3))], SamplingParams())

        assert every.text == "[0, 1, 2, 3, 4]" and some.text == "[1, 3]"
        assert some.cost.flops < every.cost.flops

    def test_without_a_function_it_does_not_write(self) -> None:
        model = MockModel(lambda _: {})

        assert not writes(model)
        with pytest.raises(UsageError, match="the model scripted:scripted cannot"):
            writer(model)
        with pytest.raises(UsageError, match="no function for text"):
            model.write([asked()], SamplingParams())

    @pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": math.nan}])
    def test_weights_must_be_weights(self, weights: dict[str, float]) -> None:
        with pytest.raises(ModelError, match="weights from 0 up and one above 0"):
            MockModel(lambda _: {}, text=lambda _: weights).write([asked()], SamplingParams())


class TestMemo:
    def test_the_same_texts_are_written_once(self) -> None:
        model = scripted()
        memo = CachedModel(model)

        first = memo.write([asked(), asked("Why?")], DRAWN)
        second = memo.write([asked("Why?"), asked(), asked()], DRAWN)

        assert second == [first[1], first[0], first[0]] == scripted().write([asked("Why?"), asked(), asked()], DRAWN)
        assert len(model.requests) == 2 and memo.hits == 3

    def test_other_settings_and_kinds_are_other_questions(self) -> None:
        model = scripted()
        memo = CachedModel(model)
        request = replace(asked(), labels=("A", "B"))

        memo.write([request], SamplingParams())
        memo.write([request], SamplingParams(limit=5))
        memo.score([request])
        memo.write([request], SamplingParams())

        assert len(model.requests) == 3 and memo.hits == 1

    def test_it_writes_if_its_model_does(self) -> None:
        memo = CachedModel(MockModel(lambda _: {}))

        assert writes(CachedModel(scripted())) and not writes(memo)
        with pytest.raises(UsageError, match="cannot write text"):
            memo.write([asked()], SamplingParams())
        assert CachedModel(scripted()).estimate_texts(asked(), [3]) == scripted().estimate_texts(asked(), [3])


class TestEmbedded:
    WORDS = Vocabulary(frozenset({"what", "is", "it", "a", "red", "ball"}))

    def test_unknown_words_lead_to_a_note(self) -> None:
        model = Embedded(scripted(), self.WORDS, "embedded:toy")

        (known,), (unknown,) = model.write([asked(), asked("What is a dog?")], SamplingParams())

        assert known.notes == () and '"dog"' in unknown.notes[0]

    def test_a_model_that_nobody_named_refuses_them(self) -> None:
        model = Embedded(scripted(), self.WORDS, "embedded:toy", implied=True)

        assert model.write([asked()], SamplingParams())[0][0].text == "a red ball"
        with pytest.raises(UsageError, match='has never seen "dog"'):
            model.write([asked("What is a dog?")], SamplingParams())

    def test_an_engine_that_does_not_write(self) -> None:
        model = Embedded(MockModel(lambda _: {}), self.WORDS, "embedded:toy")

        assert not writes(model)
        with pytest.raises(UsageError, match="cannot write text"):
            model.write([asked()], SamplingParams())


class TestGauge:
    def test_texts_are_as_long_as_they_may_be(self, tiny_checkpoint: Path, tiny_model: Model) -> None:
        gauged, request = cost_model_of(str(tiny_checkpoint)), shown(noise_pool(3), "What is it?", ())
        writing = SamplingParams(limit=7, temperature=1.0, samples=3)

        (texts,) = gauged.write([request], writing)

        assert len({text.text for text in texts}) == 3 and {text.tokens for text in texts} == {7}
        whole = sum((text.cost for text in texts[1:]), texts[0].cost)
        assert whole == writer(tiny_model).estimate_texts(request, [7, 7, 7])

    def test_a_released_model_is_priced_by_its_name(self) -> None:
        gauged = cost_model_of("Qwen/Qwen3-VL-2B-Instruct")

        assert writes(gauged)
        assert gauged.estimate_texts(asked(), [64]).flops > gauged.estimate(asked()).flops

    def test_a_gauge_without_prices_for_texts(self, tiny_checkpoint: Path) -> None:
        gauged = replace(cost_model_of(str(tiny_checkpoint)), texts=None)

        assert not writes(gauged)
        with pytest.raises(UsageError, match="is not known"):
            gauged.write([asked()], SamplingParams())
