"""VideoLimits: the largest video gridprobe accepts; Deadline: the clock that enforces the time limit."""

import math
import time
from dataclasses import dataclass, field

from gridprobe.errors import UsageError, VideoError

__all__ = ["Deadline", "VideoLimits"]


@dataclass(frozen=True)
class VideoLimits:
    """Bounds checked against the header, before decoding; `seconds` is checked throughout."""

    max_pixels: int = 8192 * 8192
    """Largest frame: twice 8K, a quarter of 16384×16384."""
    max_duration: float = 48 * 3600.0
    max_streams: int = 64
    seconds: float = 120.0
    """Wall-clock time to open a video and decode its pool; a later pass has what opening left of it."""
    memory: int = 512 << 20
    """Bytes of decoded frames that a `Footage`, and so a session, keeps in memory. Of large frames fewer are decoded in
    parallel, and where the frames that one decoder must hold take more, the video is refused."""
    process: int = 4 << 30
    """Bytes of address space of a child process that decodes; decoders never touch most of what they reserve."""
    cache: int = 2 << 30
    """Bytes of the frame cache on disk, which all processes share; 0 turns it off."""

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_duration", "max_streams", "seconds", "memory", "process", "cache"):
            value, least = getattr(self, name), 0 if name == "cache" else 1e-9
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                raise UsageError(f"{name} must be a number {'of at least' if least == 0 else 'above'} 0, got {value!r}")


@dataclass(frozen=True)
class Deadline:
    """The time limit of one video."""

    name: str
    seconds: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left, never zero because FFmpeg takes zero as "no limit"."""
        return max(0.001, self.started + self.seconds - time.monotonic())

    def check(self) -> None:
        """Raise VideoError once the time is up."""
        if time.monotonic() - self.started >= self.seconds:
            raise self.error()

    def error(self) -> VideoError:
        """The error to raise when the time is up."""
        return VideoError(
            f"{self.name}: decoding took longer than {self.seconds:g} s; "
            "raise the limit (--decode-timeout, VideoLimits.seconds)"
        )
