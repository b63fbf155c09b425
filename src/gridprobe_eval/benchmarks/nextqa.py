"""NExT-QA, multiple choice: causal, temporal and descriptive questions about short clips.

Files: val.csv or test.csv; map_vid_vidorID.json, which gives each video's folder; NExTVideo/ or videos/.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, by_bin
from gridprobe_eval.benchmarks.files import (
    Media,
    choose,
    find_split,
    gather,
    letter_at,
    read_object,
    read_rows,
    text,
    whole,
)

MAP = "map_vid_vidorID.json"
KINDS = {"C": "causal", "T": "temporal", "D": "descriptive"}
MERGED = {"TP": "TN"}
"""The official scorer counts questions about what came before with those about what comes next."""


def load(data: Path, *, split: str = "val") -> Benchmark:
    """Read a split."""
    choose("split", split, ("val", "test"))
    files = find_split(data, {name: (f"{name}.csv", f"dataset/nextqa/{name}.csv") for name in ("val", "test")}, split)
    make = partial(_item, places=_places(data), videos=Media(data, "NExTVideo", "videos", "video", "."))
    return gather("nextqa", read_rows(files[0]), make, files=files, key="qid")


def _places(data: Path) -> Mapping[str, str]:
    """Folder and name by video; without the file, all videos are expected in one folder."""
    files = [path for path in (data / MAP, data / "dataset/nextqa" / MAP) if path.is_file()]
    return read_object(files[0], "places by video") if files else {}


def _item(row: Mapping[str, Any], *, places: Mapping[str, str], videos: Media) -> Item:
    video, kind = text(row, "video"), text(row, "type")
    name = f"{video}_{text(row, 'qid')}"
    options = [text(row, f"a{i}") for i in range(5)]
    gold = letter_at(whole(row, "answer"), options)
    if kind[0] not in KINDS:
        raise DataError(f"the type {kind!r} should start with C, T or D")
    return Item(
        id=name,
        question=Question(text(row, "question"), options, answer=gold, template="nextqa", id=name),
        video=videos.find(f"{places.get(video, video)}.mp4", f"{video}.mp4"),
        group=video,
        bins={"kind": KINDS[kind[0]], "type": MERGED.get(kind, kind)},
        extra={"type": kind},
    )


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy over all questions, by kind and by type."""
    return [accuracy(items, right), *by_bin(items, right, "kind", "type")]
