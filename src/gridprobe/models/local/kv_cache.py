"""Store: tensors that may be reused, limited in bytes; the least recently used are evicted first."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gridprobe.errors import TooLarge


class Store:
    """Tensors by key, or what has `nbytes`, `to`, `cpu` and `detach` as tensors have.

    What no longer fits on the device moves to the host's memory, and is dropped from there.

    Whether a tensor is still there changes what a call costs, never what it returns.
    """

    def __init__(self, limit: int, *, host_limit: int = 0) -> None:
        self._limits = (limit, host_limit)
        self._tiers: tuple[OrderedDict[Hashable, Any], ...] = (OrderedDict(), OrderedDict())
        self._bytes = [0, 0]

    def __len__(self) -> int:
        return sum(map(len, self._tiers))

    def __contains__(self, key: Hashable) -> bool:
        return any(key in tensors for tensors in self._tiers)

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes held on the device and on the host."""
        return self._bytes[0], self._bytes[1]

    def get(self, key: Hashable, device: torch.device) -> Any:
        """The tensor, on the device, or None; it counts as used now."""
        for tier, tensors in enumerate(self._tiers):
            if key in tensors:
                tensor = self._take(tier, key).to(device, non_blocking=True)
                self._place(0, key, tensor)
                return tensor
        return None

    def put(self, key: Hashable, tensor: Any) -> None:
        """Keep a tensor; one that is larger than the whole store is not kept."""
        for tier, tensors in enumerate(self._tiers):
            if key in tensors:
                self._take(tier, key)
        self._place(0, key, tensor.detach())

    def clear(self) -> None:
        """Forget everything."""
        for tier, tensors in enumerate(self._tiers):
            tensors.clear()
            self._bytes[tier] = 0

    def _take(self, tier: int, key: Hashable) -> Any:
        tensor = self._tiers[tier].pop(key)
        self._bytes[tier] -= tensor.nbytes
        return tensor

    def _place(self, tier: int, key: Hashable, tensor: Any) -> None:
        if tensor.nbytes > self._limits[tier]:
            return
        self._tiers[tier][key] = tensor
        self._bytes[tier] += tensor.nbytes
        while self._bytes[tier] > self._limits[tier]:
            oldest = next(iter(self._tiers[tier]))
            evicted = self._take(tier, oldest)
            if tier == 0:
                self._place(1, oldest, evicted.cpu())


# How much is computed at once and how much is kept, decided by the available memory.

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

SCORES_ON_CPU, SCORES_ON_GPU = 2**24, 2**26
"""The most entries of a mask, and attention scores of a layer, that are in memory at once; a text that needs more is
read in parts, so that memory grows with its length and not with the square of it."""
SHORTEST_PART = 16
"""Tokens; the mask of so few is small after any prefix."""

GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where control groups of versions 2 and 1 note their limit, what is used, and how much of that is a cache of files."""
SMALL = 4096
"""A sequence of at most that many tokens runs without asking how much memory is free."""


def most_scores(device: torch.device) -> int:
    """The most attention scores that are in memory at once."""
    return SCORES_ON_GPU if device.type == "cuda" else SCORES_ON_CPU


@dataclass(frozen=True)
class DeviceMemory:
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
    def of(cls, model: Any, *, token_bytes: int, cache_bytes: int) -> "DeviceMemory":
        """The memory that a loaded model leaves."""
        device, weights = model.device, sum(each.numel() * each.element_size() for each in model.parameters())
        if device.type != "cuda":
            return cls(device, token_bytes, cache_bytes, weights, KEEP_ON_CPU, 0)
        total = torch.cuda.get_device_properties(device).total_memory
        return cls(device, token_bytes, cache_bytes, weights, total // KEEP_OF_GPU, KEEP_ON_HOST)

    @property
    def pass_bytes(self) -> int:
        """Bytes of memory for each token of a pass."""
        return CAUTION * self.token_bytes + self.cache_bytes

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

    def check(self, tokens: int, what: str) -> None:
        """Refuse a sequence that cannot fit into the memory that is free; on a GPU, torch notices by itself.

        Activations are counted once, at the widest place of a layer, and keys and values twice, as they are while the
        parts of a sequence are joined: without caution, so that nothing is refused that would have fitted.
        """
        if tokens <= SMALL or self.device.type == "cuda":
            return
        needed, free = tokens * (self.token_bytes + 2 * self.cache_bytes), free_bytes()
        if needed > free:
            raise TooLarge(
                f"{what} and the question are {tokens:,} tokens, which take {needed / 1e9:.1f} GB, but only "
                f"{free / 1e9:.1f} GB of memory are free; use fewer or smaller frames, or a shorter question"
            )

    def copies(self, most: int) -> int:
        """Bytes of keys and values that a pass of at most that many tokens may copy."""
        return COPIES_ON_CPU if self.device.type != "cuda" else most * self.token_bytes // CAUTION


def free_bytes() -> int:
    """How much memory this process may still take: the least of what the machine, its control group and limits leave.

    Where none of them can be read, as on other systems than Linux, it is unlimited.
    """
    return min(_room(), default=sys.maxsize)


def _room() -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        yield int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) * 1024
    for folder, limit, used, files in GROUPS:
        with suppress(OSError, ValueError, IndexError):
            most, usage = (int(Path(folder, name).read_text()) for name in (limit, used))
            cache = Path(folder, "memory.stat").read_text().split(f"\n{files} ")[1].split()[0]
            yield most - usage + int(cache)
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource  # not on every system

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            yield most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


# Sequences in the cache of a model of transformers, one row for each text; a prompt's row is copied for its texts.

Forward = Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor]
"""Token ids, the mask of all tokens so far, each token's place in its sequence, each row's prompt -> all logits."""


class Cached:
    """Prompts that were read, padded on the left, and what is written after them."""

    def __init__(self, forward: Forward, cache: Any, mask: Tensor) -> None:
        """Take over a cache; `mask` says which tokens in it are no padding: rows × tokens."""
        self._forward = forward
        self._cache = cache
        self._mask = mask
        self._prompts = list(range(len(mask)))
        self._texts = list(range(len(mask)))

    def copies(self, counts: Sequence[int]) -> None:
        """Make so many texts of each prompt; they are numbered from 0."""
        self._select(list(chain.from_iterable([row] * count for row, count in enumerate(counts))))
        self._texts = list(range(len(self._mask)))

    def step(self, tokens: Sequence[int], live: Sequence[int]) -> Tensor:
        """Go on with some of the texts, one token each."""
        if list(live) != self._texts:
            self._select([self._texts.index(number) for number in live])
        ids = torch.tensor(tokens, device=self._mask.device)[:, None]
        places = self._mask.sum(-1, keepdim=True)
        self._mask = torch.cat([self._mask, torch.ones_like(ids)], dim=1)
        return self._forward(ids, self._mask, places, self._prompts).float()[:, -1]

    def _select(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows, device=self._mask.device)
        self._cache.batch_select_indices(index)
        self._mask = self._mask[index]
        self._prompts = [self._prompts[row] for row in rows]
        self._texts = [self._texts[row] for row in rows]


# Which of torch's attention kernels are used on a GPU.

LONG = 16_384
"""From so many tokens on, cuDNN's kernels save more than their preparation costs."""
STEADY = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def steady_attention(device: torch.device, *, tokens: int = 0) -> AbstractContextManager[None]:
    """Attention whose first call of a length costs no more than the others.

    cuDNN, which torch prefers in half precision on an H100 or H200, prepares a kernel for every new combination of
    lengths. That takes 41 to 65 ms, and nearly every question has a new length. For one pass over many tokens it is
    worth that: there its kernels take half the time of the others (speed/attention.py).

    Args:
        device: where the model is.
        tokens: how many tokens attend to all tokens before them; 0 if a few tokens follow those that are kept.
    """
    if device.type != "cuda" or tokens >= LONG:
        return nullcontext()
    kernels: AbstractContextManager[None] = sdpa_kernel(STEADY)
    return kernels
