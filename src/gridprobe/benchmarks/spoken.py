"""Subtitles added to a question, as a block of text or between the frames.

none         no subtitles
concat       all text of the clip, joined by spaces
paper        as in the authors' code: the first 3000 characters of the file, whichever part of the source the clip is
interleaved  between the frames, at the time it is spoken, by the benchmark's own rule
"""

from dataclasses import replace

from gridprobe.benchmarks.base import Item
from gridprobe.errors import UsageError
from gridprobe.prompts import PAPER_SUBTITLES
from gridprobe.question import Question
from gridprobe.subtitles import Between, Subtitles, clip_time, in_clip, read_subtitles, sentences

__all__ = ["SUBTITLE_MODES", "has_subtitles", "with_subtitles"]

SUBTITLE_MODES = ("none", "concat", "paper", "interleaved")

INTERLEAVED_TEMPLATES = {"video-mme-v2": "video-mme-v2-interleaved"}
"""Templates with a different wording for subtitles between the frames."""


def has_subtitles(item: Item) -> bool:
    """Whether the item's subtitle file exists. Some videos have none, which is recorded and not an error."""
    return item.subtitles is not None and item.subtitles.is_file()


def with_subtitles(item: Item, mode: str) -> Question:
    """The item's question with its subtitles, if it has any.

    For "interleaved" the text goes between the frames, not into the prompt (`Question.spoken`); the template changes
    if the benchmark has a different wording for that.
    """
    if mode not in SUBTITLE_MODES:
        raise UsageError(f"unknown subtitle mode {mode!r}; choose one of {', '.join(SUBTITLE_MODES)}")
    question = item.question
    if mode == "none" or not has_subtitles(item):
        return question
    if mode == "interleaved":
        spoken = _between(item)
        template = INTERLEAVED_TEMPLATES.get(question.template, question.template)
        return replace(question, template=template, spoken=spoken) if spoken.segments else question
    if mode == "paper":
        return replace(question, subtitles=_track(item).text[:PAPER_SUBTITLES])
    lines = in_clip(_track(item).segments, offset=item.offset, duration=item.duration)
    return replace(question, subtitles=" ".join(line.text for line in lines))


def _between(item: Item) -> Between:
    """Video-MME-v2 has its own rule, which joins words into sentences; all others follow LongVideoBench's."""
    # Lines just outside the clip are included: a short one counts as one second long and may overlap a frame.
    lines = clip_time(_track(item).segments, offset=item.offset, duration=item.duration)
    if item.question.template in INTERLEAVED_TEMPLATES:
        return Between(sentences(lines), rule="video-mme-v2", duration=item.duration)
    return Between(lines, duration=item.duration)


def _track(item: Item) -> Subtitles:
    return read_subtitles(item.subtitles) if item.subtitles is not None else Subtitles(())
