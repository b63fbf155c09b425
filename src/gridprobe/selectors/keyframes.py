"""Keyframes: frames that were selected before, by gridprobe or another program, read from a file.

    {"schema": "gridprobe.keyframes/1",
     "questions": {"v1-a": {"times": [12.5, 40.0], "indices": [1, 3], "pool": 144, "video": "v1.mp4",
                            "selector": "gridprobe", "model": "Qwen/Qwen3-VL-2B-Instruct"}}}

Only `times` is required. This selector costs nothing; the cost of the first selection is in its own run.

Files of other programs name frames by number. The patched LongVideoBench files of AKS and its successors are a list, or
lines, of objects with `id` and `frame_idx`; an object of lists by question id will do as well:

    [{"id": "v1-a", "frame_idx": [30, 450]}, ...]          {"v1-a": [30, 450], ...}

A number counts the video's own frames from 0, so frame n is shown at n / fps, with the video's mean frame rate. If the
numbers count frames of a sampled video, its rate is written behind the file's name: with `keyframes:FILE#fps=1` they
are seconds. Each number then stands for the frame of the pool that is nearest in time; a note says how far that is.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from gridprobe.errors import UsageError
from gridprobe.grid import MAX_K
from gridprobe.question import Question
from gridprobe.selectors.base import Parts, Selection, Selector
from gridprobe.selectors.baselines import require_no_number
from gridprobe.selectors.imported import MAX_QUESTIONS, SAME, is_number, nearest, need, question_id, read_json
from gridprobe.video import FramePool

__all__ = ["SCHEMA", "Chosen", "Keyframes"]

SCHEMA = "gridprobe.keyframes/1"
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
        said = self.times, self.indices, self.pool
        return (said, self.numbers) if self.numbers else (said,)

    def at(self, fps: float) -> "Chosen":
        """The same with times."""
        return Chosen(tuple(number / fps for number in self.numbers))


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
        named = RATE.fullmatch(str(path))
        file = Path(named["file"] if named else path)
        whole = read_json(file, "keyframes", "write one with gridprobe export-keyframes")
        fps = float(named["fps"]) if named else None
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
            chosen = chosen.at(self._rate(pool))
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


def make(argument: str, parts: Parts) -> Keyframes:
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
    need(isinstance(whole, dict) and whole.get("schema") == SCHEMA, file, f"it is not of schema {SCHEMA}")
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
