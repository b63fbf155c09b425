"""Records survive what files suffer: torn lines, garbage, full and failing disks."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridprobe._util import Disk, parse_json
from gridprobe.errors import RunError
from gridprobe.record import LINE_SCHEMA
from gridprobe_eval import disk
from gridprobe_eval.disk import held
from gridprobe_eval.records import Records, RecordWriter, read_file, read_records


def record(name: str, outcome: str = "answered", attempt: int = 1, **more: object) -> dict[str, object]:
    return {"schema": LINE_SCHEMA, "id": name, "outcome": outcome, "attempt": attempt, **more}


def three(folder: Path) -> Path:
    writer = RecordWriter(folder, "w0")
    for name in ("a", "b", "ü\u2028c"):
        writer.write(record(name))
    writer.close()
    return writer.path


class Failing(Disk):
    """A disk whose n-th call of one kind fails."""

    def __init__(self, kind: str, at: int, code: int) -> None:
        self.kind, self.left, self.code = kind, at, code

    def _maybe(self, kind: str) -> None:
        self.left -= kind == self.kind
        if self.left == 0:
            self.left = -1
            raise OSError(self.code, os.strerror(self.code))

    def write(self, descriptor: int, content: bytes) -> int:
        self._maybe("write")
        return super().write(descriptor, content[: len(content) // 2] if self.kind == "short" else content)

    def sync(self, descriptor: int) -> None:
        self._maybe("sync")
        super().sync(descriptor)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    file = three(tmp_path)

    assert list(read_file(file)) == [record("a"), record("b"), record("ü\u2028c")]
    assert read_records(tmp_path).damage == []


# E04 of tests/reliability.md
def test_a_line_torn_at_any_byte_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    file = three(tmp_path)
    whole = file.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1

    for cut in range(start, len(whole)):
        file.write_bytes(whole[:cut])
        found = read_records(tmp_path)
        assert (list(found.best), found.damage) == (["a", "b"], [])


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_line_is_noticed(tmp_path: Path, bit: int) -> None:
    file = three(tmp_path)
    whole = file.read_bytes()
    end = whole.index(b"\n")

    for place in range(end):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        found = read_records(tmp_path)
        assert found.damage and "a" not in found.best, place
        assert list(found.best)[-1] == "ü\u2028c"


def test_a_pipe_with_the_name_of_records_holds_nobody_up(tmp_path: Path) -> None:
    three(tmp_path)
    os.mkfifo(tmp_path / "records-x.jsonl")

    found = read_records(tmp_path)

    assert len(found.best) == 3 and found.damage == ["records-x.jsonl, byte 0: not a regular file"]
    assert not held(tmp_path / "records-x.jsonl")


# E04 of tests/reliability.md
def test_nobody_writes_behind_a_torn_line(tmp_path: Path) -> None:
    file = three(tmp_path)
    file.write_bytes(file.read_bytes()[:-3])
    torn = file.read_bytes()

    again = RecordWriter(tmp_path, "w0")
    again.write(record("c"))
    again.close()

    assert again.path != file and file.read_bytes() == torn
    assert sorted(read_records(tmp_path).best) == ["a", "b", "c"]


@pytest.mark.parametrize("garbage", [b"\0" * 40, b"{", b"[]", b'{"id": "b"}', b"\xff\xfe", b"[" * 100_000])
def test_garbage_in_the_middle_costs_its_line_and_is_told_with_its_place(tmp_path: Path, garbage: bytes) -> None:
    file = three(tmp_path)
    lines = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([lines[0], garbage, *lines[2:]]))

    found = read_records(tmp_path)

    assert sorted(found.best) == ["a", "ü\u2028c"]
    assert found.damage == [f"{file.name}, byte {len(lines[0]) + 1}: not a record"]


@pytest.mark.parametrize(("kind", "code"), [("write", errno.ENOSPC), ("short", errno.ENOSPC), ("sync", errno.EIO)])
def test_a_failing_disk_is_one_sentence_and_nothing_is_counted_that_is_not_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: int
) -> None:
    writer = RecordWriter(tmp_path, "w0")
    writer.write(record("a"))
    monkeypatch.setattr(disk, "DISK", Failing(kind, 1, code))

    with pytest.raises(RunError, match=rf"^cannot write .*{os.strerror(code)}; what was recorded before is safe"):
        writer.write(record("b"))

    assert list(read_records(tmp_path).best) == ["a"]
    assert writer.path.read_bytes().endswith(b"\n")
    with pytest.raises(RunError, match="closed"):  # after a failed sync nobody knows what the disk has
        writer.write(record("c"))


def test_a_lock_is_given_back_although_a_process_that_was_just_started_has_its_descriptor(tmp_path: Path) -> None:
    descriptor = disk.lock(tmp_path / "lock", wait=False)
    assert descriptor is not None and disk.held(tmp_path / "lock")
    child = os.dup(descriptor)  # as after fork and before exec

    disk.close(descriptor)

    assert not disk.held(tmp_path / "lock")
    os.close(child)


def test_a_lock_that_is_about_to_be_given_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = disk.lock(tmp_path / "lock", wait=False)
    assert descriptor is not None
    monkeypatch.setattr("gridprobe_eval.disk.time.sleep", lambda seconds: disk.close(descriptor))

    assert disk.held(tmp_path / "lock") and not disk.stays_held(tmp_path / "lock")


def test_a_writers_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, "w0")
    writer.write(record("a"))

    assert held(writer.path)
    writer.close()
    assert not held(writer.path)


def test_two_writers_of_one_process_and_name_have_two_files(tmp_path: Path) -> None:
    first, second = RecordWriter(tmp_path, "w0"), RecordWriter(tmp_path, "w0")

    assert first.path != second.path
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == [], "a file without records is not left behind"


@given(st.permutations([("failed", 1), ("failed", 2), ("answered", 3), ("failed", 4)]))
def test_an_answer_wins_over_failures_in_any_order(order: list[tuple[str, int]]) -> None:
    records = Records()
    for outcome, attempt in order:
        records.add(record("a", outcome, attempt))

    assert (records.best["a"]["attempt"], records.attempts["a"], records.repeated) == (3, 4, set())


# E11 of tests/reliability.md
def test_of_failures_the_last_attempt_counts_and_two_answers_are_told(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, "w0")
    for each in (record("a", "failed", 2), record("a", "failed", 1), record("b"), record("b", right=True)):
        writer.write(each)
    writer.close()

    found = read_records(tmp_path)

    assert found.best["a"]["attempt"] == 2
    assert found.repeated == {"b"} and found.best["b"]["right"]


@pytest.mark.parametrize("backwards", [False, True])
def test_e11_of_two_answers_in_two_files_the_same_counts_in_any_order_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    for name in ("w0", "w1", "w2"):
        writer = RecordWriter(tmp_path, name)
        writer.write(record("a", worker=name))
        writer.close()
    names = sorted(os.listdir(tmp_path), reverse=backwards)
    monkeypatch.setattr(os, "listdir", lambda _: names)

    found = read_records(tmp_path)

    assert found.best["a"]["worker"] == "w2" and found.repeated == {"a"}


# E23 of tests/reliability.md
def test_only_the_fields_asked_for_are_kept(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, "w0")
    writer.write(record("a", right=True, selection={"indices": list(range(144))}))
    writer.close()

    assert read_records(tmp_path, fields=("right",)).best["a"] == {
        "id": "a",
        "outcome": "answered",
        "attempt": 1,
        "right": True,
    }


def test_numbers_that_are_not_json_are_refused_and_not_half_written(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, "w0")
    with pytest.raises(ValueError):
        writer.write(record("a", confidence=float("nan")))
    writer.write(record("b"))
    writer.close()

    assert json.loads(writer.path.read_text())["id"] == "b"


@pytest.mark.parametrize(
    ("fields", "floats"), [((), False), (("error",), False), (("cost", "seconds"), True), (None, True)]
)
def test_numbers_are_parsed_only_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: tuple[str, ...] | None, floats: bool
) -> None:
    """E23: parsing them is a large part of scanning 100,000 records; see speed/records.py."""
    asked: list[bool] = []

    def watched(text: bytes, *, floats: bool) -> object:
        asked.append(floats)
        return parse_json(text, floats=floats)

    monkeypatch.setattr("gridprobe_eval.records.parse_json", watched)
    writer = RecordWriter(tmp_path, "w0")
    writer.write(record("a", cost={"tflops": 4.5}))
    writer.write(record("b", "failed"))
    writer.close()

    found = read_records(tmp_path, fields=fields)

    assert asked == [floats, floats] and found.ids("answered") == {"a"} and found.ids("failed") == {"b"}
    assert not floats or found.best["a"]["cost"]["tflops"] == 4.5
