"""The models of the package: found by name, and honest about what they do not know."""

import math
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embedded_models import make_models
from gridprobe import MockModel, Question, ask, load_model
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import Request, choose
from gridprobe.models.base import SamplingParams, completions
from gridprobe.video import FramePool
from gridprobe_world.embedded import Embedded, Vocabulary
from gridprobe_world.questions import FAMILIES, ask_about, vocabulary
from gridprobe_world.world import TEST_SEEDS, generate
from scoring import shown
from ways import PUBLISHED

RNG = np.random.default_rng(0)
POOL = FramePool(RNG.integers(0, 256, (9, 64, 64, 3), dtype=np.uint8), tuple(float(i) for i in range(9)), "noise")
KNOWN = Question("What colour is the circle?", ["red", "blue", "green"])
STRANGE = Question("What colour is the dog?", ["red", "a beach"])
WORDS = Vocabulary(vocabulary())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("embedded"))


@pytest.fixture(autouse=True)
def found(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", models)


def request(question: Question = KNOWN, count: int = 4) -> Request:
    return shown(POOL.take(range(count)), question.prompt, question.labels)


def sure(implied: bool = False) -> Embedded:
    """A model with all its probability on the letters, whatever it is asked."""
    engine = MockModel(lambda asked: {label: 1.0 + (label == "B") for label in asked.labels})
    return Embedded(engine, WORDS, "embedded:test", implied=implied)


class TestLoading:
    def test_it_keeps_the_promises_of_a_backend(self) -> None:
        model = load_model("embedded", device="cpu")
        requests = [request(KNOWN, 4), request(STRANGE, 1), request(KNOWN, 9), request(KNOWN, 4)]

        posteriors = choose(model, requests)

        assert [each.labels for each in posteriors] == [each.labels for each in requests]
        assert posteriors[0].logprobs == pytest.approx(posteriors[3].logprobs, abs=1e-4)
        assert all(math.fsum(each.probabilities.values()) == pytest.approx(1.0) for each in posteriors)
        assert choose(model, []) == []
        assert model.cost(requests[0]) == posteriors[0].cost

    def test_the_name_alone_is_micro_and_the_identity_does_not_depend_on_the_folder(self, models: Path) -> None:
        identities = [load_model(name).identity for name in ("embedded", "embedded:micro", "embedded:nano")]

        assert identities[0] == identities[1]
        assert [identity.partition("@")[0] for identity in identities[1:]] == ["embedded:micro", "embedded:nano"]
        assert "float32" in identities[0] and str(models) not in identities[0]

    @pytest.mark.parametrize("name", ["embedded:giga", "embedded:", "embedded:../micro"])
    def test_other_sizes_do_not_exist(self, name: str) -> None:
        with pytest.raises(UsageError, match="embedded:micro or embedded:nano"):
            load_model(name)

    def test_a_package_without_models_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", tmp_path)

        with pytest.raises(ModelError, match=r"missing from this installation.*reinstall gridprobe, or name another"):
            load_model("embedded")

    @pytest.mark.parametrize(
        ("content", "message"), [(None, "missing from"), ("{", "cannot read"), ("[1]", "a JSON list of words")]
    )
    def test_a_model_without_its_words_is_an_error(
        self, content: str | None, message: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.copytree(models / "micro", tmp_path / "micro")
        if content is not None:
            (tmp_path / "vocabulary.json").write_text(content)
        monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", tmp_path)

        with pytest.raises(ModelError, match=message):
            load_model("embedded")


class TestUnknownWords:
    @pytest.mark.parametrize(
        ("text", "unknown"),
        [
            ("What colour is the circle?", ()),
            ("WHAT COLOUR IS THE CIRCLE", ()),
            ("What color is the dog? A dog!", ("color", "dog")),
            ("Which number is written on the circle? 7", ()),
            ("Which number is written on the circle? 12", ("12",)),
            ("What colour is the 🐶?", ("🐶",)),
            ("圆形是什么颜色?", ("圆形是什么颜色",)),
            ("B. circle", ()),
            ("B. b", ("b",)),
            ("???", ()),
        ],
    )
    def test_are_what_the_model_was_not_trained_on(self, text: str, unknown: tuple[str, ...]) -> None:
        assert sure().unknown_words(text) == unknown

    @pytest.mark.parametrize("template", ["default", "paper"])
    def test_templates_are_known_and_subtitles_are_text(self, template: str) -> None:
        many = ["red"] * 26
        plain = Question(KNOWN.text, many, template=template)
        spoken = Question(KNOWN.text, many, template=template, subtitles="the red fox")

        assert WORDS.unknown(plain.prompt) == ()
        assert WORDS.unknown(spoken.prompt) == ("fox",)

    def test_other_templates_are_strange(self) -> None:
        assert "respond" in WORDS.unknown(replace(KNOWN, template="video-mme-v2").prompt)

    def test_every_question_of_gridworld_is_known(self) -> None:
        worlds = generate(np.random.default_rng(TEST_SEEDS[0]), 50)
        asked = [ask_about(worlds, row, family, random.Random(row)) for row in range(50) for family in FAMILIES]

        assert {word for each in asked if each for word in WORDS.unknown(each.question.prompt)} == set()


class TestHonesty:
    def test_an_implied_model_refuses_what_it_does_not_know(self) -> None:
        model = sure(implied=True)

        with pytest.raises(
            UsageError, match=r'never seen "dog" and "beach"; name another .*--model or GRIDPROBE_MODEL'
        ):
            choose(model, [request(KNOWN), request(STRANGE)])
        assert choose(model, [request(KNOWN)])[0].warnings == ()

    def test_an_implied_model_refuses_where_letters_are_unlikely(self) -> None:
        model = load_model("embedded", implied=True)

        with pytest.raises(UsageError, match=r"only gridworld .* puts only \d\.\d% of its probability"):
            choose(model, [request(KNOWN)])

    def test_a_model_asked_for_answers_with_a_warning(self) -> None:
        known, strange = choose(sure(), [request(KNOWN), request(STRANGE)])

        assert known.warnings == ()
        assert strange.choice == "B"
        assert strange.warnings == ('the embedded model met "dog" and "beach", which it has never seen, and guesses',)

    @pytest.mark.parametrize("template", ["default", "paper"])
    @pytest.mark.parametrize(
        ("options", "third"),
        [(("red", "blue"), "green"), (("Blue", "not shown"), "red"), (("twice", "once"), "three times")],
    )
    def test_two_options_get_a_third_of_their_kind_behind_the_scenes(
        self, options: tuple[str, str], third: str, template: str
    ) -> None:
        prompts: list[str] = []

        def engine(request: Request) -> dict[str, float]:
            prompts.append(request.prompt)
            return dict(zip(request.labels, (0.1, 0.3, 0.6), strict=True))

        model = Embedded(MockModel(engine), WORDS, "embedded:test")
        two = request(Question(KNOWN.text, options, template=template))

        (posterior,) = choose(model, [two])

        assert prompts == [Question(KNOWN.text, (*options, third), template=template).prompt]
        assert posterior.labels == ("A", "B") and posterior.mass == pytest.approx(0.4)
        assert posterior.probabilities == pytest.approx({"A": 0.25, "B": 0.75})
        assert posterior.cost == model.cost(two)

    @pytest.mark.parametrize("options", [("red", "a beach"), ("red", "ring"), ("red", "blue", "green")])
    def test_other_questions_are_asked_as_they_are(self, options: tuple[str, ...]) -> None:
        engine = MockModel(lambda request: dict.fromkeys(request.labels, 1.0))
        question = Question(KNOWN.text, options)

        (posterior,) = choose(Embedded(engine, WORDS, "embedded:test"), [request(question)])

        assert [each.prompt for each in engine.requests] == [question.prompt] and posterior.labels == question.labels

    @pytest.mark.parametrize("template", ["default", "paper"])
    @pytest.mark.parametrize(
        ("text", "asked", "options"),
        [
            ("Is the triangle cyan?", "What colour is the triangle?", ("cyan", "red", "green", "blue", "yellow")),
            ("is the TRIANGLE cyan", "What colour is the triangle?", ("cyan", "red", "green", "blue", "yellow")),
            ("Is there an orange ring?", "What colour is the ring?", ("orange", "red", "green", "blue", "yellow")),
            ("Does the bar appear twice?", "How many times does the bar appear?", ("twice", "once", "three times")),
            ("Is sand the most common background?", "Which background is on screen longest?", ("sand", "sky", "grass")),
        ],
    )
    @pytest.mark.parametrize("words", [("yes", "no"), ("no", "yes"), ("No", "Yes")])
    def test_behind_yes_or_no_is_a_question_of_the_training(
        self, words: tuple[str, str], text: str, asked: str, options: tuple[str, ...], template: str
    ) -> None:
        prompts: list[str] = []

        def engine(request: Request) -> dict[str, float]:
            prompts.append(request.prompt)
            return {label: 3.0 if label == "A" else 1.0 for label in request.labels}

        model = Embedded(MockModel(engine), WORDS, "embedded:test", implied=True)
        two = request(Question(text, words, template=template))

        (posterior,) = choose(model, [two])

        (prompt,) = prompts
        shown = Question.from_prompt(prompt)
        assert shown.text == f"Question: {asked}" and shown.options[: len(options)] == options
        assert prompt == Question(asked, shown.options, template=template).prompt
        assert 5 <= len(shown.options) <= 8
        assert dict(zip(words, posterior.probabilities.values(), strict=True)) == pytest.approx(
            {words[0]: 0.75, words[1]: 0.25} if words[0] == "yes" else {words[0]: 0.25, words[1]: 0.75}
        )
        assert posterior.labels == ("A", "B") and posterior.mass == pytest.approx(1.0)
        assert posterior.warnings == (f"the embedded model was asked: {asked}",)
        assert posterior.cost == model.cost(two)

    @pytest.mark.parametrize(("unseen", "answer"), [(0.9, "B"), (0.1, "A")])
    def test_whether_a_shape_is_there_is_whether_its_colour_is_shown(self, unseen: float, answer: str) -> None:
        def engine(request: Request) -> dict[str, float]:
            *colours, last = request.labels
            assert f"{last}. not shown" in request.prompt
            return dict.fromkeys(colours, (1 - unseen) / len(colours)) | {last: unseen}

        model = Embedded(MockModel(engine), WORDS, "embedded:test")
        (posterior,) = choose(model, [request(Question("Is there a ring in the video?", ("yes", "no")))])

        assert posterior.choice == answer and posterior.confidence == pytest.approx(0.9)

    @pytest.mark.parametrize(("value", "answer"), [("before", "A"), ("after", "B")])
    def test_what_comes_first_is_asked_from_both_ends_so_that_a_liking_for_a_shape_cancels(
        self, value: str, answer: str
    ) -> None:
        prompts: list[str] = []

        def engine(request: Request) -> dict[str, float]:  # the ring is first, but the cross is liked more
            prompts.append(request.prompt)
            return dict(
                zip(request.labels, (0.3, 0.6, 0.1) if "first" in request.prompt else (0.1, 0.8, 0.1), strict=True)
            )

        model = Embedded(MockModel(engine), WORDS, "embedded:test", implied=True)
        two = request(Question(f"Does the ring appear {value} the cross?", ("yes", "no")))

        (posterior,) = choose(model, [two])

        options = ("ring", "cross", "not shown")
        texts = ("Which of these shapes appears first?", "Which of these shapes appears last?")
        assert prompts == [Question(text, options).prompt for text in texts]
        assert posterior.choice == answer and posterior.confidence == pytest.approx(0.8)
        assert posterior.warnings == (f"the embedded model was asked: {' '.join(texts)}",)
        assert posterior.cost == model.cost(two) and posterior.cost.calls == 2

    def test_yes_or_no_without_options_is_answered_in_words(self) -> None:
        engine = MockModel(lambda request: {label: 1.0 + 8 * (label == "A") for label in request.labels})
        model = Embedded(engine, WORDS, "embedded:test", implied=True)
        question = Question("Is the triangle cyan?")
        one, three = SamplingParams(), SamplingParams(temperature=1.0, samples=3)

        written = completions(model.run([replace(request(question), task=params) for params in (one, three)]))
        answer = ask(POOL, question, model=model, k=3)

        assert [[text.text for text in each] for each in written] == [["yes"], ["yes", "yes", "no"]]
        shares = [math.exp(text.logprob or 0.0) for each in written for text in each]
        assert shares == pytest.approx([0.9, 0.9, 0.9, 0.1])
        assert answer.text == "yes"
        assert any(each.endswith("was asked: What colour is the triangle?") for each in answer.warnings)

    @pytest.mark.parametrize(
        ("text", "options"),
        [
            ("Is there a dog?", ("yes", "no")),
            ("Is the triangle shiny?", ("yes", "no")),
            ("Does the ring appear before the ring?", ("yes", "no")),
            ("Is the triangle cyan?", ("yes", "no", "red")),
            ("Is the triangle cyan?", ("yes", "red")),
            ("What colour is the triangle?", ("yes", "no")),
            ("Is the triangle cyan or there a ring?", ()),
        ],
    )
    def test_what_is_no_yes_or_no_of_gridworld_is_refused(self, text: str, options: tuple[str, ...]) -> None:
        with pytest.raises(UsageError, match="never seen"):
            WORDS.require(Question(text, options).prompt)

    def test_the_answer_carries_the_warning_once_for_each_stage(self) -> None:
        published = ask(POOL, STRANGE, model=sure(), k=3, **PUBLISHED).warnings
        ours = ask(POOL, STRANGE, model=sure(), k=3, effort="full").warnings

        told = [
            [text.partition(" the embedded")[0] for text in each if "embedded" in text] for each in (published, ours)
        ]
        assert told == [["in 6 of 6 probes", "in the focused pass"], ["in the overview", "in the focused pass"]]

    def test_the_random_model_warns_of_unlikely_letters_too(self) -> None:
        (posterior,) = choose(load_model("embedded"), [request(STRANGE)])

        assert len(posterior.warnings) == 2 and "option letters" in posterior.warnings[1]

    def test_many_and_long_words_are_counted_and_cut(self) -> None:
        question = Question(" ".join(["x" * 99, *(f"w{i}" for i in range(9))]), ["red", "blue"])

        with pytest.raises(UsageError) as refused:
            choose(sure(implied=True), [request(question)])
        assert f'"{"x" * 20}…", "w0", "w1", "w2", "w3" and 5 other words' in str(refused.value)
