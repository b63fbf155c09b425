"""Options in other orders: a model that prefers a letter gives the answer it would give without that."""

import math
import re
from collections.abc import Mapping, Sequence

import pytest

from gridprobe import MockModel
from gridprobe.ask import ask
from gridprobe.models import Posterior, Request, choose
from gridprobe.models.base import Cost, posteriors, rotated, score_rotated
from gridprobe.question import Question
from scoring import shown
from videos_of_arrays import gray_pool

TRUE = {"red": 0.1, "green": 0.15, "blue": 0.45, "gray": 0.3}
QUESTION = Question("Which colour?", tuple(TRUE), answer="C")
POOL = gray_pool(4)
REQUEST = shown(POOL, QUESTION.prompt, QUESTION.labels)


def seen(request: Request) -> dict[str, str]:
    """Label -> option, as the prompt shows them."""
    return dict(re.findall(r"^\(?([A-Z])[.)] *(\w+)", request.prompt, flags=re.M))


def plain(request: Request) -> Mapping[str, float]:
    """A model that looks only at the options' texts."""
    return {label: TRUE[option] for label, option in seen(request).items()}


def biased(request: Request) -> Mapping[str, float]:
    """The same model with half of its probability on whatever stands at A."""
    return {label: 0.5 * p + 0.5 * (label == "A") for label, p in plain(request).items()}


def only_a(request: Request) -> Mapping[str, float]:
    return {label: float(label == "A") for label in request.labels}


def score(model: MockModel, rotations: int) -> Posterior:
    return score_rotated(model, REQUEST, QUESTION, rotations=rotations)


def test_script_reads_the_options_from_the_prompt() -> None:
    assert seen(REQUEST) == dict(zip("ABCD", TRUE, strict=True))


def test_all_orders_remove_the_preference_for_a_letter() -> None:
    assert score(MockModel(biased), 1).choice == "A"

    found = score(MockModel(biased), 4)

    # Half is 1/4 for every option, the other half is the plain answer.
    assert found.choice == "C" == score(MockModel(plain), 1).choice
    for label, p in zip("ABCD", TRUE.values(), strict=True):
        assert found.probabilities[label] == pytest.approx(0.5 * p + 0.125, abs=1e-12)


@pytest.mark.parametrize("rotations", [1, 2, 3, 4, 9])
def test_orders_do_not_change_the_answer_of_a_model_without_preference(rotations: int) -> None:
    found = score(MockModel(plain), rotations)

    assert found.probabilities == pytest.approx(dict(zip("ABCD", TRUE.values(), strict=True)), abs=1e-12)


@pytest.mark.parametrize("shift", range(4))
def test_option_of_every_order_is_counted_for_its_own_label(shift: int) -> None:
    """Sure in one order only, of a letter: its share goes to the option that stands there in that order."""
    order = rotated(QUESTION, by=shift).prompt
    model = MockModel(lambda r: only_a(r) if r.prompt == order else dict.fromkeys(r.labels, 0.25))

    found = score(model, 4).probabilities

    expected = {label: 3 / 16 + (place == shift) / 4 for place, label in enumerate("ABCD")}
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("by", range(4))
def test_rotated_question_starts_with_the_option_of_that_number(by: int) -> None:
    turned = rotated(QUESTION, by=by)

    names = list(TRUE)
    assert list(turned.options) == names[by:] + names[:by]
    assert turned.answer is None and turned.text == QUESTION.text and turned.labels == QUESTION.labels


def test_one_order_is_the_plain_request() -> None:
    model = MockModel(biased)

    found = score(model, 1)

    assert model.requests == [REQUEST] and model.requests[0] is REQUEST
    assert found == choose(MockModel(biased), [REQUEST])[0]


@pytest.mark.parametrize(("rotations", "shifts"), [(2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])])
def test_orders_are_spread_evenly_and_none_comes_twice(rotations: int, shifts: list[int]) -> None:
    model = MockModel(plain)

    score(model, rotations)

    assert [each.prompt for each in model.requests] == [rotated(QUESTION, by=shift).prompt for shift in shifts]
    assert all(each.keep_kv and each.groups == REQUEST.groups for each in model.requests)


def test_costs_of_all_orders_add_up() -> None:
    model = MockModel(plain)

    found = score(model, 4)

    assert found.cost == sum((model.cost(each) for each in model.requests), Cost())
    assert found.cost.calls == 4 * score(MockModel(plain), 1).cost.calls


def test_attention_is_asked_for_once_and_kept() -> None:
    model = MockModel(plain)
    request = shown(POOL, QUESTION.prompt, QUESTION.labels, attention=True)

    found = score_rotated(model, request, QUESTION, rotations=4)

    assert [each.attention for each in model.requests] == [True, False, False, False]
    assert found.attention == choose(MockModel(plain), [request])[0].attention


class Noted(MockModel):
    """Its posteriors have less mass, and another note, from order to order."""

    def run(self, requests: Sequence[Request]) -> list[Posterior]:
        found = posteriors(super().run(requests))
        return [
            Posterior(each.labels, each.logprobs, each.cost, mass=0.9 - 0.2 * i, notes=(f"note {i % 2}",))
            for i, each in enumerate(found)
        ]


def test_least_mass_and_every_note_once() -> None:
    found = score(Noted(plain), 4)

    assert found.mass == pytest.approx(0.3) and found.notes == ("note 0", "note 1")


def test_option_that_is_impossible_in_every_order_stays_impossible() -> None:
    model = MockModel(lambda request: {label: float(option == "blue") for label, option in seen(request).items()})

    found = score(model, 4)

    assert found.confidence == 1.0 and found.choice == "C"
    assert [value for value in found.logprobs if value != 0.0] == [-math.inf] * 3


@pytest.mark.parametrize("effort", ["quick", "full", "focus"])
def test_setting_reaches_the_overview_and_the_focused_pass(effort: str) -> None:
    one, all_four = (
        ask(POOL, QUESTION, model=MockModel(biased), k=2, effort=effort, rotations=rotations) for rotations in (1, 4)
    )

    assert (one.choice, all_four.choice) == ("A", "C")
    assert all_four.right and all_four.cost.total.tokens > one.cost.total.tokens
