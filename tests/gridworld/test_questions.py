"""Gold answers, checked by watching the script step by step: nothing here asks the generator what it planned."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gridprobe_world.dataset import items, world_of
from gridprobe_world.parts import PARTS, Part, generate_part
from gridprobe_world.questions import (
    FAMILIES,
    PART_FAMILIES,
    WORDINGS,
    WorldQuestion,
    ask_about,
    ask_yes_no,
    behind_yes_no,
    vocabulary,
)
from gridprobe_world.world import BACKGROUNDS, COLOURS, SHAPES, TIMES, Difficulty, Worlds, generate

STEPS = 10_000
TIMELINE = ((np.arange(STEPS) + 0.5) / STEPS).astype(np.float32)[None]


class Viewing:
    """One script, watched from beginning to end."""

    def __init__(self, world: Worlds) -> None:
        self.shown = {SHAPES[world.shape[0, j]]: world.visible(TIMELINE)[0, :, j] for j in range(4)}
        self.colour = {SHAPES[world.shape[0, j]]: list(COLOURS)[int(world.colour[0, j])] for j in range(4)}
        self.digit = {SHAPES[world.shape[0, j]]: str(world.digit[0, j]) for j in range(4)}
        self.lasting = SHAPES[world.shape[0, 0]]
        self.scene = world.scene(TIMELINE)[0]

    @property
    def seen(self) -> list[str]:
        return [shape for shape, steps in self.shown.items() if steps.any()]

    def first(self, shape: str) -> int:
        return int(self.shown[shape].argmax())

    def last(self, shape: str) -> int:
        return STEPS - 1 - int(self.shown[shape][::-1].argmax())

    def appearances(self, shape: str) -> int:
        steps = self.shown[shape].astype(int)
        return int((np.diff(steps, prepend=0) == 1).sum())

    def answer(self, asked: WorldQuestion) -> str:
        """What a careful viewer says."""
        options = asked.question.options
        named = next((shape for shape in SHAPES if f" {shape}" in asked.question.text.lower()), "")
        passing = [shape for shape in self.seen if shape != self.lasting]
        candidates = [shape for shape in options if shape in passing]
        match asked.wording:
            case "colour":
                assert named in self.seen
                return self.colour[named]
            case "digit":
                assert named in self.seen
                return self.digit[named]
            case "never":
                (missing,) = [shape for shape in options if shape not in self.seen]
                return missing
            case "count":
                return TIMES[self.appearances(named) - 1]
            case "first":
                return min(candidates, key=self.first)
            case "last":
                return max(candidates, key=self.last)
            case "after":
                return min((s for s in passing if self.first(s) > self.first(named)), key=self.first)
            case "before":
                return max((s for s in passing if self.first(s) < self.first(named)), key=self.first)
            case "background":
                return list(BACKGROUNDS)[int(np.bincount(self.scene).argmax())]
        raise AssertionError(f"unknown wording {asked.wording}")


@pytest.fixture(scope="module")
def asked() -> list[tuple[Viewing, WorldQuestion]]:
    worlds = generate(np.random.default_rng(21), 150)
    found = []
    for row in range(len(worlds)):
        viewing = Viewing(worlds.take([row]))
        questions = (ask_about(worlds, row, family, random.Random(row)) for family in FAMILIES)
        found += [(viewing, question) for question in questions if question is not None]
    return found


def test_every_family_and_wording_is_asked(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    assert {question.family for _, question in asked} == set(FAMILIES)
    assert {question.wording for _, question in asked} == set(WORDINGS)


def test_the_gold_answer_is_what_a_careful_viewer_says(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    wrong = [question for viewing, question in asked if viewing.answer(question) != question.right]

    assert wrong == []


def test_the_check_sees_a_wrong_gold_answer(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    for viewing, question in asked:
        other = next(label for label in question.question.labels if label != question.question.answer)
        spoiled = replace(question, question=replace(question.question, answer=other))
        assert viewing.answer(spoiled) != spoiled.right


def test_a_viewer_of_another_video_is_often_wrong(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    counts = [(viewing, question) for viewing, question in asked if question.family == "holistic"]
    shifted = [viewing for viewing, _ in counts[1:]]

    agree = [v.answer(question) == question.right for v, (_, question) in zip(shifted, counts, strict=False)]

    assert np.mean(agree) < 0.4


def test_options_are_3_to_8_different_texts_with_the_answer_among_them(
    asked: list[tuple[Viewing, WorldQuestion]],
) -> None:
    for _, question in asked:
        options = question.question.options
        assert 3 <= len(options) <= 8
        assert len(set(options)) == len(options)
        assert question.right in options
        assert not question.question.warnings


def test_the_place_of_the_answer_gives_nothing_away(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    place = [question.question.labels.index(question.question.answer or "") for _, question in asked]
    expected = np.mean([(len(question.question.options) - 1) / 2 for _, question in asked])

    assert np.mean(place) == pytest.approx(expected, abs=0.2)


def test_first_and_last_offer_shapes_that_really_appear(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    for viewing, question in asked:
        if question.wording in ("first", "last"):
            assert sum(shape in viewing.seen for shape in question.question.options) == 3


def test_evidence_is_exactly_when_its_objects_are_on_screen(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    time = TIMELINE[0]
    for viewing, question in asked:
        shapes = list(viewing.shown)
        shown = np.zeros(STEPS, dtype=bool)
        for j in question.objects:
            shown |= viewing.shown[shapes[j]]
        told = np.zeros(STEPS, dtype=bool)
        for start, end in question.evidence:
            told |= (time >= start) & (time < end)
        assert np.array_equal(told, shown), question


def test_evidence_belongs_to_what_is_asked_about(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    for viewing, question in asked:
        shapes = [list(viewing.shown)[j] for j in question.objects]
        if question.wording in ("colour", "digit", "count"):
            assert [shape for shape in SHAPES if shape in question.question.text] == shapes
        elif question.wording == "background":
            assert question.evidence == ()
        elif question.wording == "never":
            assert set(shapes) == set(viewing.seen)
        else:
            assert set(shapes) == set(viewing.seen) - {viewing.lasting}


def test_prejudice_asks_about_rings_and_only_prejudice_does(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    for _, question in asked:
        if question.wording == "colour":
            assert ("ring" in question.question.text) == (question.family == "prejudice")


def test_moments_of_an_order_can_be_told_apart(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    for viewing, question in asked:
        if question.family == "order":
            moment = viewing.last if question.wording == "last" else viewing.first
            moments = sorted(moment(shape) for shape in viewing.seen if shape != viewing.lasting)
            assert min(np.diff(moments)) >= 1.5 / 144 * STEPS - 2


def test_the_vocabulary_covers_every_word(asked: list[tuple[Viewing, WorldQuestion]]) -> None:
    words = vocabulary()
    for _, question in asked:
        text = " ".join([question.question.text, *question.question.options]).lower()
        assert set("".join(c if c.isalnum() else " " for c in text).split()) <= words


def test_the_same_generator_asks_the_same_question() -> None:
    worlds = generate(np.random.default_rng(1), 3)
    for family in FAMILIES:
        one, again = (ask_about(worlds, 1, family, random.Random(9)) for _ in range(2))
        assert one == again


def test_without_needles_there_is_nothing_to_ask_about_them() -> None:
    worlds = generate(np.random.default_rng(2), 20, Difficulty(needles=0))
    for row in range(20):
        for family in ("needle", "detail", "prejudice", "order"):
            assert ask_about(worlds, row, family, random.Random(row)) is None
        for family in ("negation", "count", "holistic"):
            made = ask_about(worlds, row, family, random.Random(row))
            assert made is not None and Viewing(worlds.take([row])).answer(made) == made.right


def test_without_digits_no_digit_is_asked_for() -> None:
    worlds = generate(np.random.default_rng(2), 20, Difficulty(digits=0.0))

    assert all(ask_about(worlds, row, "detail", random.Random(row)) is None for row in range(20))


def test_an_unknown_family_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        ask_about(generate(np.random.default_rng(0), 1), 0, "gossip", random.Random(0))


def watched(viewing: Viewing, text: str, options: tuple[str, ...]) -> str:
    """What a careful viewer answers to a question behind one of yes or no, if it is about a shape."""
    shape = next((shape for shape in SHAPES if f" {shape}" in text), "")
    if "these shapes" in text:
        first, second, _ = options
        return min(first, second, key=viewing.first if "first" in text else lambda shape: -viewing.last(shape))
    if "colour" in text:
        return viewing.colour[shape] if shape in viewing.seen else "not shown"
    return viewing.digit[shape] if "number" in text else TIMES[viewing.appearances(shape) - 1]


def test_who_knows_what_is_behind_a_yes_no_question_knows_its_answer() -> None:
    checked = 0
    for item in items(300, part="yes-no"):
        for question, means in behind_yes_no(item.asked.question.text):
            if item.family != "holistic":
                answer = watched(Viewing(world_of(item)), question.text, tuple(question.options))
                # Of nine digits or eight colours and "not shown" eight are offered: what is claimed is always there.
                other = "yes" if list(means.values()).count("yes") > 1 else "no"
                assert means.get(answer, other) == item.asked.right.casefold(), (item, question, answer)
                checked += 1
    assert checked > 250


@pytest.mark.parametrize("part", PARTS)
def test_behind_every_yes_no_question_is_one_in_words_of_the_training(part: Part) -> None:
    worlds, rng = generate_part(np.random.default_rng(5), 40, part), random.Random(5)
    families = [*FAMILIES, "presence", "sequence"] if part == "standard" else PART_FAMILIES[part]
    asked = [ask_yes_no(worlds, row, family, rng) for row in range(40) for family in families]

    wordings = set()
    for each in filter(None, asked):
        behind = behind_yes_no(each.question.text)
        wordings.add(each.wording)
        assert behind, each.question.text
        for question, means in behind:
            assert set(means.values()) == {"yes", "no"} and set(means) <= set(question.options)
            text = " ".join([question.text, *question.options]).lower()
            assert set("".join(c if c.isalnum() else " " for c in text).split()) <= vocabulary()
    assert wordings, part
