"""Which moments of a video are looked at. Arithmetic only; nothing here opens a file."""

import numpy as np

from gridprobe.errors import UsageError

__all__ = ["linspace_numbers", "middle_times"]


def middle_times(duration: float, count: int) -> tuple[float, ...]:
    """The middle of each of `count` equal intervals: of (8.0, 4) it is (1.0, 3.0, 5.0, 7.0)."""
    _check_count(count)
    return tuple(duration * (2 * i + 1) / (2 * count) for i in range(count))


def linspace_numbers(frames: int, count: int) -> tuple[int, ...]:
    """`count` frame numbers from the first to the last frame, evenly, as numpy rounds them: (5, 3) gives (0, 2, 4).

    With fewer frames than `count` some numbers repeat.
    """
    _check_count(count)
    if frames < 1:
        raise UsageError(f"a video has at least 1 frame, got {frames!r}")
    return tuple(int(n) for n in np.linspace(0, frames - 1, count).round())


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"the number of frames to sample must be a whole number of at least 1, got {count!r}")
