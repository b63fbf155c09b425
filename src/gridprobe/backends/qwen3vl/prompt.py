"""A request as tokens: the chat turn, the time markers, the visual placeholders and the position of every token.

The turn is built here, not by a processor, because processors differ: transformers 4.57 writes each frame group as

    <12.5 seconds><|vision_start|><|video_pad|>…<|vision_end|>

and from 5.10 on wraps all of them in one more vision_start/vision_end pair. We write the form the models were released
with. Text from a user is encoded with special tokens off, so an option that contains "<|im_end|>" stays ordinary text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.backends.base import ScoreRequest
from gridprobe.errors import ModelError, VideoError

__all__ = ["Encode", "Layout", "SpecialTokens", "build_layout", "encoder"]


Encode = Callable[[str], tuple[int, ...]]


def encoder(tokenizer: Any) -> Encode:
    """A user's text as token ids; cached, since the probes of a question repeat it and its time markers."""

    @lru_cache(maxsize=16_384)
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    return encode


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens that give a turn its structure."""

    im_start: int
    im_end: int
    vision_start: int
    vision_end: int
    video_pad: int

    @classmethod
    def of(cls, tokenizer: Any) -> "SpecialTokens":
        """Look the tokens up by name."""
        names = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>")
        ids = tokenizer.convert_tokens_to_ids(list(names))
        missing = [name for name, token in zip(names, ids, strict=True) if token in (None, tokenizer.unk_token_id)]
        if missing:
            raise ModelError(f"the tokenizer lacks {', '.join(missing)}; this is not a Qwen3-VL checkpoint")
        return cls(*ids)


MAX_RATIO = 200
"""Qwen3-VL's own limit on width : height."""


@dataclass(frozen=True, eq=False)
class Layout:
    """One sequence, ready for the model."""

    ids: npt.NDArray[np.int64]
    visual: npt.NDArray[np.bool_]
    """Which positions take a vision feature."""
    positions: npt.NDArray[np.int64]
    """Temporal, height and width position of every token: 3 × length."""
    sizes: tuple[tuple[int, int], ...]
    """Width and height in pixels of every unit of the request, in the order shown."""
    patch: int
    stem: int
    """How many tokens at its beginning other requests may share: all frames, or all text, whichever comes first."""
    owners: npt.NDArray[np.int64]
    """For every token of the stem the number of its unit, with the time and text before it; -1 if it has none."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """Runs of units of one size: how many, and their rows and columns of patches."""
        runs = ((size, sum(1 for _ in run)) for size, run in groupby(self.sizes))
        return [(count, height // self.patch, width // self.patch) for (width, height), count in runs]

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height of the largest frames."""
        return max(self.sizes, key=lambda size: size[0] * size[1], default=(0, 0))


def build_layout(request: ScoreRequest, encode: Encode, special: SpecialTokens, *, patch: int, merge: int) -> Layout:
    """Lay out one user turn: every unit after its time marker, and the prompt after or before them."""
    sizes = _sizes(request, patch * merge)
    frames: list[str | list[int]] = []
    *texts, ending = (f"{text}\n" if text else "" for text in request.texts)
    for unit, size, text in zip(request.units, sizes, texts, strict=True):
        times = ", ".join(f"{time:.1f}" for time in request.times_of(unit))
        pads = [special.video_pad] * (size[0] * size[1] // (patch * merge) ** 2)
        marker = f"<{times} seconds>" if times else ""
        frames += [text, marker, [special.vision_start, *pads, special.vision_end]]
    frames.append(ending)
    # No token spans both halves: frames end with a special token, or like text with a line break, and no token
    # crosses a line break.
    prompt: list[str | list[int]] = [
        request.prompt if request.prompt_order == "frames_first" else request.prompt + "\n"
    ]
    halves = (frames, prompt) if request.prompt_order == "frames_first" else (prompt, frames)
    stem = _encode([[special.im_start], "user\n", *halves[0]], encode)
    rest = _encode([*halves[1], [special.im_end], "\n", [special.im_start], "assistant\n"], encode)
    ids = np.concatenate([stem, rest])
    visual = ids == special.video_pad
    blocks = [(height // (patch * merge), width // (patch * merge)) for width, height in sizes]
    if int(visual.sum()) != sum(rows * columns for rows, columns in blocks):
        raise ModelError("text in the prompt was read as a visual placeholder; this tokenizer cannot be used safely")
    opening = 1 + len(encode("user\n"))
    owners = _owners(stem, opening=opening, end=special.vision_end)
    return Layout(ids, visual, _positions(visual, blocks), tuple(sizes), patch, len(stem), owners)


def _owners(stem: npt.NDArray[np.int64], *, opening: int, end: int) -> npt.NDArray[np.int64]:
    """The unit of every token: all tokens after the unit before, up to the one that ends it."""
    owners = np.full(len(stem), -1, dtype=np.int64)
    start = opening
    for unit, place in enumerate(np.flatnonzero(stem == end).tolist()):
        owners[start : place + 1] = unit
        start = place + 1
    return owners


def _sizes(request: ScoreRequest, multiple: int) -> list[tuple[int, int]]:
    """Width and height of every unit."""
    fitted = []
    for group in request.groups:
        width, height = group.frames.width, group.frames.height
        if max(width, height) > MAX_RATIO * min(width, height):
            raise VideoError(
                f"frames of {width}×{height} are more than {MAX_RATIO} times longer than wide, which Qwen3-VL refuses"
            )
        fitted.append(group.size(multiple))
    return [fitted[unit.group] for unit in request.units]


def _encode(parts: Sequence[str | list[int]], encode: Encode) -> npt.NDArray[np.int64]:
    """Join adjacent texts first: a tokenizer may merge across the border, as in the model's own processor."""
    ids: list[int] = []
    text = ""
    for part in (*parts, []):
        if isinstance(part, str):
            text += part
            continue
        if text:
            ids += encode(text)
        ids += part
        text = ""
    return np.array(ids, dtype=np.int64)


def _positions(visual: npt.NDArray[np.bool_], blocks: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Interleaved M-RoPE positions; `blocks` are the rows and columns of tokens of every unit.

    Text advances all three axes by one. The tokens of a unit share one temporal position, count rows and columns from
    it, and the text after them continues after the longer side: a 2×3 unit that starts at 7 takes t = 7, h = 7…8,
    w = 7…9, and the next token is at 10.
    """
    step = np.ones(len(visual), dtype=np.int64)
    step[visual] = 0
    places = np.flatnonzero(visual)
    ends = np.cumsum([rows * columns for rows, columns in blocks], dtype=np.int64)
    step[places[ends - 1]] = [max(block) for block in blocks]
    base = np.concatenate([[0], np.cumsum(step)[:-1]])
    positions = np.repeat(base[None], 3, axis=0)
    if blocks:
        rows_of, columns_of = zip(
            *(np.divmod(np.arange(rows * columns), columns) for rows, columns in blocks), strict=True
        )
        positions[1, places] += np.concatenate(rows_of)
        positions[2, places] += np.concatenate(columns_of)
    return positions
