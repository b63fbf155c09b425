"""Journal: the jobs that a server has not ended, beside its uploads, so that the next server can report them.

It is a file of JSON lines. A line gives a job's id and a state; a job whose last state is `queued` or `interrupted` was
never ended. Questions, answers and users are not written.
"""

import json
import logging
import math
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from gridprobe.files import parse_json, write_whole

__all__ = ["Journal", "Left", "left_in"]

LOG = logging.getLogger("gridprobe.serving")
NAME = "jobs.jsonl"
MOST_LINES = 4096
"""Lines after which the file is written anew, with the jobs that have not ended."""
LONGEST_LINE = 300
MOST_BYTES = 4 << 20
"""What is read of a journal; many times what `MOST_LINES` take."""
ID = re.compile(r"[0-9a-f]{32,64}")
NUMBERS = {"queued": ("created",), "interrupted": ("created", "ended")}
"""States of jobs that have not ended, and the times that their lines have."""


@dataclass(frozen=True)
class Left:
    """A job that a server did not end."""

    id: str
    created: float
    ended: float | None = None
    """When a later server marked it as interrupted."""

    def line(self) -> bytes:
        """Its line in a journal."""
        if self.ended is None:
            return _line(id=self.id, state="queued", created=self.created)
        return _line(id=self.id, state="interrupted", created=self.created, ended=self.ended)


class Journal:
    """The journal of a running server. A disk that is full or fails is logged once and fails no job."""

    def __init__(self, folder: Path, left: Sequence[Left] = ()) -> None:
        """A journal that is written from `start` on.

        Args:
            folder: where the file is.
            left: jobs of servers that died.
        """
        self._path = folder / NAME
        self._left = left
        self._lock = Lock()
        self._unfinished: dict[str, Left] = {}
        self._handle: int | None = None
        self._lines = 0
        self._closed = self._failed = False

    def start(self, *, now: float, since: float, most: int) -> list[Left]:
        """Begin to write; returns the jobs that are interrupted: the latest ones, marked not before `since`."""
        marked = [replace(each, ended=now if each.ended is None else min(each.ended, now)) for each in self._left]
        marked.sort(key=lambda each: (each.ended or 0.0, each.created))
        kept = [each for each in marked if (each.ended or 0.0) >= since][-most:]
        if kept:
            LOG.warning("%d jobs of a server that was killed are marked as interrupted", len(kept))
        with self._lock:
            self._unfinished = {each.id: each for each in kept}
            self._write(None)
        return kept

    def begin(self, id: str, created: float) -> None:
        """A job was accepted."""
        with self._lock:
            self._unfinished[id] = Left(id, created)
            self._write(self._unfinished[id].line())

    def end(self, id: str, state: str) -> None:
        """A job has ended, or nobody may ask for it any more."""
        with self._lock:
            if self._unfinished.pop(id, None) is not None:
                self._write(_line(id=id, state=state))

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self._closed = True
            self._release()

    def _write(self, line: bytes | None) -> None:
        """Append a line; write the file anew if there is none, if it is long, or after a failure."""
        if self._closed:
            return
        try:
            if line is None or self._handle is None or self._lines >= MOST_LINES + len(self._unfinished):
                self._write_anew()
            else:
                while line:
                    line = line[os.write(self._handle, line) :]
                self._lines += 1
            self._failed = False
        except OSError as error:
            self._release()
            if not self._failed:
                LOG.warning("the journal of jobs cannot be written: %s; after a crash they are unknown", error.strerror)
            self._failed = True

    def _write_anew(self) -> None:
        self._release()
        write_whole(self._path, b"".join(each.line() for each in self._unfinished.values()))
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(self._unfinished)

    def _release(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with suppress(OSError):  # nothing is written to it any more
                os.close(handle)


def left_in(folder: Path) -> list[Left]:
    """The jobs that the journal in a folder does not end; none if there is no journal or it is not this user's."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return []
        try:
            content = file.read(MOST_BYTES)
        except OSError:
            return []
    left: dict[str, Left] = {}
    for line in content.splitlines():
        with suppress(ValueError, TypeError, KeyError):  # a crash or a full disk may leave a part of a line
            entry = parse_json(line) if len(line) <= LONGEST_LINE else {}
            left.pop(entry["id"], None)
            if entry["state"] in NUMBERS:
                left[entry["id"]] = _left(entry)
    return list(left.values())


def _left(entry: dict[str, Any]) -> Left:
    """The job of a line; a ValueError if it is not one of ours."""
    numbers = {name: entry[name] for name in NUMBERS[entry["state"]]}
    if not ID.fullmatch(entry["id"]) or not all(map(_is_time, numbers.values())):
        raise ValueError("a line of a journal is damaged")
    return Left(entry["id"], **numbers)


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _line(**values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"
