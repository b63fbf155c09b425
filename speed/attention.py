"""Attention on a GPU: a length that was seen before against a new one, with and without cuDNN's kernels.

    python speed/attention.py

Prints a line for each shape: milliseconds of a call. "causal" is a pass over all tokens; "masked" is 60 tokens that
follow kept ones, as a question does. gridprobe.models.local.kv_cache decides from this when cuDNN is used.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F

from gridprobe.models.local.kv_cache import steady_attention

ROUNDS = 20


def milliseconds(calls: Sequence[Callable[[], object]]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for call in calls:
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / len(calls) * 1000


def measured(heads: int, shared: int, size: int, length: int) -> Iterator[str]:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(1, *shape, size, device="cuda", dtype=torch.bfloat16)

    q, k, v = tensor(heads, length), tensor(shared, length), tensor(shared, length)
    few, keys, values = tensor(heads, 60), tensor(heads, length), tensor(heads, length)
    mask = torch.zeros(1, 1, 60, length, device="cuda", dtype=torch.bfloat16)

    def causal(less: int) -> object:
        cut = slice(0, length - less)
        return F.scaled_dot_product_attention(q[:, :, cut], k[:, :, cut], v[:, :, cut], is_causal=True, enable_gqa=True)

    def masked(less: int) -> object:
        cut = slice(0, length - less)
        return F.scaled_dot_product_attention(few, keys[:, :, cut], values[:, :, cut], attn_mask=mask[..., cut])

    for name, call in (("causal", causal), ("masked", masked)):
        call(0)
        known = milliseconds([partial(call, 0)] * ROUNDS)
        new = milliseconds([partial(call, number + 1) for number in range(ROUNDS)])
        yield f"{name} known {known:.3f} new {new:.3f}"


def main() -> None:
    for cudnn in (True, False):
        for heads, shared, size in ((32, 8, 128), (16, 8, 128)):
            for length in (2_000, 8_000, 16_384, 32_000):
                tokens = 1 << 20 if cudnn else 0
                with steady_attention(torch.device("cuda"), tokens=tokens), torch.inference_mode():
                    found = "; ".join(measured(heads, shared, size, length))
                print(f"cuDNN {'on' if cudnn else 'off'}, {heads} heads, {length} tokens: {found}", flush=True)


if __name__ == "__main__":
    main()
