"""The decoded frames of an answer, for maps and reports. Nothing is decoded for them."""

from gridprobe.answer import Answer
from gridprobe.video import FramePool, Pending
from gridprobe.video.frames import Pixels

__all__ = ["decoded_frames"]


def decoded_frames(answer: Answer) -> dict[int, Pixels]:
    """Position in the pool -> pixels, for every frame that was decoded to give the answer.

    A kept frame is shown as the answering model saw it. Other frames have the size the selector looked at; a selector
    that looks at no pixels leaves them undecoded, and they are missing here.
    """
    kept, pool = answer.frames, answer.pool
    found = dict(enumerate(pool.pixels)) if _is_decoded(pool) else {}
    place = {time: row for row, time in enumerate(kept.times)}  # kept frames may be in order of importance
    for index, time in zip(answer.selection.indices, answer.selection.timestamps, strict=True):
        found[index] = kept.pixels[place[time]]
    return found


def _is_decoded(pool: FramePool) -> bool:
    return not isinstance(pool.data, Pending) or pool.data.decoded
