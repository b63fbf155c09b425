"""Small pictures of the frames that an answer kept, for HTML pages."""

import base64
import io
from collections.abc import Sequence

from PIL import Image

from gridprobe.answer import Answer
from gridprobe.budget import spread
from gridprobe.report.pixels import decoded_frames
from gridprobe.report.words import clock, score_words
from gridprobe.video.frames import Pixels

__all__ = ["MOST_THUMBNAILS", "thumbnails"]

MOST_THUMBNAILS = 144
"""If more frames were kept, the page shows this many of them, evenly spaced, and says so."""
THUMBNAIL_SIDES = {320: 16, 224: 48, 144: MOST_THUMBNAILS, 96: MOST_THUMBNAILS, 64: MOST_THUMBNAILS}
"""Longer side of a thumbnail in pixels -> the most frames it is used for."""
THUMBNAIL_BYTES = 600_000
"""Limit for all thumbnails of an answer; in base64 they stay below a megabyte."""


def thumbnails(answer: Answer, *, most: int = MOST_THUMBNAILS, most_bytes: int = THUMBNAIL_BYTES) -> str:
    """The kept frames in time order, as the answering model saw them; of more than `most`, evenly spaced ones."""
    selection, note = answer.selection, ""
    shown = selection.indices
    if selection.kept > most:
        shown = tuple(shown[place] for place in spread(selection.kept, most))
        note = f"<p>{most} of the {selection.kept} kept frames are shown, evenly spaced.</p>"
    decoded = decoded_frames(answer)
    jpegs = _jpegs([decoded[index] for index in shown], most_bytes)
    figures = "".join(_figure(answer, index, jpeg) for index, jpeg in zip(shown, jpegs, strict=True))
    return f'{note}<div class="frames">{figures}</div>'


def _figure(answer: Answer, index: int, jpeg: bytes) -> str:
    time = clock(answer.pool.times[index], tenths=True)
    scores = answer.selection.scores
    caption = time if scores is None else f"{time} <span>{score_words(scores[index], 3)}</span>"
    source = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}"
    return f'<figure><img src="{source}" alt="frame at {time}"><figcaption>{caption}</figcaption></figure>'


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
