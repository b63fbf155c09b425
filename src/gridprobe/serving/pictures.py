"""Frames as JPEG."""

import io
from typing import Any

from PIL import Image

__all__ = ["jpeg"]


def jpeg(pixels: Any, side: int) -> bytes:
    """A picture, not wider or higher than `side`."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
