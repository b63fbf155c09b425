"""Exporting the frames a run kept, for the selector that replays them and for other programs."""

from typing import Any

from gridprobe.errors import DataError
from gridprobe.evaluation.reader import Run
from gridprobe.selectors.keyframes import SCHEMA

__all__ = ["export_keyframes"]


def export_keyframes(run: Run) -> dict[str, Any]:
    """The kept frames of every answered question, schema gridprobe.keyframes/1."""
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
        if result.answered
    }
    if not questions:
        raise DataError(f"{run.path} holds no answered question, so there are no frames to export")
    return {
        "schema": SCHEMA,
        "benchmark": run.benchmark,
        "benchmark_version": run.version,
        "left_out": len(run.results) - len(questions),
        "questions": questions,
    }
