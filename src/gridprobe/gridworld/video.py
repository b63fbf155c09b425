"""A script as a video file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gridprobe.errors import UsageError
from gridprobe.gridworld.render import Renderer
from gridprobe.gridworld.world import Worlds
from gridprobe.video.write import write_video

__all__ = ["FPS", "write_script"]

FPS = 4


def write_script(worlds: Worlds, path: Path, *, duration: float, fps: int = FPS, size: int = 224) -> None:
    """Encode the one script as an H.264 file that lasts `duration` seconds.

    A frame shows the world at the middle of its display time, so the frame at s seconds shows the world at
    s / duration, to half a frame.

    Args:
        worlds: a single script.
        path: the file to write.
        duration: seconds, rounded to whole frames.
        fps: frames per second.
        size: side of the square frames in pixels, even.
    """
    if len(worlds) != 1:
        raise UsageError(f"a video shows one script, got {len(worlds)}")
    if size < 2 or size % 2:
        raise UsageError(f"the side of a frame must be even and at least 2 for H.264, got {size}")
    count = round(duration * fps)
    if count < 1:
        raise UsageError(f"a video needs at least one frame, got {duration} s at {fps} frames per second")
    write_video(path, _frames(worlds, count, size), fps=fps, size=(size, size), count=count)


def _frames(worlds: Worlds, count: int, size: int) -> Iterator[npt.NDArray[np.uint8]]:
    renderer = Renderer(worlds, size)
    for number in range(count):
        yield renderer.frame((number + 0.5) / count)
