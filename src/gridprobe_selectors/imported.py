"""scores:FILE: frame scores from outside, such as those of Frame-Voyager (arXiv 2410.03226) or HFS (arXiv 2512.11534).

Learned selectors without public code or weights can be evaluated by what they write. The file has a line of JSON for
each question, or one JSON object with a member for each:

    {"id": "v1-a", "scores": [0.1, 0.7, 0.2], "times": [0.0, 12.5, 25.0]}
    {"schema": "gridprobe.scores/1", "questions": {"v1-a": {"scores": [0.1, 0.7, 0.2], "times": [0.0, 12.5, 25.0]}}}

A frame of the pool has the score whose time, in seconds, is nearest. Without `times` the scores must be those of the
pool: as many as it has frames, in time order. Higher is better; scores outside 0…1 are scaled to it. The frames with
the highest scores are kept, as many as the budget says. This selector costs nothing; what made the scores did.
"""

import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gridprobe._util import parse_json
from gridprobe.errors import DataError, UsageError
from gridprobe.importance import MAX_K, Budget, Grid, ImportanceMap, Ties
from gridprobe.question import Question
from gridprobe.selectors.base import FLAT, Parts, Selection, Selector
from gridprobe.selectors.baselines import require_no_number
from gridprobe.video import FramePool
from gridprobe_eval.reader import KEYFRAMES_SCHEMA
from gridprobe_selectors.encoded import Floats, unit_range

# What selectors share that read other programs' results: bounded files, checks, and the frame nearest to a time.

MAX_BYTES = 256 * 2**20
MAX_QUESTIONS = 1_000_000
SAME = 0.001
"""Two times that differ by less than this many seconds belong to the same frame."""


def read_json(file: Path, what: str, hint: str) -> Any:
    """The content of a JSON file, or the list of the objects of a file of JSON lines."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(f"{file} is larger than {MAX_BYTES >> 20} MiB, which no {what} file needs to be")
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].startswith(b"{") and lines[0].rstrip().endswith(b"}"):
            return [parse_json(line) for line in lines]
        return parse_json(content)
    except FileNotFoundError:
        raise UsageError(f"there is no {what} file {file}; {hint}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the {what} file {file}: {error}") from error


def need(good: bool, where: str, rule: str) -> None:
    """Refuse what breaks a rule."""
    if not good:
        raise DataError(f"{where}: {rule}")


def question_id(question: Question, ids: Container[str], source: str) -> str:
    """The id under which a file knows a question."""
    if question.id is None:
        raise UsageError(f"{source} names questions by id, and this one has none; give it the id of the file")
    if question.id not in ids:
        raise DataError(f"{source} holds no question with the id {question.id!r}")
    return question.id


def nearest(time: float, times: Sequence[float]) -> int:
    """The position of the time that is nearest; the earlier one of two."""
    after = min(max(bisect_left(times, time), 1), len(times) - 1) if len(times) > 1 else 0
    return min((max(after - 1, 0), after), key=lambda i: abs(times[i] - time))


def is_number(value: Any) -> bool:
    """Whether it is a finite number of ordinary size."""
    return type(value) in (int, float) and abs(value) < 1e9 and math.isfinite(value)


SCORES_SCHEMA = "gridprobe.scores/1"


Scoring = tuple[tuple[float, ...], tuple[float, ...] | None]
"""The file's entry for one question: scores, and their times if it has them."""


@dataclass(frozen=True, repr=False)
class Scores(Selector):
    """Keeps the frames that a file scores highest."""

    questions: Mapping[str, Scoring]
    budget: Budget
    ties: Ties = "spread"
    source: str = "the scores"
    name: ClassVar[str] = "scores"

    def __repr__(self) -> str:
        return f"Scores({self.source!r}, {len(self.questions)} questions)"

    def select(self, pool: FramePool, question: Question) -> Selection:
        """Those that the budget chooses by the file's scores."""
        scores = self._scores(pool, self.questions[question_id(question, self.questions, self.source)])
        if scores.min() < 0 or scores.max() > 1:
            scores = unit_range(scores)
        evidence = ImportanceMap(Grid.holding(len(pool)), by_frame=tuple(scores.tolist()), kind="scores")
        notes = (FLAT,) if self.budget.flat(evidence) else ()
        return Selection.of(
            self.name, pool, self.budget.choose(evidence, ties=self.ties), evidence=evidence, notes=notes
        )

    def _scores(self, pool: FramePool, entry: Scoring) -> Floats:
        scores, times = entry
        if times is not None:
            return np.array([scores[nearest(time, times)] for time in pool.times])
        if len(scores) != len(pool):
            raise DataError(
                f'{self.source} has {len(scores)} scores for a pool of {len(pool)} frames; give their "times", or '
                "sample the pool they were made for"
            )
        return np.array(scores)

    def bounds(self, pool: int) -> tuple[int, int]:
        """Those of its budget."""
        return self.budget.bounds(pool)

    def describe(self) -> dict[str, Any]:
        """The file, a hash of its content, and the budget."""
        content = repr(sorted(self.questions.items()))
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return {
            "name": self.name,
            "file": self.source,
            "content": digest,
            "budget": self.budget.describe(),
            "ties": self.ties,
        }


def imported_scores(argument: str, parts: Parts) -> Scores:
    """The function of the registry, for "scores:FILE"."""
    whole = read_json(Path(argument), "scores", "see docs/selectors.md for its format")
    return Scores(_scored_questions(whole, argument), parts.budget, parts.ties, argument)


# The file.


def _scored_questions(whole: Any, file: str) -> dict[str, Scoring]:
    rows = [whole] if isinstance(whole, dict) and "schema" not in whole else whole
    if isinstance(rows, list):
        need(all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows), file, 'a line has no "id"')
        entries = {row["id"]: row for row in rows}
        need(len(entries) == len(rows), file, "an id occurs twice")
    else:
        need(
            isinstance(rows, dict) and rows.get("schema") == SCORES_SCHEMA, file, f"it is not of schema {SCORES_SCHEMA}"
        )
        entries = rows.get("questions")
    need(isinstance(entries, dict) and 0 < len(entries) <= MAX_QUESTIONS, file, '"questions" must be an object')
    return {name: _scoring(entry, f"{file}, question {name[:80]!r}") for name, entry in entries.items()}


def _scoring(entry: Any, where: str) -> Scoring:
    need(isinstance(entry, dict), where, "it must be an object")
    scores, times = entry.get("scores"), entry.get("times")
    need(isinstance(scores, list) and bool(scores) and all(map(is_number, scores)), where, '"scores" must be numbers')
    if times is None:
        return tuple(scores), None
    need(isinstance(times, list) and len(times) == len(scores), where, '"times" must be as many as "scores"')
    need(all(map(is_number, times)) and times == sorted(times), where, '"times" must be numbers that ascend')
    return tuple(scores), tuple(times)


# Keyframes: frames that were selected before, by gridprobe or another program, read from a file.
#
#     {"schema": "gridprobe.keyframes/1",
#      "questions": {"v1-a": {"times": [12.5, 40.0], "indices": [1, 3], "pool": 144, "video": "v1.mp4",
#                             "selector": "gridprobe", "model": "Qwen/Qwen3-VL-2B-Instruct"}}}
#
# Only `times` is required. This selector costs nothing; the cost of the first selection is in its own run.
#
# Files of other programs name frames by number. The patched LongVideoBench files of AKS and its successors are a list,
# or
# lines, of objects with `id` and `frame_idx`; an object of lists by question id will do as well:
#
#     [{"id": "v1-a", "frame_idx": [30, 450]}, ...]          {"v1-a": [30, 450], ...}
#
# A number counts the video's own frames from 0, so frame n is shown at n / fps, with the video's mean frame rate. If
# the
# numbers count frames of a sampled video, its rate is written behind the file's name: with `keyframes:FILE#fps=1` they
# are seconds. Each number then stands for the frame of the pool that is nearest in time; a note says how far that is.

MAX_FRAMES = MAX_K**2
RATE = re.compile(r"(?P<file>.+)#fps=(?P<fps>\d{1,4}(\.\d{1,6})?)")


@dataclass(frozen=True)
class Chosen:
    """The file's entry for one question."""

    times: tuple[float, ...] = ()
    indices: tuple[int, ...] | None = None
    pool: int | None = None
    numbers: tuple[int, ...] = ()
    """In place of times: numbers of frames, from 0."""

    @property
    def content(self) -> tuple[Any, ...]:
        """What it says."""
        moments = self.times, self.indices, self.pool
        return (moments, self.numbers) if self.numbers else (moments,)


@dataclass(frozen=True, repr=False)
class Keyframes(Selector):
    """Replays a file: for each question, by its id, the frames of the pool that are nearest to the times it names."""

    questions: Mapping[str, Chosen]
    source: str = "the keyframes"
    fps: float | None = None
    """The rate that frame numbers are counted at; None is the video's own."""
    name: ClassVar[str] = "keyframes"

    def __repr__(self) -> str:
        return f"Keyframes({self.source!r}, {len(self.questions)} questions)"

    @classmethod
    def read(cls, path: str | Path) -> "Keyframes":
        """Read and check a file."""
        match = RATE.fullmatch(str(path))
        file = Path(match["file"] if match else path)
        whole = read_json(file, "keyframes", "write one with gridprobe score RUN --keyframes FILE")
        fps = float(match["fps"]) if match else None
        need(fps is None or fps > 0, str(path), "fps must be above 0")
        return cls(_questions(whole, str(file)), str(file), fps)

    def describe(self) -> dict[str, Any]:
        """The file and a hash of its content."""
        content = repr(sorted((name, *chosen.content) for name, chosen in self.questions.items()))
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        rate = {} if self.fps is None else {"fps": self.fps}
        return {"name": self.name, "file": self.source, "content": digest, **rate}

    def select(self, pool: FramePool, question: Question) -> Selection:
        """The frames that were chosen for this question."""
        chosen = self.questions[question_id(question, self.questions, self.source)]
        if chosen.numbers:
            rate = self._rate(pool)
            chosen = Chosen(tuple(number / rate for number in chosen.numbers))
        if _fits(chosen, pool.times):
            return Selection.of("keyframes", pool, tuple(sorted(chosen.indices or ())))
        places = [nearest(time, pool.times) for time in chosen.times]
        off = max(abs(pool.times[i] - time) for i, time in zip(places, chosen.times, strict=True))
        indices = tuple(sorted(set(places)))
        selection = Selection.of("keyframes", pool, indices)
        return selection if off <= SAME else replace(selection, notes=(_moved(chosen, indices, off),))

    def _rate(self, pool: FramePool) -> float:
        rate = self.fps or (pool.info and pool.info.fps)
        if not rate:
            raise UsageError(
                f"{self.source} names frames by number, and the frame rate is not known; give it: {self.source}#fps=30"
            )
        return rate


def imported_keyframes(argument: str, parts: Parts) -> Keyframes:
    """The function of the registry, for "keyframes:FILE"."""
    require_no_number(f"keyframes:{argument}", "the frames its file names", parts)
    return Keyframes.read(argument)


def _moved(chosen: Chosen, indices: Sequence[int], off: float) -> str:
    words = (
        f"the pool is not the one the keyframes were chosen from: the nearest frames are used, up to {off:.2f} s away"
    )
    merged = len(chosen.times) - len(indices)
    return f"{words}, and {merged} of {len(chosen.times)} fall on a frame that is used already" if merged else words


def _fits(chosen: Chosen, times: Sequence[float]) -> bool:
    """Whether the positions in the file belong to these frames."""
    if chosen.indices is None or chosen.indices[-1] >= len(times):
        return False
    return all(abs(times[i] - time) <= SAME for i, time in zip(chosen.indices, chosen.times, strict=True))


# The file.


def _questions(whole: Any, file: str) -> dict[str, Chosen]:
    rows = [whole] if isinstance(whole, dict) and "frame_idx" in whole else whole
    if isinstance(rows, list):
        good = all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows)
        need(good and bool(rows), file, 'every entry must be an object with an "id", as in LongVideoBench')
        need(all(isinstance(row.get("frame_idx"), list) for row in rows), file, 'an entry has no list "frame_idx"')
        whole = {row["id"]: row["frame_idx"] for row in rows}
        need(len(whole) == len(rows), file, "an id occurs twice")
    if isinstance(whole, dict) and whole and all(isinstance(entry, list) for entry in whole.values()):
        return {name: _numbered(entry, f"{file}, question {name[:80]!r}") for name, entry in whole.items()}
    need(
        isinstance(whole, dict) and whole.get("schema") == KEYFRAMES_SCHEMA,
        file,
        f"it is not of schema {KEYFRAMES_SCHEMA}",
    )
    questions = whole.get("questions")
    need(isinstance(questions, dict) and 0 < len(questions) <= MAX_QUESTIONS, file, '"questions" must be an object')
    return {name: _chosen(entry, f"{file}, question {name[:80]!r}") for name, entry in questions.items()}


def _numbered(entry: list[Any], where: str) -> Chosen:
    need(0 < len(entry) <= MAX_FRAMES, where, f'"frame_idx" must be 1 to {MAX_FRAMES} numbers')
    need(all(type(i) is int and 0 <= i < 10**9 for i in entry), where, '"frame_idx" must be whole numbers from 0')
    return Chosen(numbers=tuple(sorted(set(entry))))


def _chosen(entry: Any, where: str) -> Chosen:
    need(isinstance(entry, dict), where, "it must be an object")
    times, indices, pool = (entry.get(key) for key in ("times", "indices", "pool"))
    need(isinstance(times, list) and 0 < len(times) <= MAX_FRAMES, where, f'"times" must be 1 to {MAX_FRAMES} numbers')
    need(all(map(is_number, times)) and times == sorted(times), where, '"times" must be finite numbers that ascend')
    if indices is None:
        return Chosen(tuple(times))
    need(isinstance(indices, list) and len(indices) == len(times), where, '"indices" must be as many as "times"')
    need(all(type(i) is int and i >= 0 for i in indices), where, '"indices" must be whole numbers of at least 0')
    need(indices == sorted(set(indices)), where, '"indices" must ascend')
    need(pool is None or (type(pool) is int and pool > indices[-1]), where, '"pool" must be larger than any index')
    return Chosen(tuple(times), tuple(indices), pool)
