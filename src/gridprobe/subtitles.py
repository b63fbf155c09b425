"""Subtitle files -> timed lines of text: SubRip, WebVTT and the JSON shapes of the video benchmarks.

`read_subtitles` gives a file's lines; `clip_time` moves them into the time of a clip that was cut out of their source;
`sentences` joins single words to lines; `interleave` says what stands before, between and after sampled frames.
"""

import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gridprobe.errors import DataError, UsageError

__all__ = ["Rule", "Segment", "Subtitles", "clip_time", "in_clip", "interleave", "read_subtitles", "sentences"]

Rule = Literal["longvideobench", "video-mme-v2"]
"""Whose rule decides where subtitles stand between frames."""

MAX_BYTES = 16 * 2**20
"""A subtitle file larger than this is not one."""

_ARROW = re.compile(r"(?P<start>[\d:.,]+)\s*-->\s*(?P<end>[\d:.,]+)")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")


@dataclass(frozen=True)
class Segment:
    """One subtitle line, in seconds of the video."""

    start: float
    end: float
    """Infinite where the file leaves it open; see `clip_time`."""
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
    empty = not found and (first in ("", "[") or text.lstrip().startswith("WEBVTT"))
    if not segments and not empty:
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
    """{start, end, line}, {timestamp: [start, end], text} or {start_time, end_time, text}; the end may be open."""
    if not isinstance(row, dict):
        return None
    pair = row.get("timestamp")
    start, end = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
    start = row.get("start", row.get("start_time", start))
    end = row.get("end", row.get("end_time", end))
    begin = _seconds(start)
    return _segment(begin, math.inf if end is None else _seconds(end), row.get("line", row.get("text")))


def _seconds(value: Any) -> float | None:
    """Seconds as a number, or [[hh:]mm:]ss with a point or a comma."""
    if isinstance(value, bool):
        return None
    parts = str(value).replace(",", ".").split(":")
    try:
        return sum(float(part) * 60.0**power for power, part in enumerate(reversed(parts)))
    except ValueError:
        return None


def _segment(start: float | None, end: float | None, text: Any) -> Segment | None:
    if start is None or end is None or not isinstance(text, str) or not math.isfinite(start) or math.isnan(end):
        return None
    clean = " ".join(html.unescape(_TAG.sub("", text)).replace("\0", "").split())
    clean = clean.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text
    return Segment(start, max(start, end), clean) if clean else None


def clip_time(
    segments: Iterable[Segment], *, offset: float = 0.0, duration: float | None = None
) -> tuple[Segment, ...]:
    """A track in the time of a clip that was cut out of its source.

    Args:
        segments: lines in seconds of the source.
        offset: where in the source the clip starts; subtracted from all times.
        duration: seconds of the clip. An open end becomes this, or the line's start where it is not known.
    """
    ending = math.inf if duration is None else duration
    moved = (replace(line, start=line.start - offset, end=line.end - offset) for line in segments)
    return tuple(_closed(line, ending) for line in moved)


def in_clip(segments: Iterable[Segment], *, offset: float = 0.0, duration: float | None = None) -> tuple[Segment, ...]:
    """The lines that are spoken in the clip: neither over before it starts nor begun after it ends; see `clip_time`."""
    ending = math.inf if duration is None else duration
    lines = clip_time(segments, offset=offset, duration=duration)
    return tuple(line for line in lines if line.end >= 0 and line.start <= ending)


def _closed(line: Segment, ending: float) -> Segment:
    if math.isfinite(line.end):
        return line
    return replace(line, end=max(line.start, ending) if math.isfinite(ending) else line.start)


GAP, SENTENCE_GAP = 0.5, 0.1
"""Seconds of silence after which words are a new line, anywhere and after the end of a sentence (Video-MME-v2)."""


def sentences(words: Iterable[Segment]) -> tuple[Segment, ...]:
    """Words joined to lines, by the rule of Video-MME-v2's own script."""
    lines: list[Segment] = []
    last = None
    for word in words:
        if last is None or _breaks(last, word):
            lines.append(word)
        else:
            lines[-1] = Segment(lines[-1].start, word.end, f"{lines[-1].text} {word.text}")
        last = word
    return tuple(lines)


def _breaks(last: Segment, word: Segment) -> bool:
    gap = word.start - last.end
    return gap > GAP or (last.text.endswith((".", "!", "?")) and gap > SENTENCE_GAP)


def interleave(
    times: Sequence[float], segments: Sequence[Segment], *, rule: Rule = "longvideobench", duration: float | None = None
) -> tuple[str, ...]:
    """What stands between the frames: one text more than there are frames, most of them often empty.

    `texts[i]` stands right before frame i, and `texts[-1]` after the last frame. Lines that share a place are joined by
    line breaks.

    longvideobench: a line stands after all frames up to its middle, if any frame is shown while it is spoken; a line
    shorter than a second counts as one second long.
    video-mme-v2: after frame i stand all lines that overlap the time until the next frame (for the last one, until
    `duration`), as "[Subtitle 1.50s - 3.00s]: text". A line that spans frames is repeated after each.

    Args:
        times: seconds of the frames, ascending.
        segments: lines in the same time, as `clip_time` gives them.
        rule: whose rule.
        duration: seconds of the video, where known.
    """
    if rule not in get_args(Rule):
        raise UsageError(
            f"unknown rule {rule!r} for subtitles between frames; choose one of {', '.join(get_args(Rule))}"
        )
    places: list[list[str]] = [[] for _ in range(len(times) + 1)]
    found = _by_middle(times, segments) if rule == "longvideobench" else _by_overlap(times, segments, duration)
    for place, text in found:
        places[place].append(text)
    return tuple("\n".join(texts) for texts in places)


def _by_middle(times: Sequence[float], segments: Sequence[Segment]) -> Iterator[tuple[int, str]]:
    """Frames go out in order and never come back, so a line stands no earlier than the one before it."""
    place = 0
    for line in segments:
        middle = (line.start + line.end) / 2
        while place < len(times) and times[place] <= middle:
            place += 1
        short = line.end - line.start < 1
        start, end = (middle - 0.5, middle + 0.5) if short else (line.start, line.end)
        if any(start < time < end for time in times):
            yield place, line.text


def _by_overlap(
    times: Sequence[float], segments: Sequence[Segment], duration: float | None
) -> Iterator[tuple[int, str]]:
    ends = (*times[1:], math.inf if duration is None else duration)
    for place, (start, end) in enumerate(zip(times, ends, strict=False), start=1):
        for line in segments:
            if line.end >= start and line.start < end:
                yield place, f"[Subtitle {line.start:.2f}s - {line.end:.2f}s]: {line.text}"
