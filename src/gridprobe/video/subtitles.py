"""Subtitle files -> timed lines of text: SubRip, WebVTT and the JSON shapes of the video benchmarks.

`read_subtitles` returns a file's lines; `clip_time` converts their times to those of a clip cut from their source;
`sentences` joins single words into lines; `interleave` places lines before, between and after sampled frames.
"""

import html
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gridprobe.errors import DataError, UsageError

Rule = Literal["longvideobench", "video-mme-v2", "video-mme"]
"""The benchmark whose rule places subtitles between or after frames."""

MAX_BYTES = 16 * 2**20
"""A larger file is not a subtitle file."""

_ARROW = re.compile(r"(?P<start>-?[\d:.,]{1,40})\s{0,40}-->\s{0,40}(?P<end>-?[\d:.,]+)")
"""Bounded, since without bounds the time for a line of digits grows with the square of its length."""
_TAG = re.compile(
    r"</?(?:b|i|u|s|c|v|lang|ruby|rt|font|span|br|em|strong)(?:[\s./][^<>]*)?>|<\d[\d:.,]*>|\{\\[^{}]*\}", re.IGNORECASE
)
"""SubRip's and WebVTT's markup; "a < b > c" is none."""


@dataclass(frozen=True)
class Segment:
    """One subtitle line, with its times in seconds."""

    start: float
    end: float
    """Infinite if the file gives no end; see `clip_time`."""
    text: str


@dataclass(frozen=True)
class Subtitles:
    """All lines of a file, in order of time."""

    segments: tuple[Segment, ...]
    skipped: int = 0
    """Entries that are not timed lines."""

    @property
    def text(self) -> str:
        """All text, joined by spaces."""
        return " ".join(segment.text for segment in self.segments)

    def within(self, start: float, end: float) -> "Subtitles":
        """The lines that are shown between two times."""
        return replace(self, segments=tuple(each for each in self.segments if each.end > start and each.start < end))


def read_subtitles(path: Path, *, verbatim: bool = False) -> Subtitles:
    """Read a subtitle file; its content, not its name, decides the format.

    Args:
        path: the file.
        verbatim: read JSON as the benchmarks' own loaders do: every entry with its text unchanged, in the order of the
            file. An end that is a whole number in a pair of times is no end to LongVideoBench's loader.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} is larger than {MAX_BYTES // 2**20} MiB; that is not a subtitle file")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the subtitles {path}: {error.strerror}") from error
    text = _decode(raw)
    first = text.lstrip()[:1]
    entries = _from_json(text, path, verbatim=verbatim) if first in ("[", "{") else _from_timed_text(text)
    segments = [each for each in entries if each is not None]
    if not verbatim:
        segments.sort(key=lambda segment: segment.start)
    empty = not entries and (first in ("", "[") or text.lstrip().startswith("WEBVTT"))
    if not segments and not empty:
        raise DataError(f"{path} holds no subtitle line (SubRip, WebVTT or JSON with times)")
    return Subtitles(tuple(segments), skipped=sum(s is None for s in entries))


def _decode(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    return raw.decode("utf-8-sig", errors="replace")


def _from_timed_text(text: str) -> list[Segment | None]:
    """SubRip and WebVTT: a line with an arrow, then text up to the next blank line."""
    segments: list[Segment | None] = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.split("\n")
        arrows = [i for i, line in enumerate(lines) if "-->" in line]
        if not arrows:
            continue
        match = _ARROW.search(lines[arrows[0]])
        times = (_seconds(match["start"]), _seconds(match["end"])) if match else (None, None)
        segments.append(_segment(*times, " ".join(lines[arrows[0] + 1 :])))
    return segments


def _from_json(text: str, path: Path, *, verbatim: bool) -> list[Segment | None]:
    """A JSON array, or one JSON object per line (Video-MME-v2: one per word)."""
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"the subtitles {path} are not valid JSON: {error}") from error
    return [_from_row(row, verbatim=verbatim) for row in rows]


def _from_row(row: Any, *, verbatim: bool) -> Segment | None:
    """{start, end, line}, {timestamp: [start, end], text} or {start_time, end_time, text}; the end is optional."""
    if not isinstance(row, dict):
        return None
    pair = row.get("timestamp")
    start, end = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
    if verbatim and not isinstance(end, float):
        end = None
    start = row.get("start", row.get("start_time", start))
    end = row.get("end", row.get("end_time", end))
    times = _seconds(start), math.inf if end is None else _seconds(end)
    return _segment(*times, row.get("line", row.get("text")), verbatim=verbatim)


def _seconds(value: Any) -> float | None:
    """Seconds from a number, or from [-][[hh:]mm:]ss with a point or a comma."""
    if isinstance(value, bool):
        return None
    text = str(value).strip()
    parts = text.removeprefix("-").replace(",", ".").split(":")
    try:
        seconds = sum(float(part) * 60.0**power for power, part in enumerate(reversed(parts)))
        return -seconds if text.startswith("-") else seconds
    except (ValueError, OverflowError):
        return None


def _segment(start: float | None, end: float | None, text: Any, *, verbatim: bool = False) -> Segment | None:
    if start is None or end is None or not isinstance(text, str) or not math.isfinite(start) or math.isnan(end):
        return None
    clean = text if verbatim else " ".join(html.unescape(_TAG.sub("", text)).split())
    clean = clean.replace("\0", "").encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is not text
    if verbatim:
        return Segment(start, end, clean)
    return Segment(start, max(start, end), clean) if clean else None


def clip_time(
    segments: Iterable[Segment], *, offset: float = 0.0, duration: float | None = None
) -> tuple[Segment, ...]:
    """Convert the lines' times from those of a source to those of a clip cut from it.

    Args:
        segments: lines in seconds of the source.
        offset: where in the source the clip starts; subtracted from all times.
        duration: length of the clip in seconds. It replaces an open end; if it is unknown, the line's start does.
    """
    ending = math.inf if duration is None else duration
    moved = (replace(line, start=line.start - offset, end=line.end - offset) for line in segments)
    return tuple(_closed(line, ending) for line in moved)


def in_clip(segments: Iterable[Segment], *, offset: float = 0.0, duration: float | None = None) -> tuple[Segment, ...]:
    """The lines that overlap the clip, in its time: none that ends before it or starts after it; see `clip_time`."""
    ending = math.inf if duration is None else duration
    lines = clip_time(segments, offset=offset, duration=duration)
    return tuple(line for line in lines if line.end >= 0 and line.start <= ending)


def _closed(line: Segment, ending: float) -> Segment:
    if math.isfinite(line.end):
        return line
    return replace(line, end=max(line.start, ending) if math.isfinite(ending) else line.start)


GAP, SENTENCE_GAP = 0.5, 0.1
"""Seconds of silence that start a new line: in general, and after the end of a sentence (Video-MME-v2)."""


def sentences(words: Iterable[Segment]) -> tuple[Segment, ...]:
    """Join words into lines by the rule of Video-MME-v2's own script."""
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
    return gap > GAP or (last.text.rstrip().endswith((".", "!", "?")) and gap > SENTENCE_GAP)


def interleave(
    times: Sequence[float], segments: Sequence[Segment], *, rule: Rule = "longvideobench", duration: float | None = None
) -> tuple[str, ...]:
    """The texts between the frames: one more than there are frames, often mostly empty.

    `texts[i]` goes right before frame i, and `texts[-1]` after the last frame. Lines in the same place are joined by
    line breaks.

    longvideobench: a line goes after all frames up to its middle, if any frame is shown while it is spoken; a line
    shorter than a second counts as one second long.
    video-mme-v2: frame i is followed by all lines that overlap the time until the next frame (for the last one, until
    `duration`), as "[Subtitle 1.50s - 3.00s]: text". A line that spans frames is repeated after each.
    video-mme: after the last frame, a heading and the line that is on the screen at each frame; a line that is there at
    two frames is repeated.

    Args:
        times: times of the frames in seconds, ascending.
        segments: lines on the same time axis, as `clip_time` returns them.
        rule: the benchmark whose rule to follow.
        duration: length of the video in seconds, if known.
    """
    if rule not in get_args(Rule):
        raise UsageError(
            f"unknown rule {rule!r} for subtitles between frames; choose one of {', '.join(get_args(Rule))}"
        )
    places: list[list[str]] = [[] for _ in range(len(times) + 1)]
    if rule == "longvideobench":
        placements = _by_middle(times, segments)
    else:
        placements = _by_overlap(times, segments, duration) if rule == "video-mme-v2" else _by_frame(times, segments)
    for place, text in placements:
        places[place].append(text)
    return tuple("\n".join(texts) for texts in places)


@dataclass(frozen=True)
class Between:
    """Lines to place between the frames, once it is known which frames are shown."""

    segments: tuple[Segment, ...]
    """Lines with times in seconds of the video."""
    rule: Rule = "longvideobench"
    duration: float | None = None

    def texts(self, times: Sequence[float]) -> tuple[str, ...]:
        """The texts before, between and after frames at these times; see `interleave`."""
        if self.rule != "video-mme" and any(later < earlier for earlier, later in itertools.pairwise(times)):
            raise UsageError("subtitles between the frames need frames in time order; leave out order=importance")
        return interleave(times, self.segments, rule=self.rule, duration=self.duration)


def _by_middle(times: Sequence[float], segments: Sequence[Segment]) -> Iterator[tuple[int, str]]:
    """Each line's place; frames are used up in order, so no line is placed before the previous one."""
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


def _by_frame(times: Sequence[float], segments: Sequence[Segment]) -> Iterator[tuple[int, str]]:
    """The first line that is on the screen at each frame, all after the last frame."""
    shown = (next((line for line in segments if line.start < time < line.end), None) for time in sorted(times))
    lines = [line.text for line in shown if line is not None]
    if lines:
        yield len(times), "\n".join(["This video's subtitles are listed below:", *lines])
