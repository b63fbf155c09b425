"""Contact sheets: several frames in one picture, in reading order."""

import numpy as np

from gridprobe.video.frames import Pixels

__all__ = ["contact_sheet"]


def contact_sheet(frames: Pixels, side: int) -> Pixels:
    """One picture of side × side frames, each as it is; places without a frame are black."""
    count, height, width, channels = frames.shape
    places = np.zeros((side * side, height, width, channels), np.uint8)
    places[:count] = frames
    rows: Pixels = places.reshape(side, side, height, width, channels).swapaxes(1, 2)
    return rows.reshape(side * height, side * width, channels)
