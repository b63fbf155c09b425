"""Limits: how much of a video gridprobe is willing to take on, and the clock that enforces the last of them."""

import math
import time
from dataclasses import dataclass, field

from gridprobe.errors import UsageError, VideoError

__all__ = ["Deadline", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Bounds checked from the header, before a frame is decoded; `seconds` is checked all the way through."""

    max_pixels: int = 8192 * 8192
    """Largest frame: twice 8K, a quarter of 16384×16384."""
    max_duration: float = 48 * 3600.0
    max_streams: int = 64
    seconds: float = 120.0
    """Wall clock for one video, all passes together."""

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_duration", "max_streams", "seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise UsageError(f"{name} must be a number above 0, got {value!r}")


@dataclass(frozen=True)
class Deadline:
    """The wall clock of one video."""

    name: str
    seconds: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left, never quite zero because FFmpeg reads zero as "no limit"."""
        return max(0.001, self.started + self.seconds - time.monotonic())

    def check(self) -> None:
        """Raise VideoError once the time is up."""
        if time.monotonic() - self.started >= self.seconds:
            raise self.error()

    def error(self) -> VideoError:
        """What to raise when the time is up."""
        return VideoError(
            f"{self.name}: decoding took longer than {self.seconds:g} s; "
            "raise the limit (--decode-timeout, Limits.seconds)"
        )
