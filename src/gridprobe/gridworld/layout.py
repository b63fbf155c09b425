"""Token sequences of whole batches, without a loop over sequences: the training twin of backends/qwen3vl/prompt.py.

Plain numpy, so that it runs in the processes that make the batches and the device never has to be waited for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Sequences", "Tokens", "lay_out"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences padded on the right; arrays here, tensors on a device in `forward`."""

    ids: Any
    positions: Any
    """3 × B × L."""
    visual: Any
    """Where the visual tokens of each sequence stand: B × tokens."""
    tail: Any
    """Where each sequence's tail begins: B."""


class Tokens:
    """The token ids every sequence is put together from."""

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


def lay_out(tenths: Ints, tail: Ints, rows: int, tokens: Tokens) -> Sequences:
    """Head, frame groups of rows × rows tokens under their time markers, tail.

    Built with room for five-digit seconds and then compacted.
    """
    count, groups = tenths.shape
    block = rows * rows
    whole = np.stack([tenths // 10**power % 10 for power in range(5, -1, -1)], axis=-1)
    dense = np.full((count, groups, 12 + block), tokens.video)
    dense[..., 0] = tokens.less
    dense[..., 1:6] = tokens.digits[whole[..., :5]]
    dense[..., 6], dense[..., 7] = tokens.point, tokens.digits[whole[..., 5]]
    dense[..., 8], dense[..., 9], dense[..., 10] = tokens.seconds, tokens.greater, tokens.start
    dense[..., -1] = tokens.end
    keep = np.ones(dense.shape, dtype=bool)
    keep[..., 1:5] = whole[..., :4].cumsum(-1) > 0  # no leading zeros
    head = np.broadcast_to(tokens.head, (count, len(tokens.head)))
    ids = np.concatenate([head, dense.reshape(count, -1), tail], axis=1)
    kept = np.concatenate([np.ones_like(head, dtype=bool), keep.reshape(count, -1), tail != tokens.pad], axis=1)
    place = kept.cumsum(axis=1) - 1
    length = int(place[:, -1].max()) + 1
    out = np.full((count, length + 1), tokens.pad)
    np.put_along_axis(out, np.where(kept, place, length), ids, axis=1)
    out = out[:, :length]
    visual = np.nonzero(out == tokens.video)[1].reshape(count, groups * block)
    begin = place[:, len(tokens.head) + groups * (12 + block) - 1] + 1
    return Sequences(out, _positions(out, visual, rows), visual, begin)


def _positions(ids: Ints, visual: Ints, rows: int) -> Ints:
    """M-RoPE positions: a frame's tokens share one moment, count rows and columns, and text goes on behind them."""
    block = rows * rows
    step = np.ones_like(ids)
    np.put_along_axis(step, visual, 0, axis=1)
    np.put_along_axis(step, visual[:, block - 1 :: block], rows, axis=1)
    base = step.cumsum(axis=1) - step
    positions = np.stack([base, base, base])
    inside = np.arange(visual.shape[1]) % block
    here = np.take_along_axis(base, visual, axis=1)
    np.put_along_axis(positions[1], visual, here + inside // rows, axis=1)
    np.put_along_axis(positions[2], visual, here + inside % rows, axis=1)
    return positions
