"""Frames -> vision features, many groups of one size at a time."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from gridprobe._util import check_cancelled
from gridprobe.models.base import Unit
from gridprobe.models.local.kv_cache import DeviceMemory, Store
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.blocks import Block, PatchSpec, patches, vision_block, vision_weights
from gridprobe.models.qwen3vl.pricing import VisionDims, vision_flops

ANGLE_BASE = 10000.0


class VisionTower:
    """Qwen3-VL's vision tower on batches of frame groups of one size."""

    def __init__(self, tower: Any, *, block: Block = vision_block) -> None:
        self._tower = tower
        self._block = block
        self._grids: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def __call__(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """Features of every group at every level: levels × groups × tokens × width.

        Level 0 goes into the sequence; the others (deepstack) are added to the first layers' states. Patches
        are groups × (rows · columns) × values, those of a merge block adjacent. A group of one frame may come
        without the repetitions that fill it in time.
        """
        tower = self._tower
        groups = len(patches)
        index, weight, *angles = self._grid(rows, columns)
        cos, sin = (angle.to(patches.dtype) for angle in angles)
        h = F.linear(patches, self._kernel(patches.shape[-1]), tower.patch_embed.proj.bias)
        h = h + (tower.pos_embed(index) * weight[..., None]).sum(1).to(h.dtype)
        deep = []
        for number, block in enumerate(tower.blocks):
            h = self._block(h, cos, sin, tower.config.num_heads, *vision_weights(block))
            if number in tower.deepstack_visual_indexes:
                merger = tower.deepstack_merger_list[tower.deepstack_visual_indexes.index(number)]
                deep.append(merger(h.flatten(0, 1)))
        levels = torch.stack([tower.merger(h.flatten(0, 1)), *deep])
        return levels.view(len(levels), groups, -1, levels.shape[-1])

    def _kernel(self, values: int) -> Tensor:
        """The weights of the patch embedding; for a frame that fills its group alone, their sum over time."""
        kernel: Tensor = self._tower.patch_embed.proj.weight
        if kernel[0].numel() != values:
            kernel = kernel.sum(2)
        return kernel.flatten(1)

    def _grid(self, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Position-embedding taps and rotary angles of a grid of patches, in merge-block order."""
        if (rows, columns) not in self._grids:
            tower, merge = self._tower, self._tower.config.spatial_merge_size
            device = tower.pos_embed.weight.device
            order = torch.arange(rows * columns, device=device).view(rows // merge, merge, columns // merge, merge)
            order = order.permute(0, 2, 1, 3).reshape(-1)
            row, column = order // columns, order % columns
            table = int(tower.config.num_position_embeddings**0.5)
            index, weight = _taps(row * ((table - 1) / max(1, rows - 1)), column * ((table - 1) / max(1, columns - 1)))
            index = index.clamp(max=table - 1)
            size = tower.config.hidden_size // tower.config.num_heads
            frequency = ANGLE_BASE ** -(torch.arange(0, size // 2, 2, device=device) / (size // 2))
            angle = torch.cat([row[:, None] * frequency, column[:, None] * frequency], dim=-1)
            angle = torch.cat([angle, angle], dim=-1)
            taps = index[..., 0] * table + index[..., 1]
            self._grids[rows, columns] = taps, weight, angle.cos()[None, :, None], angle.sin()[None, :, None]
        return self._grids[rows, columns]


def _taps(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Bilinear: four neighbours of each place (places × 4 × 2) and their weights (places × 4)."""
    indices, weights = [], []
    y0, x0 = y.floor(), x.floor()
    for dy in (0, 1):
        for dx in (0, 1):
            indices.append(torch.stack([y0 + dy, x0 + dx], dim=-1).long())
            weights.append((1 - (y - y0 - dy).abs()) * (1 - (x - x0 - dx).abs()))
    return torch.stack(indices, dim=1), torch.stack(weights, dim=1)


# Vision features of frames, each encoded once and kept as long as there is room.

Member = tuple[PreparedRequest, Unit]
"""Where a unit is found: a job that shows it, and which of the job's units it is."""


Kind = tuple[tuple[int, int], int, tuple[int, int]]
"""What must be equal for units to be encoded together: the size they are shown at, how many frames they have, and the
height and width of those before they are resized."""


def _kind(job: PreparedRequest, number: int) -> Kind:
    unit = job.request.units[number]
    frames = job.request.groups[unit.group].frames
    return job.layout.sizes[number], len(unit.members), (frames.height, frames.width)


@dataclass(frozen=True, eq=False)
class Features:
    """The vision tower with what it has encoded."""

    tower: VisionTower
    spec: PatchSpec
    dims: VisionDims
    memory: DeviceMemory
    dtype: torch.dtype

    def of(
        self, shown: Sequence[tuple[PreparedRequest, range]], kept: Store, spent: Counter[int]
    ) -> dict[Hashable, Tensor]:
        """Features of some units of jobs, levels × tokens × width; `spent` counts the FLOPs of each job."""
        features: dict[Hashable, Tensor] = {}
        missing: dict[Kind, dict[Hashable, Member]] = {}
        for job, numbers in shown:
            new: Counter[tuple[int, int]] = Counter()
            for number in numbers:
                unit, kind = job.units[number], _kind(job, number)
                if unit in features or unit in missing.get(kind, {}):
                    continue
                tensor = kept.get(unit, self.memory.device)
                if tensor is not None:
                    features[unit] = tensor
                    continue
                missing.setdefault(kind, {})[unit] = job, job.request.units[number]
                new[kind[0]] += 1
            grids = [(count, *self._grid(size)) for size, count in new.items()]
            spent[job.place] += int(vision_flops(self.dims, grids))
        for kind, units in missing.items():
            features |= self._encode(units, kept, *self._grid(kind[0]))
        return features

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
            check_cancelled("model")
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
        group_members = list(some)
        job, first = group_members[0]
        pieces.append(job.request.groups[first.group].pictures([unit for _, unit in group_members]))
    return pieces
