"""Frames -> vision features, many groups of one size at a time."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gridprobe.backends.qwen3vl.blocks import Block, vision_block, vision_weights

__all__ = ["VisionTower"]

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
