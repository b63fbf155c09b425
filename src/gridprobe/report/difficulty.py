"""The data of the paper's skew figure: the skew of each map, the frames kept, and whether all frames give it right."""

from collections.abc import Sequence
from dataclasses import dataclass

from gridprobe.errors import UsageError
from gridprobe.evaluation.reader import Run

__all__ = ["FEW", "Difficulty", "difficulty"]

FEW = 20
"""The smallest number of maps for a curve."""


@dataclass(frozen=True)
class Difficulty:
    """Values of the questions that a run with maps and a run over all frames share, in the same order."""

    mapped: str
    """Name of the run with maps."""
    whole: str
    """Name of the run over all frames."""
    skew: tuple[float, ...]
    kept: tuple[int, ...]
    right: tuple[float, ...]
    """1.0 where the run over all frames is right."""
    groups: tuple[str, ...]
    pool: int
    """The most frames there were to choose from."""


def difficulty(runs: Sequence[Run]) -> Difficulty:
    """Pair the first run that has maps with the run of the selector "all"."""
    mapped = next((run for run in runs if any(r.answered and r.answered.skew is not None for r in run.results)), None)
    whole = next((run for run in runs if run.selector == "all"), None)
    if mapped is None or whole is None:
        lacking = "a run with importance maps (gridprobe)" if mapped is None else 'a run of the selector "all" as well'
        raise UsageError(f"the plot of kept frames and accuracy against skew needs {lacking}")
    right = {result.id: result.right for result in whole.results if result.right is not None}
    shared = [
        (result.group, result.answered, float(bool(right[result.id])))
        for result in mapped.results
        if result.answered and result.answered.skew is not None and result.id in right
    ]
    if len(shared) < FEW:
        raise UsageError(f"kept frames against skew: needs {FEW} shared questions, got {len(shared)}")
    return Difficulty(
        mapped=mapped.name,
        whole=whole.name,
        skew=tuple(answer.skew or 0.0 for _, answer, _ in shared),
        kept=tuple(answer.native for _, answer, _ in shared),
        right=tuple(hit for _, _, hit in shared),
        groups=tuple(group for group, _, _ in shared),
        pool=max(answer.pool for _, answer, _ in shared),
    )
