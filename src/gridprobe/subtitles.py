"""Subtitle files -> timed lines of text: SubRip, WebVTT and the JSON shapes of the video benchmarks."""

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError

__all__ = ["Segment", "Subtitles", "read_subtitles"]

MAX_BYTES = 16 * 2**20
"""A subtitle file larger than this is not one."""

_ARROW = re.compile(r"(?P<start>[\d:.,]+)\s*-->\s*(?P<end>[\d:.,]+)")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")


@dataclass(frozen=True)
class Segment:
    """One subtitle line, in seconds of the video."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Subtitles:
    """All lines of a file, in time order."""

    segments: tuple[Segment, ...]
    skipped: int = 0
    """Entries that could not be read as a timed line."""

    @property
    def text(self) -> str:
        """All words, joined by spaces."""
        return " ".join(segment.text for segment in self.segments)


def read_subtitles(path: Path) -> Subtitles:
    """Read a subtitle file; the format is told from its content, not from its name."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} is larger than {MAX_BYTES // 2**20} MiB; that is no subtitle file")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the subtitles {path}: {error.strerror}") from error
    text = _decode(raw)
    first = text.lstrip()[:1]
    found = _from_json(text, path) if first in ("[", "{") else _from_timed_text(text)
    segments = sorted((s for s in found if s is not None), key=lambda segment: segment.start)
    if not segments and text.strip():
        raise DataError(f"{path} holds no subtitle line (SubRip, WebVTT or JSON with times)")
    return Subtitles(tuple(segments), skipped=sum(s is None for s in found))


def _decode(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    return raw.decode("utf-8-sig", errors="replace")


def _from_timed_text(text: str) -> list[Segment | None]:
    """SubRip and WebVTT: a line with an arrow, then text up to the next blank line."""
    found: list[Segment | None] = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.split("\n")
        arrows = [i for i, line in enumerate(lines) if "-->" in line]
        if not arrows:
            continue
        match = _ARROW.search(lines[arrows[0]])
        times = (_seconds(match["start"]), _seconds(match["end"])) if match else (None, None)
        found.append(_segment(*times, " ".join(lines[arrows[0] + 1 :])))
    return found


def _from_json(text: str, path: Path) -> list[Segment | None]:
    """A JSON array, or one JSON object per line (Video-MME-v2: one per word)."""
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"the subtitles {path} are not valid JSON: {error}") from error
    return [_from_row(row) for row in rows]


def _from_row(row: Any) -> Segment | None:
    """{start, end, line}, {timestamp: [start, end], text} or {start_time, end_time, text}; an open end is the start."""
    if not isinstance(row, dict):
        return None
    pair = row.get("timestamp")
    start, end = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
    start = row.get("start", row.get("start_time", start))
    end = row.get("end", row.get("end_time", end))
    begin = _seconds(start)
    return _segment(begin, begin if end is None else _seconds(end), row.get("line", row.get("text")))


def _seconds(value: Any) -> float | None:
    """Seconds as a number, or [[hh:]mm:]ss with a point or a comma."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    parts = str(value).replace(",", ".").split(":")
    try:
        return sum(float(part) * 60.0**power for power, part in enumerate(reversed(parts)))
    except ValueError:
        return None


def _segment(start: float | None, end: float | None, text: Any) -> Segment | None:
    if start is None or end is None or not isinstance(text, str):
        return None
    clean = " ".join(html.unescape(_TAG.sub("", text)).replace("\0", "").split())
    return Segment(start, max(start, end), clean) if clean else None
