"""Open questions through the pipeline: what is written, when candidates are chosen among, and what the answer says."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import gridprobe as gp
from gridprobe.models import Completion, Model, Request
from gridprobe.models.mock import MockModel
from gridprobe.open_ended import ABSENT, NOTHING, PRESENT, lettered
from gridprobe.video import FramePool

SCHEMA = json.loads((Path(gp.__file__).parent / "schemas" / "answer.json").read_text())
RED = 7
SURE, TORN, BLIND = {"red": 0.995, "blue": 0.005}, {"red": 0.4, "blue": 0.35, "green": 0.25}, {"blue": 0.6, "red": 0.4}


@pytest.fixture
def pool() -> FramePool:
    """16 dark frames, of which one is red."""
    pixels = np.full((16, 640, 640, 3), 20, dtype=np.uint8)
    pixels[RED, ..., 0] = 250
    return FramePool(pixels, tuple(float(i) for i in range(16)), source="test:drafting")


def large(request: Request) -> bool:
    """Whether the request shows a frame at full size: the overview shows all frames in one group."""
    return len(request.groups) > 1 or len(request.groups[0].frames) < 16


def model(overview: Mapping[str, float], focus: Mapping[str, float], letters: str = "A", **more: Any) -> MockModel:
    """One that writes by these probabilities, and among options prefers the one with this letter."""

    def choose(request: Request) -> Mapping[str, float]:
        red = any(group.frames.pixels[..., 0].max() > 200 for group in request.groups)
        likely = 0.9 if red else 0.6
        rest = (1 - likely) / (len(request.labels) - 1)
        return {label: likely if label == letters else rest for label in request.labels}

    return MockModel(choose, text=lambda request: focus if large(request) else overview, **more)


def ask(pool: FramePool, asked: Model, text: str = "What colour is it?", **changes: Any) -> gp.Answer:
    question = gp.Question(text, answer=changes.pop("answer", None))
    return gp.ask(pool, question, model=asked, k=4, **changes)


def jsonschema_refuses(values: Mapping[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_a_sure_overview_answers_in_words(pool: FramePool) -> None:
    asked = model(SURE, TORN)

    answer = ask(pool, asked, answer="Red.")

    assert (answer.text, answer.basis, answer.kind) == ("red", "written", "text")
    assert answer.confidence == pytest.approx(0.995) and answer.candidates["red"] == pytest.approx(0.995)
    assert answer.reached.by == "overview" and answer.right is True
    assert all(not request.labels for request in asked.requests)  # nothing but writing was needed


def test_an_unsure_overview_leads_to_the_kept_frames(pool: FramePool) -> None:
    answer = ask(pool, model(TORN, SURE))

    assert (answer.text, answer.reached.by) == ("red", "focus")
    assert answer.posterior.basis == "written"
    assert answer.reached.overview is not None and answer.reached.overview.confidence < 0.5
    assert RED in answer.selection.indices
    assert answer.evidence and all(start <= end for start, end in answer.evidence)


def test_an_unsure_focus_chooses_among_all_candidates_by_letters(pool: FramePool) -> None:
    asked = model({"blue": 0.6, "green": 0.4}, {"red": 0.55, "yellow": 0.45}, letters="B")

    answer = ask(pool, asked)

    last = asked.requests[-1]
    assert answer.posterior.basis == "letters" and answer.text == answer.posterior.labels[1]
    assert set(answer.posterior.labels) == {"red", "yellow", "blue", "green"}
    assert all(f"{label}. {text}" in last.prompt for label, text in zip("ABCD", answer.posterior.labels, strict=True))
    assert last.visible_frames is not None  # from the memory of the frames that were just read


def test_what_the_video_does_not_show_is_an_answer(pool: FramePool) -> None:
    answer = ask(pool, model({"not shown": 0.55, "it never appears": 0.44, "red": 0.01}, SURE), answer="not shown")

    assert answer.kind == "not said"
    assert answer.reached.by == "overview" and answer.confidence == pytest.approx(0.99)


@pytest.mark.parametrize(("text", "kind"), [("Yes.", "yes/no"), ("seven", "number"), ("a red bar", "text")])
def test_kinds_of_replies(pool: FramePool, text: str, kind: str) -> None:
    answer = ask(pool, model({text: 1.0}, {text: 1.0}))

    assert answer.kind == kind


def test_a_description_is_read_from_evenly_spaced_frames_among_all_others(pool: FramePool) -> None:
    said = "A dark room. A red light goes on and off."
    asked = model({said: 1.0}, {said: 1.0})

    answer = ask(pool, asked, "Describe the video.")

    assert (answer.kind, answer.basis, answer.text) == ("description", "tokens", said)
    assert answer.selection.kept == 4 and any("no single place" in warning for warning in answer.warnings)
    assert len(asked.requests[-1].groups) == 2


def test_a_model_that_writes_nothing(pool: FramePool) -> None:
    answer = ask(pool, model({" ": 1.0}, {" ": 1.0}))

    assert (answer.text, answer.confidence) == (NOTHING, 0.0)


def _silent(texts: tuple[Completion, ...]) -> tuple[Completion, ...]:
    return tuple(replace(each, logprob=None) for each in texts)


def test_a_server_that_gives_no_probabilities_is_counted_by_drafts(pool: FramePool) -> None:
    class Silent(MockModel):
        def run(self, requests: Any) -> Any:
            responses = super().run(requests)
            return [_silent(each) if isinstance(each, tuple) else each for each in responses]

    answer = ask(pool, Silent(lambda r: dict.fromkeys(r.labels, 1.0), text=lambda r: {"red": 1.0}))

    assert (answer.posterior.basis, answer.confidence) == ("drafts", 1.0)


def test_a_sure_overview_that_the_focused_pass_contradicts(pool: FramePool) -> None:
    answer = ask(pool, model(SURE, {"blue": 1.0}), effort="full")
    same = ask(pool, model(SURE, {"The red.": 1.0}), effort="full")

    assert answer.reached.contradicted and any("contradicts" in warning for warning in answer.warnings)
    assert not same.reached.contradicted


def test_a_single_candidate_gets_an_alternative_for_selectors(pool: FramePool) -> None:
    answer = ask(pool, model({"red": 0.9}, SURE), effort="quick")

    question, posterior = lettered(answer.question, answer.posterior)

    assert question.options == ("red", ABSENT) and posterior.labels == ("A", "B")
    assert posterior.probabilities["A"] == pytest.approx(answer.confidence)


def test_a_single_candidate_that_says_it_is_not_shown(pool: FramePool) -> None:
    answer = ask(pool, model({"not shown": 0.9}, {"not shown": 1.0}), effort="quick")

    assert lettered(answer.question, answer.posterior)[0].options == ("not shown", PRESENT)


def test_questions_with_options_stay_as_they_are(pool: FramePool) -> None:
    question = gp.Question("Which?", ["red", "blue"])
    answer = gp.ask(pool, question, model=model(SURE, SURE), k=4)

    values = answer.to_dict()

    assert lettered(question, answer.posterior) == (question, answer.posterior)
    jsonschema.validate(values, SCHEMA)
    assert values["choice"] == answer.choice and values["options"][answer.choice] == values["answer"] == answer.text
    assert (values["basis"], values["kind"]) == ("letters", None) and list(values["posterior"]) == ["A", "B"]
    jsonschema_refuses(values | {"choice": None})
    jsonschema_refuses(values | {"options": {}})


def test_json_of_an_answer_in_words(pool: FramePool) -> None:
    answer = ask(pool, model(TORN, SURE))
    values = json.loads(json.dumps(answer.to_dict(), allow_nan=False))

    jsonschema.validate(values, SCHEMA)
    assert values["schema"] == "gridprobe.answer/3" and values["answer"] == "red" and values["choice"] is None
    assert (values["basis"], values["kind"], values["letter_mass"]) == ("written", "text", None)
    assert values["evidence"] and values["reached"]["stages"]["overview"]["red"] == pytest.approx(0.4)
    jsonschema_refuses(values | {"choice": "A"})


def test_candidates_are_the_likeliest_first_and_leave_room_for_others(pool: FramePool) -> None:
    asked = model({"blue": 0.6, "green": 0.4}, {"red": 0.5, "yellow": 0.3, "grey": 0.2}, letters="C")
    written = ask(pool, asked, effort="quick")
    lettered_ones = ask(pool, asked)

    assert list(written.candidates) == ["blue", "green"] == list(written.to_dict()["posterior"])
    assert lettered_ones.basis == "letters" and next(iter(lettered_ones.candidates)) == lettered_ones.text
    assert lettered_ones.text != lettered_ones.posterior.labels[0]
    jsonschema.validate(lettered_ones.to_dict(), SCHEMA)
    assert lettered_ones.to_dict()["letter_mass"] == lettered_ones.posterior.mass


def test_a_needle_in_one_of_several_windows(pool: FramePool) -> None:
    def text(request: Request) -> Mapping[str, float]:
        red = any(group.frames.pixels[..., 0].max() > 200 for group in request.groups)
        return {"red": 0.8, "blue": 0.2} if red else {"not shown": 1.0}

    answer = ask(pool, MockModel(lambda r: dict.fromkeys(r.labels, 1.0), text=text), chunk=5)

    assert answer.reached.overview is not None and answer.reached.overview.windows == 4
    assert answer.reached.by == "focus"  # no pass saw the whole video
    assert answer.reached.overview.choice == "red"


def test_a_plain_text_is_an_open_question(pool: FramePool) -> None:
    answer = gp.ask(pool, "What colour is it?", model=model(SURE, SURE), k=4)

    assert answer.question == gp.Question("What colour is it?")


def test_probing_without_an_overview_needs_options(pool: FramePool) -> None:
    with pytest.raises(gp.UsageError, match="leave out effort=focus"):
        ask(pool, model(SURE, SURE), effort="focus")


def test_a_selector_without_questions_needs_no_overview(pool: FramePool) -> None:
    answer = ask(pool, model(SURE, SURE), selector="uniform", frames=4, effort="focus")

    assert (answer.text, answer.reached.by, answer.selection.kept) == ("red", "focus", 4)


def test_a_model_that_cannot_write_says_so(pool: FramePool) -> None:
    with pytest.raises(gp.UsageError, match="cannot write text; give the question options"):
        ask(pool, MockModel(lambda request: dict.fromkeys(request.labels, 1.0)))


def test_costs_are_those_of_all_requests(pool: FramePool) -> None:
    asked = model(TORN, TORN)
    answer = ask(pool, asked)

    assert answer.cost.total.calls == len(asked.requests)
    assert answer.cost.total.tokens > 0 and math.isfinite(answer.cost.tflops)
