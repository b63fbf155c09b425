"""One request in the engine: its tokens, what identifies its frames and its prefix, and the parts that are run."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gridprobe.models.base import Choose, Request
from gridprobe.models.cost import Cost
from gridprobe.models.qwen3vl.pricing import ModelDims, price, price_recall, price_text, with_attention
from gridprobe.models.qwen3vl.prompt import Layout

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PreparedRequest", "SequenceKind", "Span", "price_job", "price_prompt", "price_text_of"]


class SequenceKind(NamedTuple):
    """What must be equal for units to be encoded together."""

    size: tuple[int, int]
    """Width and height the unit is shown at."""
    members: int
    stored: tuple[int, int]
    """Height and width of its frames before they are resized."""


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """One request in the engine; `place` is its index in the call."""

    place: int
    request: Request
    layout: Layout
    notes: tuple[str, ...] = ()
    shared: bool = False
    """Whether other requests begin alike, now or later."""

    @cached_property
    def units(self) -> tuple[Hashable, ...]:
        """The identity of every unit for the vision tower: which frames, at which size."""
        keys = [group.frames.keys for group in self.request.groups]
        shown = zip(self.request.units, self.layout.sizes, strict=True)
        return tuple(("unit", tuple(keys[unit.group][i] for i in unit.members), size) for unit, size in shown)

    def kind(self, number: int) -> SequenceKind:
        """The kind of one of its units."""
        unit, size = self.request.units[number], self.layout.sizes[number]
        frames = self.request.groups[unit.group].frames
        return SequenceKind(size, len(unit.members), (frames.height, frames.width))

    @cached_property
    def prefix(self) -> Hashable:
        """The identity of the prefix; frames count only if they are in it. Short, since it is compared often."""
        layout = self.layout
        digest = hashlib.blake2b(layout.ids[: layout.prefix].data, digest_size=16)
        if layout.visual[: layout.prefix].any():
            shown = [(group.frames.identity, group.view.step) for group in self.request.groups]
            digest.update(repr((shown, layout.grids)).encode())
        return "prefix", digest.digest()

    @property
    def needs_kv(self) -> bool:
        """Whether it needs the keys and values of its prefix by themselves."""
        return self.request.visible_frames is not None or self.request.attention

    @property
    def rest(self) -> int:
        """How many tokens follow the prefix."""
        return len(self.layout) - self.layout.prefix

    @property
    def narrow(self) -> bool:
        """Whether what follows the prefix sees less than half of it, so that copying that is cheaper than a mask."""
        return self.request.visible_frames is not None and 2 * len(self.columns) < self.layout.prefix

    @cached_property
    def columns(self) -> npt.NDArray[np.int64]:
        """The tokens of the prefix that what follows may attend to."""
        owners = self.layout.owners
        if self.request.visible_frames is None:
            return np.arange(len(owners))
        return np.flatnonzero((owners < 0) | np.isin(owners, self.request.seen_units))


def price_job(dims: ModelDims, job: PreparedRequest) -> Cost:
    """What a request costs by itself; its texts are as long as they may be."""
    cost, task = price_prompt(dims, job), job.request.task
    return cost if isinstance(task, Choose) else sum([price_text_of(dims, job, task.limit)] * task.samples, cost)


def price_prompt(dims: ModelDims, job: PreparedRequest) -> Cost:
    """What reading a request costs; one with `visible_frames` finds the KV cache of all of them there."""
    rest, past_tokens = job.rest, len(job.columns)
    if job.request.visible_frames is not None:
        cost = price_recall(dims, rest, known=past_tokens)
    else:
        cost = price(dims, len(job.layout), job.layout.grids)
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
    def shows_frames(self) -> bool:
        """Whether it contains the frames; all of them, or none."""
        return bool(self.job.layout.visual[self.start : self.end].any())

    @property
    def known(self) -> int:
        """The number of tokens whose keys and values exist."""
        return 0 if self.past is None else self.past.shape[3]
