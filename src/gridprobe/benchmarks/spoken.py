"""What a question's video says: subtitles as a block of text, or between the frames.

none         no subtitles
concat       all text of the clip, joined by spaces
paper        as the authors' code does: the first 3000 characters of the file, whatever part of the source the clip is
interleaved  between the frames, where it is spoken, by the benchmark's own rule
"""

from collections.abc import Sequence
from dataclasses import replace

from gridprobe.benchmarks.base import Item
from gridprobe.errors import UsageError
from gridprobe.prompts import PAPER_SUBTITLES
from gridprobe.question import Question
from gridprobe.subtitles import Subtitles, clip_time, in_clip, interleave, read_subtitles, sentences

__all__ = ["SUBTITLE_MODES", "has_subtitles", "interleaved", "with_subtitles"]

SUBTITLE_MODES = ("none", "concat", "paper", "interleaved")

INTERLEAVED_TEMPLATES = {"video-mme-v2": "video-mme-v2-interleaved"}
"""Templates with a wording of their own for subtitles between the frames."""


def has_subtitles(item: Item) -> bool:
    """Whether the item's subtitle file is there. Some videos have none, which is a fact to record and no error."""
    return item.subtitles is not None and item.subtitles.is_file()


def with_subtitles(item: Item, mode: str) -> Question:
    """The item's question with its subtitles in it, if it has any.

    For "interleaved" the text goes between the frames and not into the question, see `interleaved`; only the question's
    template changes, where the benchmark's wording tells the model of it.
    """
    if mode not in SUBTITLE_MODES:
        raise UsageError(f"unknown subtitle mode {mode!r}; choose one of {', '.join(SUBTITLE_MODES)}")
    question = item.question
    if mode == "none" or not has_subtitles(item):
        return question
    if mode == "interleaved":
        return replace(question, template=INTERLEAVED_TEMPLATES.get(question.template, question.template))
    if mode == "paper":
        return replace(question, subtitles=_track(item).text[:PAPER_SUBTITLES])
    lines = in_clip(_track(item).segments, offset=item.offset, duration=item.duration)
    return replace(question, subtitles=" ".join(line.text for line in lines))


def interleaved(name: str, item: Item, times: Sequence[float], *, duration: float | None = None) -> tuple[str, ...]:
    """What stands before, between and after frames at these times; see `gridprobe.subtitles.interleave`.

    Video-MME-v2 has a rule of its own, which joins its words to sentences; all others go by LongVideoBench's.
    `duration` is that of the video, for items that do not tell it.
    """
    if not has_subtitles(item):
        return ("",) * (len(times) + 1)
    # Not only what is spoken in the clip: a short line just outside it counts as a second long and may reach a frame.
    length = duration if item.duration is None else item.duration
    lines = clip_time(_track(item).segments, offset=item.offset, duration=length)
    if name == "video-mme-v2":
        return interleave(times, sentences(lines), rule="video-mme-v2", duration=length)
    return interleave(times, lines, rule="longvideobench", duration=length)


def _track(item: Item) -> Subtitles:
    return read_subtitles(item.subtitles) if item.subtitles is not None else Subtitles(())
