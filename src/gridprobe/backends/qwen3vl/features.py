"""Vision features of frames, each encoded once and kept as long as there is room."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gridprobe.backends.base import Unit
from gridprobe.backends.local.memory import Memory
from gridprobe.backends.local.store import Store
from gridprobe.backends.qwen3vl.jobs import Job, Kind
from gridprobe.backends.qwen3vl.pixels import PatchSpec, patches
from gridprobe.backends.qwen3vl.pricing import VisionDims, vision_flops
from gridprobe.backends.qwen3vl.vision import VisionTower

__all__ = ["Features"]

Member = tuple[Job, Unit]
"""Where a unit is found: a job that shows it, and which of the job's units it is."""


@dataclass(frozen=True, eq=False)
class Features:
    """The vision tower with what it has encoded."""

    tower: VisionTower
    spec: PatchSpec
    dims: VisionDims
    memory: Memory
    dtype: torch.dtype

    def of(self, jobs: Sequence[Job], kept: Store, spent: Counter[int]) -> dict[Hashable, Tensor]:
        """Features of every unit of the jobs, levels × tokens × width; `spent` counts the FLOPs of each job."""
        features: dict[Hashable, Tensor] = {}
        missing: dict[Kind, dict[Hashable, Member]] = {}
        for job in jobs:
            new: Counter[tuple[int, int]] = Counter()
            for number, unit in enumerate(job.units):
                kind = job.kind(number)
                if unit in features or unit in missing.get(kind, {}):
                    continue
                known = kept.get(unit, self.memory.device)
                if known is not None:
                    features[unit] = known
                    continue
                missing.setdefault(kind, {})[unit] = job, job.request.units[number]
                new[kind.size] += 1
            grids = [(count, *self._grid(size)) for size, count in new.items()]
            spent[job.place] += int(vision_flops(self.dims, grids))
        for kind, units in missing.items():
            features |= self._encode(units, kept, *self._grid(kind.size))
        return features

    def patches(self, job: Job) -> Tensor | None:
        """The patches of every unit of a job, in the order shown; None without frames."""
        request, layout = job.request, job.layout
        parts: dict[Unit, Tensor] = {}
        for number, group in enumerate(request.groups):
            units = group.units(number)
            flat = patches(
                group.pictures(units),
                size=layout.sizes[request.units.index(units[0])],
                packing=group.view.packing,
                spec=self.spec,
                device=self.memory.device,
            )
            parts |= zip(units, flat.chunk(len(units)), strict=True)
        return torch.cat([parts[unit] for unit in request.units]) if parts else None

    def _grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of patches."""
        return size[1] // self.spec.patch, size[0] // self.spec.patch

    def _encode(self, units: dict[Hashable, Member], kept: Store, rows: int, columns: int) -> dict[Hashable, Tensor]:
        """Units of one size through the vision tower."""
        features: dict[Hashable, Tensor] = {}
        names = list(units)
        parts = math.ceil(len(names) * rows * columns / self.memory.patches)
        step = math.ceil(len(names) / parts)
        for start in range(0, len(names), step):
            some = names[start : start + step]
            frames = _pixels([units[name] for name in some])
            apart = sum(map(len, frames)) == len(some)
            flat = patches(
                frames,
                size=(columns * self.spec.patch, rows * self.spec.patch),
                packing="single" if apart else "pairs",
                spec=replace(self.spec, temporal=1) if apart else self.spec,
                device=self.memory.device,
            )
            levels = self.tower(flat.view(len(some), rows * columns, -1).to(self.dtype), rows, columns)
            for place, name in enumerate(some):
                features[name] = levels[:, place]
                kept.put(name, levels[:, place].clone())  # a view would keep the whole batch alive
        return features


def _pixels(members: Sequence[Member]) -> list[npt.NDArray[np.uint8]]:
    """The frames of some units, in pieces of one group each; adjacent frames are not copied."""
    pieces = []
    for _, some in groupby(members, key=lambda member: (member[0].place, member[1].group)):
        found = list(some)
        job, first = found[0]
        pieces.append(job.request.groups[first.group].pictures([unit for _, unit in found]))
    return pieces
