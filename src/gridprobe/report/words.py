"""What reports say about an answer, and how they write numbers; the terminal, the PNG and the pages share this."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gridprobe.answer import Answer
from gridprobe.calibration import Exit
from gridprobe.importance import MapKind
from gridprobe.selectors import Selection

__all__ = [
    "MAP_WORDS",
    "SOURCES",
    "aligned",
    "amount",
    "clock",
    "frames_title",
    "kept_words",
    "limit_hint",
    "mark_words",
    "model_words",
    "percent",
    "reached_words",
    "score_words",
    "share_words",
    "sure_words",
    "video_name",
]

MAP_WORDS: dict[MapKind, str] = {
    "attention": "what the question looks at",
    "probes": "how sure the model is from each row and column",
    "evidence": "which frames show the answer by themselves",
    "encoder": "how similar each frame is to the question",
    "scores": "the scores of a file",
    "needed": "how likely the model calls each frame needed",
    "certainty": "how certain the answer from each frame is",
    "descent": "where a search by contact sheets went",
}
"""What the numbers of a map are."""
SOURCES = {
    "overview": "answered from the overview",
    "focus": "answered from the focused pass",
    "refined": "answered from stretches sampled again",
}
"""What is known of an answer in a record."""
STRETCHES = 4
"""At most this many stretches are listed."""


def clock(seconds: float, *, tenths: bool = False) -> str:
    """Format seconds as m:ss or h:mm:ss and, with tenths, as m:ss.s.

    160.25 -> "2:40"; 3725.64 -> "1:02:05", with tenths "1:02:05.6". Whole seconds are rounded down, tenths to the
    nearest.
    """
    sign = "-" if seconds < 0 else ""
    parts = round(abs(seconds) * 10) if tenths else int(abs(seconds)) * 10
    minutes, rest = divmod(parts, 600)
    hours, minutes = divmod(minutes, 60)
    second = f"{rest / 10:04.1f}" if tenths else f"{rest // 10:02d}"
    return f"{sign}{hours}:{minutes:02d}:{second}" if hours else f"{sign}{minutes}:{second}"


def kept_words(selection: Selection) -> str:
    """For example "9 of 144 frames"."""
    return f"{selection.kept} of {selection.pool} frame{'' if selection.pool == 1 else 's'}"


def amount(value: float) -> str:
    """Format a number with about three significant digits: 0.012, 4.57, 45.7, 4,568."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2}f}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"


def aligned(values: Sequence[float | None]) -> list[str]:
    """The numbers of a column, all with the same decimals: as many as the smallest needs for two digits, at most 3."""
    known = [abs(value) for value in values if value]
    least, most = min(known, default=1.0), max(known, default=1.0)
    digits = 0 if most >= 1000 else min(3 if most < 100 else 1, max(0, 1 - math.floor(math.log10(least))))
    return ["–" if value is None else f"{value:,.{digits}f}" for value in values]


def score_words(score: float, digits: int = 2) -> str:
    """The importance of a frame with so many decimals, as 0.72, or so many significant digits if small, as 0.0069."""
    return f"{score:.{digits}f}" if score == 0 or score >= 0.1 else f"{score:.{digits}g}"


def video_name(answer: Answer) -> str:
    """The name of the video file; empty if the frames did not come from a file."""
    return Path(answer.pool.info.path).name if answer.pool.info else ""


def model_words(answer: Answer) -> str:
    """The model; if one selects and another answers, both."""
    selecting, answering = answer.models
    others = [name for name in selecting if name != answering]
    return f"{' and '.join(others)} selects, {answering} answers" if others else answering


# How an answer was reached.


def reached_words(answer: Answer) -> str:
    """One sentence: which frames the answer was read from, and how sure the overview was."""
    reached = answer.reached
    if reached.by == "overview":
        return f"Answered from the overview of {_everything(answer)}; it was {_sureness(answer)}."
    if reached.by == "refined":
        source = "their overview" if reached.focus is None else _focused(answer)
        where = f"stretches sampled again, since the overview was not sure: {_stretches(answer)}"
        return f"Answered from {where}; read from {source}."
    overview = f"; the overview was {_sureness(answer)}" if reached.overview else ""
    return f"Answered from {_focused(answer)}{overview}."


def _everything(answer: Answer) -> str:
    return f"all {answer.selection.pool} frames at {_side(answer)} px"


def _side(answer: Answer) -> int:
    """The longer side of a frame as the overview shows it."""
    pixels = (answer.settings.get("overview") or {}).get("pixels", {})
    sides = [max(answer.pool.width, answer.pool.height), *filter(None, map(pixels.get, ("max_side", "square")))]
    return int(min(sides))


def _focused(answer: Answer) -> str:
    """The frames that the focused pass showed."""
    selection, settings = answer.selection, answer.settings
    kept = f"all {selection.pool} frames" if selection.kept == selection.pool else kept_words(selection)
    if settings.get("collage"):
        return f"{kept} in one picture"
    frames = f"{selection.kept} frame{'' if selection.kept == 1 else 's'} at native size"
    beside = [f"{len(each.indices)} at {percent(each.share, 0)} of its side" for each in selection.extra_frames]
    if settings.get("context") and selection.kept < selection.pool:
        beside.append("all others small")
    if beside:
        return f"{frames} among {' and '.join(beside)}"
    small = _small_side(settings)
    return f"{kept} at {small} px" if small else f"{kept} at native size"


def _small_side(settings: Mapping[str, Any]) -> int | None:
    """The longer side of the frames of a selector that shows them small; None at native size."""
    own = settings.get("selector", {}).get("view")
    if own is None or settings["view"]["pixels"] != own["pixels"]:
        return None
    side: int | None = own["pixels"].get("max_side") or own["pixels"].get("square")
    return side


def _stretches(answer: Answer) -> str:
    found = [f"{clock(start)}–{clock(end)}" for start, end in answer.reached.stretches]
    rest = f" and {len(found) - STRETCHES} more" if len(found) > STRETCHES else ""
    return ", ".join(found[:STRETCHES]) + rest


def _sureness(answer: Answer) -> str:
    """How sure the overview was, and of what if the answer is not its own."""
    reached = answer.reached
    assert reached.overview is not None
    confidence, exit = reached.overview.confidence, reached.exit
    choice = "" if reached.by == "overview" else f"{reached.overview.choice}, "
    if exit is None:
        return f"{percent(confidence)} sure" + (f" of {choice[:-2]}" if choice else "")
    limit = f"the limit is {100 * exit.threshold:g} %"
    return f"{'sure' if reached.sure else 'not sure'} ({choice}{_beside(confidence, exit)}, {limit})"


def _beside(confidence: float, exit: Exit) -> str:
    """The confidence with so many digits that it is visibly on its side of the limit."""
    sure = confidence >= exit.threshold
    texts = (percent(confidence, digits) for digits in range(1, 7))
    return next((text for text in texts if (float(text[:-2]) / 100 >= exit.threshold) == sure), percent(confidence, 7))


def limit_hint(answer: Answer) -> str:
    """What to do about a limit that nobody chose; empty if there is none."""
    exit = answer.reached.exit
    if answer.settings.get("effort") != "auto" or exit is None or exit.source != "default":
        return ""
    return f"The limit of {100 * exit.threshold:g} % is the cautious default; gridprobe calibrate finds a better one."


def frames_title(answer: Answer) -> str:
    """A heading for the frames of the selection, which an answer from the overview did not need."""
    return f"{mark_words(answer).capitalize()}: {kept_words(answer.selection)}"


def mark_words(answer: Answer) -> str:
    """What a mark on a frame says: it was kept; or, after an overview, the answer is seen there, or it matters most."""
    if answer.reached.by != "overview":
        return "kept"
    evidence = answer.selection.evidence
    return "seen here" if evidence is not None and evidence.kind == "evidence" else "most important"


# Shares.


def share_words(share: float | None) -> str:
    """A share of compute with two or three digits: "17 %", "6.1 %", "0.08 %", "104 %"; a dash if it is not known."""
    if share is None:
        return "–"
    return percent(share, 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2)


def sure_words(share: float) -> str:
    """The probability of an option; it is never rounded to certainty: "> 99.9 %"."""
    return "> 99.9 %" if 0.9995 <= share < 1 else "< 0.1 %" if 0 < share < 0.0005 else percent(share)


def percent(share: float, digits: int = 1) -> str:
    """For example "99.8 %"."""
    return f"{100 * share:.{digits}f} %"
