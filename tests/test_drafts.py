"""Answers in words: what counts as the same, what kind it is, and candidates from drafts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.open_ended import canonical, exact_match, kind_of, merge, token_f1
from gridprobe.question import Question, describes


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


def test_the_probability_of_a_candidate_is_that_of_all_its_wordings() -> None:
    drafts = merge(["not shown", "red", "It never appears", "not shown"], [math.log(p) for p in (0.4, 0.15, 0.3, 0.4)])

    assert [(draft.text, draft.share) for draft in drafts] == [("not shown", 0.75), ("red", 0.25)]
    assert [draft.probability for draft in drafts] == pytest.approx([0.7, 0.15])


def test_what_no_prompt_may_contain_is_dropped() -> None:
    assert [draft.text for draft in merge(["a\x00 red\x1b\n car\ud800", "\x00"])] == ["a red car"]


def test_a_probability_that_is_not_known_stays_unknown() -> None:
    drafts = merge(["red", "the red", "blue"], [math.log(0.5), None, math.log(0.2)])

    assert {draft.text: draft.probability for draft in drafts} == {"red": None, "blue": pytest.approx(0.2)}


def test_an_open_question_says_that_the_video_may_not_show_it() -> None:
    question = Question("What colour is it?", answer="Red")

    assert question.open and question.labels == ()
    assert question.prompt == (
        "Question: What colour is it?\nAnswer with a short phrase. "
        'If the video does not show it, answer "not shown in the video".'
    )


@pytest.mark.parametrize("text", ["Describe the video.", "please summarise this", "What is this video about?",
                                  "Give me a short summary of it", "What happens in the clip?"])  # fmt: skip
def test_requests_for_a_description(text: str) -> None:
    assert describes(text) and Question(text).prompt.endswith("Answer in a few sentences.")


@pytest.mark.parametrize("text", ["What colour is it?", "Who describes the car?", "What happens after the circle?"])
def test_other_questions_ask_for_something(text: str) -> None:
    assert not describes(text)
