"""Fields, options and gold letters: nothing shifts, nothing is guessed."""

import math
from string import ascii_uppercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe.errors import DataError
from gridprobe_eval.benchmarks.files import known, letter, letter_at, number, split_options, text, unlabelled, whole

NASTY = ["John F. Kennedy", "Vitamin D.", "letters of K and C.", "A.", "D.C. is", "Well done!", "B. Franklin", "None"]


def block(options: list[str], space: str = " ") -> str:
    return "\n".join(f"{label}.{space}{option}" for label, option in zip(ascii_uppercase, options, strict=False))


def test_options_that_look_like_labels_stay_whole() -> None:
    assert split_options(block(NASTY)) == NASTY


def test_a_missing_space_after_the_letter_is_no_matter() -> None:
    assert split_options("A. Start\nB. Stop\nC.Mission accomplished") == ["Start", "Stop", "Mission accomplished"]


def test_blank_lines_and_windows_line_ends_are_no_matter() -> None:
    assert split_options("A. Start\r\n\r\nB. Stop\r\n") == ["Start", "Stop"]


texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30)
one_line = texts.map(str.strip).filter(bool)


@given(options=st.lists(one_line | st.sampled_from(NASTY), min_size=2, max_size=8), space=st.sampled_from(["", " "]))
def test_every_option_comes_back_under_its_own_letter(options: list[str], space: str) -> None:
    assert split_options(block(options, space)) == options


@pytest.mark.parametrize(
    "wrong",
    ["A. Start\nC. Stop", "B. Start\nC. Stop", "A. Start\nmore\nB. Stop", "A. x\nA. y", "Start\nStop", "a. x\nb. y"],
)
def test_letters_must_follow_each_other_from_a(wrong: str) -> None:
    with pytest.raises(DataError, match="should start with"):
        split_options(wrong)


def test_a_single_line_is_taken_apart_where_there_is_one_way_to() -> None:
    assert split_options("A. Start B. Stop C. Go on") == ["Start", "Stop", "Go on"]
    assert split_options("A. John F. Kennedy B. x C. y D. z E. w F. v") == ["John F. Kennedy", "x", "y", "z", "w", "v"]
    assert split_options("(A) yes (B) no", "({})") == ["yes", "no"]


@pytest.mark.parametrize("line", ["A. Vitamin B. B. Zinc", "no options here", "", "B. x C. y"])
def test_a_single_line_that_can_be_read_in_two_ways_or_none_is_refused(line: str) -> None:
    with pytest.raises(DataError, match="cannot be split in exactly one way"):
        split_options(line)


@given(options=st.lists(st.from_regex(r"[a-z]{1,8}( [a-z]{1,8}){0,2}", fullmatch=True), min_size=2, max_size=8))
def test_plain_words_on_a_single_line_come_back(options: list[str]) -> None:
    assert split_options(block(options).replace("\n", " ")) == options


def test_more_lines_than_letters_are_refused() -> None:
    with pytest.raises(DataError, match="27 lines"):
        split_options("\n".join(["A. x"] * 27))


def test_a_list_loses_its_letters_and_only_those() -> None:
    assert unlabelled(["A. A. Milne", "B.Vitamin D."]) == ["A. Milne", "Vitamin D."]


@pytest.mark.parametrize("wrong", [None, [], "A. x", ["B. x", "A. y"], ["x", "y"], ["A. x", 7], ["A. x"] * 27])
def test_a_list_with_other_letters_is_refused(wrong: Any) -> None:
    with pytest.raises(DataError):
        unlabelled(wrong)


@pytest.mark.parametrize("wrong", ["C", "a", "", "AB", None, 0, math.nan])
def test_a_gold_letter_is_one_of_the_questions_own(wrong: Any) -> None:
    assert letter(" B ", ["x", "y"]) == "B"
    with pytest.raises(DataError, match="is not the letter of an option, A, B"):
        letter(wrong, ["x", "y"])


def test_a_gold_number_is_in_range() -> None:
    assert letter_at(1, ["x", "y"]) == "B"
    for wrong in (-1, 2):
        with pytest.raises(DataError, match=f"the answer {wrong} is not"):
            letter_at(wrong, ["x", "y"])


@pytest.mark.parametrize("nothing", [None, math.nan, "", " ", "None", "nan"])
def test_the_ways_to_say_nothing(nothing: Any) -> None:
    assert known(nothing) is None
    assert number({"x": nothing}, "x") is None


@pytest.mark.parametrize("three", [3, 3.0, "3", "3.0", " 3 "])
def test_a_whole_number_however_it_was_written(three: Any) -> None:
    assert whole({"x": three}, "x") == 3


@pytest.mark.parametrize("wrong", [None, 3.5, "three", [3], True, math.inf, {}])
def test_anything_else_is_no_whole_number(wrong: Any) -> None:
    with pytest.raises(DataError):
        whole({"x": wrong}, "x")


def test_text_may_say_none_but_not_be_nothing() -> None:
    assert (text({"x": " None "}, "x"), text({"x": 12}, "x")) == ("None", "12")
    for wrong in ({}, {"x": None}, {"x": " "}, {"x": ["y"]}, {"x": 1.5}, {"x": True}):
        with pytest.raises(DataError, match="x "):
            text(wrong, "x")
