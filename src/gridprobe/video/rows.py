"""Rows: the memory that decoded frames are written to. Found: which frames these are.

Nothing here imports numpy unless a picture is turned: for a child process it would be half of the start, and 10 MB.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from av.video.plane import VideoPlane

    from gridprobe.video.frames import Pixels

__all__ = ["Found", "Rows"]


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
    reshaped: int = 0
    """Frames whose aspect ratio is not that of the first one."""

    @property
    def damaged(self) -> int:
        """Moments that did not get their own frame."""
        return self.substituted + self.lost


@dataclass(frozen=True, eq=False)
class Rows:
    """Frames of height × width × 3 bytes, one after the other."""

    data: memoryview
    height: int
    width: int

    @classmethod
    def of(cls, pixels: "Pixels") -> "Rows":
        """The memory of an array of frames × height × width × 3."""
        return cls(pixels.reshape(-1).data, pixels.shape[1], pixels.shape[2])

    def part(self, start: int, count: int) -> "Rows":
        """So many rows from `start` on."""
        size = self._size
        return replace(self, data=self.data[start * size : (start + count) * size])

    def put(self, row: int, picture: "bytes | memoryview") -> None:
        """Copy a picture of just this size."""
        self.data[row * self._size : (row + 1) * self._size] = picture

    def put_plane(self, row: int, plane: "VideoPlane", *, turns: int = 0, mirrored: bool = False) -> None:
        """Copy a picture in rgb24, first mirrored left to right, then turned by so many quarters counter-clockwise."""
        if turns or mirrored:
            self.put(row, _turned(plane, turns, mirrored))
            return
        line, step, source = 3 * self.width, plane.line_size, memoryview(plane)
        if line == step:
            self.put(row, source)
            return
        target = self.data[row * self._size : (row + 1) * self._size]
        for number in range(self.height):
            target[number * line : (number + 1) * line] = source[number * step : number * step + line]

    def move(self, source: int, target: int) -> None:
        """Copy one row to another."""
        self.put(target, self.part(source, 1).data)

    @property
    def _size(self) -> int:
        return 3 * self.width * self.height


def _turned(plane: "VideoPlane", turns: int, mirrored: bool) -> memoryview:
    import numpy as np

    shape, strides = (plane.height, plane.width, 3), (plane.line_size, 3, 1)
    picture = np.ndarray(shape, np.uint8, memoryview(plane), strides=strides)
    # rot90 rotates counter-clockwise, like the angle of the display matrix.
    turned = np.rot90(picture[:, ::-1] if mirrored else picture, turns)
    return np.ascontiguousarray(turned).reshape(-1).data
