"""The models with faults have these faults, and no others."""

from dataclasses import replace

import numpy as np
import pytest

from gridprobe.models import FrameGroup, Model, Request, View, choose
from gridprobe.models.mock import MockModel
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from gridprobe_world.needles import Needle, needles
from hostile import DilutedModel, ForgetfulModel, LetterModel, ShortSightedModel, TemperedModel, dilute

QUESTION = Question("Which digit is written on the red plate?", ["1", "2", "3", "4"])


BRIGHT = 5
"""The frame that the question looks at."""


def eyes(request: Request) -> dict[str, float]:
    """The same answer to all; alone, the bright frame is answered more surely, so attention goes there."""
    alone = len(request.units) == 1
    sure = (0.97 if request.frames.pixels.mean() > 200 else 0.3) if alone else 0.6
    return {"A": (1 - sure) / 4, "B": sure, "C": (1 - sure) / 2, "D": (1 - sure) / 4}


def request(side: int, frames: int = 24, *, groups: int = 1, sheet: int = 1) -> Request:
    pixels = np.random.default_rng(1).integers(0, 200, (frames, 224, 224, 3), dtype=np.uint8)
    pixels[BRIGHT:][:1] += 55
    pixels[BRIGHT:][:1, :112] = 250
    pools = [FramePool.from_arrays(pixels, [10.0 * i + 5 * n for i in range(frames)]) for n in range(groups)]
    return Request.about(QUESTION, [FrameGroup(pool, View(FrameSize(max_side=side), sheet=sheet)) for pool in pools])


def flat(group: FrameGroup) -> list[int]:
    """The frames of one colour."""
    return [row for row, pixels in enumerate(group.frames.pixels) if pixels.std(axis=(0, 1)).max() < 1]


@pytest.mark.parametrize("extra", [100, 400])
def test_the_mean_of_many_heads_does_not_find_what_its_own_heads_do(extra: int) -> None:
    heads = np.random.default_rng(0).uniform(0, 0.2, (20, 144))
    heads[:6, [40, 41]] += 0.5
    diluted = dilute(heads, extra, seed=1)

    assert diluted.shape == (20 + extra, 144) and (diluted[:20] == heads).all()
    assert set(np.argsort(-heads.mean(axis=0))[:2]) == {40, 41}
    assert not {40, 41} & set(np.argsort(-diluted.mean(axis=0))[:8])
    assert (diluted == dilute(heads, extra, seed=1)).all()
    other = dilute(np.random.default_rng(2).uniform(0, 0.2, (20, 144)), extra, seed=1)
    assert np.corrcoef(diluted[20:].mean(axis=0), other[20:].mean(axis=0))[0, 1] > 0.9, "whatever is asked"


def test_diluted_attention_no_longer_points() -> None:
    asked = replace(request(64), attention=True)
    (plain,) = choose(MockModel(eyes), [asked])
    (diluted,) = choose(DilutedModel(MockModel(eyes), extra=100), [asked])

    assert plain.attention and np.argmax(plain.attention) == BRIGHT
    assert diluted.attention and len(diluted.attention) == 24 and np.argmax(diluted.attention) != BRIGHT
    assert diluted.logprobs == plain.logprobs and max(diluted.attention) <= 1


def test_temperature_changes_how_sure_it_is_and_not_the_choice() -> None:
    sure, plain, unsure = (choose(TemperedModel(MockModel(eyes), t), [request(64)])[0] for t in (0.3, 1.0, 3.0))

    assert sure.choice == plain.choice == unsure.choice == "B"
    assert sure.confidence > 0.95 and plain.confidence == pytest.approx(0.6) and unsure.confidence < 0.4


def test_a_liking_for_a_letter_moves_the_choice_to_it() -> None:
    (answer,) = choose(LetterModel(MockModel(eyes), bias=2.0), [request(64)])

    assert answer.choice == "A"
    assert answer.probabilities["B"] / answer.probabilities["C"] == pytest.approx(3)


@pytest.mark.parametrize(("side", "sheet", "blind"), [(64, 1, True), (160, 1, False), (224, 1, False), (64, 4, True)])
def test_short_sight_depends_on_the_size_shown(side: int, sheet: int, blind: bool) -> None:
    model = MockModel(eyes)
    asked = request(side, sheet=sheet)
    ShortSightedModel(model).run([asked])
    (group,) = model.requests[0].groups

    assert flat(group) == (list(range(24)) if blind else [])
    assert group.frames.times == asked.frames.times and group.view == asked.groups[0].view
    assert (group.frames.keys != asked.frames.keys) == blind


def test_the_middle_third_is_forgotten_across_groups() -> None:
    model = MockModel(eyes)
    ForgetfulModel(model).run([request(64), request(64, groups=2), request(64, frames=2)])
    one, two, short = model.requests

    assert flat(one.groups[0]) == list(range(8, 16))
    assert [flat(group) for group in two.groups] == [list(range(8, 16)), list(range(8, 16))]
    assert flat(short.groups[0]) == []


def test_a_long_sequence_can_be_made_short_for_a_forgetful_model() -> None:
    model = MockModel(eyes)
    ForgetfulModel(model, beyond=12).run([request(64, frames=12), request(64, frames=13)])

    assert [len(flat(each.groups[0])) for each in model.requests] == [0, 4]


def test_faults_have_an_identity_of_their_own() -> None:
    model = MockModel(eyes)
    faulty: list[Model] = [
        DilutedModel(model, extra=100),
        DilutedModel(model, extra=400),
        TemperedModel(model, 0.3),
        LetterModel(model),
        ShortSightedModel(model),
        ForgetfulModel(model),
    ]

    assert len({model.identity, *(each.identity for each in faulty)}) == 7
    assert all(each.cost(request(64)) == model.cost(request(64)) for each in faulty)


def read(model: Model, made: list[Needle], side: int) -> int:
    groups = [(FrameGroup(needle.frames, View(FrameSize(max_side=side))),) for needle in made]
    asked = [Request.about(needle.question, each) for needle, each in zip(made, groups, strict=True)]
    return sum(each.choice == needle.question.answer for each, needle in zip(choose(model, asked), made, strict=True))


@pytest.mark.release
def test_micro_with_faults_fails_where_they_are() -> None:
    from gridprobe.models import load_model

    micro = load_model("embedded:micro", device="cpu")
    made = list(needles(1, 12, wording="world", frames=8))
    middle = list(needles(1, 8, wording="world", frames=9, place="middle"))

    assert read(micro, made, 64) == 12 and read(ShortSightedModel(micro), made, 64) <= 6
    assert read(ShortSightedModel(micro), made, 224) == 12
    assert read(micro, middle, 64) == 8 and read(ForgetfulModel(micro), middle, 64) <= 5
