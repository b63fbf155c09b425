"""A request as tokens: the chat turn, the time markers, the visual placeholders and the position of every token.

The turn is built here, not by a processor, because processors differ: transformers 4.57 writes each frame group as

    <12.5 seconds><|vision_start|><|video_pad|>…<|vision_end|>

and from 5.10 on wraps all of them in one more vision_start/vision_end pair. We write the form the models were released
with. Text from a user is encoded with special tokens off, so an option that contains "<|im_end|>" stays ordinary text.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gridprobe.errors import ModelError, VideoError
from gridprobe.models.base import Cost, FrameGroup, Request
from gridprobe.models.local.layout import Layout, PreparedRequest
from gridprobe.models.qwen3vl.pricing import (
    ModelDims,
    price,
    price_close_ups,
    price_recall,
    price_text,
    with_attention,
)

if TYPE_CHECKING:
    from torch import Tensor


Encode = Callable[[str], tuple[int, ...]]
LONG_TEXT = 1000
"""Characters; of longer texts few are cached, since thousands of them would fill the memory."""


def encoder(tokenizer: Any) -> Encode:
    """A user's text as token ids; cached, since the probes of a question repeat it and its time markers."""

    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    short, long = lru_cache(maxsize=16_384)(encode), lru_cache(maxsize=64)(encode)
    return lambda text: long(text) if len(text) > LONG_TEXT else short(text)


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
class GridLayout(Layout):
    """One sequence, with the positions of its tokens."""

    positions: npt.NDArray[np.int64]
    """Temporal, height and width position of every token: 3 × length."""
    patch: int

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """Runs of units of one size: how many, and their rows and columns of patches."""
        return self._runs(self.sizes)

    @property
    def grids_behind(self) -> list[tuple[int, int, int]]:
        """The same of those units that the prefix does not show."""
        return self._runs(self.sizes[self.prefix_units :])

    def _runs(self, sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
        runs = ((size, sum(1 for _ in run)) for size, run in groupby(sizes))
        return [(count, height // self.patch, width // self.patch) for (width, height), count in runs]


KEPT_HALVES = 16
"""How many sets of frames are kept laid out; one of 2,000 tokens takes 80 KB."""


@dataclass(frozen=True, eq=False)
class _Half:
    """A part of a sequence; its positions count from its first token."""

    ids: npt.NDArray[np.int64]
    visual: npt.NDArray[np.bool_]
    positions: npt.NDArray[np.int64]
    after: int
    """The position of the token after it."""
    sizes: tuple[tuple[int, int], ...]
    owners: npt.NDArray[np.int64]
    """As in `Layout`, if it is the first half."""


class Layouts:
    """Lays out requests: one user turn with every unit after its time marker, and the prompt after or before them.

    What many questions about the same frames have in common is laid out once.
    """

    def __init__(self, encode: Encode, special: SpecialTokens, *, patch: int, merge: int) -> None:
        self._encode = encode
        self._special = special
        self._patch = patch
        self._multiple = patch * merge
        self._kept: OrderedDict[Hashable, _Half] = OrderedDict()
        self._opening = 1 + len(encode("user\n"))

    def of(self, request: Request) -> GridLayout:
        """The request as tokens."""
        # No token spans both halves: frames end with a special token, text with a line break, which no token crosses.
        by_group = _sizes(request.groups, self._multiple)
        sizes = [by_group[unit.group] for unit in request.units]
        units = request.prefix_units if request.prompt_order == "frames_first" else 0
        ending = f"{request.texts[-1]}\n" if request.texts[-1] else ""
        behind = [*self._frames(request, sizes, range(units, len(sizes))), ending]
        if request.prompt_order == "frames_first":
            prefix = self._overview(request, sizes[:units])
            rest = self._half([*behind, request.prompt], first=False, sizes=sizes[units:])
        else:
            prefix = self._half([request.prompt + "\n"], first=True, sizes=())
            rest = self._half(behind, first=False, sizes=sizes)
        return GridLayout(
            np.concatenate([prefix.ids, rest.ids]),
            np.concatenate([prefix.visual, rest.visual]),
            tuple(sizes),
            len(prefix.ids),
            units,
            prefix.owners,
            np.concatenate([prefix.positions, rest.positions + prefix.after], axis=1),
            self._patch,
        )

    def _overview(self, request: Request, sizes: Sequence[tuple[int, int]]) -> _Half:
        """The half with the frames that other requests may begin with; it may be known from one of them."""
        groups = request.prefix_groups
        shown = tuple((group.frames.times, group.view) for group in groups)
        key = (shown, tuple(sizes), request.between[: sum(len(group.frames) for group in groups)])
        half = self._kept.pop(key, None)
        if half is None:
            half = self._half(self._frames(request, sizes, range(len(sizes))), first=True, sizes=sizes)
        self._kept[key] = half
        while len(self._kept) > KEPT_HALVES:
            self._kept.popitem(last=False)
        return half

    def _frames(self, request: Request, sizes: Sequence[tuple[int, int]], numbers: range) -> list[str | list[int]]:
        """Some of the units, each after its text and its time marker."""
        special, texts = self._special, request.texts
        parts: list[str | list[int]] = []
        for number in numbers:
            unit, (width, height) = request.units[number], sizes[number]
            pads = [special.video_pad] * (width * height // self._multiple**2)
            text = f"{texts[number]}\n" if texts[number] else ""
            parts += [text, time_marker(request.times_of(unit)), [special.vision_start, *pads, special.vision_end]]
        return parts

    def _half(self, parts: Sequence[str | list[int]], *, first: bool, sizes: Sequence[tuple[int, int]]) -> _Half:
        """The first half begins the turn, the second one ends it and begins the answer."""
        special = self._special
        opened: list[str | list[int]] = [[special.im_start], "user\n", *parts]
        closed: list[str | list[int]] = [*parts, [special.im_end], "\n", [special.im_start], "assistant\n"]
        ids = _encode(opened if first else closed, self._encode)
        visual = ids == special.video_pad
        blocks = [(height // self._multiple, width // self._multiple) for width, height in sizes]
        if int(visual.sum()) != sum(rows * columns for rows, columns in blocks):
            raise ModelError(
                "text in the prompt was read as a visual placeholder; this tokenizer cannot be used safely"
            )
        owners = _owners(ids, opening=self._opening, end=special.vision_end)
        return _Half(ids, visual, *_positions(visual, blocks), tuple(sizes), owners)


def time_marker(times: Sequence[float]) -> str:
    """What stands before a frame, or before a contact sheet of several; nothing without times."""
    return f"<{', '.join(f'{time:.1f}' for time in times)} seconds>" if times else ""


def _owners(prefix: npt.NDArray[np.int64], *, opening: int, end: int) -> npt.NDArray[np.int64]:
    """The unit of every token: all tokens after the unit before, up to the one that ends it."""
    ends = np.flatnonzero(prefix == end)
    owners = np.searchsorted(ends, np.arange(len(prefix)))
    owners[owners == len(ends)] = -1
    owners[:opening] = -1
    return owners


def _sizes(groups: Sequence[FrameGroup], multiple: int) -> list[tuple[int, int]]:
    """Width and height at which the units of every group are shown."""
    for group in groups:
        width, height = group.frames.width, group.frames.height
        if max(width, height) > MAX_RATIO * min(width, height):
            raise VideoError(
                f"frames of {width}×{height} are more than {MAX_RATIO} times longer than wide, which Qwen3-VL refuses"
            )
    return [group.size(multiple) for group in groups]


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


def _positions(visual: npt.NDArray[np.bool_], blocks: Sequence[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], int]:
    """Interleaved M-RoPE positions, and the one that comes next; `blocks` are rows and columns of tokens of the units.

    Text advances all three axes by one. The tokens of a unit share one temporal position, count rows and columns from
    it, and the text after them continues after the longer side: a 2×3 unit that starts at 7 takes t = 7, h = 7…8,
    w = 7…9, and the next token is at 10.
    """
    if not blocks:
        return np.tile(np.arange(len(visual)), (3, 1)), len(visual)
    step = np.ones(len(visual), dtype=np.int64)
    step[visual] = 0
    places = np.flatnonzero(visual)
    lengths = np.array([rows * columns for rows, columns in blocks], dtype=np.int64)
    ends = np.cumsum(lengths)
    step[places[ends - 1]] = [max(block) for block in blocks]
    after = np.cumsum(step)
    base = np.concatenate([[0], after[:-1]])
    positions = np.repeat(base[None], 3, axis=0)
    number = np.arange(len(places)) - np.repeat(ends - lengths, lengths)
    rows, columns = np.divmod(number, np.repeat([columns for _, columns in blocks], lengths).astype(np.int64))
    positions[1, places] += rows
    positions[2, places] += columns
    return positions, int(after[-1])


def price_prompt(dims: ModelDims, job: PreparedRequest) -> Cost:
    """What reading a request costs; `visible_frames` and close-ups find the KV cache of the overview there."""
    rest, past_tokens, layout = job.rest, len(job.columns), job.layout
    if job.request.close_ups:
        return price_close_ups(dims, len(layout), layout.grids, layout.grids_behind, known=past_tokens)
    if job.request.visible_frames is not None:
        cost = price_recall(dims, rest, known=past_tokens)
    else:
        cost = price(dims, len(layout), layout.grids)
    return with_attention(cost, dims, rest, known=past_tokens) if job.request.attention else cost


def price_text_of(dims: ModelDims, job: PreparedRequest, tokens: int) -> Cost:
    """What a text of this many tokens costs after a request that was read."""
    return price_text(dims, tokens, known=len(job.columns) + job.rest)


@dataclass(frozen=True, eq=False)
class Span:
    """A part of a job's sequence, and the keys and values of the tokens before it."""

    job: PreparedRequest
    start: int
    end: int
    past: "Tensor | None" = None

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def units(self) -> range:
        """The numbers of the units that it shows."""
        layout = self.job.layout
        before = layout.prefix_units
        return range(before if self.start else 0, before if self.end == layout.prefix else len(layout.sizes))

    @property
    def known(self) -> int:
        """The number of tokens whose keys and values exist."""
        return 0 if self.past is None else self.past.shape[3]
