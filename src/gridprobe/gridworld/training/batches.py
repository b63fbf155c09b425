"""Training batches: which worlds, which of their frames, and what is asked about them; plain arrays, made on the CPU.

Frames are dear and questions are cheap, so several things are asked behind the same frames, each as if it were alone.
Subsets are those the method uses: rows, columns, uniform frames, and sets that hold the evidence more often than
chance, from pools of 16 to 144 frames. The answer asked for is always the true one for the whole video, so a model that
sees a subset without the evidence can only learn to be unsure, and calibration comes by itself.
"""

import random
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.backends.base import Packing
from gridprobe.budget import spread
from gridprobe.gridworld.questions import Asked, ask_about
from gridprobe.gridworld.training.layout import Sequences, Tokens, lay_out
from gridprobe.gridworld.words import BACKGROUNDS, COLOURS, DIGITS, SHAPES, TIMES
from gridprobe.gridworld.world import OBJECTS, TRAINING_SEEDS, Worlds, generate
from gridprobe.question import Question

__all__ = ["IGNORED", "Batch", "BatchMaker", "Skills", "pair_times"]

IGNORED = -100
FAMILY_WEIGHTS = {
    "needle": 12,
    "detail": 30,
    "redundant": 6,
    "negation": 15,
    "count": 20,
    "order": 24,
    "holistic": 7,
    "prejudice": 4,
}
SHORT = (1, 2, 3, 4, 4, 6, 8, 8, 12, 12, 12, 16)
MEDIUM = (*SHORT, 24, 36, 36, 64)
LONG = (*MEDIUM, 12, 12, 52, 64, 100, 144, 144, 144, 144, 144, 144, 144)
SIDES = (64, 96, 96, 96, 96, 128, 128, 160, 192, 224, 224, 224)
LONG_SIDES = (64, 96, 96, 96, 96, 128, 160, 224)
MAX_SEQUENCES = 384
TAIL = 70
"""Tokens of a question, roughly."""
CAPTIONED = 4
"""Every frame is described only where there are at most so many."""
WORD_LISTS = (SHAPES, tuple(COLOURS), tuple(BACKGROUNDS), DIGITS, TIMES)
LETTERS = "ABCDEFGH"
LINE = re.compile(r"[^\n]*\n+|[^\n]+")

Tail = tuple[list[int], list[int]]
"""Tokens behind the frames, and for each the token that follows where it counts, else IGNORED."""


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees, before rendering. All of it is known before the device is involved."""

    worlds: Worlds
    time: npt.NDArray[np.float32]
    """When each frame is shown, from 0 to 1: B × n."""
    sequences: Sequences
    wanted: npt.NDArray[np.int64]
    """For each token to be predicted: its sequence, the place it is predicted at, and the token itself. 3 × m."""
    first: npt.NDArray[np.int64]
    """Which of the wanted tokens are the first of their tail; one for each entry of `family`."""
    seen: npt.NDArray[np.int64]
    """For the eye test, the colour and the digit of every shape in every frame: 2 × B × n × shapes."""
    recalled: npt.NDArray[np.int64]
    """For the memory test, of every shape in sight: how often it came before, how many shapes came before it, and its
    digit. 3 × B × n × shapes."""
    side: int
    packing: Packing
    family: tuple[str, ...]
    """What each tail is about: a question's family, or "caption", "drill" or "words"."""


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
    def captions(self) -> float:
        """Share of the tails that describe every frame, where there are few."""
        return 0.2 if self.progress < 0.1 else 0.05


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
        self._lines: dict[str, list[int]] = {}

    def make(self, skills: Skills) -> Batch:
        """One batch for a model with these skills."""
        frames = self._choose.choice(skills.lengths)
        side = self._choose.choice(SIDES if frames <= 36 else LONG_SIDES)
        if frames <= 8 and self._choose.random() < 0.03:
            side = 448
        packing: Packing = "pairs" if skills.reading > 0.9 and self._choose.random() < 0.12 else "single"
        prefix = frames * ((side // 32) ** 2 + 9)
        asks = min(10, max(3, prefix // 100))
        count = max(2, min(MAX_SEQUENCES, self._room_for // (prefix + TAIL * asks)))
        worlds = generate(self._rng, count)
        time = self._subset(worlds, frames, laden=0.5 if skills.reading > 0.85 else 0.8)
        captions = _captions(worlds, time) if frames <= CAPTIONED else [None] * count
        rows = [[self._tail(worlds, row, captions[row], skills) for _ in range(asks)] for row in range(count)]
        return self._batch(worlds, time, rows, side=side, packing=packing)

    def _tail(self, worlds: Worlds, row: int, caption: str | None, skills: Skills) -> tuple[str, Tail]:
        """Something to do: practise letters, describe the frames, or answer in words or with a letter."""
        way = self._choose.random()
        if way < skills.drill:
            return "drill", self._drill()
        if caption is not None and way < skills.drill + skills.captions:
            return "caption", self._exchange("Describe each frame.", caption)
        asked = self._ask(worlds, row)
        if asked.wording != "never" and self._choose.random() < skills.words:
            prompt = f"Question: {asked.question.text}\nAnswer with a short phrase."
            return "words", self._exchange(prompt, asked.right)
        return asked.family, self._exchange(self._prompt(asked.question), asked.question.answer or "A")

    def _drill(self) -> Tail:
        words = self._choose.choice(WORD_LISTS)
        options = self._choose.sample(words, self._choose.randint(3, min(8, len(words))))
        if self._choose.random() < 0.4:
            right = self._choose.choice(options)
            prompt = self._prompt(Question(f"Which option says {right}?", options))
            return self._exchange(prompt, LETTERS[options.index(right)])
        tokens = [*self._encode(self._prompt(Question("Name the letter of each option.", options))), *self._tokens.turn]
        labels = [IGNORED] * len(tokens)
        for place in self._choose.choices(range(len(options)), k=8):  # with repeats, so that none can be guessed
            said, letter = self._encode(f" {options[place]}"), self._encode(LETTERS[place])[0]
            tokens += [*said, letter, self._tokens.comma]
            labels += [*[IGNORED] * (len(said) - 1), letter, IGNORED, IGNORED]
        return tokens, labels

    def _prompt(self, question: Question) -> str:
        """The prompt, now and then in the wording of the paper."""
        return replace(question, template="paper").prompt if self._choose.random() < 0.15 else question.prompt

    def _exchange(self, prompt: str, answer: str) -> Tail:
        asked, said = [*self._encode(prompt), *self._tokens.turn], [*self._encode(answer), self._tokens.stop]
        return [*asked, *said], [IGNORED] * (len(asked) - 1) + [*said, IGNORED]

    def _encode(self, text: str) -> list[int]:
        """Line by line, since no token crosses a line and the same lines come again and again."""
        ids: list[int] = []
        for line in LINE.findall(text):
            if line not in self._lines:
                self._lines[line] = self._tokenizer.encode(line, add_special_tokens=False)
            ids += self._lines[line]
        return ids

    def _ask(self, worlds: Worlds, row: int) -> Asked:
        while True:
            family = self._choose.choices(list(FAMILY_WEIGHTS), list(FAMILY_WEIGHTS.values()))[0]
            asked = ask_about(worlds, row, family, self._choose)
            if asked is not None:
                return asked

    def _subset(self, worlds: Worlds, frames: int, *, laden: float) -> npt.NDArray[np.float32]:
        """Rows, columns and uniform frames, and with the chance given sets that hold some of the brief events."""
        k = self._choose.choice([k for k in (4, 6, 8, 12, 12, 12, 12) if k * k >= frames])
        pool = np.tile(((np.arange(k * k) + 0.5) / k**2).astype(np.float32), (len(worlds), 1))
        if frames == k * k:
            return pool
        if self._choose.random() < laden:
            wanted = self._rng.random((len(worlds), 1, OBJECTS - 1)) < 0.6
            wanted &= self._rng.random((len(worlds), 1, 1)) < 0.85
            held = (worlds.visible(pool)[:, :, 1:] & wanted).any(-1)
            return _pick(pool, self._rng.random(pool.shape) + 1.5 * held, frames)
        if frames == k and self._choose.random() < 0.75:
            first = self._rng.integers(0, k, (len(worlds), 1))
            row, column = first * k + np.arange(k), first + np.arange(k) * k
            return np.take_along_axis(pool, row if self._choose.random() < 0.5 else column, axis=1)
        return pool[:, list(spread(k * k, frames))]

    def _batch(
        self,
        worlds: Worlds,
        time: npt.NDArray[np.float32],
        rows: list[list[tuple[str, Tail]]],
        *,
        side: int,
        packing: Packing,
    ) -> Batch:
        duration = np.exp(self._rng.uniform(np.log(20.0), np.log(7200.0), (len(worlds), 1)))
        seconds = time * duration
        groups = pair_times(seconds) if packing == "pairs" else seconds
        tails = [[tokens for _, (tokens, _) in row] for row in rows]
        sequences = lay_out(np.rint(groups * 10).astype(np.int64), tails, side // 32, self._tokens)
        width = sequences.ids.shape[1] - sequences.tail.shape[1]
        wanted: list[tuple[int, int, int]] = []
        first = []
        for number, row in enumerate(rows):
            column = width
            for _, (tokens, labels) in row:
                first.append(len(wanted))
                wanted += [(number, column + i, label) for i, label in enumerate(labels) if label != IGNORED]
                column += len(tokens)
        return Batch(
            worlds,
            time,
            sequences,
            wanted=np.array(wanted).T,
            first=np.array(first),
            seen=_seen(worlds, time),
            recalled=_recalled(worlds, time),
            side=side,
            packing=packing,
            family=tuple(family for row in rows for family, _ in row),
        )


def _seen(worlds: Worlds, time: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Colour (one more than the last where absent) and digit (0 where absent) of every shape in every frame."""
    shown = worlds.visible(time)
    seen = np.zeros((2, *time.shape, len(SHAPES)), dtype=np.int64)
    seen[0] = len(COLOURS)
    row, frame, j = np.nonzero(shown)
    seen[0, row, frame, worlds.shape[row, j]] = worlds.colour[row, j]
    seen[1, row, frame, worlds.shape[row, j]] = worlds.digit[row, j]
    return seen


def _recalled(worlds: Worlds, time: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Of every shape in sight: its earlier visits, shapes seen before it, and its digit; IGNORED out of sight."""
    shown = worlds.visible(time)
    came = shown & ~np.pad(shown, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    visits = came.cumsum(axis=1) - 1
    first = np.where(shown.any(axis=1), shown.argmax(axis=1), time.shape[1])
    earlier = (first[:, :, None] > first[:, None, :]).sum(-1)
    recalled = np.full((3, *time.shape, len(SHAPES)), IGNORED)
    row, frame, j = np.nonzero(shown)
    recalled[0, row, frame, worlds.shape[row, j]] = visits[row, frame, j].clip(max=OBJECTS - 1)
    recalled[1, row, frame, worlds.shape[row, j]] = earlier[row, j]
    recalled[2, row, frame, worlds.shape[row, j]] = worlds.digit[row, j]
    return recalled


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


def pair_times(seconds: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """The mean time of every two frames of a row; a last odd frame keeps its own."""
    first, second = seconds[:, 0::2], seconds[:, 1::2]
    if second.shape[1] < first.shape[1]:
        second = np.concatenate([second, first[:, -1:]], axis=1)
    middle: npt.NDArray[np.floating] = (first + second) / 2
    return middle
