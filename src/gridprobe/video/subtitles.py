"""Subtitle files -> timed lines of text: SubRip, WebVTT and the JSON shapes of the video benchmarks.

`read_subtitles` returns a file's lines; `clip_time` converts their times to those of a clip cut from their source;
`sentences` joins single words into lines; `interleave` places lines before, between and after sampled frames;
`matching_frames` says at which frames something is said that the question asks about; `Ears` finds what is said in a
video: in a file next to it, in a text track inside it, or by transcribing its sound.
"""

import html
import itertools
import json
import math
import os
import re
import stat
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from gridprobe.errors import DataError, UsageError, VideoError

if TYPE_CHECKING:
    from gridprobe.video.video import Video

Rule = Literal["longvideobench", "video-mme-v2", "video-mme", "every"]
"""The benchmark whose rule places subtitles between or after frames; "every" is ours."""

MAX_BYTES = 16 * 2**20
"""A larger file is not a subtitle file."""
MAX_TOKENS = 8192
"""The most tokens of subtitles that a question is shown, one for three bytes: more than tokenizers take."""

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
    source: str = ""
    """Where they come from, such as "talk.en.vtt" or "stream 2"."""
    notes: tuple[str, ...] = ()
    """What a reader of the answer should know about them."""

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
    return _parsed(_decode(_content(path)), path, verbatim=verbatim)


def _parsed(text: str, path: Path, *, verbatim: bool = False) -> Subtitles:
    first = text.lstrip()[:1]
    entries = _from_json(text, path, verbatim=verbatim) if first in ("[", "{") else _from_timed_text(text)
    segments = [each for each in entries if each is not None]
    if not verbatim:
        segments.sort(key=lambda segment: segment.start)
    empty = not entries and (first in ("", "[") or text.lstrip().startswith("WEBVTT"))
    if not segments and not empty:
        raise DataError(f"{path} holds no subtitle line (SubRip, WebVTT or JSON with times)")
    return Subtitles(tuple(segments), skipped=sum(s is None for s in entries))


def _content(path: Path) -> bytes:
    """The bytes of a regular file; opening a FIFO would wait for its writer."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"cannot read the subtitles {path}: not a regular file")
            raw = file.read(MAX_BYTES + 1) if status.st_size <= MAX_BYTES else b""
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the subtitles {path}: {getattr(error, 'strerror', error)}") from error
    if max(status.st_size, len(raw)) > MAX_BYTES:
        raise DataError(f"{path} is larger than {MAX_BYTES // 2**20} MiB; that is not a subtitle file")
    return raw


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
    every: as longvideobench, but no line is left out because no frame is shown while it is spoken.

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
    if rule in ("longvideobench", "every"):
        placements = _by_middle(times, segments, unseen=rule == "every")
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


def _by_middle(
    times: Sequence[float], segments: Sequence[Segment], *, unseen: bool = False
) -> Iterator[tuple[int, str]]:
    """Each line's place; frames are used up in order, so no line is placed before the previous one."""
    place = 0
    for line in segments:
        middle = (line.start + line.end) / 2
        while place < len(times) and times[place] <= middle:
            place += 1
        short = line.end - line.start < 1
        start, end = (middle - 0.5, middle + 0.5) if short else (line.start, line.end)
        if unseen or any(start < time < end for time in times):
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


# Which lines a question is about, by the words that they share.

COMMON_WORDS = """
a about after all an and are as at be before by can do does for from had has have he her him his how i in is it its
many me my no not of on one or our she shown so that the their them then there these they this to up video was we were
what when where which while who why will with you your
"""
COMMON = frozenset(COMMON_WORDS.split())
"""Words that say nothing about what a question asks."""
UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")
"""Scripts without spaces between words; two neighbouring characters stand for a word."""
STEM = 6
"""Letters of a word that count, so that "arrive" matches "arrived"."""
NEAR = 0.5
"""A line that shares at least this much of what the best one shares matches the question, too."""
EVERYWHERE = 0.25
"""Lines that match at more than this share of all frames do not say where to look."""


def content_words(text: str) -> frozenset[str]:
    """The words of a text that carry meaning, shortened to their stems."""
    words = {word for word in re.findall(r"[^\W_]+", text.casefold()) if word not in COMMON}
    pairs = {run[i : i + 2] for run in UNSPACED.findall(text) for i in range(max(1, len(run) - 1))}
    spaced = {word if len(word) < 4 else word.removesuffix("s")[:STEM] for word in words if not UNSPACED.search(word)}
    return frozenset(spaced | pairs)


def line_scores(question: str, segments: Sequence[Segment]) -> list[float]:
    """For each line from 0 to 1 how much of the question's words it shares, the rarer ones counting more."""
    wanted = content_words(question)
    shared = [content_words(line.text) & wanted for line in segments]
    lines = Counter(word for words in shared for word in words)
    weights = {word: math.log((1 + len(segments)) / count) for word, count in lines.items()}
    sums = [sum(weights[word] for word in words) for words in shared]
    best = max(sums, default=0.0)
    return [score / best if best else 0.0 for score in sums]


def matching_frames(question: str, segments: Sequence[Segment], times: Sequence[float]) -> tuple[float, ...]:
    """For each frame from 0 to 1 how well what is said next to it matches the question; all 0 if that says nothing.

    Args:
        question: its text and its options.
        segments: lines in the time of the frames.
        times: times of the frames in seconds, ascending.
    """
    scores = [0.0] * len(times)
    borders = [(a + b) / 2 for a, b in itertools.pairwise(times)]
    for line, score in zip(segments, line_scores(question, segments), strict=True):
        if score >= NEAR and times:
            for place in range(bisect_right(borders, line.start), bisect_left(borders, line.end) + 1):
                scores[place] = max(scores[place], score)
    matching = sum(score > 0 for score in scores)
    return tuple(scores) if matching <= max(1, EVERYWHERE * len(times)) else (0.0,) * len(times)


def most_telling(segments: Sequence[Segment], question: str, *, tokens: int = MAX_TOKENS) -> tuple[Segment, ...]:
    """As many lines as fit, in their order: those that match the question first, then an even sample."""
    room, chosen = tokens, []
    scores = line_scores(question, segments)
    for place in sorted(range(len(segments)), key=lambda place: (-scores[place], _scattered(place))):
        room -= tokens_of(segments[place].text)
        if room < 0:
            break
        chosen.append(place)
    return tuple(segments[place] for place in sorted(chosen))


def tokens_of(text: str) -> int:
    """How many tokens a line takes at most, as a rule."""
    return 1 + len(text.encode()) // 3


def _scattered(place: int) -> float:
    """From 0 to 1; in order of it the first n places are spread evenly (multiples of the golden ratio)."""
    return place * 0.6180339887498949 % 1


# Where the words of a video come from.

SIDECAR = re.compile(
    r"(?:\.(?P<language>[a-z]{2,3}(?:[-_][a-z0-9]{2,8})*))??(?P<forced>\.forced)?(?:\.(?:sdh|cc|hi))?\.(?:srt|vtt)"
)
"""What follows a video's name in that of its subtitle file."""
TEXT_CODECS = frozenset({"mov_text", "subrip", "srt", "ass", "ssa", "webvtt", "text"})
"""FFmpeg's names of subtitles that are text; others are pictures."""
MAX_LINES = 100_000
"""Lines of a text track that are read."""
OPEN_SECONDS = 5.0
"""How long a line of a track lasts at most that has no end."""
CODE = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]+)*")
LANGUAGES = """
eng=en deu=de ger=de fra=fr fre=fr spa=es ita=it por=pt rus=ru jpn=ja kor=ko zho=zh chi=zh ara=ar hin=hi nld=nl dut=nl
pol=pl tur=tr ukr=uk swe=sv dan=da fin=fi nor=no nob=no ces=cs cze=cs ell=el gre=el heb=he hun=hu ind=id vie=vi tha=th
ron=ro rum=ro bul=bg hrv=hr srp=sr slk=sk slo=sk slv=sl cat=ca fas=fa per=fa ben=bn tam=ta urd=ur msa=ms may=ms est=et
lav=lv lit=lt isl=is ice=is und=
"""
TWO_LETTERS = dict(pair.split("=") for pair in LANGUAGES.split())
"""Containers write languages in three letters, file names in two."""


@dataclass(frozen=True)
class Track:
    """Subtitles of a video: a file next to it, or a track inside it."""

    name: str
    language: str = ""
    """In two letters where it has two; empty if it is not known."""
    path: Path | None = None
    number: int = 0
    """That of the stream, for a track inside the video."""
    codec: str = ""
    default: bool = False
    forced: bool = False
    """Whether only what is not in the viewers' language is in it."""

    @property
    def rank(self) -> tuple[bool, ...]:
        """Files before tracks, and all that is said before a part of it; a file that names a language comes later."""
        return self.forced, self.path is None, self.path is not None and bool(self.language), not self.default


def track_of(*, number: int, codec: str, language: str, default: bool, forced: bool) -> Track:
    """A track inside a video, as its header describes it."""
    words = ", ".join(filter(None, (codec, code := language_code(str(language)))))
    name = f"stream {int(number)} ({words})"
    return Track(name, code, number=number, codec=str(codec), default=bool(default), forced=bool(forced))


def closed_lines(lines: Iterable[tuple[float, float | None, str]]) -> list[Segment]:
    """The lines of a track in order of time, clean; one without an end lasts to the next."""
    segments = [_segment(start, math.inf if end is None else end, text) for start, end, text in lines]
    ordered = sorted((each for each in segments if each is not None), key=lambda each: each.start)
    nexts = [*(each.start for each in ordered[1:]), math.inf]
    ends = (min(after, each.start + OPEN_SECONDS) for each, after in zip(ordered, nexts, strict=False))
    return [replace(line, end=end) if math.isinf(line.end) else line for line, end in zip(ordered, ends, strict=True)]


def language_code(text: str) -> str:
    """For example "en" for "eng", "en-US" or "EN"; empty for none."""
    match = CODE.fullmatch(text)
    code = match[1].lower() if match else ""
    return TWO_LETTERS.get(code, code)


def sidecars(video: Path) -> tuple[list[Track], list[str]]:
    """The subtitle files next to a video, and what was not read there: a link may lead to any file of the user's."""
    tracks, notes = [], []
    try:
        with os.scandir(video.parent) as entries:
            names = sorted(entry.name for entry in entries if entry.name.startswith(video.stem))
    except OSError:
        return [], []
    for name in names:
        match = SIDECAR.fullmatch(name[len(video.stem) :].lower())
        if match is None:
            continue
        path = video.parent / name
        if os.path.dirname(os.path.realpath(path)) != os.path.realpath(video.parent):
            notes.append(f"{name} was not read: it is a link to another folder; name it with --subtitles")
            continue
        tracks.append(Track(name, language_code(match["language"] or ""), path, forced=bool(match["forced"])))
    return tracks, notes


@dataclass(frozen=True)
class Ears:
    """Which words of a video a question is shown."""

    subtitles: str | Path | Subtitles = "none"
    """"auto", "none", a file, or its lines."""
    language: str = ""
    """Of the subtitles to choose, and of what is spoken; empty for any."""
    transcribe: "Callable[[Video, str], Subtitles] | None" = None
    """Writes down what is said in a video without subtitles."""

    def __post_init__(self) -> None:
        if self.language and not CODE.fullmatch(self.language):
            raise UsageError(f"a language is a code such as en, eng or pt-BR, got {self.language!r}")

    def hear(self, video: "Video") -> Subtitles:
        """What is said in the video, in its time."""
        if isinstance(self.subtitles, Path | Subtitles) or self.subtitles not in ("auto", "none"):
            named = self.subtitles if isinstance(self.subtitles, Subtitles) else read_named(Path(self.subtitles))
            return _in_time_of(video, named)
        found = self._own(video) if self.subtitles == "auto" else Subtitles(())
        if self.transcribe is None or found.segments:
            return found
        heard = self.transcribe(video, language_code(self.language))
        return replace(heard, notes=(*found.notes, *heard.notes))

    def _own(self, video: "Video") -> Subtitles:
        """The first of the video's subtitles that can be read; what stood in the way of others is noted."""
        files, unread = sidecars(Path(video.path)) if os.path.isfile(video.path) else ([], [])
        inside, notes = video.tracks(), list(unread)
        texts = [*files, *(track for track in inside if track.codec in TEXT_CODECS)]
        if pictures := [track.codec for track in inside if track.codec not in TEXT_CODECS]:
            notes += [f"its subtitles are pictures ({pictures[0] or 'unknown'}), which are not read"] * (not texts)
        for track in self._chosen(texts, notes):
            try:
                if track.path is not None:
                    subtitles = _in_time_of(video, read_named(track.path))
                else:
                    subtitles = Subtitles(within(video.track_lines(track.number), video))
            except (DataError, VideoError) as error:
                notes.append(f"{track.name} was not used: {error}")
                continue
            if subtitles.segments:
                of = f" (1 of {len(texts)})" if len(texts) > 1 else ""
                return replace(subtitles, source=track.name + of, notes=(*notes, *subtitles.notes))
        return Subtitles((), notes=tuple(notes))

    def _chosen(self, tracks: list[Track], notes: list[str]) -> list[Track]:
        """Those in the language that was asked for, else those that do not say theirs; the likeliest first."""
        wanted, ranked = language_code(self.language), sorted(tracks, key=lambda track: track.rank)
        if not wanted or not tracks:
            return ranked
        chosen = [track for track in ranked if track.language == wanted]
        if not chosen:
            there = ", ".join(f"{track.language or 'not named'} ({track.name})" for track in ranked)
            notes.append(f"no subtitles say that they are in {self.language!r}; there are: {there}")
        return chosen or [track for track in ranked if not track.language]


def read_named(path: Path) -> Subtitles:
    """A file's lines, whatever its encoding, with notes about what could not be read."""
    raw = _content(path)
    subtitles = _parsed(text := _guess(raw), path)
    notes = []
    if subtitles.skipped:
        notes.append(f"{subtitles.skipped} entries of {path.name} are not timed lines; they were left out")
    if text != _decode(raw) and not raw.isascii():
        notes.append(f"{path.name} is not UTF-8 and was read as a Western encoding; convert it if letters are wrong")
    return replace(subtitles, source=path.name, notes=tuple(notes))


def _guess(raw: bytes) -> str:
    """The text; without a byte order mark it may be UTF-16, or Windows-1252 as most old files are."""
    zeros = [raw[place:1000:2].count(0) for place in (0, 1)]
    if sum(zeros) > len(raw[:1000]) / 4 and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16-be" if zeros[0] > zeros[1] else "utf-16-le", errors="replace")
    text = _decode(raw)
    return raw.decode("cp1252", errors="replace") if "\ufffd" in text else text


def _in_time_of(video: "Video", subtitles: Subtitles) -> Subtitles:
    """Files count from the start of the file's timeline, frames from the first frame."""
    return replace(subtitles, segments=within(clip_time(subtitles.segments, offset=video.info.late), video))


def within(segments: Iterable[Segment], video: "Video") -> tuple[Segment, ...]:
    """The lines in the part of the video that is sampled; an open end is that of the video."""
    length = math.inf if video.info.duration is None else video.info.duration
    parts = video.spec.segments or ((0.0, math.inf) if video.spec.window is None else video.span,)
    closed = (_closed(line, length) for line in segments)
    return tuple(line for line in closed if any(line.end >= start and line.start <= end for start, end in parts))
