"""Records: one line of JSON per question, appended and synced, and readable after any interruption.

A writer only appends to a file that it created and holds the lock of. So only the writer's own death can leave an
incomplete line, and that line is the last of its file: readers ignore it, and nothing is written after it.
"""

import hashlib
import json
import os
import re
import socket
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from gridprobe._util import parse_json
from gridprobe.errors import RunError
from gridprobe.record import LINE_SCHEMA, OUTCOMES, SCHEMAS, Record
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.disk import append, close, listed, new_file, one_sentence, readable, remove

WITHOUT_FLOATS = frozenset({"error"})
"""Fields that can be read from a record without its numbers with a fraction."""


class RecordWriter:
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
        line = sealed(json.dumps(record, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace"))
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


@dataclass
class Records:
    """The records of a folder, by question."""

    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The record that counts for each id: one with an answer if there is one, else the last attempt. After the video
    was replaced or the row changed, only attempts with the new one count."""
    attempts: dict[str, int] = field(default_factory=dict)
    """The highest attempt number for each id."""
    damage: list[str] = field(default_factory=list)
    """Lines in the middle of a file that are no records; their questions count as not asked."""
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
    """Whether two records are of different rows, as far as is known; see `gridprobe_eval.records`."""
    return None not in (old.get("row"), new.get("row")) and old["row"] != new["row"]


def _other_video(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two records are about different videos, as far as is known; see `gridprobe_eval.tasks`."""
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
        for each in read_file(file, floats=floats):
            if isinstance(each, str):
                records.damage.append(each)
            else:
                records.add(each if kept is None else {name: each[name] for name in kept if name in each})
    for name, row in (rows or {}).items():
        if name in records.best and _other_row(records.best[name], {"row": row}):
            del records.best[name]
    return records


def read_file(file: Path, *, floats: bool = True) -> Iterator[dict[str, Any] | str]:
    """The records of one file in order, and a sentence for any other line; an incomplete last line is ignored.

    Without `floats`, numbers with a fraction stay text; see `parse_json`.
    """
    offset = 0
    with readable(file):
        try:
            if not stat.S_ISREG(file.stat().st_mode):  # opening a pipe would wait for its writer
                yield f"{file.name}, byte 0: not a regular file"
                return
            stream = file.open("rb")
        except FileNotFoundError:  # its writer has just ended without a record
            return
        with stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                yield _parse(line, floats=floats) or f"{file.name}, byte {offset}: not a record"
                offset += len(line)


SEAL = re.compile(rb', "crc32": "([0-9a-f]{8})"}\n')
SEAL_SIZE = len(b', "crc32": "00000000"}\n')


def sealed(line: bytes) -> bytes:
    """A JSON object as a line that ends with the checksum of what is before: a flipped bit is noticed."""
    return b'%s, "crc32": "%08x"}\n' % (line[:-1], zlib.crc32(line[:-1]))


def _parse(line: bytes, *, floats: bool) -> dict[str, Any] | None:
    seal = SEAL.fullmatch(line[-SEAL_SIZE:])
    if seal is not None and int(seal[1], 16) != zlib.crc32(line[:-SEAL_SIZE]):
        return None
    try:
        record = parse_json(line, floats=floats)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("schema") not in SCHEMAS or record.get("outcome") not in OUTCOMES:
        return None
    if seal is None and record["schema"] == LINE_SCHEMA:
        return None
    record.pop("crc32", None)
    well = isinstance(record.get("id"), str) and type(record.get("attempt")) is int
    return record if well else None


# A run keeps the hash of each row in items.jsonl and in each record: a record of a row that was changed since is not
# counted, and a resumed run notices which rows were changed.

SHOWN = 10
"""This many names are in a sentence."""


def row_of(item: Item) -> str:
    """A hash of the row's question, options, right answer, group and subtitles.

    The video has its own identity, and paths may differ between machines.
    """
    question, track = item.question, item.subtitles
    content = [
        *(item.group, question.text, list(question.options), question.answer, question.subtitles),
        *(None if track is None else track.name, item.offset),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def other_rows(items: Iterable[Item], best: Mapping[str, Mapping[str, Any]]) -> list[Item]:
    """The items whose record is of a row that was changed since; a record without a hash counts as unchanged."""
    recorded = ((item, best.get(item.id, {}).get("row")) for item in items)
    return [item for item, row in recorded if row is not None and row != row_of(item)]


class RowChanges(NamedTuple):
    """Ids of rows that were changed, added or removed since a run was begun."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: Mapping[str, str | None], items: Sequence[Item]) -> "RowChanges":
        """From the hashes of the old rows by id, and the items of today."""
        new = {item.id: row_of(item) for item in items}
        return cls(
            tuple(name for name, row in new.items() if name in old and old[name] != row),
            tuple(name for name in new if name not in old),
            tuple(name for name in old if name not in new),
        )

    def __str__(self) -> str:
        parts = [f"{kind} {named(ids)}" for kind, ids in zip(self._fields, self, strict=True) if ids]
        return ", ".join(parts) or "no question changed"


def named(names: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def now() -> str:
    """The time, for records; nothing is decided by it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def of_run(
    record: Record, item: Item, *, attempt: int, worker: str, identity: Mapping[str, Any] | None = None
) -> Record:
    """A record with what a run notes of it; `identity` is that of the video, see `gridprobe_eval.tasks`."""
    return replace(
        record,
        id=item.id,
        group=item.group,
        row=row_of(item),
        attempt=attempt,
        worker=worker,
        at=now(),
        identity=identity,
    )
