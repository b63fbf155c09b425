"""EgoSchema: questions about three-minute first-person clips, of which 500 have public answers.

Files: questions.json and subset_answers.json, or the hub's folders Subset (500 questions with answers) and MC (all
5031); videos named after q_uid. The hub's folder GENERATION has the same questions without options: `open=true` asks
those of Subset or MC so.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy
from gridprobe_eval.benchmarks.files import (
    Media,
    choose,
    find_files,
    gather,
    known,
    letter_at,
    read_object,
    read_rows,
    text,
    unlabelled,
    whole,
)

ANSWERS = "subset_answers.json"
QUESTIONS, SUBSET, ALL, OPEN = "questions.json", "Subset/test-*.parquet", "MC/test-*.parquet", "GENERATION/*.parquet"


def load(data: Path, *, answered: bool = True) -> Benchmark:
    """Read the questions with public answers, or all of them with `answered=False`."""
    choose("answered", answered, (True, False))
    files = _questions(data, answered=answered)
    rows = [_named(row) for row in read_rows(*files)]
    answers, more = _answers(data)
    files += [path for path in more if path not in files]
    rows = [
        row | {"answer": answers.get(str(row["q_uid"]), row.get("answer"))} if isinstance(row, dict) else row
        for row in rows
    ]
    if answered:
        rows = [row for row in rows if not isinstance(row, dict) or known(row.get("answer")) is not None]
        if not rows:
            raise DataError(f"no question has an answer; put {ANSWERS} into {data}, or ask for answered=false")
    make = partial(_item, videos=Media(data, "videos", "video", "good_clips_git", "."))
    return gather("egoschema", rows, make, files=files, key="q_uid")


def _questions(data: Path, *, answered: bool) -> list[Path]:
    try:
        return find_files(data, QUESTIONS, *((SUBSET, ALL) if answered else (ALL, SUBSET)), "test-*.parquet")
    except DataError:
        if any(data.glob(OPEN)):
            raise DataError(
                f"{data} has only EgoSchema's GENERATION questions, which have no options; "
                "put the release's folder Subset or MC next to it, and ask with open=true for answers in words"
            ) from None
        raise


def _answers(data: Path) -> tuple[dict[str, Any], list[Path]]:
    """The public answers by q_uid, and their files: subset_answers.json, else the hub's Subset."""
    if (data / ANSWERS).is_file():
        return read_object(data / ANSWERS, "answers by q_uid"), [data / ANSWERS]
    files = sorted(data.glob(SUBSET))
    rows = [_named(row) for row in read_rows(*files)]
    return {str(row["q_uid"]): row.get("answer") for row in rows if isinstance(row, dict)}, files


def _named(row: Any) -> Any:
    """A row of either form, with the clip's name as q_uid."""
    return {**row, "q_uid": row.get("q_uid", row.get("video_idx"))} if isinstance(row, Mapping) else row


def _item(row: Mapping[str, Any], *, videos: Media) -> Item:
    name = text(row, "q_uid")
    options = unlabelled(row["option"]) if known(row.get("option")) else [text(row, f"option {i}") for i in range(5)]
    gold = None if known(row.get("answer")) is None else letter_at(whole(row, "answer"), options)
    return Item(
        id=name,
        question=Question(text(row, "question"), options, answer=gold, template="egoschema", id=name),
        video=videos.find(f"{name}.mp4"),
        group=name,
    )


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Accuracy."""
    return [accuracy(items, right)]
