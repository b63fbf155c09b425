"""MLVU: seven multiple-choice tasks and two generation tasks (sub_scene, summary), one file each.

Files: json/1_plotQA.json to json/9_summary.json (also without the number); video/1_plotQA/ and so on. The generation
tasks are officially judged by GPT-4 on two scales of 1 to 5; we report token F1 and, with `score --judge`, how often
a judge of your own finds that an answer says the same as the reference.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import NO_RIGHT_OPTION, Benchmark, Item, Metric, accuracy, by_bin, mean
from gridprobe_eval.benchmarks.files import (
    Media,
    choose,
    duration,
    find_files,
    gather,
    letter_at,
    read_rows,
    text,
    verbatim,
)

TASKS = ("plotQA", "needle", "ego", "count", "order", "anomaly_reco", "topic_reasoning")
GENERATION = ("sub_scene", "summary")
_FILE = re.compile(rf"(?:\d+_)?({'|'.join((*TASKS, *GENERATION))})")


def load(data: Path, *, generation: bool = False) -> Benchmark:
    """Read the multiple-choice tasks of the dev set, or with `generation` the two that are answered in words."""
    choose("generation", generation, (True, False))
    wanted = GENERATION if generation else TASKS
    available = find_files(data, "json/*.json", "MLVU/json/*.json", "*.json")
    files = [path for path in available if (match := _FILE.fullmatch(path.stem)) and match[1] in wanted]
    if not files:
        example = "8_sub_scene.json" if generation else "1_plotQA.json"
        raise DataError(f"none of MLVU's task files, such as {example}, in {available[0].parent}")
    videos = Media(data, "video", "videos", "MLVU/video", ".")
    rows = (row for path in files for row in _rows(path))
    return gather("mlvu", rows, partial(_item, videos=videos), files=files)


def _rows(path: Path) -> Iterator[Any]:
    """The rows; they have no id of their own, so it is made from the task and the place in its file."""
    match = _FILE.fullmatch(path.stem)
    task = match[1] if match else path.stem
    for place, row in enumerate(read_rows(path)):
        yield {**row, "id": f"{task}-{place}", "task": task, "folder": path.stem} if isinstance(row, Mapping) else row


def _item(row: Mapping[str, Any], *, videos: Media) -> Item:
    name, video, options = text(row, "id"), text(row, "video"), row.get("candidates")
    where = videos.find(f"{row['folder']}/{video}", f"{row['task']}/{video}", video, deep=False)
    if row["task"] in GENERATION:
        return Item(
            id=name,
            question=Question(text(row, "question"), answer=text(row, "answer"), id=name),
            video=where,
            group=f"{row['task']}/{video}",
            bins={"task": row["task"]},
            duration=duration(row),
        )
    if not isinstance(options, list) or not options:
        raise DataError(f"the candidates must be a list of texts, got {options!r}")
    gold = _gold(row.get("answer"), options)
    texts = [verbatim(option, f"candidate {place}") for place, option in enumerate(options)]
    return Item(
        id=name,
        question=Question(verbatim(row.get("question"), "question"), texts, answer=gold, template="mlvu", id=name),
        video=where,
        group=f"{row['task']}/{video}",
        bins={"task": row["task"]},
        duration=duration(row),
        extra={} if gold else {NO_RIGHT_OPTION: True},
    )


def _gold(answer: Any, options: Sequence[Any]) -> str | None:
    """The letter of the last candidate with the answer's text, as officially; None if there is none."""
    if not isinstance(answer, str):
        raise DataError(f"the answer must be the text of a candidate, got {answer!r}")
    places = [place for place, option in enumerate(options) if option == answer]
    return letter_at(places[-1], options) if places else None


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """M-Avg, which is the mean over tasks, not questions, and excludes tasks without an asked question."""
    tasks = by_bin(items, right, "task")
    if items and items[0].bins.get("task") in GENERATION:
        return [accuracy(items, right, name="exact match"), *tasks]
    missing = len(TASKS) - len(tasks)
    note = f"{missing} of {len(TASKS)} tasks were not asked" if missing else ""
    average = mean([task.value for task in tasks if task.value is not None])
    strata = [stratum for task in tasks for stratum in task.strata]
    return [Metric("M-Avg", average, len(tasks), note, strata), accuracy(items, right), *tasks]
