"""LongVideoBench: questions about videos of 8 seconds to an hour, many with the subtitles of a longer source.

Files: lvb_val.json, or the parquet form with option0 to option4; videos/; subtitles/.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from gridprobe.errors import DataError, UsageError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, by_bin
from gridprobe_eval.benchmarks.files import (
    Media,
    choose,
    duration,
    find_split,
    gather,
    known,
    letter_at,
    number,
    read_rows,
    text,
    whole,
)

FILES = {
    "val": ("lvb_val.json", "validation-*.parquet", "data/validation-*.parquet"),
    "test": ("lvb_test_wo_gt.json", "test-*.parquet", "data/test-*.parquet"),
}


def load(data: Path, *, split: str = "val", paper_subset: bool = False) -> Benchmark:
    """Read a split; `paper_subset` keeps only the 1202 of 1337 rows that the authors of GridProbe scored.

    Their code looks for a file named after the video's id, and the 135 videos from TikTok are not named so.
    """
    choose("split", split, tuple(FILES))
    choose("paper_subset", paper_subset, (True, False))
    if paper_subset and split != "val":
        raise UsageError("paper_subset is part of the validation split; leave out split=test")
    files = find_split(data, FILES, split)
    rows = read_rows(*files)
    if paper_subset:
        rows = [row for row in rows if _named_after_id(row)]
    make = partial(
        _item, split=split, videos=Media(data, "videos", "."), subtitles=Media(data, "subtitles", "subtitle")
    )
    return gather("longvideobench", rows, make, files=files)


def _named_after_id(row: Any) -> bool:
    """Whether the video is named after its id; True for unreadable rows, so that they are reported."""
    if not isinstance(row, Mapping) or not isinstance(row.get("video_path"), str):
        return True
    return PurePosixPath(row["video_path"]).stem == row.get("video_id")


def _item(row: Mapping[str, Any], *, split: str, videos: Media, subtitles: Media) -> Item:
    name, options, track = text(row, "id"), _options(row), known(row.get("subtitle_path"))
    bins = {
        "duration": row.get("duration_group"),
        "category": row.get("question_category"),
        "level": row.get("level"),
        "topic": row.get("topic_category"),
    }
    extra = {field: row[field] for field in ("position", "type") if row.get(field) is not None}
    return Item(
        id=name,
        question=Question(
            text(row, "question", strip=False),
            options,
            answer=_gold(row, options, split),
            template="longvideobench",
            id=name,
        ),
        video=videos.find(PurePosixPath(text(row, "video_path")).name),
        group=text(row, "video_id"),
        bins={key: str(value).removesuffix(".0") for key, value in bins.items() if known(value) is not None},
        subtitles=subtitles.find(PurePosixPath(str(track)).name) if track is not None else None,
        offset=number(row, "starting_timestamp_for_subtitles") or 0.0,
        duration=duration(row),
        extra=extra,
    )


def _options(row: Mapping[str, Any]) -> list[str]:
    """The list, or option0 to option4, without any final "N/A"; one in the middle stays, to keep the letters."""
    options = row.get("candidates")
    if options is None:
        options = [row[f"option{i}"] for i in range(5) if row.get(f"option{i}") is not None]
    if not isinstance(options, list) or not options:
        raise DataError(f"the candidates must be a list of texts, got {options!r}")
    absent = list(itertools.takewhile(lambda option: option == "N/A", reversed(options)))
    return options[: len(options) - len(absent)]


def _gold(row: Mapping[str, Any], options: Sequence[str], split: str) -> str | None:
    """The gold letter; the test split withholds its answers: they are -1 or missing."""
    if split == "test" and known(row.get("correct_choice")) in (None, -1):
        return None
    return letter_at(whole(row, "correct_choice"), options)


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy over all questions, by duration group and by question category."""
    return [accuracy(items, right), *by_bin(items, right, "duration", "category")]
