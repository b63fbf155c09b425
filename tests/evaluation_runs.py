"""Run folders made by hand: exactly these outcomes, in the files a runner writes."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe.importance import Grid, ImportanceMap, ShapeRule, top
from gridprobe.options import Options
from gridprobe_eval.reader import Spec
from gridprobe_eval.records import sealed


def item(name: str, **changes: Any) -> dict[str, Any]:
    usual = {
        "id": name,
        "group": name.split("-")[0],
        "question": f"What happens in {name}?",
        "options": ["a bird sings", "a car stops", "it rains"],
        "answer": "B",
        "bins": {"duration": "short"},
        "video": f"videos/{name}.mp4",
        "duration": 90.0,
        "extra": {},
    }
    return usual | changes


def selection(rows: Sequence[float] = (), columns: Sequence[float] = (), **changes: Any) -> dict[str, Any]:
    """What the shape rule keeps of this map; without a map all nine frames."""
    k, indices, shape = len(columns) or 3, tuple(range(9)), None
    if columns:
        found = ImportanceMap(Grid(k), tuple(rows), tuple(columns))
        indices = top(found.scores, ShapeRule().kept(found))
        shape = {key: getattr(found.shape, key) for key in ("skew", "excess_kurtosis", "sigma")}
    usual = {
        "selector": "gridprobe" if columns else "all",
        "kept": len(indices),
        "pool": k * k,
        "k": k,
        "indices": list(indices),
        "timestamps": [10.0 * i for i in indices],
        "row_confidence": list(rows) or None,
        "column_confidence": list(columns) or None,
        "shape": shape,
    }
    return usual | changes


def record(
    name: str, choice: str | None = "B", *, gold: str = "B", tflops: float = 4.0, **changes: Any
) -> dict[str, Any]:
    """Answered with this choice, or failed without one."""
    usual: dict[str, Any] = {
        "schema": "gridprobe.record/1",
        "id": name,
        "group": name.split("-")[0],
        "outcome": "answered" if choice else "failed",
        "right": choice == gold,
        "choice": choice,
        "error": None if choice else {"class": "VideoError", "message": "the file ends early"},
        "attempt": 1,
        "worker": "w0",
        "at": "2026-11-01T00:00:00Z",
    }
    if choice:
        usual |= {
            "confidence": 0.7,
            "logprobs": {"A": -2.0, "B": -0.36, "C": -1.9},
            "letter_mass": 0.99,
            "selection": selection(),
            "cost": {
                "tflops": tflops,
                "tflops_paper": 2 * tflops,
                "tflops_computed": tflops,
                "probe_tflops": 0.0,
                "focus_tflops": tflops,
                "baseline_tflops": 8.0,
                "baseline_tflops_paper": 16.0,
                "tokens": 1000,
                "visual_tokens": 900,
                "calls": 1,
            },
            "seconds": {"decode": 1.0, "probe": 0.5, "focus": 0.5, "total": 2.0},
            "video": {},
            "warnings": [],
        }
    return usual | changes


def staged(
    name: str, choice: str, by: str, *, overview: str, focus: str | None = None, **changes: Any
) -> dict[str, Any]:
    """A record of a run with an overview: the frames of an answer from it are all small."""
    stages = {"overview": {"choice": overview, "confidence": 0.6}, "focus": None, "threshold": 0.99}
    if focus:
        stages["focus"] = {"choice": focus, "confidence": 0.8}
    chosen = selection()
    if by != "overview":
        chosen |= {"indices": [1, 4], "timestamps": [10.0, 40.0], "kept": 2, "map": "attention"}
        chosen["by_frame"] = [0.01 * i for i in range(9)]
    usual = {"selection": chosen, "reached": {"by": by, **stages}, "shown_native": 0 if by == "overview" else 2}
    return record(name, choice, **(usual | changes))


def spec_of(selector: str = "gridprobe", *, model: str = "scripted/m", answerer: str | None = None, k: int = 3) -> Spec:
    """The spec of a run; the selector's name may be any text."""
    setup = Options(k=k, precision="exact").resolve(model=model, answer_model=answerer).describe()
    return Spec("toy", "toy-9-abc", "data", setup | {"selector": setup["selector"] | {"name": selector}})


def write_run(
    folder: Path,
    items: Sequence[dict[str, Any]],
    records: Sequence[dict[str, Any]],
    *,
    spec: Spec | None = None,
    **changes: Any,
) -> Path:
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(replace(spec or spec_of(), **changes).to_json())
    (folder / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in items))
    (folder / "records-w0.jsonl").write_bytes(b"".join(sealed(json.dumps(each).encode()) for each in records))
    return folder


def made_older(folder: Path, *lacking: str) -> None:
    """Rewrite a run as an older version would have written it: without these fields, and without checksums."""
    for file in (*folder.glob("records-*.jsonl"), folder / "items.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        old = [{key: value for key, value in line.items() if key not in ("crc32", *lacking)} for line in lines]
        text = "".join(json.dumps(each) + "\n" for each in old)
        file.write_text(text.replace("gridprobe.record/2", "gridprobe.record/1"))
    spec = json.loads((folder / "spec.json").read_text())
    del spec["items"]
    (folder / "spec.json").write_text(json.dumps(spec))


def large_run(folder: Path, *, count: int = 3200, selector: str = "gridprobe", k: int = 12, seed: int = 0) -> Path:
    """A run of the size of Video-MME-v2: questions with eight options, four to a video, some failed, some missing.

    Questions are the same for every selector and seed; the map, and with it what is kept, is drawn per question.
    """
    # Seeded by name, as Python's own hash of a text changes from process to process.
    world, luck = np.random.default_rng(1), np.random.default_rng([seed, *selector.encode()])
    items, records = [], []
    for number in range(count):
        name = f"v{number // 4:04d}-{number % 4}"
        gold, hard = "ABCDEFGH"[world.integers(8)], float(world.random())
        items.append(_large_item(name, number, gold))
        rows, columns = _confidences(world, k, hard)
        fate = luck.random()
        if fate < 0.01:
            records.append(record(name, None))
        elif fate < 0.99 or selector == "all":
            choice = gold if luck.random() < 0.62 - 0.4 * hard else "ABCDEFGH"[luck.integers(8)]
            chosen = _large_selection(rows, columns, number, selector=selector)
            tflops = 100.0 * chosen["kept"] / (k * k) + (10.0 if selector == "gridprobe" else 0.0)
            sure = float(luck.uniform(0.2, 0.99))
            logs = {letter: math.log(sure if letter == choice else (1 - sure) / 7) for letter in "ABCDEFGH"}
            answered = record(name, choice, gold=gold, tflops=tflops, selection=chosen, logprobs=logs, confidence=sure)
            answered["cost"] |= {"baseline_tflops": 100.0, "baseline_tflops_paper": 200.0}
            records.append(answered)
    return write_run(folder, items, records, spec=spec_of(selector, k=k))


def _large_item(name: str, number: int, gold: str) -> dict[str, Any]:
    words = "the person in the red coat who walked across the square before the rain began and the market closed"
    return item(
        name,
        question=f"Question {number}: after which event does {words} say something about the clock tower?",
        options=[
            f"Option {letter} of question {number}, told in about as many words as usual" for letter in "ABCDEFGH"
        ],
        answer=gold,
        bins={"duration": ("short", "medium", "long")[number % 3], "level": f"L{1 + number % 5}"},
        video=f"/data/videomme/videos/{name.split('-')[0]}.mp4",
        duration=1800.0,
    )


def _confidences(world: np.random.Generator, k: int, hard: float) -> tuple[list[float], list[float]]:
    """A hard question has a flat map; an easy one a peak, or a hole."""
    rows, columns = world.normal(0.45, 0.01 + 0.02 * hard, k), world.normal(0.45, 0.01 + 0.02 * hard, k)
    side = 1.0 if world.random() < 0.6 else -0.8
    rows[world.integers(k)] += side * 0.5 * (1 - hard)
    columns[world.integers(k)] += side * 0.5 * (1 - hard)
    return [float(v) for v in rows.clip(0.05, 1).round(4)], [float(v) for v in columns.clip(0.05, 1).round(4)]


def _large_selection(rows: list[float], columns: list[float], number: int, *, selector: str) -> dict[str, Any]:
    chosen = selection(rows, columns)
    if selector == "all":
        everything = list(range(chosen["pool"]))
        chosen |= {"selector": "all", "indices": everything, "row_confidence": None, "column_confidence": None}
        chosen |= {"shape": None, "kept": len(everything)}
    chosen["timestamps"] = [round(12.5 * i + 6.25 + number / 1000, 3) for i in chosen["indices"]]
    return chosen


def resealed(file: Path) -> None:
    """Give the lines of a file of records the checksums that belong to them."""
    lines = [re.sub(rb', "crc32": "[0-9a-f]{8}"}$', b"}", line) for line in file.read_bytes().splitlines()]
    file.write_bytes(b"".join(sealed(line) for line in lines))
