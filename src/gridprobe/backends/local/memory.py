"""How much is computed at once and how much is kept, decided by the available memory."""

import sys
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Memory"]

CPU_TOKENS, GPU_TOKENS = 4096, 262_144
"""Tokens per pass of the language model: enough to fill the device, and few enough for a CPU's caches."""
CPU_PATCHES, GPU_PATCHES = 4096, 24_576
"""Patches per pass of the vision tower; its memory stays small."""
KEEP_ON_CPU = 2**30
KEEP_ON_HOST = 8 * 2**30
KEEP_OF_GPU = 16
"""The store gets 1/this of a GPU's memory."""
COPIES_ON_CPU = 2**28
"""Bytes of keys and values that a pass may copy on a CPU."""
CAUTION = 2
"""A pass is assumed to need this many times its activations: the allocator needs room, and attention has its own."""


@dataclass(frozen=True)
class Memory:
    """The memory of the device a model is on."""

    device: torch.device
    token_bytes: int
    """Bytes of one token's activations at the widest place of a layer."""
    cache_bytes: int
    """Bytes of one token's keys and values."""
    weights: int
    """Bytes of the model's weights."""
    keep: int
    """Bytes for the store, on the device."""
    keep_on_host: int
    """Bytes for the store in the host's memory, for what no longer fits on the device."""

    @classmethod
    def of(cls, model: Any, *, token_bytes: int, cache_bytes: int) -> "Memory":
        """The memory that a loaded model leaves."""
        device, weights = model.device, sum(each.numel() * each.element_size() for each in model.parameters())
        if device.type != "cuda":
            return cls(device, token_bytes, cache_bytes, weights, KEEP_ON_CPU, 0)
        total = torch.cuda.get_device_properties(device).total_memory
        return cls(device, token_bytes, cache_bytes, weights, total // KEEP_OF_GPU, KEEP_ON_HOST)

    def gigabytes(self, tokens: int) -> float:
        """What the weights and one pass over so many tokens take, as `Gauge.memory` counts it."""
        return (self.weights + tokens * (CAUTION * self.token_bytes + self.cache_bytes)) / 1e9

    @property
    def worthwhile(self) -> int:
        """How many tokens fill the device; more at once are not faster."""
        return GPU_TOKENS if self.device.type == "cuda" else CPU_TOKENS

    @property
    def patches(self) -> int:
        """How many patches fill the device."""
        return GPU_PATCHES if self.device.type == "cuda" else CPU_PATCHES

    def most(self) -> int:
        """How many tokens, padding included, a pass may hold now; a CPU's memory is left to the operating system.

        Asking takes a millisecond, so it is done once per question, not per probe.
        """
        if self.device.type != "cuda":
            return sys.maxsize
        free, _ = torch.cuda.mem_get_info(self.device)
        idle = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return (free + idle) // (CAUTION * self.token_bytes)

    def copies(self, most: int) -> int:
        """Bytes of keys and values that a pass of at most so many tokens may copy."""
        return COPIES_ON_CPU if self.device.type != "cuda" else most * self.token_bytes // CAUTION
