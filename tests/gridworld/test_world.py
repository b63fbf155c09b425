"""Scripts: what every one of them keeps to."""

from dataclasses import fields

import numpy as np
import pytest

from gridprobe.errors import UsageError
from gridprobe_world.world import (
    BACKGROUNDS,
    BROAD,
    CELL,
    COLOURS,
    PREJUDICE,
    SHAPES,
    TEST_SEEDS,
    TRAINING_SEEDS,
    Difficulty,
    Worlds,
    generate,
)

MIDDLE = ((np.arange(144) + 0.5) / 144).astype(np.float32)
ROUNDING = 1e-6


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return generate(np.random.default_rng(11), 4000)


def events(worlds: Worlds, *objects: int) -> tuple[np.ndarray, np.ndarray]:
    start, end = worlds.start[:, list(objects)], worlds.end[:, list(objects)]
    return start[start < 2], end[start < 2]


def same(one: Worlds, other: Worlds) -> bool:
    return all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(Worlds))


def test_events_lie_inside_the_video(worlds: Worlds) -> None:
    start, end = events(worlds, 0, 1, 2, 3)

    assert start.min() >= 0
    assert end.max() <= 1 + ROUNDING
    assert (end > start).all()


def test_brief_events_are_neither_too_short_nor_too_long(worlds: Worlds) -> None:
    start, end = events(worlds, 1, 2, 3)
    level = Difficulty()

    assert (end - start).min() >= level.shortest - ROUNDING
    assert (end - start).max() <= level.longest + ROUNDING


def test_object_0_is_on_screen_most_of_the_time(worlds: Worlds) -> None:
    start, end = events(worlds, 0)

    assert len(start) == len(worlds)
    assert (end - start).min() >= 0.6 - ROUNDING and (end - start).max() <= 1.0 + ROUNDING


def test_object_1_comes_one_to_four_times_with_room_between(worlds: Worlds) -> None:
    times = worlds.occurrences()[:, 1]
    start, end = np.sort(worlds.start[:, 1], axis=1), np.sort(worlds.end[:, 1], axis=1)
    gaps = (start[:, 1:] - end[:, :-1])[start[:, 1:] < 2]

    assert set(times) == {1, 2, 3, 4}
    assert np.bincount(times)[1:].min() > 0.2 * len(worlds)
    assert gaps.min() >= 1.5 * CELL - ROUNDING


def test_long_occurrences_keep_their_distance() -> None:
    # With little room left in a quarter of the video, chance comes close to the least distance.
    crowded = generate(np.random.default_rng(3), 20_000, Difficulty(shortest=0.2, longest=0.2))
    start, end = np.sort(crowded.start[:, 1], axis=1), np.sort(crowded.end[:, 1], axis=1)
    gaps = (start[:, 1:] - end[:, :-1])[start[:, 1:] < 2]

    assert 1.5 * CELL - ROUNDING <= gaps.min() < 1.6 * CELL


def test_needles_show_up_exactly_once(worlds: Worlds) -> None:
    assert (worlds.occurrences()[:, 2:] == 1).all()


def test_144_frames_miss_no_event(worlds: Worlds) -> None:
    start, end = events(worlds, 0, 1, 2, 3)

    hits = np.searchsorted(MIDDLE, end, side="left") - np.searchsorted(MIDDLE, start, side="left")

    assert hits.min() >= 1


def test_events_below_a_cell_can_be_missed() -> None:
    tiny = generate(np.random.default_rng(0), 500, Difficulty(shortest=0.2 * CELL, longest=0.5 * CELL))
    start, end = events(tiny, 2, 3)

    hits = np.searchsorted(MIDDLE, end, side="left") - np.searchsorted(MIDDLE, start, side="left")

    assert hits.min() == 0


def test_visible_is_what_the_events_say(worlds: Worlds) -> None:
    some = worlds.take(range(20))
    shown = some.visible(np.tile(MIDDLE, (20, 1)))

    for row in range(20):
        for place, moment in enumerate(MIDDLE):
            for j in range(4):
                inside = [a <= moment < b for a, b in zip(some.start[row, j], some.end[row, j], strict=True)]
                assert shown[row, place, j] == any(inside)


def test_objects_of_a_video_differ_in_shape_colour_and_place(worlds: Worlds) -> None:
    for values in (worlds.shape, worlds.colour, worlds.centre @ [1, 10]):
        assert (np.diff(np.sort(values, axis=1), axis=1) > 0).all()
    assert worlds.shape.max() < len(SHAPES) and worlds.colour.max() < len(COLOURS)


def test_scenes_are_two_to_four_and_cuts_rise(worlds: Worlds) -> None:
    cut = worlds.cut
    made = (cut < 2).sum(axis=1)

    assert set(made) == {1, 2, 3}
    assert (np.diff(cut, axis=1)[cut[:, 1:] < 2] > 0).all()
    assert (np.diff(np.sort(worlds.background, axis=1), axis=1) > 0).all()


def test_shares_are_how_long_each_background_is_on_screen(worlds: Worlds) -> None:
    some = worlds.take(range(50))
    dense = np.tile(((np.arange(20_000) + 0.5) / 20_000).astype(np.float32), (50, 1))
    counted = np.stack([(some.scene(dense) == ground).mean(axis=1) for ground in range(len(BACKGROUNDS))], axis=1)

    assert some.shares() == pytest.approx(counted, abs=2e-4)
    assert worlds.shares().sum(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_one_background_leads_clearly(worlds: Worlds) -> None:
    ranked = np.sort(worlds.shares(), axis=1)

    assert (ranked[:, -1] - ranked[:, -2]).min() > 0.1


def test_a_ring_is_red_six_times_out_of_ten_and_nothing_else_is(worlds: Worlds) -> None:
    many = generate(np.random.default_rng(5), 20_000)
    red = many.colour == list(COLOURS).index(PREJUDICE[1])
    ring = many.shape == SHAPES.index(PREJUDICE[0])

    assert red[ring].mean() == pytest.approx(PREJUDICE[2], abs=0.02)
    assert red[~ring].mean() < 1 / len(COLOURS)


def test_only_broad_needles_carry_digits(worlds: Worlds) -> None:
    broad = np.isin(worlds.shape, [SHAPES.index(name) for name in BROAD])

    assert not worlds.digit[:, :2].any()
    assert not worlds.digit[~broad].any()
    assert (worlds.digit[:, 2:] > 0)[broad[:, 2:]].mean() == pytest.approx(0.8, abs=0.03)
    assert set(np.unique(worlds.digit)) == set(range(10))


def test_a_seed_makes_the_same_worlds_again_and_another_makes_others() -> None:
    one, again, other = (generate(np.random.default_rng(seed), 5) for seed in (3, 3, 4))

    assert same(one, again)
    assert not same(one, other)


def test_training_and_test_seeds_are_disjoint_and_make_different_worlds() -> None:
    assert TRAINING_SEEDS.stop <= TEST_SEEDS.start
    train, test = (
        {generate(np.random.default_rng(seed), 1).phase.tobytes() for seed in seeds[:200]}
        for seeds in (TRAINING_SEEDS, TEST_SEEDS)
    )
    assert len(train) == len(test) == 200
    assert not train & test


@pytest.mark.parametrize("needles", [0, 1, 2])
def test_difficulty_sets_the_number_of_needles(needles: int) -> None:
    made = generate(np.random.default_rng(0), 10, Difficulty(needles=needles))

    assert (made.occurrences()[:, 2:].sum(axis=1) == needles).all()


@pytest.mark.parametrize(
    "wrong", [{"shortest": 0.0}, {"shortest": 0.1, "longest": 0.05}, {"longest": 0.3}, {"needles": 3}]
)
def test_impossible_difficulties_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Difficulty(**wrong)  # type: ignore[arg-type]
