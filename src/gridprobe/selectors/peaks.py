"""Peaks of a signal, by the rules of scipy.signal.find_peaks, which gridprobe does not require."""

from itertools import groupby

import numpy as np
import numpy.typing as npt

__all__ = ["find_peaks"]

Floats = npt.NDArray[np.float64]


def find_peaks(signal: Floats, *, height: float, prominence: float, distance: int) -> tuple[int, ...]:
    """Positions of local maxima, ascending.

    Args:
        signal: the values.
        height: the least value of a peak.
        prominence: by how much it must exceed the higher one of the two valleys between it and higher ground.
        distance: how many positions apart peaks must be; the higher ones stay.
    """
    peaks = [place for place in _maxima(signal) if signal[place] >= height]
    kept: list[int] = []
    for place in sorted(peaks, key=lambda each: (-signal[each], -each)):
        if all(abs(place - other) >= distance for other in kept):
            kept.append(place)
    return tuple(sorted(place for place in kept if _prominence(signal, place) >= prominence))


def _maxima(signal: Floats) -> list[int]:
    """The middle of every run of equal values between lower ones; a run at either end is none."""
    runs, start = [], 0
    for value, run in groupby(signal.tolist()):
        stop = start + len(list(run))
        runs.append((value, start, stop))
        start = stop
    inner = zip(runs, runs[1:], runs[2:], strict=False)
    return [(run[1] + run[2] - 1) // 2 for before, run, after in inner if before[0] < run[0] > after[0]]


def _prominence(signal: Floats, place: int) -> float:
    higher = np.flatnonzero(signal > signal[place])
    left = int(higher[higher < place].max(initial=-1)) + 1
    right = int(higher[higher > place].min(initial=len(signal)))
    return float(signal[place] - max(signal[left : place + 1].min(), signal[place:right].min()))
