"""Training batches: which worlds, which of their frames, at which sizes, and what is asked about them.

Plain arrays, made on the CPU.

Frames are expensive and questions are cheap, so several questions follow the same frames, each as if it were alone.
Subsets are those of the method: rows, columns, uniform frames, and sets that hold the evidence more often than by
chance, from pools of 16 to 144 frames; some have more frames in a window. The frames of a sequence have one size, or a
few of them are large and the others small, or all are small and a few of them follow again, large (close-ups). The
target is always the true answer for the whole video, so a model that sees a subset without the evidence can only learn
to be uncertain. This makes it calibrated.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.importance import spread
from gridprobe.models.base import Packing
from gridprobe.question import Question
from gridprobe_world.parts import Part, generate_part
from gridprobe_world.questions import (
    FAMILIES,
    WorldQuestion,
    ask_about,
    ask_part,
    ask_yes_no,
    with_two_options,
)
from gridprobe_world.world import (
    BACKGROUNDS,
    CELL,
    COLOURS,
    DIGITS,
    NEVER,
    NOT_SHOWN,
    PATTERNS,
    SHAPES,
    TIMES,
    TRAINING_SEEDS,
    Worlds,
    generate,
)
from training.checkpoint import Sequences, Tokens, lay_out

# What the auxiliary tests and the captions ask for: the contents of every frame, from the script.

IGNORED = -100
EYE = (len(COLOURS) + 1, 10, len(PATTERNS) + 1)
"""Classes of the eye test's questions about a shape: its colour (the last is none), digit and pattern (0 is none)."""
MEMORY = (4, 6, 10)
"""Classes of the memory test's: earlier visits, shapes that came before, digit."""
READABLE = 57.0
"""A mark is readable if its scale times the side of the frame is at least this: fine ones from 150 pixels on."""
BARE = 16
"""One in this many visible shapes without a digit or pattern counts in these tests: more would outweigh the others.
Measured: with all of them nano's eye test was at 0.0065 and it could not tell one digit from another."""

Times = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def seen_in(worlds: Worlds, time: Times, side: Ints) -> Ints:
    """Colour, digit and pattern of every shape in every frame; digit and pattern only if they are readable.

    Args:
        worlds: the scripts.
        time: of the frames, B × n.
        side: of each frame in pixels, B × n.
    """
    row, frame, j = np.nonzero(worlds.visible(time))
    shape = worlds.shape[row, j]
    seen = np.full((3, *time.shape, len(SHAPES)), IGNORED)
    seen[0] = len(COLOURS)
    seen[0, row, frame, shape] = worlds.colour[row, j]
    counted = (frame + row + j) % BARE == 0
    clear = side[row, frame] * worlds.scale[row, j] >= READABLE
    digit, pattern = worlds.digit[row, j], worlds.pattern[row, j]
    visible = np.where(digit > 0, clear, counted)
    seen[1, row, frame, shape] = np.where(visible, digit, IGNORED)
    seen[2, row, frame, shape] = np.where(np.where(pattern > 0, clear, counted & clear), pattern, IGNORED)
    return seen


def recalled_by(worlds: Worlds, time: Times, side: Ints) -> Ints:
    """Of every visible shape: its earlier visits, shapes seen before it, and its digit; IGNORED out of sight."""
    shown = worlds.visible(time)
    came = shown & ~np.pad(shown, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    same = worlds.shape[:, :, None] == worlds.shape[:, None, :]
    # Objects of one shape differ only in their visits, so their visits and first moments are combined.
    visits = np.einsum("bnj,bij->bni", came.cumsum(axis=1), same) - 1
    first = np.where(shown.any(axis=1), shown.argmax(axis=1), time.shape[1])
    first = np.where(same, first[:, None, :], time.shape[1]).min(axis=-1)
    unique = ~np.tril(same, -1).any(axis=-1)
    earlier = ((first[:, :, None] > first[:, None, :]) & unique[:, None, :]).sum(-1)
    recalled = np.full((3, *time.shape, len(SHAPES)), IGNORED)
    row, frame, j = np.nonzero(shown)
    shape, digit = worlds.shape[row, j], worlds.digit[row, j]
    recalled[0, row, frame, shape] = visits[row, frame, j].clip(max=MEMORY[0] - 1)
    recalled[1, row, frame, shape] = earlier[row, j]
    clear = side[row, frame] * worlds.scale[row, j] >= READABLE
    visible = np.where(digit > 0, clear, (frame + row + j) % BARE == 0)
    recalled[2, row, frame, shape] = np.where(visible, digit, IGNORED)
    return recalled


def captions_of(worlds: Worlds, time: Times) -> list[str]:
    """What is on each frame, in words: "sand, red circle 3, blue ring; night, nothing; …"."""
    shown, scene = worlds.visible(time), worlds.scene(time)
    colours, grounds = list(COLOURS), list(BACKGROUNDS)
    digit = np.where(worlds.scale == 1, worlds.digit, 0)
    texts = []
    for row in range(len(worlds)):
        frames = []
        for frame in range(time.shape[1]):
            present = sorted(np.flatnonzero(shown[row, frame]), key=lambda j: worlds.shape[row, j])
            things = [f" {colours[worlds.colour[row, j]]} {SHAPES[worlds.shape[row, j]]}" for j in present]
            digits = [f" {digit[row, j]}" if digit[row, j] else "" for j in present]
            listed = "".join(f",{thing}{number}" for thing, number in zip(things, digits, strict=True))
            frames.append(f" {grounds[scene[row, frame]]}{listed or ', nothing'}")
        texts.append(";".join(frames).strip())
    return texts


FAMILY_WEIGHTS: dict[str, dict[str, float]] = {
    "standard": {
        "needle": 12,
        "detail": 26,
        "redundant": 6,
        "negation": 15,
        "count": 20,
        "order": 24,
        "holistic": 8,
        "prejudice": 4,
        "absent": 8,
        "no-option": 3,
    },
    "fine": {"pattern": 45, "print": 35, "redundant": 3, "holistic": 7, "absent": 8, "no-option": 2},
    "brief": {"flash-colour": 45, "flash-shape": 40, "redundant": 3, "holistic": 7, "absent": 3, "no-option": 2},
    "crowded": {"companion": 45, "ordinal": 40, "redundant": 3, "holistic": 7, "absent": 3, "no-option": 2},
}
PART_WEIGHTS: dict[str, dict[Part, float]] = {
    "micro": {"standard": 0.4, "fine": 0.3, "brief": 0.1, "crowded": 0.2},
    "nano": {"standard": 0.58, "fine": 0.17, "brief": 0.1, "crowded": 0.15},
}
"""Share of the videos of each part; nano has most to learn in the standard part."""
YES_NO, TWO_OPTIONS = 0.25, 0.15
"""Shares of the questions that are yes/no questions, and that have two options."""
CLAIMED = {"presence": 0.4, "sequence": 0.15}
"""Of the yes/no questions; the others are about the answer to a question of the part's families."""
APPENDED = 0.5
"""Of the sequences of frames of two sizes: in these all frames are small, and the large ones follow again."""
OFFERED = 0.12
"""How often "not shown" is an option of a question that the video answers."""
NAMED = ("colour", "digit", "pattern", "print", "flash-colour", "companion-colour", "companion-digit")
"""Wordings that name a shape, so that "not shown" could be the answer."""
SHORT = (1, 2, 3, 4, 4, 6, 8, 8, 12, 12, 12, 16)
MEDIUM = (*SHORT, 24, 36, 36, 64)
LONG = (*MEDIUM, 12, 12, 52, 64, 100, 144, 144, 144, 144, 144, 144, 144)
SIDES = (64, 96, 96, 96, 96, 128, 128, 160, 192, 224, 224, 224)
LONG_SIDES = (64, 96, 96, 96, 96, 128, 160, 224)
MIXED, LARGE = (64, 64, 96, 96, 96), (160, 224, 224, 224, 224, 224, 320, 448)
"""Sides of the small and of the large frames of a sequence with both."""
LARGE_FRAMES = (1, 2, 4, 4, 4, 8, 8, 12, 16, 24)
NATIVE = 150
"""Fine patterns and small digits are readable in frames of at least this side."""
MAX_SEQUENCES = 384
TAIL = 70
"""Tokens of a question, roughly."""
CAPTIONED = 4
"""Frames are described only if there are at most this many."""
WORD_LISTS = (SHAPES, tuple(COLOURS), tuple(BACKGROUNDS), DIGITS, TIMES, PATTERNS, (*COLOURS, *NOT_SHOWN))
LETTERS = "ABCDEFGH"
LINE = re.compile(r"[^\n]*\n+|[^\n]+")

Tail = tuple[list[int], list[int]]
"""Tokens after the frames, and for each the token to predict, or IGNORED."""


@dataclass(frozen=True, eq=False)
class FramesOfSize:
    """The frames of a batch that are shown at one size."""

    side: int
    index: npt.NDArray[np.int64]
    """Which frames of each sequence, in time order: B × m, twice as many as groups if frames are fused in pairs."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One training step's data, before rendering. All of it is made without the device."""

    worlds: Worlds
    time: npt.NDArray[np.float32]
    """When each frame is shown, from 0 to 1: B × n."""
    shown: tuple[FramesOfSize, ...]
    """Smaller frames first."""
    sequences: Sequences
    wanted: npt.NDArray[np.int64]
    """For each token to be predicted: its sequence, the position it is predicted at, and the token itself. 3 × m."""
    first: npt.NDArray[np.int64]
    """Which of the wanted tokens are the first of their tail; one for each entry of `family`."""
    seen: npt.NDArray[np.int64]
    """For the eye test, the colour, digit and pattern of every shape in every frame: 3 × B × n × shapes."""
    recalled: npt.NDArray[np.int64]
    """For the memory test, of every visible shape: how often it came before, how many shapes came before it, and its
    digit. 3 × B × n × shapes."""
    packing: Packing
    close_ups: int
    """How many of the last frames show earlier ones again, larger."""
    family: tuple[str, ...]
    """What each tail is about: a question's family, or "caption", "drill", "words", "yes-no" or "two-options"."""

    @property
    def bucket(self) -> str:
        """What the log calls batches like this one."""
        if len(self.shown) > 1:
            return "close-ups" if self.close_ups else "mixed"
        length = self.time.shape[1]
        if length == 144:
            return "all" if self.shown[0].side >= NATIVE else "small"
        return "many" if length >= 24 else "few"


@dataclass(frozen=True)
class Skills:
    """The state of a training. What is practised depends on what is learned, not on the time.

    Measured on one H200: with letters as the only signal, or with drill in 6% of the rows, option letters stayed at
    chance for 9 minutes. With drill on single frames only they were learned in 4, but not after many frames, and
    sequences grew long before short ones were understood.
    """

    progress: float = 0.0
    """Share of the training budget spent."""
    spelling: float = 0.0
    """How often the right letter is found for a given option, after any number of frames."""
    reading: float = 0.0
    """How often the easiest questions (redundant) about few frames are answered with the right letter."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many frames to show: more when few are understood."""
        return SHORT if self.reading < 0.7 else MEDIUM if self.reading < 0.85 else LONG

    @property
    def drill(self) -> float:
        """Share of the tails that only practise letters."""
        return 0.35 if self.spelling < 0.95 else 0.05

    @property
    def words(self) -> float:
        """Share of the tails that ask for the answer in words."""
        return 0.25 if self.reading < 0.85 else 0.05

    @property
    def easy(self) -> float:
        """Share of the fine part's scripts with larger marks: a model that reads these soon reads fine ones."""
        return 0.8 if self.progress < 0.2 else 0.4 if self.progress < 0.6 else 0.15

    @property
    def captions(self) -> float:
        """Share of the tails that describe every frame, if there are few."""
        return 0.2 if self.progress < 0.1 else 0.05


def offer_not_shown(original: WorldQuestion, rng: random.Random) -> WorldQuestion:
    """The same question with "not shown" in place of one of its wrong options."""
    question, right = original.question, original.right
    place = rng.choice([i for i, option in enumerate(question.options) if option != right])
    options = [*question.options[:place], rng.choice(NOT_SHOWN), *question.options[place + 1 :]]
    return replace(original, question=replace(question, options=tuple(options)))


def joined(several: Sequence[Worlds]) -> Worlds:
    """All scripts of several, with as many objects as the largest of them has; the added ones never appear."""
    width = max(each.shape.shape[1] for each in several)
    columns = []
    for each in fields(Worlds):
        arrays = [getattr(worlds, each.name) for worlds in several]
        if each.name in OF_OBJECTS:
            filler = {"start": NEVER, "end": NEVER, "radius": 1.0, "scale": 1.0}.get(each.name, 0)
            arrays = [_widened(array, width, filler) for array in arrays]
        columns.append(np.concatenate(arrays))
    return Worlds(*columns)


OF_OBJECTS = ("shape", "colour", "digit", "centre", "phase", "radius", "start", "end", "scale", "pattern")


def _widened(array: npt.NDArray[np.generic], width: int, filler: float) -> npt.NDArray[np.generic]:
    more = [(0, 0), (0, width - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
    return np.pad(array, more, constant_values=filler)


class BatchMaker:
    """Draws batches that suit what the model can already do."""

    def __init__(self, tokenizer: Any, *, seed: int, tokens: int, parts: dict[Part, float] | None = None) -> None:
        if seed not in TRAINING_SEEDS:
            raise ValueError(f"{seed} is not a training seed")
        self._rng = np.random.default_rng(seed)
        self._choose = random.Random(seed)
        self._tokenizer = tokenizer
        self._room_for = tokens
        self._tokens = Tokens(tokenizer)
        self._lines: dict[str, list[int]] = {}
        self._parts = parts or PART_WEIGHTS["micro"]

    def make(self, skills: Skills) -> Batch:
        """One batch for a model with these skills."""
        frames = self._choose.choice(skills.lengths)
        packing: Packing = "pairs" if skills.reading > 0.9 and self._choose.random() < 0.12 else "single"
        large, sides = self._sizes(frames, skills)
        together = 1 if packing == "single" else 2
        groups = (frames + together - 1) // together
        large = min(large, groups - 1)
        close_ups = large if packing == "single" and self._choose.random() < APPENDED else 0
        small = groups - large + close_ups
        prefix = sum((side // 32) ** 2 * n + 9 * n for side, n in zip(sides, (small, large), strict=True))
        asks = min(10, max(3, prefix // 100))
        count = max(2, min(MAX_SEQUENCES, self._room_for // (prefix + TAIL * asks)))
        worlds, parts = self._worlds(count, skills)
        time = self._subset(worlds, frames, laden=0.5 if skills.reading > 0.85 else 0.8)
        chosen = self._chosen(worlds, time[:, ::together], large)
        captions = captions_of(worlds, time) if frames <= CAPTIONED and not close_ups else [None] * count
        rows = [
            [self._tail(worlds, row, parts[row], captions[row], skills) for _ in range(asks)] for row in range(count)
        ]
        if not close_ups:
            return self._batch(worlds, time, rows, sizes=np.where(chosen, sides[1], sides[0]), packing=packing)
        again = np.nonzero(chosen)[1].reshape(count, large)
        return self._batch(worlds, time, rows, sizes=np.full(time.shape, sides[0]), again=again, larger=sides[1])

    def _sizes(self, frames: int, skills: Skills) -> tuple[int, tuple[int, int]]:
        """How many large frames, and the sides of the small and of the large ones."""
        if frames >= 4 and skills.reading > 0.85 and self._choose.random() < 0.45:
            sides = self._choose.choice(MIXED), self._choose.choice(LARGE)
            large = min(self._choose.choice(LARGE_FRAMES), frames // 2)
            return (min(large, 4) if sides[1] > 224 else large), sides
        side = self._choose.choice(SIDES if frames <= 36 else LONG_SIDES)
        if frames <= 8 and self._choose.random() < 0.03:
            side = 448
        return 0, (side, side)

    def _worlds(self, count: int, skills: Skills) -> tuple[Worlds, list[Part]]:
        """Scripts of all parts; only standard ones until those are understood."""
        if skills.reading < 0.7:
            return generate(self._rng, count), ["standard"] * count
        numbers = self._rng.multinomial(count, list(self._parts.values()))
        drawn = [(part, int(number)) for part, number in zip(self._parts, numbers, strict=True) if number]
        worlds = joined([generate_part(self._rng, number, part, easy=skills.easy) for part, number in drawn])
        return worlds, [part for part, number in drawn for _ in range(number)]

    def _chosen(self, worlds: Worlds, time: npt.NDArray[np.float32], large: int) -> npt.NDArray[np.bool_]:
        """Which frames are large: usually those with brief events, else adjacent ones, or any."""
        score = self._rng.random(time.shape)
        way = self._choose.random()
        if way < 0.7:
            wanted = self._rng.random((len(worlds), 1, worlds.shape.shape[1] - 1)) < 0.7
            score += 1.5 * (worlds.visible(time)[:, :, 1:] & wanted).any(-1)
        elif way < 0.85:
            score -= 9 * abs(time - self._rng.random((len(worlds), 1)))
        chosen = np.zeros(time.shape, dtype=bool)
        if large:
            np.put_along_axis(chosen, np.argpartition(-score, large - 1, axis=1)[:, :large], True, axis=1)
        return chosen

    def _tail(self, worlds: Worlds, row: int, part: Part, caption: str | None, skills: Skills) -> tuple[str, Tail]:
        """One task: practise letters, describe the frames, or answer in words or with a letter."""
        way = self._choose.random()
        if way < skills.drill:
            return "drill", self._drill()
        if caption is not None and way < skills.drill + skills.captions:
            return "caption", self._exchange("Describe each frame.", caption)
        question, family = self._ask(worlds, row, part)
        if question.wording != "never" and question.right and self._choose.random() < skills.words:
            prompt = f"Question: {question.question.text}\nAnswer with a short phrase."
            return "words", self._exchange(prompt, question.right)
        # If no option is right, any may be the target: a model can only learn to be uncertain.
        answer = question.question.answer or self._choose.choice(question.question.labels)
        return family, self._exchange(self._prompt(question.question), answer)

    def _drill(self) -> Tail:
        words = self._choose.choice(WORD_LISTS)
        options = self._choose.sample(words, self._choose.randint(2, min(8, len(words))))
        if self._choose.random() < 0.4:
            right = self._choose.choice(options)
            prompt = self._prompt(Question(f"Which option says {right}?", options))
            return self._exchange(prompt, LETTERS[options.index(right)])
        tokens = [*self._encode(self._prompt(Question("Name the letter of each option.", options))), *self._tokens.turn]
        labels = [IGNORED] * len(tokens)
        for place in self._choose.choices(range(len(options)), k=8):  # with repeats, so that none can be guessed
            ids, letter = self._encode(f" {options[place]}"), self._encode(LETTERS[place])[0]
            tokens += [*ids, letter, self._tokens.comma]
            labels += [*[IGNORED] * (len(ids) - 1), letter, IGNORED, IGNORED]
        return tokens, labels

    def _prompt(self, question: Question) -> str:
        """The prompt, sometimes in the wording of the paper."""
        return replace(question, template="paper").prompt if self._choose.random() < 0.15 else question.prompt

    def _exchange(self, prompt: str, answer: str) -> Tail:
        prompt_ids, answer_ids = [*self._encode(prompt), *self._tokens.turn], [*self._encode(answer), self._tokens.stop]
        return [*prompt_ids, *answer_ids], [IGNORED] * (len(prompt_ids) - 1) + [*answer_ids, IGNORED]

    def _encode(self, text: str) -> list[int]:
        """Line by line, since no token crosses a line and the same lines are repeated."""
        ids: list[int] = []
        for line in LINE.findall(text):
            if line not in self._lines:
                self._lines[line] = self._tokenizer.encode(line, add_special_tokens=False)
            ids += self._lines[line]
        return ids

    def _ask(self, worlds: Worlds, row: int, part: Part) -> tuple[WorldQuestion, str]:
        """A question, and what the log calls its kind."""
        weights = FAMILY_WEIGHTS[part]
        way = self._choose.random()
        while True:
            family = self._choose.choices(list(weights), list(weights.values()))[0]
            if way < YES_NO:
                claim = self._choose.choices([*CLAIMED, family], [*CLAIMED.values(), 1 - sum(CLAIMED.values())])[0]
                question = ask_yes_no(worlds, row, claim, self._choose)
            elif family in FAMILIES:
                question = ask_about(worlds, row, family, self._choose)
            else:
                question = ask_part(worlds, row, family, self._choose)
            if question is None:
                continue
            if way < YES_NO:
                return question, "yes-no"
            if question.objects and question.wording in NAMED and self._choose.random() < OFFERED:
                question = offer_not_shown(question, self._choose)
            if way < YES_NO + TWO_OPTIONS:
                return with_two_options(question, self._choose), "two-options"
            return question, question.family

    def _subset(self, worlds: Worlds, frames: int, *, laden: float) -> npt.NDArray[np.float32]:
        """Rows, columns and uniform frames, and with the given probability sets that hold some of the brief events."""
        if frames >= 16 and self._choose.random() < 0.15:
            return self._zoomed(worlds, frames)
        k = self._choose.choice([k for k in (4, 6, 8, 12, 12, 12, 12) if k * k >= frames])
        pool = np.tile(((np.arange(k * k) + 0.5) / k**2).astype(np.float32), (len(worlds), 1))
        if frames == k * k:
            return pool
        if self._choose.random() < laden:
            self._meet_flashes(worlds, pool)
            wanted = self._rng.random((len(worlds), 1, worlds.shape.shape[1] - 1)) < 0.6
            wanted &= self._rng.random((len(worlds), 1, 1)) < 0.85
            events = (worlds.visible(pool)[:, :, 1:] & wanted).any(-1)
            return _pick(pool, self._rng.random(pool.shape) + 1.5 * events, frames)
        if frames == k and self._choose.random() < 0.75:
            first = self._rng.integers(0, k, (len(worlds), 1))
            row, column = first * k + np.arange(k), first + np.arange(k) * k
            return np.take_along_axis(pool, row if self._choose.random() < 0.5 else column, axis=1)
        return pool[:, list(spread(k * k, frames))]

    def _zoomed(self, worlds: Worlds, frames: int) -> npt.NDArray[np.float32]:
        """Uniform frames, and between them a quarter or half of the frames in a window around one event."""
        close = frames // self._choose.choice((2, 4))
        column = self._rng.integers(1, worlds.shape.shape[1], len(worlds))
        row, whole = np.arange(len(worlds)), np.arange(frames - close) + 0.5
        start, end = (edge[row, column, 0][:, None] for edge in (worlds.start, worlds.end))
        room = self._rng.uniform(0, 4 * CELL, (2, len(worlds), 1))
        start, end = np.where(start < NEVER, start - room[0], 0.4), np.where(start < NEVER, end + room[1], 0.5)
        start, end = start.clip(0, 1), end.clip(0, 1)
        inside = start + (np.arange(close) + 0.37) / close * (end - start)
        outside = np.tile(whole / (frames - close), (len(worlds), 1))
        return np.sort(np.concatenate([inside, outside], axis=1), axis=1).astype(np.float32)

    def _meet_flashes(self, worlds: Worlds, pool: npt.NDArray[np.float32]) -> None:
        """Move frames to the nearest events that are shorter than a cell, for most of the scripts."""
        start, end = worlds.start[:, :, 0], worlds.end[:, :, 0]
        row, j = np.nonzero((end - start < CELL) & (start < NEVER) & (self._rng.random(start.shape) < 0.8))
        middle = (start[row, j] + end[row, j]) / 2
        pool[row, (middle * pool.shape[1]).astype(np.int64)] = middle

    def _batch(
        self,
        worlds: Worlds,
        time: npt.NDArray[np.float32],
        rows: list[list[tuple[str, Tail]]],
        *,
        sizes: npt.NDArray[np.int64],
        packing: Packing = "single",
        again: Ints | None = None,
        larger: int = 0,
    ) -> Batch:
        """The batch with frames of these sizes; those of the places `again` follow once more, larger."""
        side = sizes if packing == "single" else np.repeat(sizes, 2, axis=1)[:, : time.shape[1]]
        recalled = recalled_by(worlds, time, side)
        close_ups = 0
        if again is not None:
            close_ups = again.shape[1]
            once_more = recalled_by(worlds, time, np.full_like(side, larger))
            place = np.broadcast_to(again[None, :, :, None], (*once_more.shape[:2], close_ups, len(SHAPES)))
            recalled = np.concatenate([recalled, np.take_along_axis(once_more, place, axis=2)], axis=2)
            time = np.concatenate([time, np.take_along_axis(time, again, axis=1)], axis=1)
            sizes = side = np.concatenate([sizes, np.full_like(again, larger)], axis=1)
        duration = np.exp(self._rng.uniform(np.log(20.0), np.log(7200.0), (len(worlds), 1)))
        seconds = time * duration
        groups = pair_times(seconds) if packing == "pairs" else seconds
        tails = [[tokens for _, (tokens, _) in row] for row in rows]
        tenths = np.rint(groups * 10).astype(np.int64)
        sequences = lay_out(tenths, tails, sizes // 32, self._tokens, close_ups=close_ups)
        width = sequences.ids.shape[1] - sequences.tail.shape[1]
        wanted: list[tuple[int, int, int]] = []
        first = []
        for number, row in enumerate(rows):
            column = width
            for _, (tokens, labels) in row:
                first.append(len(wanted))
                wanted += [(number, column + i, label) for i, label in enumerate(labels) if label != IGNORED]
                column += len(tokens)
        shown = _shown(sizes, time.shape[1], packing)
        return Batch(
            worlds,
            time,
            shown,
            sequences,
            wanted=np.array(wanted).T,
            first=np.array(first),
            seen=seen_in(worlds, time, side),
            recalled=recalled,
            packing=packing,
            close_ups=close_ups,
            family=tuple(family for row in rows for family, _ in row),
        )


def _shown(sizes: npt.NDArray[np.int64], frames: int, packing: Packing) -> tuple[FramesOfSize, ...]:
    """Frames by size, where `sizes` are those of the groups."""
    found = []
    for side in np.unique(sizes):
        index = np.nonzero(sizes == side)[1].reshape(len(sizes), -1)
        if packing == "pairs":  # an odd last frame is paired with itself
            index = np.stack([2 * index, np.minimum(2 * index + 1, frames - 1)], axis=-1).reshape(len(sizes), -1)
        found.append(FramesOfSize(int(side), index))
    return tuple(found)


def _pick(pool: npt.NDArray[np.float32], score: npt.NDArray[np.float64], frames: int) -> npt.NDArray[np.float32]:
    """The highest scores of each row, back in time order."""
    index = np.sort(np.argpartition(-score, frames - 1, axis=1)[:, :frames], axis=1)
    return np.take_along_axis(pool, index, axis=1)


def pair_times(seconds: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """The mean time of every two frames of a row; a last odd frame keeps its own."""
    first, second = seconds[:, 0::2], seconds[:, 1::2]
    if second.shape[1] < first.shape[1]:
        second = np.concatenate([second, first[:, -1:]], axis=1)
    middle: npt.NDArray[np.floating] = (first + second) / 2
    return middle
