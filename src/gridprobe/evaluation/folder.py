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
from pathlib import Path
from typing import Any

from gridprobe.benchmarks import Item
from gridprobe.errors import DataError, RunError, UsageError
from gridprobe.evaluation.disk import close, held, listed, lock, one_sentence, readable, remove, write_whole
from gridprobe.evaluation.spec import SPEC_FILE, Spec
from gridprobe.evaluation.tasks import Shard
from gridprobe.files import parse_json

__all__ = ["RunFolder"]

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
    def taken(self, spec: Spec, items: Sequence[Item], shard: Shard) -> Iterator[None]:
        """Start or resume the run, and keep others from doing so at the same time.

        Shards of the same count may run at the same time, also on other machines.
        """
        with one_sentence(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with self._gate():
                stack.callback(close, self._take(shard))
                self._begin(spec, items)
                self._clean(shard)
            yield

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
        present = [each.name for each in listed(self.path, "*")]
        if SPEC_FILE in present:
            spec.require_same(self.spec, where=str(self.path))
            return
        strange = [name for name in present if not OURS.fullmatch(name)]
        if strange:
            raise UsageError(f"{self.path} is not empty ({strange[0]}) and not a run; name a new folder with --out")
        lines = (json.dumps(_line(item), ensure_ascii=False, allow_nan=False) for item in items)
        write_whole(self.path / "items.jsonl", "".join(line + "\n" for line in lines).encode("utf-8", "replace"))
        write_whole(self.path / SPEC_FILE, spec.to_json().encode("utf-8", "replace"))

    def _clean(self, shard: Shard) -> None:
        """Delete temporary files of processes that died, unless some process may still be writing one."""
        left = listed(self.path, ".gridprobe-*.tmp")
        others = [*listed(self.path, "lock-*"), *listed(self.path, "records-*.jsonl")] if left else []
        if not any(held(file) for file in others if file.name != f"lock-{shard.name}"):
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
