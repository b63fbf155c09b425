"""Your own benchmark: one JSON object per line with "video" and "question".

"options", "answer" (a letter, or the text of an open question's answer), "id", "subtitles" and "bins" are optional.
Paths are relative to the file.
"""

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, by_bin
from gridprobe_eval.benchmarks.files import find_files, gather, known, letter, numbered_rows, text

FIELDS = ("id", "video", "question", "options", "answer", "subtitles", "bins")


def load(data: Path) -> Benchmark:
    """Read a file of questions, or the one in a folder: questions.jsonl, else the only *.jsonl file."""
    files = [data] if data.is_file() else find_files(data, "questions.jsonl", "*.jsonl")
    if len(files) > 1:
        raise DataError(f"{data} holds {len(files)} .jsonl files; name the one to read, or call it questions.jsonl")
    return gather("jsonl", _rows(files[0]), partial(_item, folder=files[0].parent), files=files)


def _rows(path: Path) -> dict[str, Any]:
    """The rows by place; one without an id gets its number as id."""
    return {
        place: {"id": str(count), **row} if isinstance(row, Mapping) else row
        for count, (place, row) in enumerate(numbered_rows(path).items(), start=1)
    }


def _item(row: Mapping[str, Any], *, folder: Path) -> Item:
    for field in row:
        if field not in FIELDS:
            near = difflib.get_close_matches(field, FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(FIELDS)}"
            raise DataError(f"unknown field {field!r}; {hint}")
    name, options, bins = text(row, "id"), row.get("options", []), row.get("bins", {})
    if not isinstance(options, list):
        raise DataError(f"the options must be a list of texts, got {options!r}")
    if not isinstance(bins, dict):
        raise DataError(f"bins must be an object such as {{'topic': 'news'}}, got {bins!r}")
    track = known(row.get("subtitles"))
    return Item(
        id=name,
        question=Question(text(row, "question"), options, answer=_gold(row, options), id=name),
        video=folder / text(row, "video"),
        group=text(row, "video"),
        bins={str(key): str(value) for key, value in bins.items()},
        subtitles=None if track is None else folder / text(row, "subtitles"),
    )


def _gold(row: Mapping[str, Any], options: Sequence[str]) -> str | None:
    """The right letter, or the right text of a question without options."""
    if known(row.get("answer")) is None:
        return None
    return letter(row["answer"], options) if options else text(row, "answer")


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy over all questions and in every bin."""
    return [accuracy(items, right), *by_bin(items, right, *dict.fromkeys(name for item in items for name in item.bins))]
