"""Answers in words: what counts as the same, what kind it is, and candidates from drafts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.drafts import NOT_SAID, canonical, exact_match, kind_of, merge, token_f1
from gridprobe.prompts import describes
from gridprobe.question import Question


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The red car.", "red car"),
        ("Twice", "two times"),
        ("three", "3"),
        ("Yes!", "yeah"),
        ("a Café", "cafe"),
        ("It isn't", "it isnt"),
        ("not shown", "The video does not say."),
        ("  blue \n", "Blue"),
        ("3.0", "3"),
    ],
)
def test_these_say_the_same(one: str, other: str) -> None:
    assert exact_match(one, other) and exact_match(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [("red", "blue"), ("yes", "no"), ("3", "4"), ("13", "3"), ("two", "not shown"), ("1.5", "15")]
)
def test_these_do_not(one: str, other: str) -> None:
    assert not exact_match(one, other) and not exact_match(other, one)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("Yes.", "yes/no"), ("false", "yes/no"), ("Seven", "number"), ("12.5", "number"), ("four times", "number"),
     ("not shown", "not said"), ("a red bar", "text"), ("3 men", "text")],
)  # fmt: skip
def test_kinds(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_f1_counts_shared_words() -> None:
    # "red car door" and "the red door handle": 2 shared of 3 and 3 words: precision 2/3, recall 2/3
    assert token_f1("red car door", "the red door handle") == pytest.approx(2 / 3)
    assert token_f1("red red", "red") == pytest.approx(2 * 1 / 3)
    assert token_f1("", "") == 1.0 and token_f1("", "x") == 0.0 and token_f1("x", "y") == 0.0


@given(st.text(), st.text())
def test_f1_is_a_share_and_one_where_texts_match(one: str, other: str) -> None:
    assert 0.0 <= token_f1(one, other) <= 1.0
    assert token_f1(one, other) == token_f1(other, one)
    assert token_f1(one, one) == 1.0
    assert canonical(canonical(one)) == canonical(one) or kind_of(one) in ("number", "not said")


def test_drafts_that_say_the_same_are_one_candidate() -> None:
    found = merge(["red", "Blue.", "the red", "red", "  ", "green"])

    assert [(draft.text, round(draft.share, 3)) for draft in found] == [
        ("red", 0.5), ("Blue.", 0.167), ("green", 0.167)]  # fmt: skip


def test_an_open_question_gets_its_candidates_as_options() -> None:
    question = Question("What colour is it?", answer="Red")

    closed = question.drafted(["blue", "the red", NOT_SAID])

    assert question.open and question.labels == () and not closed.open
    assert (closed.answer, closed.drafted_for) == ("B", question)
    assert question.drafted(["blue", NOT_SAID]).answer is None
    assert question.prompt == "Question: What colour is it?\nAnswer with a short phrase."


@pytest.mark.parametrize("text", ["Describe the video.", "please summarise this", "What is this video about?",
                                  "Give me a short summary of it", "What happens in the clip?"])  # fmt: skip
def test_requests_for_a_description(text: str) -> None:
    assert describes(text) and Question(text).prompt.endswith("Answer in a few sentences.")


@pytest.mark.parametrize("text", ["What colour is it?", "Who describes the car?", "What happens after the circle?"])
def test_other_questions_ask_for_something(text: str) -> None:
    assert not describes(text)
