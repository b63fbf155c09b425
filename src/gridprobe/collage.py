"""Frames as one picture: the paper's cheapest variant, with the tokens of one image for any number of them."""

import hashlib
import math
from dataclasses import replace

import numpy as np
from PIL import Image

from gridprobe.backends.base import FrameGroup, ScoreRequest, View
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize

__all__ = ["CANVAS", "collage", "collage_request"]

CANVAS = 2048


def collage(frames: FramePool) -> FramePool:
    """One 2048×2048 frame of ceil(√n)² tiles in reading order; frames keep their aspect, empty tiles stay black."""
    side = math.isqrt(len(frames) - 1) + 1
    tile = CANVAS // side
    canvas = Image.new("RGB", (CANVAS, CANVAS))
    scale = tile / max(frames.width, frames.height)
    size = (max(1, round(frames.width * scale)), max(1, round(frames.height * scale)))
    for position, pixels in enumerate(frames.pixels):
        row, column = divmod(position, side)
        corner = (column * tile + (tile - size[0]) // 2, row * tile + (tile - size[1]) // 2)
        canvas.paste(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC), corner)
    source = hashlib.sha256(repr(frames.keys).encode()).hexdigest()  # another set of frames is another picture
    return replace(frames, data=np.array(canvas)[None], times=frames.times[:1], source=source)


def collage_request(frames: FramePool, question: Question) -> ScoreRequest:
    """The question about a picture of these frames, without their times; what is said between them comes after it."""
    whole = View(FrameSize(max_pixels=CANVAS * CANVAS), timestamps="none")
    said = "\n".join(filter(None, question.between(sorted(frames.times))))
    prompt = f"{said}\n{question.prompt}" if said else question.prompt
    return ScoreRequest(prompt, question.labels, (FrameGroup(collage(frames), whole),))
