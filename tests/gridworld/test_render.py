"""Two renderers, one picture."""

import numpy as np
import pytest

from gridprobe_world.render import DISTANCES, positions, render_frame, render_frames
from gridprobe_world.world import BACKGROUNDS, COLOURS, SHAPES, Difficulty, Worlds, generate

FIGURES = {
    1: "0010010",
    2: "1011101",
    3: "1011011",
    4: "0111010",
    5: "1101011",
    6: "1101111",
    7: "1010010",
    8: "1111111",
    9: "1111011",
}
"""The lit strokes of a pocket calculator's digits: top, upper left and right, middle, lower left and right, bottom."""
STROKES = ((0, -0.36), (-0.2, -0.18), (0.2, -0.18), (0, 0), (-0.2, 0.18), (0.2, 0.18), (0, 0.36))
"""Where these are, in radii from the middle of the object."""

SOLID = tuple(SHAPES.index(name) for name in ("circle", "square", "triangle", "diamond", "cross", "bar"))


def eventful(worlds: Worlds, rng: np.random.Generator) -> np.ndarray:
    """Six times for each script: in the middle of both needles and of an occurrence, and three at random."""
    middle = (worlds.start[:, 1:, 0] + worlds.end[:, 1:, 0]) / 2
    return np.concatenate([middle, rng.random((len(worlds), 3))], axis=1).astype(np.float32)


def overlapping(worlds: Worlds, time: np.ndarray) -> np.ndarray:
    """Frames in which the squares around two objects touch: B × n."""
    place, reach = positions(worlds, time), 1.2 * worlds.radius[:, None]
    apart = np.abs(place[:, :, :, None] - place[:, :, None]).max(-1) > reach[..., :, None] + reach[..., None, :]
    shown = worlds.visible(time)
    pairs = shown[..., :, None] & shown[..., None, :] & ~apart & ~np.eye(4, dtype=bool)
    found: np.ndarray = pairs.any(axis=(2, 3))
    return found


def differences(worlds: Worlds, time: np.ndarray, size: int) -> np.ndarray:
    """The largest difference between the renderers in each frame: B × n."""
    batch = (render_frames(worlds, time, size) * 255 + 0.5).byte().permute(0, 1, 3, 4, 2).numpy().astype(int)
    single = [[render_frame(worlds.take([row]), float(t), size) for t in time[row]] for row in range(len(worlds))]
    found: np.ndarray = np.abs(batch - np.array(single)).max(axis=(2, 3, 4))
    return found


@pytest.mark.parametrize("size", [64, 96, 160])
def test_the_renderers_agree_to_one_grey_level(size: int) -> None:
    rng = np.random.default_rng(size)
    worlds = generate(rng, 40, Difficulty(digits=1.0))
    time = eventful(worlds, rng)
    clear, shown = ~overlapping(worlds, time), worlds.visible(time)

    assert differences(worlds, time, size)[clear].max() <= 1
    assert clear.mean() > 0.5
    assert (shown & (worlds.digit > 0)[:, None] & clear[..., None]).sum() > 20, "digits must be among what was compared"
    row, _, j = np.nonzero(shown & clear[..., None])
    assert set(worlds.shape[row, j]) == set(range(len(SHAPES)))


def test_the_renderers_agree_where_objects_touch() -> None:
    worlds = generate(np.random.default_rng(7), 400)
    worlds.start[:], worlds.end[:] = 0.0, 1.0
    time = np.full((400, 1), 0.3, dtype=np.float32)
    touching = worlds.take(np.flatnonzero(overlapping(worlds, time)[:, 0])[:120])

    assert differences(touching, time[: len(touching)], 64).max() <= 1


def test_an_object_has_its_colour_where_it_is() -> None:
    rng = np.random.default_rng(1)
    worlds, size, checked = generate(rng, 40, Difficulty(digits=0.0)), 96, set()
    time = eventful(worlds, rng)
    for row, frame, j in np.argwhere(worlds.visible(time)):
        if worlds.shape[row, j] not in SOLID:
            continue
        x, y = (positions(worlds, time)[row, frame, j] * size).astype(int)
        pixel = render_frame(worlds.take([row]), float(time[row, frame]), size)[y, x]
        colour = list(COLOURS.values())[worlds.colour[row, j]]
        assert np.abs(pixel - np.array(colour) * 255).max() < 2
        checked.add(int(worlds.shape[row, j]))

    assert checked == set(SOLID)


def test_without_objects_there_is_only_the_faint_background() -> None:
    worlds = generate(np.random.default_rng(2), 30, Difficulty(needles=0))
    for row in range(len(worlds)):
        time = np.linspace(0.001, 0.999, 400, dtype=np.float32)[None]
        empty = np.flatnonzero(~worlds.take([row]).visible(time)[0].any(-1))
        if len(empty):
            moment = float(time[0, empty[0]])
            ground = np.array(list(BACKGROUNDS.values()))[worlds.take([row]).scene(time)[0, empty[0]]]
            picture = render_frame(worlds.take([row]), moment, 64) / 255
            assert np.abs(picture - ground).max() < 0.06


@pytest.mark.parametrize("digit", FIGURES)
def test_digits_are_those_of_a_pocket_calculator(digit: int) -> None:
    worlds, size = generate(np.random.default_rng(3), 100, Difficulty(digits=1.0)), 224
    world = worlds.take([np.flatnonzero(worlds.digit[:, 2])[0]])
    world.digit[0, 2] = digit
    moment = float(world.start[0, 2, 0] + 1e-3)
    picture = render_frame(world, moment, size)
    place = positions(world, np.full((1, 1), moment, dtype=np.float32))[0, 0, 2]
    colour = np.array(list(COLOURS.values()))[world.colour[0, 2]] * 255

    lit = ""
    for stroke in STROKES:
        x, y = ((place + np.array(stroke) * world.radius[0, 2]) * size).astype(int)
        lit += str(int(np.abs(picture[y, x] - colour).max() > 60))

    assert lit == FIGURES[digit]


def test_a_small_frame_is_a_large_one_scaled_down() -> None:
    worlds = generate(np.random.default_rng(4), 5)
    for row in range(5):
        large = render_frame(worlds.take([row]), 0.4, 192).astype(float)
        small = render_frame(worlds.take([row]), 0.4, 64)

        assert np.abs(large.reshape(64, 3, 64, 3, 3).mean(axis=(1, 3)) - small).mean() < 1.0


def test_objects_stay_in_the_frame_and_apart() -> None:
    worlds = generate(np.random.default_rng(6), 300)
    time = np.tile(np.linspace(0, 1, 60, dtype=np.float32), (300, 1))
    place, radius = positions(worlds, time), worlds.radius[:, None, :, None]

    # 1.1 radii is the farthest any shape reaches (the diamond's corners).
    assert (place - 1.1 * radius).min() > 0 - 0.01
    assert (place + 1.1 * radius).max() < 1 + 0.01
    assert len(DISTANCES) == len(SHAPES)
