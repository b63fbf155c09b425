"""How long MDP3 takes to choose frames whose vectors are known, against the same programme one frame at a time.

    python speed/mdp3.py [--rounds 7] [--out speed/results]

The reference follows the loops of the published code: for every segment, every number of frames used before it, every
step and every candidate it extends a Cholesky factor by one row. Both must choose the same frames. 2,048 frames would
take the reference many minutes, so it chooses from the first 256 of them, and the ratio is between the two on these.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gridprobe_selectors.mdp3 import EQUAL, LAMBDA, LARGE_SEGMENT, PIVOT, SEGMENT, choose_frames, kernel

RESULTS = Path(__file__).parent / "results"
CASES = ((144, 8, 144, 0.020), (144, 64, 144, 0.200), (2048, 64, 256, 3.0))
"""Frames, frames to keep, frames for the reference, and the seconds that ours may take."""
WIDTH = 1152
HEADER = """# MDP3

`python speed/mdp3.py`, {day}, {cores} cores shared with other work (load average {load:.1f}): medians of {rounds}
rounds in one process, which vary by a factor of 2 or 3 from run to run. Vectors of {width} numbers are given. The
reference is the same programme one frame at a time (one round), on the frames in its column; the ratio is between the
two on these frames.

| frames | kept | seconds | target | reference on | reference, seconds | ours on these, seconds | ratio |
|---|---|---|---|---|---|---|---|
"""

Floats = npt.NDArray[np.float64]


def drawn(count: int) -> tuple[Floats, Floats]:
    """A video whose frames drift, so that neighbours are alike, and a text."""
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.normal(size=(count, WIDTH)), axis=0)
    frames = 12.0 * rng.normal(size=WIDTH) + steps + 2.0 * rng.normal(size=(count, WIDTH))
    text = rng.normal(size=WIDTH)
    return frames / np.linalg.norm(frames, axis=1, keepdims=True), text / np.linalg.norm(text)


def reference(frames: Floats, text: Floats, kept: int) -> tuple[int, ...]:
    relevance = 2.0 / LAMBDA * np.log(kernel(frames @ text))
    similar = kernel(frames @ frames.T)
    size = SEGMENT if kept <= SEGMENT else LARGE_SEGMENT
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for start in range(0, len(frames), size):
        segment, after = range(start, min(start + size, len(frames))), dict[int, tuple[float, list[int]]]()
        for used in sorted(best):
            score, trace = best[used]
            values, added = greedy(trace[-1:], segment, kept - used, similar=similar, relevance=relevance)
            for more, gained in enumerate([0.0, *values]):
                total = used + more
                if total not in after or score + gained > after[total][0] + EQUAL:
                    after[total] = (score + gained, trace + sorted(added[:more]))
        best = after
    return tuple(best[kept][1])


def greedy(
    condition: list[int], segment: range, steps: int, *, similar: Floats, relevance: Floats
) -> tuple[list[float], list[int]]:
    """The score after every step, and the frames added."""
    chosen = list(condition)
    factor = np.sqrt(similar[np.ix_(chosen, chosen)])  # of at most one frame
    total = sum(float(relevance[i] + math.log(similar[i, i])) for i in chosen)
    values: list[float] = []
    for _ in range(min(steps, len(segment))):
        found = []
        for candidate in (i for i in segment if i not in chosen[len(condition) :]):
            row = np.linalg.solve(factor, similar[chosen, candidate]) if chosen else np.zeros(0)
            pivot = max(float(similar[candidate, candidate] - row @ row), PIVOT)
            found.append((float(relevance[candidate]) + math.log(pivot), candidate, row, pivot))
        most = max(gain for gain, *_ in found)
        gain, candidate, row, pivot = next(each for each in found if each[0] >= most - EQUAL)
        factor = np.block([[factor, np.zeros((len(chosen), 1))], [row[None], np.array([[math.sqrt(pivot)]])]])
        chosen.append(candidate)
        total += gain
        values.append(total)
    return values, chosen[len(condition) :]


def median(work: Callable[[], tuple[int, ...]], rounds: int) -> tuple[float, tuple[int, ...]]:
    """Seconds, and what was chosen."""
    chosen, seconds = work(), []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), chosen


def timed(work: Callable[[], tuple[int, ...]]) -> tuple[float, tuple[int, ...]]:
    start = time.perf_counter()
    chosen = work()
    return time.perf_counter() - start, chosen


def measured(count: int, kept: int, few: int, target: float, *, rounds: int) -> dict[str, float]:
    frames, text = drawn(count)
    seconds, chosen = median(lambda: choose_frames(frames, text, kept), rounds)
    ours, some = seconds, frames[:few]
    if few < count:
        ours, chosen = median(lambda: choose_frames(some, text, kept), rounds)
    slow, expected = timed(lambda: reference(some, text, kept))
    if chosen != expected:
        raise SystemExit(f"{few} frames, {kept} kept: chose {chosen}, the reference {expected}")
    return {
        "frames": count,
        "kept": kept,
        "seconds": seconds,
        "target": target,
        "reference_frames": few,
        "reference_seconds": slow,
        "ours_on_these": ours,
        "ratio": ours / slow,
    }


def line(row: dict[str, float]) -> str:
    return (
        f"| {row['frames']:,} | {row['kept']} | {row['seconds']:.4f} | ≤ {row['target']:g} "
        f"| {row['reference_frames']:,} | {row['reference_seconds']:.3f} | {row['ours_on_these']:.4f} "
        f"| {row['ratio']:.5f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", type=json.loads, default=CASES, help="JSON lists of four numbers, as in CASES")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = [measured(*case, rounds=given.rounds) for case in given.cases]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    header = HEADER.format(day=date.today(), cores=cores, load=load, rounds=given.rounds, width=WIDTH)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "mdp3.md").write_text(header + "".join(f"{line(row)}\n" for row in rows), encoding="utf-8")
    for row in rows:
        print(line(row))


if __name__ == "__main__":
    main()
