"""What the regime figure shows: for some questions the map, the kept frames, and the answers of several runs."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from gridprobe.errors import UsageError
from gridprobe.evaluation.metrics import score, shared
from gridprobe.evaluation.reader import Result, Run
from gridprobe.importance import Grid, ImportanceMap
from gridprobe.record import Record
from gridprobe.report.run_data import make_thumbnails

__all__ = ["Regime", "RunAnswer", "regimes"]

MOST = 12
"""The most questions of a figure."""


@dataclass(frozen=True)
class RunAnswer:
    """What one run answered."""

    run: str
    choice: str | None
    """None if the question failed."""
    right: bool | None
    """None if the right answer is not public."""


@dataclass(frozen=True, eq=False)
class Regime:
    """One row of the figure."""

    result: Result
    """The question, as the run that made the map has it."""
    chosen: Record
    """The selection of that run."""
    mapped: str
    """The name of that run."""
    answers: tuple[RunAnswer, ...]
    pictures: tuple[tuple[float, npt.NDArray[np.uint8]], ...] = ()
    """Times and pixels of some kept frames; empty if the video is not on disk."""

    @property
    def importance(self) -> npt.NDArray[np.float64]:
        """The map, rows × K."""
        record, pool = self.chosen, self.chosen.selection["pool"]
        if record.by_frame:
            return ImportanceMap(Grid.holding(pool), by_frame=record.by_frame).matrix
        rows, columns = record.selection["row_confidence"], record.selection["column_confidence"]
        return ImportanceMap(Grid(len(columns), pool), tuple(rows), tuple(columns)).matrix


def regimes(runs: Sequence[Run], ids: Sequence[str] = ()) -> tuple[list[Regime], list[str]]:
    """The rows for these questions, or for three, and notes on frames that cannot be shown.

    The three are those for which the first run with maps kept the most frames, the median number and the fewest; of
    equal ones the first. Nobody chooses them by how they turned out.
    """
    score(runs)  # refuses runs of different benchmark versions
    common = shared(runs)
    rows = {row.result.id: row for row in _rows(common)}
    if not rows:
        raise UsageError(
            "no question has a map and was asked in every run; name a run of gridprobe, and others with it"
        )
    if len(ids) > MOST:
        raise UsageError(f"the figure has room for {MOST} questions, got {len(ids)}; name fewer")
    unknown = [name for name in ids if name not in rows]
    if unknown:
        raise UsageError(f"the question {unknown[0]!r} has no map, or was not asked in every run; choose others")
    chosen = [rows[name] for name in ids] if ids else _typical(list(rows.values()))
    pictures, notes = _pictures(common, chosen)
    return [replace(row, pictures=pictures.get(row.result.id, ())) for row in chosen], notes


def _rows(runs: Sequence[Run]) -> list[Regime]:
    found = []
    by_run = [{result.id: result for result in run.results} for run in runs]
    for name in by_run[0]:
        results = [mine[name] for mine in by_run]
        for run, result in zip(runs, results, strict=True):
            if result.answered and (result.answered.selection["row_confidence"] or result.answered.by_frame):
                answers = tuple(map(_given, runs, results))
                found.append(Regime(result, result.answered, run.name, answers))
                break
    return found


def _given(run: Run, result: Result) -> RunAnswer:
    return RunAnswer(run.name, result.answered.reply if result.answered else None, result.right)


def _typical(rows: Sequence[Regime]) -> list[Regime]:
    order = sorted(rows, key=lambda row: -row.chosen.shown_native)
    places = dict.fromkeys((0, len(order) // 2, len(order) - 1))
    return [order[place] for place in places]


Pictures = Mapping[str, tuple[tuple[float, npt.NDArray[np.uint8]], ...]]


def _pictures(runs: Sequence[Run], rows: Sequence[Regime]) -> tuple[Pictures, list[str]]:
    """The kept frames of each row, decoded from the videos on disk."""
    wanted = {(row.mapped, row.result.id) for row in rows}
    fewer = [replace(run, results=tuple(r for r in run.results if (run.name, r.id) in wanted)) for run in runs]
    found, notes = make_thumbnails(fewer)
    decoded = {
        name: tuple((time, _pixels(jpeg)) for time, jpeg in each)
        for mine in found.values()
        for name, each in mine.items()
    }
    return decoded, notes


def _pixels(jpeg: str) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(jpeg)), formats=["JPEG"]))
