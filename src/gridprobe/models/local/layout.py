"""A request as tokens, as all engines of local models see it; no torch is loaded."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.models.base import Choose, Cost, Request, Task


@dataclass(frozen=True, eq=False)
class Layout:
    """A request as one sequence of tokens."""

    ids: npt.NDArray[np.int64]
    visual: npt.NDArray[np.bool_]
    """Which positions take a vision feature."""
    sizes: tuple[tuple[int, int], ...]
    """Width and height in pixels of every unit of the request, in the order shown."""
    prefix: int
    """How many tokens at its beginning other requests may share: all frames, or all text, whichever comes first."""
    prefix_units: int
    """How many units the prefix shows."""
    owners: npt.NDArray[np.int64]
    """For every token of the prefix the number of its unit, with the time and text before it; -1 if it has none."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height of the largest frames."""
        return max(self.sizes, key=lambda size: size[0] * size[1], default=(0, 0))


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """One request in an engine; `place` is its index in the call."""

    place: int
    request: Request
    layout: Any
    """The `Layout` of its engine."""
    notes: tuple[str, ...] = ()
    shared: bool = False
    """Whether other requests begin alike, now or later."""

    @cached_property
    def units(self) -> tuple[Hashable, ...]:
        """The identity of every unit for the vision tower: which frames, at which size."""
        keys = [group.frames.keys for group in self.request.groups]
        shown = zip(self.request.units, self.layout.sizes, strict=True)
        return tuple(("unit", tuple(keys[unit.group][i] for i in unit.members), size) for unit, size in shown)

    @cached_property
    def prefix(self) -> Hashable:
        """The identity of the prefix; frames count only if they are in it. Short, since it is compared often."""
        layout = self.layout
        digest = hashlib.blake2b(layout.ids[: layout.prefix].data, digest_size=16)
        if layout.visual[: layout.prefix].any():
            shown = [(group.frames.identity, group.view.step) for group in self.request.prefix_groups]
            digest.update(repr((shown, layout.sizes[: layout.prefix_units])).encode())
        return "prefix", digest.digest()

    @property
    def needs_kv(self) -> bool:
        """Whether it needs the keys and values of its prefix by themselves."""
        return self.request.visible_frames is not None or self.request.attention or self.request.close_ups

    @property
    def rest(self) -> int:
        """How many tokens follow the prefix."""
        return len(self.layout) - int(self.layout.prefix)

    @property
    def behind(self) -> range:
        """The numbers of the units that follow the prefix."""
        return range(self.layout.prefix_units, len(self.layout.sizes))

    def units_of(self, tokens: int) -> range:
        """The numbers of the units in its first tokens: the prefix, or all."""
        return range(self.layout.prefix_units if tokens == self.layout.prefix else len(self.layout.sizes))

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

    @property
    def frames(self) -> str:
        """Its frames in words."""
        count = sum(len(group.frames) for group in self.request.groups)
        upto = "up to " if len(set(self.layout.sizes)) > 1 else ""
        width, height = self.layout.largest
        if not count:
            return "no frames"
        return f"{count} frames of {upto}{width}×{height}"


Batch = Sequence[PreparedRequest]


def with_texts(prompt: Cost, task: Task, text: Callable[[int], Cost]) -> Cost:
    """The cost of a request from that of its prompt, and that of a text of some tokens; they are as long as allowed."""
    return prompt if isinstance(task, Choose) else sum([text(task.limit)] * task.samples, prompt)
