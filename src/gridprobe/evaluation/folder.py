"""RunFolder: the files of a run, and the locks that decide who may write to them.

spec.json            everything that affects a result
items.jsonl          the questions, so that scoring does not need the benchmark
models.json          which models really answered, including weights and precision
records-*.jsonl      one line per question; each file has one writer
heartbeat-*.json     what each worker is doing
lock, lock-*         locked by the kernel for as long as a run is alive
"""

import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridprobe._util import parse_json
from gridprobe.benchmarks import Item
from gridprobe.errors import DataError, RunError, UsageError
from gridprobe.evaluation.disk import close, held, listed, lock, one_sentence, readable, remove, write_whole
from gridprobe.evaluation.reader import ITEM_FILE, read_items
from gridprobe.evaluation.records import RowChanges, now, row_of
from gridprobe.evaluation.spec import SPEC_FILE, Spec
from gridprobe.evaluation.tasks import Shard

__all__ = ["RunFolder", "clear_interruption", "interruptions", "write_interruption"]

OURS = re.compile(r"lock(-\d+of\d+)?|items\.jsonl|\..*\.tmp")
"""Files that a run which died before its first record may leave behind."""


class RunFolder:
    """The folder of one evaluation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def spec(self) -> Spec:
        """What the run was begun with."""
        return Spec.read(self.path)

    @contextmanager
    def taken(self, spec: Spec, items: Sequence[Item], shard: Shard, *, redo: bool = False) -> Iterator[RowChanges]:
        """Start or resume the run, and keep others from doing so at the same time.

        Shards of the same count may run at the same time, also on other machines. With `redo`, the run goes on with
        other rows of the benchmark; yields which ones.
        """
        with one_sentence(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with self._gate():
                stack.callback(close, self._take(shard))
                changes = RowChanges()
                if listed(self.path, SPEC_FILE):
                    changes = self._resume(spec, items, shard, redo=redo)
                else:
                    self._begin(spec, items)
                self._clean(shard)
            yield changes

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """Hold the folder's lock briefly, so that checking its state and acting on it is one step."""
        descriptor = lock(self.path / "lock", wait=True)
        assert descriptor is not None
        try:
            yield
        finally:
            close(descriptor)

    def _take(self, shard: Shard) -> int:
        mine = self.path / f"lock-{shard.name}"
        for other in listed(self.path, "lock-*"):
            overlaps = other == mine or not other.name.endswith(f"of{shard.count}")
            if overlaps and held(other):
                raise RunError(f"{self.path} is in use by {_holder(other)}; wait for it, or stop it first")
        for file in listed(self.path, "records-*.jsonl"):
            if self._concerns(file, shard) and held(file):
                raise RunError(f"a worker of an earlier run still writes {file}; stop it first")
        descriptor = lock(mine, wait=False)
        if descriptor is None:
            raise RunError(f"{self.path} is in use by {_holder(mine)}; wait for it, or stop it first")
        with one_sentence(mine):
            try:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            except OSError:
                close(descriptor)
                raise
        return descriptor

    def _concerns(self, file: Path, shard: Shard) -> bool:
        """Whether a record file may belong to an overlapping run: any file but those of other shards of this count."""
        match = re.match(r"records-s(\d+)of(\d+)\.", file.name)
        return not match or int(match[2]) != shard.count or int(match[1]) == shard.number

    def _begin(self, spec: Spec, items: Sequence[Item]) -> None:
        """Write the items, then the spec: if there is a spec, the items are complete."""
        strange = [each.name for each in listed(self.path, "*") if not OURS.fullmatch(each.name)]
        if strange:
            raise UsageError(f"{self.path} is not empty ({strange[0]}) and not a run; name a new folder with --out")
        self._write_items(items)
        self._write_spec(spec)

    def _resume(self, spec: Spec, items: Sequence[Item], shard: Shard, *, redo: bool) -> RowChanges:
        """Check that the run was begun with the same spec; with `redo`, the benchmark's rows may be others."""
        known = self.spec
        if not spec.other_rows_alone(known):
            spec.require_same(known, where=str(self.path))
            return RowChanges()
        changes = self._row_changes(items)
        if not redo:
            raise UsageError(
                f"{self.path} was begun with other rows ({changes}): benchmark_version was {known.benchmark_version!r} "
                f"and is now {spec.benchmark_version!r}; ask the changed rows again with --redo-changed, or "
                "name another folder with --out"
            )
        for other in self._others_alive(shard):
            raise RunError(f"{self.path} has other rows now but {other.name} is in use; stop that run first")
        self._replace_rows(replace(known, benchmark_version=spec.benchmark_version, data=spec.data), items)
        return changes

    def _row_changes(self, items: Sequence[Item]) -> RowChanges:
        old = {name: each.row for name, each in read_items(self.path).items()}
        if None in old.values():
            raise UsageError(
                f"{self.path} was begun with other rows, by a version that did not record them; name another folder "
                "with --out"
            )
        return RowChanges.between(old, items)

    def _replace_rows(self, spec: Spec, items: Sequence[Item]) -> None:
        """Write other items and their spec.

        If this is interrupted, the spec is that of no benchmark: the run is then refused, or this is done again.
        """
        self._write_spec(replace(spec, benchmark_version=f"unfinished change to {spec.benchmark_version}"))
        self._write_items(items)
        self._write_spec(spec)

    def _write_items(self, items: Sequence[Item]) -> None:
        lines = (json.dumps(_line(item), ensure_ascii=False, allow_nan=False) for item in items)
        write_whole(self.path / ITEM_FILE, "".join(line + "\n" for line in lines).encode("utf-8", "replace"))

    def _write_spec(self, spec: Spec) -> None:
        write_whole(self.path / SPEC_FILE, spec.to_json().encode("utf-8", "replace"))

    def _others_alive(self, shard: Shard) -> Iterator[Path]:
        """The locked files of other processes that use the folder."""
        for file in (*listed(self.path, "lock-*"), *listed(self.path, "records-*.jsonl")):
            if file.name != f"lock-{shard.name}" and held(file):
                yield file

    def _clean(self, shard: Shard) -> None:
        """Delete temporary files of processes that died, unless some process may still be writing one."""
        left = listed(self.path, ".gridprobe-*.tmp")
        if left and not any(self._others_alive(shard)):
            for file in left:
                remove(file)

    def claim(self, models: Sequence[str]) -> None:
        """Record which models answer, and at which exit; an error if others, even of the same name, answered before."""
        file = self.path / "models.json"
        with self._gate():
            try:
                with readable(file):
                    known = [str(each) for each in parse_json(file.read_bytes())] if file.is_file() else None
            except (ValueError, TypeError) as error:
                raise DataError(f"cannot read {file}: {error}") from error
            if known is None:
                write_whole(file, json.dumps(list(models)).encode())
                return
        if known != list(models):
            raise RunError(
                f"{self.path} was begun with the models {' and '.join(known)}, but these are {' and '.join(models)}: "
                "other weights, precision, device or calibration; name another folder with --out"
            )


def _line(item: Item) -> dict[str, Any]:
    question = item.question
    return {
        "id": item.id,
        "group": item.group,
        "row": row_of(item),
        "question": question.text,
        "options": list(question.options),
        "answer": question.answer,
        "bins": dict(item.bins),
        "video": str(item.video),
        "duration": item.duration,
        "extra": dict(item.extra),
    }


def _holder(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or "another run"
    except OSError:
        return "another run"


# Whether a run was interrupted by Ctrl-C or a signal: a file for each shard, which the next start removes.


def write_interruption(folder: Path, shard: str) -> None:
    """Keep that the user ended a run, so that its workers do not count as dead."""
    write_whole(folder / f"interrupted-{shard}.json", json.dumps({"at": now()}).encode())


def clear_interruption(folder: Path, shard: str) -> None:
    """The run goes on."""
    remove(folder / f"interrupted-{shard}.json")


def interruptions(folder: Path) -> list[str]:
    """The shards of a run that were interrupted and not started again."""
    return [file.stem.removeprefix("interrupted-") for file in listed(folder, "interrupted-*.json")]
