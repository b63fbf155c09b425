"""Small pictures of the frames that an answer kept, for HTML pages."""

import base64
import io
from collections.abc import Sequence

from PIL import Image

from gridprobe.answer import Answer
from gridprobe.report.pixels import decoded_frames
from gridprobe.report.where import large_frames, large_words, main_spans
from gridprobe.report.words import clock
from gridprobe.video.frames import Pixels

__all__ = ["MOST_LARGE", "thumbnails"]

MOST_LARGE = 8
"""How many kept frames a page shows large; all of them are on the contact sheet."""
THUMBNAIL_SIDES = {640: 2, 480: 4, 320: 16, 224: 48, 144: 144, 96: 144, 64: 144}
"""Longer side of a thumbnail in pixels -> the most frames it is used for."""
HIGHEST = 440
"""The height of a large frame on the page, in pixels."""
THUMBNAIL_BYTES = 400_000
"""Limit for all thumbnails of an answer."""


def thumbnails(answer: Answer, *, most: int = MOST_LARGE, most_bytes: int = THUMBNAIL_BYTES) -> str:
    """The kept frames in time order, as the answering model saw them; of more than `most`, the most important ones."""
    shown, note = large_frames(answer, most), large_words(answer, most)
    if not shown:
        return ""
    decoded = decoded_frames(answer)
    jpegs = _jpegs([decoded[index] for index in shown], most_bytes)
    main = {index for span in main_spans(answer) for index in span.indices}
    figures = "".join(
        _figure(answer, index, jpeg, main=index in main) for index, jpeg in zip(shown, jpegs, strict=True)
    )
    few = " few" if len(shown) <= 2 else ""
    return f'<div class="frames{few}">{figures}</div>' + (f'<p class="source">{note}</p>' if note else "")


def _figure(answer: Answer, index: int, jpeg: bytes, *, main: bool) -> str:
    time = clock(answer.pool.times[index], tenths=True)
    source = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}"
    wide = round(HIGHEST * answer.frames.width / answer.frames.height)
    mark = ' class="main"' if main else ""
    image = f'<img src="{source}" alt="frame at {time}">'
    return f'<figure{mark} style="max-width:{wide}px">{image}<figcaption>{time}</figcaption></figure>'


def _jpegs(frames: Sequence[Pixels], most_bytes: int) -> list[bytes]:
    """The frames as JPEGs, in the largest size whose total stays within the limit."""
    jpegs: list[bytes] = []
    for side, most in THUMBNAIL_SIDES.items():
        if len(frames) <= most:
            jpegs = [_jpeg(pixels, side) for pixels in frames]
            if sum(map(len, jpegs)) <= most_bytes:
                break
    return jpegs


def _jpeg(pixels: Pixels, side: int) -> bytes:
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.BILINEAR)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=72, optimize=True)
    return content.getvalue()
