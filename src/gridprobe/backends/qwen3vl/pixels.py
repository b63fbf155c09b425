"""Frames -> the flat patches of Qwen3-VL's vision tower, without torchvision.

Bit for bit what transformers' video processor makes of the same frames (tests/backends/test_qwen3vl_reference.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from gridprobe.backends.base import Packing

__all__ = ["PatchSpec", "cut", "patches", "resize", "upload"]


@dataclass(frozen=True)
class PatchSpec:
    """How a checkpoint's pixels are prepared."""

    patch: int
    merge: int
    temporal: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def multiple(self) -> int:
        """Frame sides must be multiples of this."""
        return self.patch * self.merge


def upload(values: npt.ArrayLike, device: torch.device) -> torch.Tensor:
    """Host values as a tensor.

    A copy from ordinary memory waits until the GPU has finished all earlier work, so the host cannot work ahead; a copy
    from pinned memory does not.
    """
    tensor = torch.from_numpy(np.asarray(values))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _together(pieces: Sequence[npt.NDArray[np.uint8]], device: torch.device) -> torch.Tensor:
    """Pieces of one video, concatenated; for a GPU in one pinned block, since allocating each block takes time.

    NumPy copies them in one thread. PyTorch uses all threads, and on a busy machine the copy waits for the slowest.
    """
    if device.type != "cuda":
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return torch.from_numpy(np.require(joined, requirements=("C", "W"))).to(device)  # torch warns of read-only ones
    block = torch.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=torch.uint8, pin_memory=True)
    np.concatenate(pieces, out=block.numpy())
    return block.to(device, non_blocking=True)


def patches(
    frames: npt.NDArray[np.uint8] | Sequence[npt.NDArray[np.uint8]],
    *,
    size: tuple[int, int],
    packing: Packing,
    spec: PatchSpec,
    device: torch.device,
) -> torch.Tensor:
    """Resize, normalize and cut frames.

    Args:
        frames: n × height × width × 3, or several such pieces, which are put together on the device.
        size: (width, height) to show them at, multiples of `spec.multiple`.
        packing: `single` repeats each frame to fill its temporal patch, `pairs` fuses neighbours; a last odd frame is
            fused with itself.
        spec: the checkpoint's settings.
        device: where the work is done and the result is.

    Returns:
        float32 of shape (groups · rows · columns, 3 · temporal · patch²), groups in time order.
    """
    pieces = [frames] if isinstance(frames, np.ndarray) else frames
    images = resize(_together(pieces, device).permute(0, 3, 1, 2), size)
    if packing == "single" and spec.temporal > 1:
        images = images.repeat_interleave(spec.temporal, dim=0)
    elif len(images) % spec.temporal:
        images = torch.cat([images, images[-1:].expand(spec.temporal - len(images) % spec.temporal, -1, -1, -1)])
    return _normalise(cut(images, spec), spec)


def resize(images: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Images × channels × height × width of bytes, at another size."""
    width, height = size
    if images.shape[2:] == (height, width):
        return images
    change = torch.nn.functional.interpolate
    if images.device.type == "cpu":  # on uint8 the CPU kernel equals torchvision's to the bit
        return change(images, (height, width), mode="bicubic", antialias=True)
    return change(images.float(), (height, width), mode="bicubic", antialias=True).round().clamp(0, 255)


def _normalise(flat: torch.Tensor, spec: PatchSpec) -> torch.Tensor:
    """Flat patches; bytes are cut before they become floats, which are four times as large."""
    values = np.array([spec.mean, spec.std], dtype=np.float32) * np.float32(255.0)
    mean, std = upload(values.repeat(spec.temporal * spec.patch**2, axis=1), flat.device)
    return flat.float().sub_(mean).div_(std)


def cut(images: torch.Tensor, spec: PatchSpec) -> torch.Tensor:
    """Cut frames into flat patches; those of a merge block are adjacent, as the merger expects."""
    frames, channels, height, width = images.shape
    groups, block = frames // spec.temporal, spec.patch * spec.merge
    cut = images.view(
        groups, spec.temporal, channels, height // block, spec.merge, spec.patch, width // block, spec.merge, spec.patch
    )
    return cut.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(
        groups * (height // spec.patch) * (width // spec.patch), channels * spec.temporal * spec.patch**2
    )
