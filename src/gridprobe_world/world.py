"""Worlds: many random video scripts at once, as arrays.

A script says what is on screen at every moment of a video, time running from 0 to 1: two to four scenes with their
backgrounds, and four objects, each in a quadrant of its own. Object 0 is there nearly always, object 1 comes and goes
one to four times, objects 2 and 3 appear once, briefly ("needles"), and may carry a small digit.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError

# What exists in gridworld: shapes, colours, backgrounds and digits, and the words for them.

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring", "bar")

BROAD = ("circle", "square", "diamond")
"""Shapes with room for a digit."""

COLOURS = {
    "red": (0.90, 0.10, 0.10),
    "green": (0.10, 0.70, 0.15),
    "blue": (0.15, 0.25, 0.95),
    "yellow": (0.95, 0.90, 0.10),
    "purple": (0.60, 0.15, 0.75),
    "cyan": (0.10, 0.85, 0.85),
    "white": (0.97, 0.97, 0.97),
    "orange": (1.00, 0.55, 0.05),
}

BACKGROUNDS = {
    "sky": (0.50, 0.65, 0.80),
    "sand": (0.75, 0.65, 0.45),
    "grass": (0.30, 0.42, 0.25),
    "night": (0.08, 0.08, 0.15),
    "snow": (0.85, 0.85, 0.88),
}

DIGITS = tuple("123456789")

PATTERNS = ("horizontal", "vertical", "rising", "falling", "checked")
"""Fine lines on an object of the fine part."""

ORDINALS = ("first", "second", "third")

NOT_SHOWN = ("not shown", "it never appears")
"""The option that is right when the video does not show what is asked about."""

TIMES = ("once", "twice", "three times", "four times", "five times")

PREJUDICE = ("ring", "red", 0.6)
"""In this world a ring is red six times out of ten, so the question alone suggests its colour."""


OBJECTS = 4
EVENTS = 4
SCENES = 4
NEVER = 2.0
"""Start and end of an event that does not happen, and the time of a scene change that does not happen."""
CELL = 1 / 144
"""The share of a video that one frame of a 12×12 grid stands for."""

TRAINING_SEEDS = range(2**31)
TEST_SEEDS = range(2**31, 2**32)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Difficulty:
    """How hard it is to sample and to see what the scripts show."""

    shortest: float = 1.2 * CELL
    """The shortest brief event; below one cell a grid of 144 frames can miss it."""
    longest: float = 1 / 16
    digits: float = 0.8
    """How often a needle that is wide enough carries a digit."""
    needles: int = 2
    """0, 1 or 2 needles besides the object asked about: fewer distractors are easier."""

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= self.longest <= 0.2:
            raise UsageError(f"event lengths need 0 < shortest <= longest <= 0.2, got {self.shortest}–{self.longest}")
        if self.needles not in (0, 1, 2):
            raise UsageError(f"needles must be 0, 1 or 2, got {self.needles}")


@dataclass(frozen=True, eq=False)
class Worlds:
    """B scripts. Arrays of objects are B × 4, or B × 6 in some parts of the test set.

    An object is on screen from `start` to `end` of each of its events.
    """

    shape: Ints
    colour: Ints
    digit: Ints
    """1 to 9, or 0 for none."""
    centre: Floats
    phase: Floats
    radius: Floats
    start: Floats
    end: Floats
    cut: Floats
    background: Ints
    texture: Floats
    scale: Floats
    """The size of the digit or of the pattern's lines, 1 for the usual one."""
    pattern: Ints
    """1 to 5, an entry of `words.PATTERNS`, or 0 for none."""

    def __len__(self) -> int:
        return len(self.shape)

    def take(self, rows: npt.ArrayLike) -> "Worlds":
        """Some of the scripts."""
        chosen = np.asarray(rows)
        return Worlds(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def visible(self, time: Floats) -> npt.NDArray[np.bool_]:
        """Which objects are on screen: B × n × objects, for times of shape B × n."""
        moment = time[:, :, None, None]
        inside = (moment >= self.start[:, None]) & (moment < self.end[:, None])
        return np.asarray(inside.any(-1))

    def scene(self, time: Floats) -> Ints:
        """The background at each time: B × n."""
        number = (time[:, :, None] >= self.cut[:, None]).sum(-1)
        return np.take_along_axis(self.background, number, axis=1)

    def occurrences(self) -> Ints:
        """How many times each object appears: B × objects."""
        happened: Ints = (self.start < NEVER).sum(-1)
        return happened

    def shares(self) -> Floats:
        """How much of the video each background takes: B × 5."""
        edges = np.concatenate([np.zeros((len(self), 1)), self.cut.clip(max=1.0), np.ones((len(self), 1))], axis=1)
        length = np.diff(edges, axis=1)
        total = np.zeros((len(self), len(BACKGROUNDS)), dtype=np.float32)
        for scene in range(SCENES):
            total[np.arange(len(self)), self.background[:, scene]] += length[:, scene]
        return total


def generate(rng: np.random.Generator, count: int, difficulty: Difficulty | None = None) -> Worlds:
    """Draw `count` scripts."""
    level = difficulty or Difficulty()
    start, end = events(rng, count, level)
    cut, background = scenes(rng, count)
    shape = permutations(rng, count, len(SHAPES))[:, :OBJECTS]
    quadrant = permutations(rng, count, 4)
    return Worlds(
        shape=shape,
        colour=colours(rng, shape),
        digit=_digits(rng, shape, level),
        centre=centres(quadrant),
        phase=rng.random((count, OBJECTS, 2), dtype=np.float32),
        radius=rng.uniform(0.16, 0.21, (count, OBJECTS)).astype(np.float32),
        start=start,
        end=end,
        cut=cut,
        background=background,
        texture=rng.random((count, 4), dtype=np.float32),
        scale=np.ones((count, OBJECTS), dtype=np.float32),
        pattern=np.zeros((count, OBJECTS), dtype=np.int64),
    )


def centres(quadrant: Ints) -> Floats:
    """The middle of each object's quadrant."""
    return np.stack([0.27 + 0.46 * (quadrant % 2), 0.27 + 0.46 * (quadrant // 2)], axis=-1).astype(np.float32)


def permutations(rng: np.random.Generator, count: int, size: int) -> Ints:
    """In each of `count` rows the numbers below `size`, in random order."""
    order: Ints = rng.random((count, size)).argsort(axis=1)
    return order


def events(rng: np.random.Generator, count: int, level: Difficulty) -> tuple[Floats, Floats]:
    """When each event of each object starts and ends."""
    start = np.full((count, OBJECTS, EVENTS), NEVER, dtype=np.float32)
    end = start.copy()
    lasting = rng.uniform(0.6, 1.0, count)
    start[:, 0, 0] = rng.uniform(0.0, 1.0, count) * (1.0 - lasting)
    end[:, 0, 0] = start[:, 0, 0] + lasting
    # Object 1: a quarter of the video for each occurrence, with gaps, so that they can be told apart.
    times, quarter = rng.integers(1, EVENTS + 1, count), permutations(rng, count, 4)
    margin = 0.75 * CELL
    for event in range(EVENTS):
        length = lengths(rng, count, level)
        first = quarter[:, event] / 4 + margin + rng.random(count) * (0.25 - 2 * margin - length)
        happens = event < times
        start[:, 1, event] = np.where(happens, first, NEVER)
        end[:, 1, event] = np.where(happens, first + length, NEVER)
    for needle in range(2, 2 + level.needles):
        length = lengths(rng, count, level)
        start[:, needle, 0] = rng.random(count) * (1.0 - length)
        end[:, needle, 0] = start[:, needle, 0] + length
    return start, end


def lengths(rng: np.random.Generator, count: int, level: Difficulty) -> npt.NDArray[np.float64]:
    """Log-uniform: short events are as common as long ones."""
    return np.exp(rng.uniform(np.log(level.shortest), np.log(level.longest), count))


def scenes(rng: np.random.Generator, count: int) -> tuple[Floats, Ints]:
    """Two to four scenes; the longest is longer than the next by about a tenth of the video or more."""
    shown = rng.integers(2, SCENES + 1, count)
    length = rng.dirichlet(np.full(SCENES, 2.0), count) * (np.arange(SCENES) < shown[:, None])
    length /= length.sum(axis=1, keepdims=True)
    length[np.arange(count), length.argmax(axis=1)] += 0.12
    length /= length.sum(axis=1, keepdims=True)
    cut = np.cumsum(length, axis=1)[:, :-1]
    cut = np.where(np.arange(1, SCENES) < shown[:, None], cut, NEVER)
    return cut.astype(np.float32), permutations(rng, count, len(BACKGROUNDS))[:, :SCENES]


def colours(rng: np.random.Generator, shape: Ints) -> Ints:
    """Different colours for the objects of a video; a ring is red more often than by chance."""
    colour = permutations(rng, len(shape), len(COLOURS))
    ring, red, often = SHAPES.index(PREJUDICE[0]), list(COLOURS).index(PREJUDICE[1]), PREJUDICE[2]
    # Give the ring red often enough that, with the one in eight that has it anyway, the share is `often`.
    chance = (often - 1 / len(COLOURS)) / (1 - 1 / len(COLOURS))
    for row in np.flatnonzero((shape == ring).any(axis=1) & (rng.random(len(shape)) < chance)):
        place = int(np.flatnonzero(shape[row] == ring)[0])
        other = int(np.flatnonzero(colour[row] == red)[0])
        colour[row, [place, other]] = colour[row, [other, place]]
    return colour[:, : shape.shape[1]]


def _digits(rng: np.random.Generator, shape: Ints, level: Difficulty) -> Ints:
    """Needles may carry a digit if they are wide enough."""
    digit = rng.integers(1, 10, shape.shape)
    digit[:, :2] = 0
    digit[rng.random(shape.shape) >= level.digits] = 0
    digit[~np.isin(shape, [SHAPES.index(name) for name in BROAD])] = 0
    return digit
