"""FrameSize and FramePool: frames with identity. Undecoded: a pool whose pixels come when they are looked at."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError, VideoError

if TYPE_CHECKING:
    from gridprobe.video.info import VideoInfo

__all__ = ["NATIVE", "Found", "FramePool", "FrameSize", "Pixels", "Undecoded"]

Pixels = npt.NDArray[np.uint8]

MAX_RATIO = 200
"""Qwen3-VL's own limit on width : height."""


@dataclass(frozen=True)
class FrameSize:
    """A rule for the size a frame is shown at. Sides become multiples of `multiple`, as Qwen3-VL needs.

    With `square` the frame is squashed. Else its aspect ratio is kept, up to that rounding, within the bounds given, by
    the rule of Qwen3-VL's own processor.
    """

    max_pixels: int | None = None
    max_side: int | None = None
    square: int | None = None
    multiple: int = 32
    twice: bool = False
    """Round first and shrink what comes out, as the authors' two resizing steps do: 720p is then 1184×640, not 1152."""

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """The (width, height) a frame of the given size is shown at.

        For 1920×1080, FrameSize(max_pixels=786_432) gives (1152, 640) and FrameSize(max_side=224) gives (224, 128).
        """
        if max(width, height) > MAX_RATIO * min(width, height):
            raise VideoError(f"frames of {width}×{height} are more than {MAX_RATIO} times longer than wide")
        if self.square:
            return self.square, self.square
        scale = min(1.0, self.max_side / max(width, height)) if self.max_side else 1.0
        w, h = (max(self.multiple, round(side * scale / self.multiple) * self.multiple) for side in (width, height))
        if self.max_pixels and w * h > self.max_pixels:
            sides = (w, h) if self.twice else (width, height)
            excess = math.sqrt(sides[0] * sides[1] / self.max_pixels)  # dividing in this order is what Qwen's rule does
            w, h = (max(self.multiple, math.floor(s / excess / self.multiple) * self.multiple) for s in sides)
        return w, h

    def of(self, info: "VideoInfo") -> tuple[int, int]:
        """The (width, height) of a video's frames; an error names the video."""
        try:
            return self.fit(info.width, info.height)
        except VideoError as error:
            raise VideoError(f"{info.path}: {error}") from None


NATIVE = FrameSize(max_pixels=786_432)
"""The size frames are decoded at unless asked otherwise."""


class Found(NamedTuple):
    """Which frames of a video there are, and what became of the moments whose own frame is damaged."""

    ticks: tuple[int, ...]
    """When each is shown, rising, in the video's own units of time."""
    substituted: int = 0
    """Moments that took a neighbour."""
    lost: int = 0
    """Moments with no good frame near enough; they have none."""
    smooth: bool = True
    """Whether nothing at all was damaged on the way; else only the same way is sure to lead to the same frames."""
    decoded: bool = True
    """Whether all of them were decoded; else they are what the packets promise."""

    @property
    def damaged(self) -> int:
        """Moments that did not get their own frame."""
        return self.substituted + self.lost


@dataclass(frozen=True, eq=False)
class FramePool:
    """Upright 8-bit RGB frames that know which video they came from and when they are shown."""

    pixels: Pixels
    """Frames × height × width × 3."""
    times: tuple[float, ...]
    """True presentation time of each frame, in seconds from the start of the video."""
    source: str
    """Fingerprint of the video; with a time and a size it identifies a frame."""
    info: "VideoInfo | None" = None
    warnings: tuple[str, ...] = ()
    substituted: int = 0
    """How many of the wanted frames were damaged, so that a neighbour stands in."""

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.shape[3] != 3 or self.pixels.dtype != np.uint8:
            raise UsageError(f"frames must be uint8 of shape (n, h, w, 3), got {self.pixels.dtype} {self.pixels.shape}")
        if len(self.pixels) != len(self.times) or not self.times:
            raise UsageError(f"a pool needs one time for each frame, got {len(self.pixels)} and {len(self.times)}")
        if not all(math.isfinite(t) for t in self.times):
            raise UsageError("frame times must be finite")

    @classmethod
    def from_arrays(cls, frames: Any, times: Sequence[float] | None = None, *, fps: float = 1.0) -> "FramePool":
        """A pool of frames you already have, as a copy, with an identity made from their content.

        Args:
            frames: uint8 RGB, a numpy array or torch tensor of shape (n, h, w, 3), or a tensor of shape (n, 3, h, w).
            times: the second at which each frame is shown, rising; without it frame i is shown at i / fps.
            fps: frames per second, where no times are given.
        """
        pixels = _as_pixels(frames)
        if not (isinstance(fps, int | float) and 0 < fps < math.inf):
            raise UsageError(f"fps must be a number above 0, got {fps!r}")
        shown = tuple(i / fps for i in range(len(pixels))) if times is None else tuple(map(float, times))
        if any(b <= a for a, b in pairwise(shown)):
            raise UsageError("the times must rise from frame to frame")
        digest = hashlib.sha256(f"{pixels.shape} {shown}\n".encode())
        digest.update(pixels.data)
        return cls(pixels, shown, source=digest.hexdigest())

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        span = f"{self.times[0]:.1f}–{self.times[-1]:.1f} s"
        return f"FramePool({len(self)} frames of {self.width}×{self.height}, {span}, source={self.source[:12]})"

    @property
    def width(self) -> int:
        """Width of every frame."""
        return int(self.pixels.shape[2])

    @property
    def height(self) -> int:
        """Height of every frame."""
        return int(self.pixels.shape[1])

    @cached_property
    def keys(self) -> tuple[tuple[str, float, int, int], ...]:
        """The identity of every frame: source, time and size. Equal keys mean equal pixels.

        What was read from a file is known by the file's fingerprint. Frames that a caller put together are known by
        their content too, because nothing keeps two clips from being given the same name.
        """
        names = [self.source] * len(self)
        if self.info is None:
            names = [f"{self.source}:{_digest(frame)}" for frame in self.pixels]
        return tuple((name, time, self.width, self.height) for name, time in zip(names, self.times, strict=True))

    def take(self, indices: Sequence[int]) -> "FramePool":
        """The frames at these positions, in the order given."""
        rows = list(indices)
        return replace(self, pixels=self.pixels[rows], times=tuple(self.times[i] for i in rows))


def _digest(frame: Pixels) -> str:
    return hashlib.blake2b(np.ascontiguousarray(frame).data, digest_size=16).hexdigest()


class Undecoded(FramePool):
    """A pool that knows its times and its size; the pixels are decoded when they are first looked at."""

    _decode: Callable[[], Pixels] | None = None
    _size: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        decode: Callable[[], Pixels],
        size: tuple[int, int],
        times: tuple[float, ...],
        **facts: Any,
    ) -> "Undecoded":
        """Frames of (width, height) that `decode` will give; the facts are a pool's other fields."""
        pool = cls.__new__(cls)
        vars(pool).update(facts, times=times, _decode=decode, _size=size)
        return pool

    @cached_property
    def pixels(self) -> Pixels:
        """Frames × height × width × 3."""
        assert self._decode is not None
        return self._decode()

    @property
    def width(self) -> int:
        """Width of every frame."""
        return self._size[0] if self._size else super().width

    @property
    def height(self) -> int:
        """Height of every frame."""
        return self._size[1] if self._size else super().height

    def take(self, indices: Sequence[int]) -> FramePool:
        """The frames at these positions, in the order given; still undecoded."""
        rows = list(indices)
        return Undecoded.of(
            lambda: self.pixels[rows],
            (self.width, self.height),
            tuple(self.times[i] for i in rows),
            source=self.source,
            info=self.info,
            warnings=self.warnings,
            substituted=self.substituted,
        )


def _as_pixels(frames: Any) -> npt.NDArray[np.uint8]:
    """Frames × height × width × 3 of the caller's frames, safe from what the caller does with them later."""
    is_tensor = hasattr(frames, "detach")  # torch is not imported to find out
    array = np.asarray(frames.detach().cpu().numpy() if is_tensor else frames)
    if array.dtype != np.uint8:
        raise UsageError(f"frames must be uint8 from 0 to 255, got {array.dtype}; scale, round and convert them first")
    if is_tensor and array.ndim == 4 and array.shape[1] == 3 and array.shape[3] != 3:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[3] != 3 or not array.size:
        raise UsageError(f"frames must have the shape (n, h, w, 3), tensors also (n, 3, h, w), got {array.shape}")
    pixels = np.array(array, order="C")
    pixels.flags.writeable = False
    return pixels
