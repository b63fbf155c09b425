"""LVBench: questions about 103 videos of up to two hours.

Files: video_info.meta.jsonl, one line per video with its questions; videos named after the video's key, or as the
official download.sh leaves them: videos/00000/00000000.mp4, numbered by the lines of that file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, by_bin
from gridprobe_eval.benchmarks.files import (
    Media,
    find_files,
    gather,
    known,
    letter,
    read_object,
    read_rows,
    split_options,
    text,
)

SHARD = 1000
"""Videos in one folder of the downloader."""


def load(data: Path) -> Benchmark:
    """Read the only split."""
    files = find_files(data, "video_info.meta.jsonl", "data/video_info.meta.jsonl")
    videos = Media(data, "videos", "video", "all_videos", "scripts/videos", "data", ".")
    return gather("lvbench", _rows(files[0]), partial(_item, videos=videos), files=files, key="uid")


def _rows(path: Path) -> Iterator[Any]:
    """The questions of all videos, each with its video's key, type and place in the file."""
    place = -1
    for row in read_rows(path):
        place += isinstance(row, Mapping)  # the downloader skips lines that are not JSON, too
        questions = row.get("qa") if isinstance(row, Mapping) else None
        if not isinstance(questions, list):
            yield (
                row if isinstance(row, DataError) else DataError("the line is not a video with a list of questions, qa")
            )
            continue
        for each in questions:
            video = {"key": row.get("key"), "type": row.get("type"), "place": place}
            yield {**video, **each} if isinstance(each, Mapping) else each


def _item(row: Mapping[str, Any], *, videos: Media) -> Item:
    name, video = text(row, "uid"), text(row, "key")
    stem, options = _parts(text(row, "question"))
    kinds = row.get("question_type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    extra = {"question_type": [str(kind) for kind in kinds if known(kind) is not None]}
    if known(row.get("time_reference")) is not None:
        extra["time_reference"] = row["time_reference"]
    return Item(
        id=name,
        question=Question(stem, options, answer=letter(row.get("answer"), options), template="lvbench", id=name),
        video=_video(video, row["place"], videos),
        group=video,
        bins={"type": str(row["type"])} if known(row.get("type")) is not None else {},
        extra=extra,
    )


def _video(key: str, place: int, videos: Media) -> Path:
    """The file named after the key, or else the one with the video's number, if it was downloaded for this key."""
    shard, number = divmod(place, SHARD)
    path = videos.find(f"{key}.mp4", f"{shard:05d}/{shard:05d}{number:03d}.mp4")
    origin = path.with_suffix(".json")
    if path.stem != key and origin.is_file():
        url = str(read_object(origin, "what was downloaded").get("url"))
        if not url.endswith(key):
            raise DataError(f"{path} was downloaded from {url}, but the file's number is that of {key}")
    return path


def _parts(question: str) -> tuple[str, list[str]]:
    """The question, and the options "(A) text" that follow it in the same field."""
    start = re.search(r"^\s*\(A\)", question, flags=re.MULTILINE) or re.search(r"\(A\)", question)
    if start is None:
        raise DataError("the question has no options (A), (B), … in it")
    return question[: start.start()].strip(), split_options(question[start.start() :], "({})")


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy over all questions, by question type (a question may have several) and by video type."""
    kinds = dict.fromkeys(kind for item in items for kind in item.extra["question_type"])
    by_kind = [
        accuracy([item for item in items if kind in item.extra["question_type"]], right, name=f"question {kind}")
        for kind in kinds
    ]
    return [accuracy(items, right), *(each for each in by_kind if each.count), *by_bin(items, right, "type")]
