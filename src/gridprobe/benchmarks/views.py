"""Subtitles added to a question, as a block of text or between the frames.

none         no subtitles
concat       all text of the clip, joined by spaces; on Video-MME the lines of the frames that are shown, as officially
paper        as in the authors' code: the first 3000 characters of the file, whichever part of the source the clip is
interleaved  between the frames, at the time it is spoken, by the benchmark's own rule
"""

import hashlib
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from gridprobe.benchmarks.base import Benchmark, Item, RowProblem
from gridprobe.errors import DataError, UsageError
from gridprobe.question import PAPER_SUBTITLES, Question
from gridprobe.subtitles import Between, Subtitles, clip_time, in_clip, read_subtitles, sentences
from gridprobe.video import probe

__all__ = ["SUBTITLE_MODES", "confined", "has_subtitles", "opened", "with_subtitles"]

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


# Annotations may name only files in the data folder: one from elsewhere must not make a run read the user's files.


def confined(benchmark: Benchmark, data: Path) -> Benchmark:
    """The benchmark without items that name a file outside its folder; these are among its problems.

    Only names are compared: a link in the folder was made by the user and may lead anywhere.
    """
    root = os.path.abspath(data.parent if data.is_file() else data)
    items, problems = [], list(benchmark.problems)
    for item in benchmark.items:
        outside = _outside(item, root)
        if outside is None:
            items.append(item)
        else:
            what = f"{outside} is outside the data folder; allow it with --with outside=true if you trust the file"
            problems.append(RowProblem(item.id, what))
    return replace(benchmark, items=tuple(items), problems=tuple(problems))


def _outside(item: Item, root: str) -> Path | None:
    for path in (item.video, item.subtitles):
        if path is not None and os.path.commonpath((root, os.path.abspath(path))) != root:
            return path
    return None


# Questions with their options taken away: the text of the right option is the answer to find.

NEEDS_OPTIONS = re.compile(
    r"\b(?:these|the following|following (?:\w+ )?(?:is|are|was|were|best|most)|below|options?|choices|candidates"
    r"|statements?|not (?:true|correct|mentioned|shown|included|one of))\b|_{2,}",
    re.IGNORECASE,
)
"""What a question says that cannot be understood without its options."""


def opened(benchmark: Benchmark, answer: Callable[[Item], str | None] | None = None) -> Benchmark:
    """The benchmark with open questions. Those that need their options are left out, and named among its problems.

    Args:
        benchmark: one with options.
        answer: the text that answers an item, or None if the item makes no sense without options; by default the text
            of the right option, unless the question speaks of its options.
    """
    items, problems = [], list(benchmark.problems)
    for item in benchmark.items:
        right = answer(item) if answer else _answer(item)
        if right is None and not item.withheld:
            problems.append(RowProblem(item.id, "the question cannot be understood without its options"))
            continue
        items.append(replace(item, question=replace(item.question, options=(), answer=right)))
    if not items:
        raise DataError(f"no question of {benchmark.name} can be asked without options; leave out open=true")
    mark = hashlib.sha256("".join(item.id for item in items).encode()).hexdigest()[:6]
    version = f"{benchmark.version}-open-{len(items)}-{mark}"
    return replace(benchmark, version=version, items=tuple(items), problems=tuple(problems))


def _answer(item: Item) -> str | None:
    question = item.question
    if question.open or question.answer is None:
        return question.answer
    return None if NEEDS_OPTIONS.search(question.text) else question.option(question.answer)
