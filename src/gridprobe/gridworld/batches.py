"""Training batches: which worlds, which of their frames, and what is asked about them; plain arrays, made on the CPU.

Subsets are those the method uses: rows, columns, uniform frames, and sets that hold the evidence more often than
chance, from pools of 16 to 144 frames. The answer asked for is always the true one for the whole video, so a model that
sees a subset without the evidence can only learn to be unsure, and calibration comes by itself.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.backends.base import Packing, group_times
from gridprobe.budget import spread
from gridprobe.gridworld.layout import Sequences, Tokens, lay_out
from gridprobe.gridworld.questions import Asked, ask_about
from gridprobe.gridworld.words import BACKGROUNDS, COLOURS, DIGITS, SHAPES, TIMES
from gridprobe.gridworld.world import TRAINING_SEEDS, Worlds, generate
from gridprobe.question import Question

__all__ = ["IGNORED", "Batch", "BatchMaker", "Skills"]

IGNORED = -100
FAMILY_WEIGHTS = {
    "needle": 12,
    "detail": 14,
    "redundant": 5,
    "negation": 14,
    "count": 20,
    "order": 25,
    "holistic": 7,
    "prejudice": 4,
}
SHORT = (1, 2, 3, 4, 4, 6, 8, 8, 12, 12, 12, 16)
MEDIUM = (*SHORT, 24, 36, 36, 64)
LONG = (*MEDIUM, 52, 64, 100, 144, 144, 144, 144, 144, 144)
SIDES = (64, 96, 96, 96, 96, 128, 128, 160, 192, 224, 224, 224)
LONG_SIDES = (64, 96, 96, 96, 96, 128, 160, 224)
MAX_SEQUENCES = 512
WORD_LISTS = (SHAPES, tuple(COLOURS), tuple(BACKGROUNDS), DIGITS, TIMES)
LETTERS = "ABCDEFGH"


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees, before rendering. All of it is known before the device is involved."""

    worlds: Worlds
    time: npt.NDArray[np.float32]
    """When each frame is shown, from 0 to 1: B × n."""
    sequences: Sequences
    wanted: npt.NDArray[np.int64]
    """For each token to be predicted: its sequence, the place it is predicted at, and the token itself. 3 × m."""
    seen: npt.NDArray[np.int64]
    """For the eye test, the colour and the digit of every shape in every frame: 2 × B × n × shapes."""
    side: int
    packing: Packing
    family: tuple[str, ...]
    """What each row is about: a question's family, or "caption", "drill" or "words"."""

    @property
    def first(self) -> npt.NDArray[np.bool_]:
        """Which of the wanted tokens are the first of their sequence."""
        return np.asarray(np.diff(self.wanted[0], prepend=-1) != 0)


@dataclass(frozen=True)
class Skills:
    """Where a training stands. What is practised follows what is mastered, not the clock.

    Measured on one H200: with letters as the only signal, or with drill in 6 % of the rows, option letters stayed at
    chance for 9 minutes; with drill on single frames only they were learned in 4, but not behind many frames, and
    sequences grew long before short ones were understood.
    """

    progress: float = 0.0
    """Share of the training budget spent."""
    spelling: float = 0.0
    """How often the right letter is found for a given option, behind any number of frames."""
    reading: float = 0.0
    """How often easy questions (redundant, holistic) about few frames are answered with the right letter."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many frames to show: more when few are understood."""
        return SHORT if self.reading < 0.8 else MEDIUM if self.reading < 0.9 else LONG

    @property
    def drill(self) -> float:
        """Share of the rows that only practise letters."""
        return 0.35 if self.spelling < 0.95 else 0.05


class BatchMaker:
    """Draws batches that suit what the model can already do."""

    def __init__(self, tokenizer: Any, *, seed: int, tokens: int) -> None:
        if seed not in TRAINING_SEEDS:
            raise ValueError(f"{seed} is not a training seed")
        self._rng = np.random.default_rng(seed)
        self._choose = random.Random(seed)
        self._tokenizer = tokenizer
        self._room_for = tokens
        self._tokens = Tokens(tokenizer)

    def make(self, skills: Skills) -> Batch:
        """One batch for a model with these skills."""
        captions = 0.30 if skills.progress < 0.05 else 0.10 if skills.progress < 0.15 else 0.03
        return self._caption() if self._choose.random() < captions else self._questions(skills)

    def _drill_tail(self) -> tuple[list[int], list[int]]:
        words = self._choose.choice(WORD_LISTS)
        options = self._choose.sample(words, self._choose.randint(3, min(8, len(words))))
        if self._choose.random() < 0.4:
            right = self._choose.choice(options)
            prompt = self._asked(Question(f"Which option says {right}?", options))
            return self._tail(prompt, LETTERS[options.index(right)])
        tokens = [*self._encode(self._asked(Question("Name the letter of each option.", options))), *self._tokens.turn]
        labels = [IGNORED] * len(tokens)
        for place in self._choose.choices(range(len(options)), k=8):  # with repeats, so that none can be guessed
            said, letter = self._encode(f" {options[place]}"), self._encode(LETTERS[place])[0]
            tokens += [*said, letter, self._tokens.comma]
            labels += [*[IGNORED] * (len(said) - 1), letter, IGNORED, IGNORED]
        return tokens, labels

    def _asked(self, question: Question) -> str:
        """The prompt, now and then in the wording of the paper."""
        return replace(question, template="paper").prompt if self._choose.random() < 0.15 else question.prompt

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _caption(self) -> Batch:
        frames, side = 4, self._choose.choice((96, 96, 128, 224))
        count = min(256, self._room(frames, side, 90))
        worlds = generate(self._rng, count)
        pool = self._pool(count, 144)
        shown = worlds.visible(pool)
        time = _pick(pool, self._rng.random(pool.shape) + 0.6 * shown[:, :, 1:].sum(-1), frames)
        texts = _captions(worlds, time)
        tails = [self._tail("Describe each frame.", text) for text in texts]
        return self._batch(worlds, time, tails, side=side, packing="single", family=("caption",) * count)

    def _questions(self, skills: Skills) -> Batch:
        frames = self._choose.choice(skills.lengths)
        side = self._choose.choice(SIDES if frames <= 36 else LONG_SIDES)
        if frames <= 8 and self._choose.random() < 0.03:
            side = 448
        packing: Packing = "pairs" if skills.reading > 0.9 and self._choose.random() < 0.12 else "single"
        k = self._choose.choice([k for k in (4, 6, 8, 12, 12, 12) if k * k >= frames])
        worlds = generate(self._rng, self._room(frames, side, 70))
        asked = [self._ask(worlds, row) for row in range(len(worlds))]
        time = self._subset(worlds, asked, k, frames)
        rows = [self._row(each, skills) for each in asked]
        tails, families = [tail for tail, _ in rows], tuple(family for _, family in rows)
        return self._batch(worlds, time, tails, side=side, packing=packing, family=families)

    def _row(self, asked: Asked, skills: Skills) -> tuple[tuple[list[int], list[int]], str]:
        """What one row asks: letter practice, the answer in words, or the answer as a letter."""
        way, question = self._choose.random(), asked.question
        if way < skills.drill:
            return self._drill_tail(), "drill"
        if way < skills.drill + (0.2 if skills.reading < 0.9 else 0.05) and asked.wording != "never":
            return self._tail(f"Question: {question.text}\nAnswer with a short phrase.", asked.right), "words"
        return self._tail(self._asked(question), question.answer or "A"), asked.family

    def _room(self, frames: int, side: int, text: int) -> int:
        """How many sequences of this length fit a step."""
        return max(4, min(MAX_SEQUENCES, self._room_for // (frames * ((side // 32) ** 2 + 9) + text)))

    def _ask(self, worlds: Worlds, row: int) -> Asked:
        while True:
            family = self._choose.choices(list(FAMILY_WEIGHTS), list(FAMILY_WEIGHTS.values()))[0]
            asked = ask_about(worlds, row, family, self._choose)
            if asked is not None:
                return asked

    def _pool(self, count: int, cells: int) -> npt.NDArray[np.float32]:
        return np.tile(((np.arange(cells) + 0.5) / cells).astype(np.float32), (count, 1))

    def _subset(self, worlds: Worlds, asked: list[Asked], k: int, frames: int) -> npt.NDArray[np.float32]:
        """Rows, columns and uniform frames as often as evidence-laden sets."""
        pool = self._pool(len(worlds), k * k)
        way = self._choose.random()
        if frames == k and way < 0.4:
            first = self._rng.integers(0, k, (len(worlds), 1))
            index = first * k + np.arange(k) if way < 0.2 else first + np.arange(k) * k
            return np.take_along_axis(pool, index, axis=1)
        if frames == k * k or way < 0.5:
            return pool[:, list(spread(k * k, frames))]
        wanted = np.zeros((len(worlds), 1, 4), dtype=bool)
        for row, each in enumerate(asked):
            wanted[row, 0, list(each.objects)] = True
        held = (worlds.visible(pool) & wanted).sum(-1) * (self._rng.random((len(worlds), 1)) < 0.7)
        return _pick(pool, self._rng.random(pool.shape) + 1.5 * held, frames)

    def _tail(self, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        """Tokens after the frames, and for each the token that follows where it counts."""
        asked, said = [*self._encode(prompt), *self._tokens.turn], [*self._encode(answer), self._tokens.stop]
        return [*asked, *said], [IGNORED] * (len(asked) - 1) + [*said, IGNORED]

    def _batch(
        self,
        worlds: Worlds,
        time: npt.NDArray[np.float32],
        tails: list[tuple[list[int], list[int]]],
        *,
        side: int,
        packing: Packing,
        family: tuple[str, ...],
    ) -> Batch:
        duration = np.exp(self._rng.uniform(np.log(20.0), np.log(7200.0), (len(worlds), 1)))
        seconds = time * duration
        groups = np.array([group_times(row, packing) for row in seconds]) if packing == "pairs" else seconds
        tail, labels = _padded([t for t, _ in tails], self._tokens.pad), _padded([t for _, t in tails], IGNORED)
        sequences = lay_out(np.rint(groups * 10).astype(np.int64), tail, side // 32, self._tokens)
        row, column = np.nonzero(labels != IGNORED)
        wanted = np.stack([row, sequences.tail[row] + column, labels[row, column]])
        return Batch(worlds, time, sequences, wanted, _seen(worlds, time), side, packing, family)


def _padded(rows: list[list[int]], filler: int) -> npt.NDArray[np.int64]:
    out = np.full((len(rows), max(map(len, rows))), filler, dtype=np.int64)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out


def _seen(worlds: Worlds, time: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Colour (one more than the last where absent) and digit (0 where absent) of every shape in every frame."""
    shown = worlds.visible(time)
    seen = np.zeros((2, *time.shape, len(SHAPES)), dtype=np.int64)
    seen[0] = len(COLOURS)
    row, frame, j = np.nonzero(shown)
    seen[0, row, frame, worlds.shape[row, j]] = worlds.colour[row, j]
    seen[1, row, frame, worlds.shape[row, j]] = worlds.digit[row, j]
    return seen


def _pick(pool: npt.NDArray[np.float32], score: npt.NDArray[np.float64], frames: int) -> npt.NDArray[np.float32]:
    """The highest scores of each row, back in time order."""
    index = np.sort(np.argpartition(-score, frames - 1, axis=1)[:, :frames], axis=1)
    return np.take_along_axis(pool, index, axis=1)


def _captions(worlds: Worlds, time: npt.NDArray[np.float32]) -> list[str]:
    """What is on each frame, in words: "sand, red circle 3, blue ring; night, nothing; …"."""
    shown, scene = worlds.visible(time), worlds.scene(time)
    colours, grounds = list(COLOURS), list(BACKGROUNDS)
    texts = []
    for row in range(len(worlds)):
        frames = []
        for frame in range(time.shape[1]):
            present = sorted(np.flatnonzero(shown[row, frame]), key=lambda j: worlds.shape[row, j])
            things = [f" {colours[worlds.colour[row, j]]} {SHAPES[worlds.shape[row, j]]}" for j in present]
            digits = [f" {worlds.digit[row, j]}" if worlds.digit[row, j] else "" for j in present]
            listed = "".join(f",{thing}{digit}" for thing, digit in zip(things, digits, strict=True))
            frames.append(f" {grounds[scene[row, frame]]}{listed or ', nothing'}")
        texts.append(";".join(frames).strip())
    return texts
