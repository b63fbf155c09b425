"""Which of torch's attention kernels are used on a GPU."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["steady_attention"]

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
