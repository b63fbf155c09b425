"""Exporting the frames a run kept, for the selector that replays them and for other programs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from gridprobe.errors import DataError, UsageError
from gridprobe.evaluation.reader import Run
from gridprobe.selectors.base import OVERVIEW

__all__ = ["KEYFRAMES_SCHEMA", "SUBMISSIONS", "Prediction", "export_keyframes", "submission"]

KEYFRAMES_SCHEMA = "gridprobe.keyframes/1"


def export_keyframes(run: Run) -> dict[str, Any]:
    """The kept frames of every answered question, schema gridprobe.keyframes/1; answers from the overview have none."""
    questions = {
        result.id: {
            "times": list(result.answered.times),
            "indices": list(result.answered.indices),
            "pool": result.answered.pool,
            "video": result.video,
            "selector": result.answered.selector,
            "model": run.spec.models[0],
        }
        for result in run.results
        if result.answered and result.answered.selector != OVERVIEW
    }
    if not questions:
        raise DataError(
            f"{run.path} holds no question that was answered from kept frames, so there are none to export; "
            "--effort full keeps some for every question"
        )
    return {
        "schema": KEYFRAMES_SCHEMA,
        "benchmark": run.benchmark,
        "benchmark_version": run.version,
        "left_out": len(run.results) - len(questions),
        "questions": questions,
    }


# Predictions in the format that a benchmark's evaluation server or script reads.


@dataclass(frozen=True)
class Prediction:
    """The letter that was answered, and the right one if it is public."""

    choice: str
    answer: str | None = None


def submission(benchmark: str, predictions: Mapping[str, Prediction]) -> Any:
    """The predictions by question id, as plain JSON values in the benchmark's format."""
    if benchmark not in SUBMISSIONS:
        raise UsageError(
            f"no submission format is known for {benchmark}, only for {', '.join(SUBMISSIONS)}; "
            "the records of a run hold every answer"
        )
    return SUBMISSIONS[benchmark](predictions)


def _letters(predictions: Mapping[str, Prediction]) -> dict[str, str]:
    """LongVideoBench's test split, and LVBench's compute_accuracy.py: {"id": "B"}."""
    return {name: each.choice for name, each in predictions.items()}


def _numbers(predictions: Mapping[str, Prediction]) -> dict[str, int]:
    """EgoSchema's validation server: {"q_uid": 1}."""
    return {name: ascii_uppercase.index(each.choice) for name, each in predictions.items()}


def _pairs(predictions: Mapping[str, Prediction]) -> dict[str, dict[str, int]]:
    """NExT-QA's eval_mc.py: {"video_qid": {"prediction": 1, "answer": 3}}."""
    numbers = {
        name: {"prediction": each.choice, "answer": each.answer} for name, each in predictions.items() if each.answer
    }
    return {
        name: {key: ascii_uppercase.index(letter) for key, letter in pair.items()} for name, pair in numbers.items()
    }


SUBMISSIONS: dict[str, Callable[[Mapping[str, Prediction]], Any]] = {
    "longvideobench": _letters,
    "lvbench": _letters,
    "egoschema": _numbers,
    "nextqa": _pairs,
}
