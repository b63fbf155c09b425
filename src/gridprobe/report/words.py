"""Format times, frame counts and amounts of compute; the terminal, the PNG and the pages share these functions."""

from collections.abc import Sequence
from pathlib import Path

from gridprobe.answer import Answer
from gridprobe.selectors import Selection

__all__ = ["amount", "clock", "compute_saved", "kept_times", "kept_words", "model_words", "video_name"]

SAME = 1.05
"""Two costs that differ by less than this factor count as equal."""


def clock(seconds: float, *, tenths: bool = False) -> str:
    """Format seconds as h:mm:ss or, with tenths, as h:mm:ss.s.

    3725.64 -> "1:02:05", with tenths "1:02:05.6". Whole seconds are rounded down, tenths to the nearest.
    """
    sign = "-" if seconds < 0 else ""
    parts = round(abs(seconds) * 10) if tenths else int(abs(seconds)) * 10
    minutes, rest = divmod(parts, 600)
    hours, minutes = divmod(minutes, 60)
    second = f"{rest / 10:04.1f}" if tenths else f"{rest // 10:02d}"
    return f"{sign}{hours}:{minutes:02d}:{second}"


def kept_times(selection: Selection) -> list[str]:
    """The times of the kept frames; three or more consecutive frames become one range."""
    times, items = selection.timestamps, []
    for first, last in _runs(selection.indices):
        if last - first < 2:
            items += [clock(time, tenths=True) for time in times[first : last + 1]]
        else:
            start, end = (clock(times[i], tenths=True) for i in (first, last))
            items.append(f"{start}–{end} ({last - first + 1})")
    return items


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """First and last position of each run of consecutive indices: [3, 4, 5, 9] -> [(0, 2), (3, 3)]."""
    runs: list[tuple[int, int]] = []
    for place, index in enumerate(indices):
        if runs and indices[place - 1] == index - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


def kept_words(selection: Selection) -> str:
    """For example "9 of 144 frames"."""
    return f"{selection.kept} of {selection.pool} frame{'' if selection.pool == 1 else 's'}"


def amount(value: float) -> str:
    """Format a number with about three significant digits: 0.012, 4.57, 45.7, 4,568."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2}f}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"


def compute_saved(spent: float, baseline: float) -> str:
    """Compare compute with the baseline: "5.0× less", "1.3× more" or "the same"; empty if either is unknown."""
    if spent <= 0 or baseline <= 0:
        return ""
    factor = max(baseline / spent, spent / baseline)
    if factor < SAME:
        return "the same"
    return f"{factor:.1f}× {'less' if spent < baseline else 'more'}"


def video_name(answer: Answer) -> str:
    """The name of the video file; empty if the frames did not come from a file."""
    return Path(answer.pool.info.path).name if answer.pool.info else ""


def model_words(answer: Answer) -> str:
    """The model; if one selects and another answers, both."""
    selecting, answering = answer.models
    others = [name for name in selecting if name != answering]
    return f"{' and '.join(others)} selects, {answering} answers" if others else answering
