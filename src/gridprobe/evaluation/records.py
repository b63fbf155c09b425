"""Records: one line of JSON per question, appended and synced, and read back whatever happened in between.

A writer only ever appends to a file it created itself and holds the lock of. So no line is torn by anyone but the
writer's own death, and such a line is the last of its file: a reader leaves it out, and nobody writes behind it.
"""

import json
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from gridprobe.errors import RunError
from gridprobe.evaluation.disk import append, new_file, one_sentence
from gridprobe.files import parse_json

__all__ = ["OUTCOMES", "SCHEMA", "Damage", "Records", "Writer", "read_file", "read_records"]

SCHEMA = "gridprobe.record/1"
OUTCOMES = ("answered", "failed", "skipped")


class Writer:
    """A file of records that no other process writes to."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.worker = worker
        host = re.sub(r"[^A-Za-z0-9.]", "", socket.gethostname()) or "host"
        for number in count():
            self.path = folder / f"records-{worker}-{host}-{os.getpid()}-{number}.jsonl"
            descriptor = new_file(self.path)
            if descriptor is not None:
                break
        self._descriptor: int | None = descriptor
        self._size = 0

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; when this returns it is on the disk. After a failure the writer is of no more use."""
        if self._descriptor is None:
            raise RunError(f"{self.path} is closed")
        line = json.dumps(record, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        with one_sentence(self.path):
            try:
                self._size = append(self._descriptor, line, size=self._size)
            except OSError:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file, and of an empty one for good."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            if not self._size:
                self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Damage:
    """A line in the middle of a file that is no record: its question is taken as not asked."""

    file: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset}: {self.what}"


@dataclass
class Records:
    """What a folder knows about its questions."""

    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each id the record that counts: one with an answer before one without, else the last attempt."""
    attempts: dict[str, int] = field(default_factory=dict)
    """The highest number of an attempt at each id."""
    damage: list[Damage] = field(default_factory=list)
    repeated: set[str] = field(default_factory=set)
    """Ids with more than one answer. There should be none; the last is counted, once."""

    def add(self, record: dict[str, Any]) -> None:
        """Take one more record into account."""
        name, old = record["id"], self.best.get(record["id"])
        if old is None or _rank(record) >= _rank(old):
            self.best[name] = record
        if old is not None and old["outcome"] == record["outcome"] == "answered":
            self.repeated.add(name)
        self.attempts[name] = max(self.attempts.get(name, 0), record["attempt"])

    def ids(self, outcome: str) -> set[str]:
        """The ids whose record has this outcome."""
        return {name for name, record in self.best.items() if record["outcome"] == outcome}


def _rank(record: Mapping[str, Any]) -> tuple[bool, int]:
    return record["outcome"] == "answered", record["attempt"]


def read_records(folder: Path, *, fields: Collection[str] | None = None) -> Records:
    """Read all records of a run; only `fields` of each are kept where memory matters, besides what tells them apart."""
    kept = None if fields is None else {"id", "outcome", "attempt", *fields}
    records = Records()
    for file in sorted(folder.glob("records-*.jsonl")):
        for found in read_file(file):
            if isinstance(found, Damage):
                records.damage.append(found)
            else:
                records.add(found if kept is None else {name: found[name] for name in kept if name in found})
    return records


def read_file(file: Path) -> Iterator[dict[str, Any] | Damage]:
    """The records of one file in order, and what is not one. A last line without its end was never finished."""
    offset = 0
    with file.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            yield _parse(line) or Damage(file.name, offset, "not a record")
            offset += len(line)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or record.get("outcome") not in OUTCOMES:
        return None
    well = isinstance(record.get("id"), str) and type(record.get("attempt")) is int
    return record if well else None
