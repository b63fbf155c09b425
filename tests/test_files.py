"""Strict JSON, files that are written completely or not at all, and the cores a process may use."""

import errno
import os
from pathlib import Path

import pytest

from gridprobe._util import Disk, parse_json, usable_cores, write_whole


class Recording(Disk):
    """Writes three bytes at a time, keeps a list of the calls, and fails at one kind of call."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self.fails = fails

    def _call(self, kind: str) -> None:
        self.calls.append(kind)
        if kind == self.fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, descriptor: int, content: bytes) -> int:
        self._call("write")
        return super().write(descriptor, content[:3])

    def sync(self, descriptor: int) -> None:
        self._call("sync")
        super().sync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        self._call("replace")
        super().replace(source, target)


@pytest.mark.parametrize("text", ["NaN", '{"a": [-Infinity]}', "[" * 100_000, "9" * 5000, "{", b"\xff", ""])
def test_what_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_json_is_parsed_from_text_and_bytes() -> None:
    assert parse_json('{"a": [1.5, null]}') == parse_json(b'{"a": [1.5, null]}') == {"a": [1.5, None]}


@pytest.mark.parametrize(
    ("durable", "calls"), [(False, ["write"] * 3 + ["replace"]), (True, ["write"] * 3 + ["sync", "replace", "sync"])]
)
def test_a_file_is_complete_before_it_gets_its_name(tmp_path: Path, durable: bool, calls: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"old")
    disk = Recording()

    write_whole(tmp_path / "file", b"contents", durable=durable, disk=disk)

    assert disk.calls == calls
    assert (tmp_path / "file").read_bytes() == b"contents"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("fails", ["write", "sync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, fails: str) -> None:
    (tmp_path / "file").write_bytes(b"old")

    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", b"contents", durable=True, disk=Recording(fails))

    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_only_cores_this_process_may_use_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64


def test_without_floats_numbers_with_a_fraction_stay_text() -> None:
    assert parse_json(b'{"a": [1, 2.5, -1e400]}', floats=False) == {"a": [1, "2.5", "-1e400"]}
    with pytest.raises(ValueError):
        parse_json('{"a": NaN}', floats=False)
