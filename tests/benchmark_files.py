"""Small files in the layouts of the official releases. The questions are made up: the real ones may not be shipped."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from gridprobe_eval.benchmarks import Benchmark, Item

EIGHT = "\n".join(f"{letter}. Option {letter.lower()}." for letter in "ABCDEFGH")


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def by_id(benchmark: Benchmark) -> dict[str, Item]:
    return {item.id: item for item in benchmark.items}


def reasons(benchmark: Benchmark) -> dict[str, str]:
    return {problem.where: problem.what for problem in benchmark.problems}


def v2_group(
    video: str, *, structure: str = "4", gold: str = "AAAA", level: str | None = "2", filled: bool = True
) -> list[dict[str, Any]]:
    """The four rows of a video. The early release fills level and heads of the last one only."""
    rows = []
    for place, letter in enumerate(gold, start=1):
        known = filled or place == 4
        rows.append(
            {
                "video_id": video,
                "url": f"https://www.youtube.com/watch?v=x{video}",
                "group_type": "relevance" if structure == "4" else "logic",
                "group_structure": structure,
                "question_id": f"{video}-{place}",
                "question": f"What happens in part {place}?",
                "options": EIGHT,
                "answer": letter,
                "level": level if known else None,
                "second_head": "Temporal" if known else None,
                "third_head": "Order" if known else None,
            }
        )
    return rows


def lvb_row(name: str, video: str, **changes: Any) -> dict[str, Any]:
    """A row of lvb_val.json; `name` is the id, "<video_id>_<n>"."""
    return {
        "video_id": video,
        "question": "What does the man in red do?",
        "question_wo_referring_query": "What does he do?",
        "candidates": ["He runs", "He sits", "He waves", "He sleeps", "He eats"],
        "correct_choice": 1,
        "position": [100, 220],
        "topic_category": "NP-News-Programs",
        "question_category": "S2E",
        "level": "L1-Perception",
        "id": name,
        "video_path": f"{video}.mp4",
        "subtitle_path": f"{video}_en.json",
        "duration_group": 600,
        "duration": 300.5,
        "starting_timestamp_for_subtitles": 0,
        "view_count": 7,
        "type": "local",
        **changes,
    }


def tiktok_row() -> dict[str, Any]:
    digits = "7141686631676808454"
    return lvb_row(
        f"@user-{digits}_0",
        f"@user-{digits}",
        video_path=f"{digits}.mp4",
        subtitle_path=f"{digits}_en.json",
        duration_group=15,
        duration=12.5,
        starting_timestamp_for_subtitles=10,
    )


def as_hub_row(row: dict[str, Any]) -> dict[str, Any]:
    """The same row in the parquet form: option0 to option4, "N/A" where there is none."""
    found = {key: value for key, value in row.items() if key != "candidates"}
    texts = [*row["candidates"], "N/A", "N/A", "N/A", "N/A", "N/A"][:5]
    offset = float(row["starting_timestamp_for_subtitles"])
    return found | {f"option{i}": text for i, text in enumerate(texts)} | {"starting_timestamp_for_subtitles": offset}
