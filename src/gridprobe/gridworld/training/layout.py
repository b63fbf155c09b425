"""Token sequences of whole batches, without a loop over frames: backends/qwen3vl/prompt.py for training.

Plain numpy, so that it runs in the processes that make the batches and never waits for the device.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Sequences", "Tokens", "lay_out"]

Ints = npt.NDArray[np.int64]

STEP = 8
"""Lengths are multiples of this, as attention kernels with a mask require."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """One prefix of frames per row and several tails after it, each as if it were alone.

    Everything is padded on the right to multiples of eight. Arrays here, tensors on a device in `forward`.
    """

    ids: Any
    """B × (prefix + tails)."""
    positions: Any
    """3 × B × (prefix + tails)."""
    visual: Any
    """Positions of the visual tokens of each prefix, those of smaller groups first: B × tokens."""
    length: Any
    """The length of each prefix without padding: B."""
    tail: Any
    """Which tail of its row a token belongs to, -1 for padding: B × tails."""


class Tokens:
    """The token ids that every sequence is built from."""

    def __init__(self, tokenizer: Any) -> None:
        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
            return ids

        special = tokenizer.convert_tokens_to_ids
        self.head = np.array([special("<|im_start|>"), *encode("user\n")])
        self.turn = [special("<|im_end|>"), *encode("\n"), special("<|im_start|>"), *encode("assistant\n")]
        self.digits = np.array([encode(str(digit))[0] for digit in range(10)])
        self.less, self.point, self.seconds, self.greater = (encode(text)[0] for text in ("<", ".", " seconds", ">"))
        self.comma = encode(",")[0]
        self.start, self.end = special("<|vision_start|>"), special("<|vision_end|>")
        self.stop, self.video, self.pad = special("<|im_end|>"), special("<|video_pad|>"), special("<|endoftext|>")


def lay_out(tenths: Ints, tails: list[list[list[int]]], rows: Ints | int, tokens: Tokens) -> Sequences:
    """Head and frame groups after their time markers; then all tails of the row.

    Args:
        tenths: when each frame group is shown, in tenths of a second: B × groups.
        tails: what follows the frames.
        rows: a group has rows × rows tokens; one number for all, or one for each group, with every sequence having as
            many groups of each size. `visual` then lists the tokens of the smaller groups first.
        tokens: the ids to build from.
    """
    sizes = np.broadcast_to(np.asarray(rows), tenths.shape)
    prefix, length = _prefix(tenths, sizes, tokens)
    behind = _padded([[token for tail in each for token in tail] for each in tails], tokens.pad)
    number = _padded([[n for n, tail in enumerate(each) for _ in tail] for each in tails], -1)
    visual = np.nonzero(prefix == tokens.video)[1].reshape(len(tenths), -1)
    positions, end, visual = _positions(prefix, visual, length, sizes)
    place = np.arange(behind.shape[1])
    fresh = np.diff(number, axis=1, prepend=-2) != 0
    after = end[:, None] + place - np.maximum.accumulate(np.where(fresh, place, 0), axis=1)
    positions = np.concatenate([positions, np.stack([after, after, after])], axis=2)
    whole = np.concatenate([prefix, behind], axis=1)
    return Sequences(*(part.astype(np.int32) for part in (whole, positions, visual, length, number)))


def _padded(rows: list[list[int]], filler: int) -> Ints:
    width = -(-max(map(len, rows)) // STEP) * STEP
    out = np.full((len(rows), width), filler, dtype=np.int64)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out


def _prefix(tenths: Ints, sizes: Ints, tokens: Tokens) -> tuple[Ints, Ints]:
    """Built with room for five-digit seconds and the largest group, and then compacted."""
    count, groups = tenths.shape
    block = int(sizes.max()) ** 2
    whole = np.stack([tenths // 10**power % 10 for power in range(5, -1, -1)], axis=-1)
    dense = np.full((count, groups, 12 + block), tokens.video)
    dense[..., 0] = tokens.less
    dense[..., 1:6] = tokens.digits[whole[..., :5]]
    dense[..., 6], dense[..., 7] = tokens.point, tokens.digits[whole[..., 5]]
    dense[..., 8], dense[..., 9], dense[..., 10] = tokens.seconds, tokens.greater, tokens.start
    dense[..., -1] = tokens.end
    keep = np.ones(dense.shape, dtype=bool)
    keep[..., 1:5] = whole[..., :4].cumsum(-1) > 0  # no leading zeros
    keep[..., 11:-1] = np.arange(block) < sizes[..., None] ** 2
    head = np.broadcast_to(tokens.head, (count, len(tokens.head)))
    ids = np.concatenate([head, dense.reshape(count, -1)], axis=1)
    kept = np.concatenate([np.ones_like(head, dtype=bool), keep.reshape(count, -1)], axis=1)
    place = kept.cumsum(axis=1) - 1
    length = place[:, -1] + 1
    width = -(-int(length.max()) // STEP) * STEP
    out = np.full((count, width + 1), tokens.pad)
    np.put_along_axis(out, np.where(kept, place, width), ids, axis=1)
    return out[:, :width], length


def _positions(ids: Ints, visual: Ints, length: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """M-RoPE positions, where they continue after each prefix, and the visual tokens, those of smaller groups first.

    A frame's tokens share one moment, count rows and columns, and text continues after them.
    """
    count, blocks = len(ids), sizes**2
    last = blocks.cumsum(axis=1) - 1
    # For every visual token: the size of its group, and its number in it.
    side = np.repeat(sizes.ravel(), blocks.ravel()).reshape(count, -1)
    inside = np.arange(side.shape[1]) - np.repeat((last + 1 - blocks).ravel(), blocks.ravel()).reshape(count, -1)
    step = np.ones_like(ids)
    np.put_along_axis(step, visual, 0, axis=1)
    np.put_along_axis(step, np.take_along_axis(visual, last, axis=1), sizes, axis=1)
    end = step.cumsum(axis=1)
    base = end - step
    positions = np.stack([base, base, base])
    here = np.take_along_axis(base, visual, axis=1)
    np.put_along_axis(positions[1], visual, here + inside // side, axis=1)
    np.put_along_axis(positions[2], visual, here + inside % side, axis=1)
    if sizes.min() < sizes.max():
        visual = np.take_along_axis(visual, side.argsort(axis=1, kind="stable"), axis=1)
    return positions, np.take_along_axis(end, length[:, None] - 1, axis=1)[:, 0], visual
