"""Video-MME (the first version): three questions about each of 900 videos.

Files: test-*.parquet, also inside videomme/; data/VIDEOID.mp4; subtitle/VIDEOID.srt, which not every video has.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, by_bin
from gridprobe_eval.benchmarks.files import Media, find_files, gather, known, letter, read_rows, text, unlabelled

BINS = ("duration", "domain", "sub_category", "task_type")


def load(data: Path) -> Benchmark:
    """Read the only split."""
    files = find_files(data, "videomme/test-*.parquet", "test-*.parquet", "test.parquet")
    videos = Media(data, "data", "videos", "video", ".")
    make = partial(_item, videos=videos, subtitles=Media(data, "subtitle", "subtitles"))
    return gather("video-mme", read_rows(*files), make, files=files, key="question_id")


def _item(row: Mapping[str, Any], *, videos: Media, subtitles: Media) -> Item:
    name, video, options = text(row, "question_id"), text(row, "videoID"), unlabelled(row.get("options"))
    track = f"{video}.srt"
    return Item(
        id=name,
        question=Question(
            text(row, "question", strip=False),
            options,
            answer=letter(row.get("answer"), options),
            template="video-mme",
            id=name,
        ),
        video=videos.find(f"{video}.mp4"),
        group=video,
        bins={key: str(row[key]) for key in BINS if known(row.get(key)) is not None},
        subtitles=subtitles.find(track) if subtitles.has(track) else None,
    )


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy over all questions, by duration, domain, sub-category and task."""
    return [accuracy(items, right), *by_bin(items, right, *BINS)]
