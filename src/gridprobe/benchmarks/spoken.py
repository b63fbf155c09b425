"""Subtitles added to a question, as a block of text or between the frames.

none         no subtitles
concat       all text of the clip, joined by spaces; on Video-MME the lines of the frames that are shown, as officially
paper        as in the authors' code: the first 3000 characters of the file, whichever part of the source the clip is
interleaved  between the frames, at the time it is spoken, by the benchmark's own rule
"""

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from gridprobe.benchmarks.base import Item
from gridprobe.errors import UsageError
from gridprobe.prompts import PAPER_SUBTITLES
from gridprobe.question import Question
from gridprobe.subtitles import Between, Subtitles, clip_time, in_clip, read_subtitles, sentences
from gridprobe.video import probe

__all__ = ["SUBTITLE_MODES", "has_subtitles", "with_subtitles"]

SUBTITLE_MODES = ("none", "concat", "paper", "interleaved")


def has_subtitles(item: Item) -> bool:
    """Whether the item's subtitle file exists. Some videos have none, which is recorded and not an error."""
    return item.subtitles is not None and item.subtitles.is_file()


def with_subtitles(item: Item, mode: str) -> Question:
    """The item's question with its subtitles, if it has any.

    Text that depends on the frames shown goes between or after them, not into the prompt (`Question.spoken`). On
    Video-MME-v2 the template changes with the mode, also for a video without subtitles, as in its own script.
    """
    if mode not in SUBTITLE_MODES:
        raise UsageError(f"unknown subtitle mode {mode!r}; choose one of {', '.join(SUBTITLE_MODES)}")
    question = item.question
    if question.template == "video-mme-v2" and mode in ("concat", "interleaved"):
        return _video_mme_v2(item, mode)
    if mode == "none" or not has_subtitles(item):
        return question
    if mode == "paper":
        return replace(question, subtitles=_track(item).text[:PAPER_SUBTITLES])
    if mode == "concat" and question.template != "video-mme":
        lines = in_clip(_track(item).segments, offset=item.offset, duration=item.duration)
        return replace(question, subtitles=" ".join(line.text for line in lines))
    spoken = _longvideobench(item) if question.template == "longvideobench" else _between(item, mode)
    return replace(question, spoken=spoken) if spoken.segments else question


def _between(item: Item, mode: str) -> Between:
    """Benchmarks without a rule of their own for lines between frames follow LongVideoBench's."""
    # Lines just outside the clip are included: a short one counts as one second long and may overlap a frame.
    lines = clip_time(_track(item).segments, offset=item.offset, duration=item.duration)
    return Between(lines, rule="video-mme" if mode == "concat" else "longvideobench", duration=item.duration)


def _longvideobench(item: Item) -> Between:
    """As the official loader: a line without an end gets the clip's length as end before the offset is subtracted."""
    lines = _track(item, verbatim=True).segments
    ending = item.duration or 0.0
    closed = (line if math.isfinite(line.end) else replace(line, end=ending) for line in lines)
    return Between(clip_time(closed, offset=item.offset), duration=item.duration)


def _video_mme_v2(item: Item, mode: str) -> Question:
    """As the official script: the wording for subtitles also if there are none, and words unchanged."""
    words = _track(item, verbatim=True).segments if has_subtitles(item) else ()
    if mode == "concat":
        said = " ".join(word.text for word in words)
        return replace(item.question, template="video-mme-v2-listed", subtitles=said if said.strip() else "")
    spoken = Between(sentences(words), rule="video-mme-v2", duration=item.duration or _length(item.video))
    return replace(item.question, template="video-mme-v2-interleaved", spoken=spoken if words else None)


@lru_cache(maxsize=64)
def _length(video: Path) -> float | None:
    """Words after the end of the video are not shown; a video that is not there is reported when it is opened."""
    return probe(video).duration if video.is_file() else None


def _track(item: Item, *, verbatim: bool = False) -> Subtitles:
    return read_subtitles(item.subtitles, verbatim=verbatim) if item.subtitles is not None else Subtitles(())
