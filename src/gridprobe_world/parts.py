"""The harder parts of gridworld: scripts that separate good selectors from trivial ones.

- fine: four plates, each on screen for one to three cells of 144 and never two at a time; two carry a pattern of fine
  lines, two a digit less than half the usual size. The plates can be found in a frame of 64 pixels, but not read.
- brief: two flashes of a quarter to three quarters of a cell, each while a marker is on screen for four to eight cells.
- crowded: three objects of the same shape at different times; two other objects accompany one of them each.
- unanswerable: usual scripts, asked about shapes that never appear.

Objects 0 and 1 play their usual roles everywhere but in the crowded part, where 1, 2 and 3 are the look-alikes.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from gridprobe_world.world import (
    BROAD,
    CELL,
    DIGITS,
    EVENTS,
    NEVER,
    PATTERNS,
    PREJUDICE,
    SHAPES,
    Difficulty,
    Floats,
    Ints,
    Worlds,
    centres,
    colours,
    events,
    generate,
    lengths,
    permutations,
    scenes,
)

Part = Literal["standard", "fine", "brief", "crowded", "unanswerable"]
PARTS: tuple[Part, ...] = get_args(Part)

CROWD = 6
"""Objects of a script in the fine, brief and crowded parts."""
SMALL = 0.38
"""The scale of fine marks. A digit is then 15 pixels high in a frame of 224, six in one of 96, four in one of 64."""
PLATES = (*BROAD, "triangle")
NEEDLE = Difficulty(shortest=1.2 * CELL, longest=3 * CELL)
MARGIN = 0.75 * CELL


def generate_part(rng: np.random.Generator, count: int, part: Part, *, easy: float = 0.0) -> Worlds:
    """Draw `count` scripts of a part.

    Args:
        rng: the random generator.
        count: how many.
        part: of which part.
        easy: the share of scripts of the fine part whose marks are larger, up to the usual size: for training.
    """
    worlds = MAKERS[part](rng, count)
    if part == "fine" and easy:
        larger = np.exp(rng.uniform(np.log(SMALL), 0.0, (count, 1)))
        worlds.scale[:, 2:] = np.where(rng.random((count, 1)) < easy, larger, SMALL)
    return worlds


def _blank(rng: np.random.Generator, shape: Ints, quadrant: Ints) -> Worlds:
    """Scripts with only scene changes and object 0."""
    count = len(shape)
    cut, background = scenes(rng, count)
    start = np.full((count, CROWD, EVENTS), NEVER, dtype=np.float32)
    end = start.copy()
    lasting = rng.uniform(0.6, 1.0, count)
    start[:, 0, 0] = rng.random(count) * (1.0 - lasting)
    end[:, 0, 0] = start[:, 0, 0] + lasting
    return Worlds(
        shape=shape,
        colour=colours(rng, shape),
        digit=np.zeros_like(shape),
        centre=centres(quadrant),
        phase=rng.random((count, CROWD, 2), dtype=np.float32),
        radius=rng.uniform(0.16, 0.21, (count, CROWD)).astype(np.float32),
        start=start,
        end=end,
        cut=cut,
        background=background,
        texture=rng.random((count, 4), dtype=np.float32),
        scale=np.ones((count, CROWD), dtype=np.float32),
        pattern=np.zeros_like(shape),
    )


def _in_share(
    rng: np.random.Generator, share: Ints, length: npt.NDArray[np.float64], *, of: int, margin: float = MARGIN
) -> tuple[Floats, Floats]:
    """Start and end of events of some length, each at a random place in its share of the video."""
    first = share / of + margin + rng.random(share.shape) * (1 / of - 2 * margin - length)
    return first.astype(np.float32), (first + length).astype(np.float32)


def _fine(rng: np.random.Generator, count: int) -> Worlds:
    plates = np.array([SHAPES.index(name) for name in PLATES])
    others = np.array([number for number in range(len(SHAPES)) if number not in plates])
    shape = np.concatenate([others[permutations(rng, count, 3)[:, :2]], plates[permutations(rng, count, 4)]], axis=1)
    worlds = _blank(rng, shape, permutations(rng, count, 4)[:, [0, 1, 2, 3, 2, 3]])
    start, end = events(rng, count, Difficulty())
    worlds.start[:, 1], worlds.end[:, 1] = start[:, 1], end[:, 1]
    length = np.stack([lengths(rng, count, NEEDLE) for _ in range(4)], axis=1)
    worlds.start[:, 2:, 0], worlds.end[:, 2:, 0] = _in_share(rng, permutations(rng, count, 4), length, of=4)
    broad = shape[:, 2:] != SHAPES.index("triangle")
    lined = ~broad | ((broad.cumsum(axis=1) == 1) & broad)
    place = np.where(lined, lined.cumsum(axis=1), (~lined).cumsum(axis=1)) - 1
    pattern = np.take_along_axis(1 + permutations(rng, count, len(PATTERNS)), place, axis=1)
    digit = np.take_along_axis(1 + permutations(rng, count, len(DIGITS)), place, axis=1)
    worlds.pattern[:, 2:] = np.where(lined, pattern, 0)
    worlds.digit[:, 2:] = np.where(lined, 0, digit)
    worlds.scale[:, 2:] = SMALL
    worlds.radius[:, 2:] = rng.uniform(0.19, 0.21, (count, 4))
    return worlds


def _brief(rng: np.random.Generator, count: int) -> Worlds:
    """Objects 2 and 4 are the markers, 3 and 5 what flashes up while they are there."""
    shape = permutations(rng, count, len(SHAPES))[:, :CROWD]
    worlds = _blank(rng, shape, permutations(rng, count, 4)[:, [0, 1, 2, 3, 2, 3]])
    share = permutations(rng, count, 4)
    for marker, quarter in ((2, share[:, 0]), (4, share[:, 1])):
        long, short = rng.uniform(4, 8, count) * CELL, rng.uniform(0.25, 0.75, count) * CELL
        first, last = _in_share(rng, quarter, long, of=4)
        flash = first + 0.5 * CELL + rng.random(count) * (long - CELL - short)
        worlds.start[:, marker, 0], worlds.end[:, marker, 0] = first, last
        worlds.start[:, marker + 1, 0], worlds.end[:, marker + 1, 0] = flash, flash + short
    for event, happens in ((0, np.ones(count, dtype=bool)), (1, rng.random(count) < 0.5)):
        first, last = _in_share(rng, share[:, 2 + event], lengths(rng, count, Difficulty()), of=4)
        worlds.start[:, 1, event] = np.where(happens, first, NEVER)
        worlds.end[:, 1, event] = np.where(happens, last, NEVER)
    return worlds


def _crowded(rng: np.random.Generator, count: int) -> Worlds:
    """Objects 1, 2 and 3 look alike, one in each third of the video; 4 and 5 accompany two of them."""
    kinds = permutations(rng, count, len(SHAPES))
    ring = kinds[:, 0] == SHAPES.index(PREJUDICE[0])  # a favourite colour would give away the answer
    kinds[ring] = kinds[ring][:, [1, 0, 2, 3, 4, 5, 6]]
    worlds = _blank(rng, kinds[:, [1, 0, 0, 0, 2, 3]], permutations(rng, count, 4)[:, [0, 1, 1, 1, 2, 3]])
    length = np.stack([lengths(rng, count, Difficulty()) for _ in range(3)], axis=1)
    start, end = _in_share(rng, permutations(rng, count, 3), length, of=3, margin=3 * CELL)
    worlds.start[:, 1:4, 0], worlds.end[:, 1:4, 0] = start, end
    with_whom = permutations(rng, count, 3)[:, :2]
    early, late = rng.uniform(0, 2 * CELL, (2, count, 2))
    worlds.start[:, 4:, 0] = np.take_along_axis(start, with_whom, axis=1) - early
    worlds.end[:, 4:, 0] = np.take_along_axis(end, with_whom, axis=1) + late
    numbered = np.isin(kinds[:, 0], [SHAPES.index(name) for name in BROAD]) & (rng.random(count) < 0.7)
    worlds.digit[:, 1:4] = np.where(numbered[:, None], 1 + permutations(rng, count, len(DIGITS))[:, :3], 0)
    return worlds


MAKERS: dict[Part, Callable[[np.random.Generator, int], Worlds]] = {
    "standard": generate,
    "fine": _fine,
    "brief": _brief,
    "crowded": _crowded,
    "unanswerable": generate,
}
