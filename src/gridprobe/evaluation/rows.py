"""The rows of a benchmark: a hash of what an answer depends on, and how the rows of a run differ from those of today.

A run keeps the hash of a row in `items.jsonl` and in each record. So a record of a row that was changed since is never
counted, and a resumed run notices which rows were changed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gridprobe.benchmarks import Item

__all__ = ["RowChanges", "named", "other_rows", "row_of"]

SHOWN = 10
"""So many names are in a sentence."""


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
