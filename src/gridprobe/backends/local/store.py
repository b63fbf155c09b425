"""Store: tensors that may be reused, limited in bytes; the least recently used are evicted first."""

from collections import OrderedDict
from collections.abc import Hashable

import torch
from torch import Tensor

__all__ = ["Store"]


class Store:
    """Tensors by key. What no longer fits on the device moves to the host's memory, and is dropped from there.

    Whether a tensor is still there changes what a call costs, never what it returns.
    """

    def __init__(self, limit: int, *, host_limit: int = 0) -> None:
        self._limits = (limit, host_limit)
        self._tiers: tuple[OrderedDict[Hashable, Tensor], ...] = (OrderedDict(), OrderedDict())
        self._bytes = [0, 0]

    def __len__(self) -> int:
        return sum(map(len, self._tiers))

    def __contains__(self, key: Hashable) -> bool:
        return any(key in held for held in self._tiers)

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes held on the device and on the host."""
        return self._bytes[0], self._bytes[1]

    def get(self, key: Hashable, device: torch.device) -> Tensor | None:
        """The tensor, on the device, or None; it counts as used now."""
        for tier, held in enumerate(self._tiers):
            if key in held:
                tensor = self._take(tier, key).to(device, non_blocking=True)
                self._place(0, key, tensor)
                return tensor
        return None

    def put(self, key: Hashable, tensor: Tensor) -> None:
        """Keep a tensor; one that is larger than the whole store is not kept."""
        for tier, held in enumerate(self._tiers):
            if key in held:
                self._take(tier, key)
        self._place(0, key, tensor.detach())

    def clear(self) -> None:
        """Forget everything."""
        for tier, held in enumerate(self._tiers):
            held.clear()
            self._bytes[tier] = 0

    def _take(self, tier: int, key: Hashable) -> Tensor:
        tensor = self._tiers[tier].pop(key)
        self._bytes[tier] -= tensor.nbytes
        return tensor

    def _place(self, tier: int, key: Hashable, tensor: Tensor) -> None:
        if tensor.nbytes > self._limits[tier]:
            return
        self._tiers[tier][key] = tensor
        self._bytes[tier] += tensor.nbytes
        while self._bytes[tier] > self._limits[tier]:
            oldest = next(iter(self._tiers[tier]))
            evicted = self._take(tier, oldest)
            if tier == 0:
                self._place(1, oldest, evicted.cpu())
