"""Exporting the frames a run kept, for the selector that replays them and for other programs."""

from typing import Any

from gridprobe.errors import DataError
from gridprobe.evaluation.reader import Run
from gridprobe.selectors.base import OVERVIEW
from gridprobe.selectors.keyframes import SCHEMA

__all__ = ["export_keyframes"]


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
        "schema": SCHEMA,
        "benchmark": run.benchmark,
        "benchmark_version": run.version,
        "left_out": len(run.results) - len(questions),
        "questions": questions,
    }
