"""Records: one line of JSON per question, appended and synced, and readable after any interruption.

A writer only appends to a file that it created and holds the lock of. So only the writer's own death can leave an
incomplete line, and that line is the last of its file: readers ignore it, and nothing is written after it.
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
from gridprobe.evaluation.disk import append, close, listed, new_file, one_sentence, readable, remove
from gridprobe.files import parse_json

__all__ = ["OUTCOMES", "SCHEMA", "Damage", "Records", "Writer", "read_file", "read_records"]

SCHEMA = "gridprobe.record/1"
OUTCOMES = ("answered", "failed", "skipped")
WITHOUT_FLOATS = frozenset({"error"})
"""Fields that can be read from a record without its numbers with a fraction."""


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
        """Append a record; when this returns it is on the disk. After a failure the writer is closed."""
        if self._descriptor is None:
            raise RunError(f"{self.path} is closed")
        line = json.dumps(record, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with one_sentence(self.path):
            try:
                self._size = append(self._descriptor, line, size=self._size)
            except OSError:
                self.close()
                raise

    def close(self) -> None:
        """Close the file, and delete it if it is empty."""
        if self._descriptor is not None:
            close(self._descriptor)
            self._descriptor = None
            if not self._size:
                remove(self.path)


@dataclass(frozen=True)
class Damage:
    """A line in the middle of a file that is not a record; its question counts as not asked."""

    file: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset}: {self.what}"


@dataclass
class Records:
    """The records of a folder, by question."""

    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The record that counts for each id: one with an answer if there is one, else the last attempt. After the video
    was replaced or the row changed, only attempts with the new one count."""
    attempts: dict[str, int] = field(default_factory=dict)
    """The highest attempt number for each id."""
    damage: list[Damage] = field(default_factory=list)
    repeated: set[str] = field(default_factory=set)
    """Ids with more than one answer. There should be none; only the last one counts."""

    def add(self, record: dict[str, Any]) -> None:
        """Add a record."""
        name, old = record["id"], self.best.get(record["id"])
        again = old is not None and (_other_row(old, record) or _other_video(old, record))
        if old is None or (record["attempt"] > old["attempt"] if again else _rank(record) >= _rank(old)):
            self.best[name] = record
        if old is not None and old["outcome"] == record["outcome"] == "answered" and not again:
            self.repeated.add(name)
        self.attempts[name] = max(self.attempts.get(name, 0), record["attempt"])

    def ids(self, outcome: str) -> set[str]:
        """The ids whose record has this outcome."""
        return {name for name, record in self.best.items() if record["outcome"] == outcome}

    @property
    def transient(self) -> set[str]:
        """The ids that failed for a reason that may be gone, so that a resumed run asks them again."""
        return {name for name in self.ids("failed") if self.best[name].get("transient") is True}


def _other_row(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two records are of different rows, as far as is known; see `gridprobe.evaluation.rows`."""
    return None not in (old.get("row"), new.get("row")) and old["row"] != new["row"]


def _other_video(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two records are about different videos, as far as is known; see `gridprobe.evaluation.identity`."""
    before, after = old.get("identity"), new.get("identity")
    if before == after or not isinstance(before, dict) or not isinstance(after, dict):
        return False
    return any(before.get(name) != after.get(name) for name in ("size", "sample"))


def _rank(record: Mapping[str, Any]) -> tuple[bool, int]:
    return record["outcome"] == "answered", record["attempt"]


def read_records(
    folder: Path, *, fields: Collection[str] | None = None, rows: Mapping[str, str | None] | None = None
) -> Records:
    """Read all records of a run; to save memory, keep only `fields`, and what decides which record counts.

    With the hashes of the run's `rows` by id, records of rows that were changed since do not count.
    """
    kept = None if fields is None else {"id", "outcome", "attempt", "identity", "row", *fields}
    floats = fields is None or not WITHOUT_FLOATS.issuperset(fields)
    records = Records()
    for file in listed(folder, "records-*.jsonl"):
        for found in read_file(file, floats=floats):
            if isinstance(found, Damage):
                records.damage.append(found)
            else:
                records.add(found if kept is None else {name: found[name] for name in kept if name in found})
    for name, row in (rows or {}).items():
        if name in records.best and _other_row(records.best[name], {"row": row}):
            del records.best[name]
    return records


def read_file(file: Path, *, floats: bool = True) -> Iterator[dict[str, Any] | Damage]:
    """The records of one file in order, and a Damage for any other line; an incomplete last line is ignored.

    Without `floats`, numbers with a fraction stay text; see `parse_json`.
    """
    offset = 0
    with readable(file):
        try:
            stream = file.open("rb")
        except FileNotFoundError:  # its writer has just ended without a record
            return
        with stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                yield _parse(line, floats=floats) or Damage(file.name, offset, "not a record")
                offset += len(line)


def _parse(line: bytes, *, floats: bool) -> dict[str, Any] | None:
    try:
        record = parse_json(line, floats=floats)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or record.get("outcome") not in OUTCOMES:
        return None
    well = isinstance(record.get("id"), str) and type(record.get("attempt")) is int
    return record if well else None
