"""Thumbnails of the frames that a run kept, decoded from the videos on disk."""

import base64
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from gridprobe.budget import spread
from gridprobe.errors import GridProbeError
from gridprobe.evaluation.reader import Answered, Run
from gridprobe.progress import report
from gridprobe.video import Footage, FrameSize

__all__ = ["MOST_BYTES", "make_thumbnails"]

SIZE = FrameSize(max_side=160)
MOST = 12
"""The most thumbnails for a question and run; of more kept frames, evenly spaced ones are shown."""
MOST_BYTES = 12_000_000
"""Limit for all thumbnails of a page, in base64."""
NEAR = 0.05
"""Seconds: if a frame is further from its recorded time, the file has changed and its frames are not shown."""

Pictures = dict[str, list[tuple[float, str]]]


def make_thumbnails(runs: Sequence[Run], *, most_bytes: int = MOST_BYTES) -> tuple[dict[str, Pictures], list[str]]:
    """Thumbnails by run and question, and notes on those that could not be made."""
    found: dict[str, Pictures] = {run.name: {} for run in runs}
    wanted = _wanted(runs)
    troubles: list[str] = []
    left, others = most_bytes, 0
    for done, (video, answers) in enumerate(wanted.items()):
        report("thumbnails", done, len(wanted))
        if left <= 0:
            break
        for run, name, answer in answers:
            try:
                pictures = _pictures(video, answer, run.spec.setup["sampling"] or {})
            except (GridProbeError, OSError) as error:
                troubles.append(str(error))
                break  # the other questions about this video would fail in the same way
            others += not pictures
            left -= sum(len(jpeg) for _, jpeg in pictures)
            if pictures and left > 0:
                found[run.name][name] = pictures
    stopped = [f"thumbnails stop at {most_bytes / 1e6:g} MB, the limit of a page"] if left <= 0 else []
    return found, [*_notes(troubles, others), *stopped]


def _notes(troubles: Sequence[str], others: int) -> list[str]:
    notes = [f"{len(troubles)} videos have no thumbnails; the first error was: {troubles[0]}"] if troubles else []
    return notes + ([f"{others} answers have no thumbnails: the file on disk has different frames"] if others else [])


def _wanted(runs: Sequence[Run]) -> Mapping[str, list[tuple[Run, str, Answered]]]:
    videos: dict[str, list[tuple[Run, str, Answered]]] = defaultdict(list)
    for run in runs:
        for result in run.results:
            if result.answered and result.video:
                videos[result.video].append((run, result.id, result.answered))
    return videos


def _pictures(video: str, answer: Answered, sampling: Mapping[str, Any]) -> list[tuple[float, str]]:
    places = range(answer.kept) if answer.kept <= MOST else spread(answer.kept, MOST)
    names = ("cells", "sampling", "precision", "stream")
    known = {name: sampling[name] for name in names if name in sampling}
    footage = Footage(Path(video), **{"cells": answer.pool, **known})
    if max(answer.indices) >= len(footage.undecoded(SIZE)):
        return []
    frames = footage.frames([answer.indices[place] for place in places], SIZE)
    times = [answer.times[place] for place in places]
    if any(abs(now - recorded) > NEAR for now, recorded in zip(frames.times, times, strict=True)):
        return []
    return [(time, _jpeg(pixels)) for time, pixels in zip(times, frames.pixels, strict=True)]


def _jpeg(pixels: Any) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=70, optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")
