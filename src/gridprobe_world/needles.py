"""Needles: questions about what a few frames of a made-up video show, to measure a model with.

    for needle in needles(seed=1, count=12):                       # for any vision-language model
        needle.frames, needle.question, needle.evidence
    for needle in needles(seed=1, count=12, wording="world"):      # for the embedded models: what they were trained on

A plain scene is a background that changes slowly. For one to three frames a sign is there: a plate with a digit or a
word, or a coloured shape. Up to three more signs appear at other times, and what they show are the wrong options, so
neither the question alone nor "whatever stands out" finds the answer.

Needle i of a seed is the same for any count. Every four needles have the answers A, B, C and D once each, and every
three have their evidence once in each third of the video.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeVar, cast, get_args

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.ImageFont import FreeTypeFont

from gridprobe.errors import UsageError
from gridprobe.question import Question
from gridprobe.video import FramePool, Pending
from gridprobe.video.frames import Pixels
from gridprobe_world.parts import generate_part
from gridprobe_world.questions import WorldQuestion, ask_about, ask_part
from gridprobe_world.render import COLOUR_RGB, DISTANCES, INK, Renderer
from gridprobe_world.world import COLOURS, DIGITS, PATTERNS, SHAPES, Difficulty, Worlds, generate

Wording = Literal["plain", "world"]
NeedleKind = Literal["plain", "fine"]
Place = Literal["first", "middle", "last"]
PLACES: tuple[Place, ...] = get_args(Place)
LETTERS = "ABCD"
SUBJECTS: dict[tuple[Wording, NeedleKind], tuple[str, ...]] = {
    ("plain", "plain"): ("digit", "word", "colour"),
    ("plain", "fine"): ("digit", "word"),
    ("world", "plain"): ("needle", "detail"),
    ("world", "fine"): ("pattern", "print"),
}
"""What is asked for; gridworld's are families of its questions."""
SIDES: dict[Wording, int] = {"plain": 448, "world": 224}
GLYPH, LEAST, SMALL_SIDE = 10, 64, 96
"""Pixels in height that a digit or a capital needs to be read; the smallest `legible_at`, as a word that can be read in
smaller frames would not fit into its own; and what it is for plain needles."""
LONGEST = 3
"""The most frames that a sign of a plain scene is shown for."""
FASTEST, SLOWEST = 60 / 144, 3600 / 144
"""Seconds from frame to frame, log-uniform between these: what 144 frames of a minute, or of an hour, have."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Needle:
    """A question whose evidence is known to the frame."""

    frames: FramePool
    """At full size, drawn when they are first read."""
    question: Question
    """With four options and the answer."""
    evidence: tuple[int, ...]
    """The positions of the frames that show it."""
    kind: NeedleKind
    """A "plain" one can be read in small frames too; a "fine" one can be found in them, but not read."""
    place: Place
    """The third of the video in which the evidence is."""


def needles(
    seed: int,
    count: int,
    *,
    wording: Wording = "plain",
    kind: NeedleKind = "plain",
    frames: int = 144,
    size: tuple[int, int] | None = None,
    legible_at: int | None = None,
    place: Place | None = None,
) -> Iterator[Needle]:
    """Make needles, one at a time.

    Args:
        seed: the same seed gives the same needles.
        count: how many.
        wording: "plain" is English and pictures that explain themselves; "world" is gridworld's own, which the
            embedded models need.
        kind: "plain" or "fine"; see `Needle.kind`.
        frames: how many frames a video has.
        size: width and height of the frames, by default 448 × 448; gridworld's are square, by default 224 × 224.
        legible_at: the shorter side, in pixels, of the smallest frame in which a digit or a capital is still 10 pixels
            high; by default 96, and for fine needles the full size. gridworld's own marks have fixed sizes.
        place: the third of the video that holds the evidence; by default each in turn, in random order.
    """
    _one_of("wording", wording, SIDES)
    _one_of("kind", kind, get_args(NeedleKind))
    _one_of("place", place or PLACES[0], PLACES)
    size = size or (SIDES[wording],) * 2
    _check(count, frames, size, legible_at, world=wording == "world")
    glyph = GLYPH * min(size) / (legible_at or (min(size) if kind == "fine" else SMALL_SIDE))
    name = f"{wording}:{kind}:{seed}"
    letters, places = _rounds(LETTERS, f"{name}:letters"), _rounds(PLACES, f"{name}:places")
    subjects = _rounds(SUBJECTS[wording, kind], f"{name}:subjects")

    def make(number: int, subject: str, letter: str, where: Place) -> Needle:
        rng = random.Random(f"{name}:{number}")
        if wording == "world":
            pool, question, evidence = _from_world(rng, subject, frames, size[0], where)
        else:
            pool, question, evidence = _from_scene(rng, subject, frames, size, where, glyph=glyph)
        return Needle(pool, _lettered(question, letter), evidence, kind, where)

    streams = zip(range(count), subjects, letters, places, strict=False)
    return (make(number, subject, letter, place or third) for number, subject, letter, third in streams)


def _one_of(what: str, value: str, values: Iterable[str]) -> None:
    if value not in values:
        raise UsageError(f"{what} must be one of {', '.join(values)}, got {value!r}")


def _check(count: int, frames: int, size: tuple[int, int], legible_at: int | None, *, world: bool) -> None:
    if count < 0:
        raise UsageError(f"count cannot be {count}; give 0 or more")
    if frames < 1 or min(size) < LEAST:
        raise UsageError(f"needles need at least 1 frame of {LEAST} × {LEAST}, got {frames} of {size[0]} × {size[1]}")
    if world and (size[0] != size[1] or legible_at is not None or frames < FEWEST):
        raise UsageError(f"needles of gridworld need {FEWEST} square frames or more, and have no legible_at")
    if legible_at is not None and legible_at < LEAST:
        raise UsageError(f"legible_at must be at least {LEAST} pixels, got {legible_at}")


def _rounds(choices: Sequence[T], seed: str) -> Iterator[T]:
    """All choices in random order, again and again."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(choices, len(choices))


def _lettered(question: Question, letter: str) -> Question:
    """The question, whose first option is right, with the right one under this letter."""
    right, *wrong = question.options
    wrong.insert(LETTERS.index(letter), right)
    return replace(question, options=tuple(wrong), answer=letter)


def _third(place: Place, frames: int) -> range:
    first = frames * PLACES.index(place) // 3
    return range(first, max(first + 1, frames * (PLACES.index(place) + 1) // 3))


def _pool(draw: "_Scene | Renderer", rng: random.Random, frames: int, size: tuple[int, int]) -> FramePool:
    """Frames that are drawn when they are needed, evenly spaced in time."""

    def pixels(rows: Sequence[int]) -> Pixels:
        moments = [(row + 0.5) / frames for row in rows]
        return np.stack([draw.frame(moment) for moment in moments])

    gap = math.exp(rng.uniform(math.log(FASTEST), math.log(SLOWEST)))
    data = Pending(pixels, (frames, size[1], size[0], 3), whole=False)
    return FramePool(data, tuple((row + 0.5) * gap for row in range(frames)), source="needle")


# In gridworld's own words and look.

FEWEST = 6
"""With fewer frames the shortest event would be longer than gridworld's events can be."""
WORDS: tuple[tuple[str, ...], ...] = (tuple(COLOURS), DIGITS, PATTERNS)


def _from_world(
    rng: random.Random, family: str, frames: int, side: int, place: Place
) -> tuple[FramePool, Question, tuple[int, ...]]:
    """The first script that can be asked about, with all its evidence in this third of the frames."""
    third = set(_third(place, frames))
    while True:
        worlds, asked = _asked(rng, family, frames)
        evidence = _shown(asked, frames) if asked else ()
        if asked and evidence and third.issuperset(evidence):
            words = next(words for words in WORDS if asked.right in words)
            wrong = rng.sample([word for word in words if word != asked.right], len(LETTERS) - 1)
            question = replace(asked.question, options=(asked.right, *wrong), answer=None)
            return _pool(Renderer(worlds, side), rng, frames, (side, side)), question, evidence


def _asked(rng: random.Random, family: str, frames: int) -> tuple[Worlds, WorldQuestion | None]:
    """A script and a question about it, if it suits; events of the standard part last about one to three frames."""
    seed = np.random.default_rng(rng.getrandbits(64))
    if family in SUBJECTS["world", "fine"]:
        worlds = generate_part(seed, 1, "fine")
        return worlds, ask_part(worlds, 0, family, rng)
    worlds = generate(seed, 1, Difficulty(shortest=min(0.2, 1.2 / frames), longest=min(0.2, LONGEST / frames)))
    return worlds, ask_about(worlds, 0, family, rng)


def _shown(asked: WorldQuestion, frames: int) -> tuple[int, ...]:
    """The frames that show the evidence."""
    moments = ((row, (row + 0.5) / frames) for row in range(frames))
    return tuple(row for row, moment in moments if any(start <= moment < end for start, end in asked.evidence))


# Plain scenes.

DISTRACTORS = 3
SIGN_COLOURS = ("red", "green", "blue", "yellow", "purple", "white", "orange")
"""Everybody has the same names for these."""
SIGN_SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
SIGN_WORDS = ("LION", "BOAT", "TREE", "CAKE", "ROSE", "FISH", "MOON", "BIRD", "DOOR", "LAMP", "HAND", "ROAD")
TEXTS = {
    "digit": "Which digit is written on the {} plate?",
    "word": "Which word is written on the {} plate?",
    "colour": "What colour is the {}?",
}
PLATE = (0.34, 0.26)
"""The least width and height of a plate, and the first that of a shape, as shares of the frame's shorter side: it can
be found in frames of 64 pixels."""


@dataclass(frozen=True)
class _Sign:
    """What is on screen for some frames."""

    rows: range
    colour: str
    shape: str
    """One of `SIGN_SHAPES`, or empty for a plate."""
    text: str
    centre: tuple[float, float]
    """Shares of the way from where it touches the left and upper border to where it touches the right and lower."""


def _from_scene(
    rng: random.Random, subject: str, frames: int, size: tuple[int, int], place: Place, *, glyph: float
) -> tuple[FramePool, Question, tuple[int, ...]]:
    """A scene with a sign in this third of the frames, and up to three others elsewhere."""
    count = DISTRACTORS + 1
    colours, shapes = rng.sample(SIGN_COLOURS, count), rng.sample(SIGN_SHAPES, count)
    texts = rng.sample(DIGITS if subject == "digit" else SIGN_WORDS, count)
    lettered = subject != "colour"
    signs = [
        _Sign(rows, colour, "" if lettered else shape, text if lettered else "", (rng.random(), rng.random()))
        for rows, colour, shape, text in zip(_spans(rng, frames, place), colours, shapes, texts, strict=False)
    ]
    text = TEXTS[subject].format(colours[0] if lettered else shapes[0])
    question = Question(text, options=texts if lettered else colours)
    scene = _Scene(size, frames, tuple(signs), rng.random(), max(1, round(glyph)))
    return _pool(scene, rng, frames, size), question, tuple(signs[0].rows)


def _spans(rng: random.Random, frames: int, place: Place) -> list[range]:
    """The frames of the sign that is asked about, and of others where there is room; none touches another."""
    third = _third(place, frames)
    length = min(len(third), rng.randint(1, LONGEST))
    first = rng.randrange(third.start, third.stop - length + 1)
    spans = [range(first, first + length)]
    for _ in range(DISTRACTORS):
        length = rng.randint(1, LONGEST)
        free = [
            range(start, start + length)
            for start in range(frames - length + 1)
            if all(start > span.stop or start + length < span.start for span in spans)
        ]
        spans += [rng.choice(free)] if free else []
    return spans


@dataclass(frozen=True, eq=False)
class _Scene:
    """A video of a plain scene."""

    size: tuple[int, int]
    frames: int
    signs: tuple[_Sign, ...]
    phase: float
    glyph: int
    """The height of a digit or a capital in pixels."""

    def frame(self, moment: float) -> Pixels:
        """The frame at a moment from 0 to 1."""
        ground = _background(self.size, moment + self.phase)
        row = int(moment * self.frames)
        for sign in self.signs:
            if row in sign.rows:
                return self._shape(ground, sign) if sign.shape else self._plate(ground, sign)
        return ground

    def _plate(self, ground: Pixels, sign: _Sign) -> Pixels:
        font, picture = _font(self.glyph), Image.fromarray(ground)
        least = [round(share * min(self.size)) for share in PLATE]
        wide, high = max(least[0], round(font.getlength(sign.text)) + self.glyph), max(least[1], 2 * self.glyph)
        x, y = (round(at * (full - own)) for at, full, own in zip(sign.centre, self.size, (wide, high), strict=True))
        ink = (255,) * 3 if INK[_colour(sign)] > 0.5 else (0, 0, 0)
        draw = ImageDraw.Draw(picture)
        draw.rectangle((x, y, x + wide - 1, y + high - 1), fill=_rgb(sign))
        left, top, right, bottom = font.getbbox(sign.text)
        corner = x + (wide - left - right) / 2, y + (high - top - bottom) / 2
        draw.text(corner, sign.text, ink, font)
        return np.array(picture)

    def _shape(self, ground: Pixels, sign: _Sign) -> Pixels:
        radius = PLATE[0] * min(self.size) / 2
        x, y = (
            (np.arange(full) + 0.5 - radius - at * (full - 2 * radius)) / radius
            for at, full in zip(sign.centre, self.size, strict=True)
        )
        distance = DISTANCES[SHAPES.index(sign.shape)](x[None, :], y[:, None], np)
        cover = np.clip(0.5 - distance * radius, 0, 1)[..., None]
        painted: Pixels = np.rint(ground + cover * (np.array(_rgb(sign)) - ground)).astype(np.uint8)
        return painted


def _background(size: tuple[int, int], moment: float) -> Pixels:
    """A grey ground, lit from a side that goes round, in a tint that changes: no two frames of a video are equal."""
    width, height = size
    turn = 2 * np.pi * moment
    tint = 112.5 + 14 * np.sin(turn + np.arange(3))
    across = 18 * np.cos(turn) * np.linspace(-1, 1, width)[:, None] + tint
    down = 18 * np.sin(turn) * np.linspace(-1, 1, height)
    # One sum of a row and a column is several times as fast as one with an axis of three colours.
    ground: Pixels = (across.astype(np.float32).reshape(1, -1) + down.astype(np.float32)[:, None]).astype(np.uint8)
    return ground.reshape(height, width, 3)


def _colour(sign: _Sign) -> int:
    return list(COLOURS).index(sign.colour)


def _rgb(sign: _Sign) -> tuple[int, int, int]:
    red, green, blue = (round(255 * float(part)) for part in COLOUR_RGB[_colour(sign)])
    return red, green, blue


@lru_cache(maxsize=64)
def _font(height: int) -> FreeTypeFont:
    """Pillow's own font with capitals that are this high."""
    _, top, _, bottom = ImageFont.load_default(size=1000).getbbox("H")
    return cast(FreeTypeFont, ImageFont.load_default(size=1000 * height / (bottom - top)))
