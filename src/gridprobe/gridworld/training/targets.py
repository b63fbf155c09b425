"""What the auxiliary tests and the captions ask for: the contents of every frame, from the script."""

import numpy as np
import numpy.typing as npt

from gridprobe.gridworld.words import BACKGROUNDS, COLOURS, PATTERNS, SHAPES
from gridprobe.gridworld.world import Worlds

__all__ = ["EYE", "IGNORED", "MEMORY", "READABLE", "captions_of", "recalled_by", "seen_in"]

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
    known = np.where(digit > 0, clear, counted)
    seen[1, row, frame, shape] = np.where(known, digit, IGNORED)
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
    known = np.where(digit > 0, clear, (frame + row + j) % BARE == 0)
    recalled[2, row, frame, shape] = np.where(known, digit, IGNORED)
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
