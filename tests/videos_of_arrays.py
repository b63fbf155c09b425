"""Frame pools made from arrays, for tests that need no file."""

import numpy as np

from gridprobe.video import FramePool


def gray_pool(count: int, *, width: int = 64, height: int = 32, step: float = 10.0) -> FramePool:
    """Frame i is uniformly gray of level i, shown at i·step seconds."""
    levels = np.arange(count, dtype=np.uint8)
    pixels = np.broadcast_to(levels[:, None, None, None], (count, height, width, 3)).copy()
    return FramePool(pixels, tuple(i * step for i in range(count)), source=f"gray{count}")


def levels(pool: FramePool) -> list[int]:
    """Which frames of a gray pool these are."""
    return [int(frame[0, 0, 0]) for frame in pool.pixels]
