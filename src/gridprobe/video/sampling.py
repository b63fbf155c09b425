"""SampleSpec: what is wanted of a video; and which moments of it that means. Nothing here opens a file."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from gridprobe.errors import UsageError
from gridprobe.grid import MAX_K
from gridprobe.video.limits import VideoLimits

__all__ = [
    "DecodeIn",
    "Precision",
    "SampleSpec",
    "Sampling",
    "check_stream",
    "linspace_numbers",
    "middle_times",
]

Sampling = Literal["middle", "linspace"]
Precision = Literal["exact", "keyframe", "auto"]
DecodeIn = Literal["child", "process"]


@dataclass(frozen=True)
class SampleSpec:
    """The frames at `cells` moments of a video; `gridprobe.video.sample` says what the words mean."""

    cells: int
    sampling: Sampling = "middle"
    precision: Precision = "exact"
    limits: VideoLimits = field(default_factory=VideoLimits)
    stretches: tuple[tuple[float, float], ...] = ()
    """Seconds to sample from, as rising intervals that do not overlap; empty is the whole video."""
    decode_in: DecodeIn = "process"
    """Whether a child process decodes, which may crash or hang, or this one."""
    stream: int | None = None
    """The number of the video stream in the file, counted from 0 over all streams; None is the default one."""

    def __post_init__(self) -> None:
        cells = self.cells
        if isinstance(cells, bool) or not isinstance(cells, int) or not 1 <= cells <= MAX_K**2:
            raise UsageError(f"cells must be a whole number from 1 to {MAX_K**2}, got {cells!r}")
        if self.sampling not in ("middle", "linspace"):
            raise UsageError(f'sampling must be "middle" or "linspace", got {self.sampling!r}')
        if self.precision not in ("exact", "keyframe", "auto"):
            raise UsageError(f'precision must be "exact", "keyframe" or "auto", got {self.precision!r}')
        if self.decode_in not in ("child", "process"):
            raise UsageError(f'decode_in must be "child" or "process", got {self.decode_in!r}')
        check_stream(self.stream)
        ends = [moment for stretch in self.stretches for moment in stretch]
        if any(not isfinite(moment) or moment < 0 for moment in ends) or ends != sorted(ends):
            raise UsageError(f"stretches must be rising intervals of seconds, got {self.stretches}")
        if self.stretches and self.sampling == "linspace":
            raise UsageError('stretches are sampled in time; use sampling="middle"')

    def moments(self, duration: float) -> tuple[float, ...]:
        """The middles of equal shares of the video, or of its stretches laid end to end."""
        stretches = [(start, min(end, duration)) for start, end in self.stretches if start < duration]
        if not stretches:
            return middle_times(duration, self.cells)
        import numpy as np

        lengths = np.array([end - start for start, end in stretches])
        before = np.concatenate([[0.0], np.cumsum(lengths)])
        places = np.array(middle_times(float(before[-1]), self.cells))
        which = np.clip(np.searchsorted(before, places, side="right") - 1, 0, len(stretches) - 1)
        starts = np.array([start for start, _ in stretches])
        return tuple((starts[which] + places - before[which]).tolist())

    def cell(self, duration: float) -> float:
        """The width of a share in seconds."""
        within = sum(max(0.0, min(end, duration) - start) for start, end in self.stretches) or duration
        return within / self.cells


def check_stream(stream: int | None) -> None:
    """Raise UsageError unless it can be the number of a stream."""
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int) or stream < 0):
        raise UsageError(f"stream must be the number of a stream, counted from 0, got {stream!r}")


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
    import numpy as np

    return tuple(int(n) for n in np.linspace(0, frames - 1, count).round())


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"the number of frames to sample must be a whole number of at least 1, got {count!r}")
