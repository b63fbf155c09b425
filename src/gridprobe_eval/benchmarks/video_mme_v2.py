"""Video-MME-v2: four questions about each of 800 videos, scored together.

Files: test.parquet; the unpacked videos in videos_unzipped/, videos/, video/, data/ or the same folder;
subtitle/ID.jsonl, one entry per word.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError
from gridprobe.question import Question
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric, accuracy, mean
from gridprobe_eval.benchmarks.files import Media, find_files, gather, known, letter, read_rows, split_options, text

HEADS = ("second_head", "third_head")
RELEVANCE, LOGIC = "relevance", "logic"


def load(data: Path) -> Benchmark:
    """Read either release; in the early one only some questions have a level and heads."""
    files = find_files(data, "test.parquet", "test-*.parquet", "data/test-*.parquet")
    rows = read_rows(*files)
    videos = Media(data, "videos_unzipped", "videos", "video", "data", ".")
    subtitles = Media(data, "subtitle", "subtitles")
    by_name = {row.get("question_id"): row for row in reversed(rows)}  # of two with the same id the first counts
    make = partial(_item, by_name=by_name, videos=videos, subtitles=subtitles)
    return replace(gather("video-mme-v2", rows, make, files=files, key="question_id"), scores_groups=True)


def _item(row: Mapping[str, Any], *, by_name: Mapping[str, Any], videos: Media, subtitles: Media) -> Item:
    name, video = text(row, "question_id"), text(row, "video_id").zfill(3)  # a table may have made the id a number
    options = split_options(text(row, "options"))
    group = {"type": text(row, "group_type"), "structure": _stages(row)}
    last = by_name.get(f"{name.rpartition('-')[0]}-4", {})
    if last and (last.get("group_type"), _stages(last)) != tuple(group.values()):
        raise DataError("group_type or group_structure is not that of the group's fourth question")
    bins = {"type": group["type"], "level": _level(last)} | {head: known(last.get(head)) for head in HEADS}
    return Item(
        id=name,
        question=Question(
            text(row, "question", strip=False),
            options,
            answer=letter(row.get("answer"), options),
            template="video-mme-v2",
            id=name,
        ),
        video=videos.find(f"{video}.mp4"),
        group=video,
        bins={key: str(value) for key, value in bins.items() if value is not None},
        subtitles=subtitles.find(f"{video}.jsonl"),
        extra={**group, "position": _position(name)},
    )


def _position(name: str) -> int:
    tail = name.rpartition("-")[2]
    if tail not in ("1", "2", "3", "4"):
        raise DataError(f"the question_id {name!r} should end in -1, -2, -3 or -4")
    return int(tail)


def _level(row: Mapping[str, Any]) -> str | None:
    """A level, which may be written as 3, 3.0 or "3"."""
    level = known(row.get("level"))
    return None if level is None else str(level).removesuffix(".0")


def _stages(row: Mapping[str, Any]) -> list[list[int]] | None:
    """The stages of a chain of questions, "[1,[2,3],4]" as [[1], [2, 3], [4]]; None for an unordered group."""
    kind = row.get("group_type")
    if kind == RELEVANCE:
        return None
    if kind != LOGIC:
        raise DataError(f"group_type must be {RELEVANCE} or {LOGIC}, got {kind!r}")
    structure = row.get("group_structure")
    try:
        stages = [each if isinstance(each, list) else [each] for each in json.loads(str(structure))]
        if sorted(number for stage in stages for number in stage) == [1, 2, 3, 4]:
            return stages
    except (json.JSONDecodeError, TypeError):
        pass
    raise DataError(f"group_structure {structure!r} should name the questions 1 to 4 once each, as in [1,[2,3],4]")


def non_linear(right: Sequence[bool], stages: Sequence[Sequence[int]] | None) -> float:
    """The Non-Lin score of a group, 0 to 100.

    An unordered group (no stages): the square of the fraction that is right. A chain: a question of stage d weighs
    2d - 1, and counts only if all questions of all earlier stages are right.
    """
    if stages is None:
        return 100.0 * (sum(right) / len(right)) ** 2
    credit, total, intact = 0, 0, True
    for depth, stage in enumerate(stages, start=1):
        outcomes = [right[number - 1] for number in stage]
        credit += (2 * depth - 1) * sum(outcomes) if intact else 0
        total += (2 * depth - 1) * len(stage)
        intact = intact and all(outcomes)
    return 100.0 * credit / total


def metrics(items: Sequence[Item], right: Mapping[str, bool]) -> list[Metric]:
    """Non-Lin over all groups and in each cell; a group's level and heads are those of its fourth question."""
    groups: dict[str, dict[int, Item]] = {}
    for item in items:
        groups.setdefault(item.group, {})[item.extra["position"]] = item
    whole = {name: group for name, group in groups.items() if _complete(group, right)}
    outcomes = {name: [right[group[place].id] for place in (1, 2, 3, 4)] for name, group in whole.items()}
    scores = {name: non_linear(outcomes[name], group[4].extra["structure"]) for name, group in whole.items()}
    left = len(groups) - len(whole)
    note = f"{left} of {len(groups)} groups are incomplete and not counted" if left else ""
    linear_scores = {
        name: 25.0 * sum(outcomes[name]) for name, group in whole.items() if group[4].extra["type"] == RELEVANCE
    }
    scored = [
        _mean_of("Non-Lin", scores, note),
        accuracy(items, right, name="Avg Acc"),
        *_cells({name: group[4] for name, group in whole.items()}, scores, "type"),
        *([_mean_of("relevance, linear", linear_scores)] if linear_scores else []),
    ]
    for cell in ("level", *HEADS):
        scored += _cells({name: group[4] for name, group in whole.items()}, scores, cell)
    return scored


def _complete(group: Mapping[int, Item], right: Mapping[str, bool]) -> bool:
    return set(group) == {1, 2, 3, 4} and all(item.id in right for item in group.values())


def _cells(last: Mapping[str, Item], scores: Mapping[str, float], name: str) -> list[Metric]:
    """The mean over the groups for each value of a bin; groups without a value are counted in a note."""
    cells: dict[str, dict[str, float]] = {}
    for group, item in last.items():
        cells.setdefault(item.bins.get(name, ""), {})[group] = scores[group]
    without = len(cells.pop("", {}))
    note = f"{without} groups have none" if without else ""
    label = "" if name == "type" else f"{name.replace('_', ' ')} "
    return [_mean_of(f"{label}{value}", cells[value], note) for value in sorted(cells)]


def _mean_of(name: str, scores: Mapping[str, float], note: str = "") -> Metric:
    """The mean over groups; each is about one video."""
    return Metric(name, mean(list(scores.values())), len(scores), note, [list(scores.items())] if scores else [])
