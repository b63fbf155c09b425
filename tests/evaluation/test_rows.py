"""E14: rows that were added, removed or changed between two runs are named, and asked if the user says so."""

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import toy_runs
from evaluation_runs import made_older
from gridprobe._util import Disk
from gridprobe.errors import RunError, UsageError
from gridprobe_eval import disk, read_records, summary
from gridprobe_eval.benchmarks import Benchmark, load_benchmark
from gridprobe_eval.folder import status
from gridprobe_eval.reader import read_run
from toy_runs import here, lines, toy_benchmark

pytestmark = pytest.mark.usefixtures("decode_here")

Row = dict[str, Any]
Own = Callable[[list[Row]], Benchmark]
ROWS: list[Row] = [
    {"id": f"v{n}", "video": f"v{n}", "question": f"Is it <v{n}>?", "options": ["yes", "no"], "answer": "A"}
    for n in range(2)
]
OTHER = {
    "added": [*ROWS, {**ROWS[0], "id": "new", "question": "Is it <new>?"}],
    "removed": ROWS[:1],
    "changed": [ROWS[0], {**ROWS[1], "question": "Is it not <v1>?"}],
    "other options": [ROWS[0], {**ROWS[1], "options": ["no", "yes"]}],
    "other answer": [ROWS[0], {**ROWS[1], "answer": "B"}],
    "other subtitles": [ROWS[0], {**ROWS[1], "subtitles": "v1.srt"}],
    "other bins": [ROWS[0], {**ROWS[1], "bins": {"topic": "news"}}],
}
"""The rows of a second start."""


@pytest.fixture(autouse=True)
def _calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(toy_runs.CALLS, str(tmp_path / "calls"))


@pytest.fixture
def own(tmp_path: Path) -> Own:
    """Writes rows to the file of a benchmark and loads it."""
    toy_benchmark(tmp_path / "data", videos=2)

    def load(rows: list[Row]) -> Benchmark:
        file = tmp_path / "data" / "own.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return load_benchmark("jsonl", file)

    return load


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("added", "added new"),
        ("removed", "removed v1"),
        *((what, "changed v1") for what in ("changed", "other options", "other answer", "other subtitles")),
        ("other bins", "no question changed"),
    ],
)
def test_e14_other_rows_are_refused_by_name_and_never_mixed(own: Own, tmp_path: Path, what: str, named: str) -> None:
    here(own(ROWS), tmp_path / "run")
    before = summary(tmp_path / "run")

    with pytest.raises(UsageError, match=rf"other rows \({named}\): benchmark_version was .*with --redo-changed, or"):
        here(own(OTHER[what]), tmp_path / "run")

    assert summary(tmp_path / "run") == before
    here(own(ROWS), tmp_path / "run")
    assert toy_runs.calls() == Counter(["v0", "v1"])


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        ("added", ["new"]),
        ("removed", []),
        *((what, ["v1"]) for what in ("changed", "other options", "other answer", "other subtitles")),
        ("other bins", []),
    ],
)
def test_e14_the_changed_rows_alone_are_asked_again(own: Own, tmp_path: Path, what: str, asked: list[str]) -> None:
    out = tmp_path / "run"
    here(own(ROWS), out)
    first, before = read_records(out).best, toy_runs.calls()

    here(own(OTHER[what]), out, redo_changed=True)
    assert toy_runs.calls() - before == Counter(asked)
    here(own(OTHER[what]), out)
    here(own(OTHER[what]), out, redo_changed=True)
    assert toy_runs.calls() - before == Counter(asked), "once is enough"

    here(own(OTHER[what]), tmp_path / "fresh")
    assert {**summary(out), "foreign": 0} == summary(tmp_path / "fresh")
    assert summary(out)["foreign"] == (what == "removed")
    found = read_records(out)
    assert found.best["v0"] == first["v0"] and not found.repeated
    assert read_run(out).version == own(OTHER[what]).version


def test_e14_an_added_removed_and_changed_row_are_named_in_one_line(own: Own, tmp_path: Path) -> None:
    here(own(ROWS), tmp_path / "run")
    other = own([{**ROWS[0], "question": "Is it <v0> now?"}, {**ROWS[1], "id": "new"}])

    with toy_runs.evaluation(other, tmp_path / "run", model=toy_runs.model(), redo_changed=True) as running:
        assert str(running.rows) == "changed v0, added new, removed v1"
        assert str(running.counts) == "0 done, 0 failed, 2 to do"


def test_e14_a_failure_of_a_changed_row_is_asked_again(own: Own, tmp_path: Path) -> None:
    here(own([ROWS[0], {**ROWS[1], "question": "It fails"}]), tmp_path / "run", max_failures=1)

    result = here(own(ROWS), tmp_path / "run", redo_changed=True)

    assert (result["all"]["answered"], result["all"]["failed"]) == (2, 0)
    assert read_records(tmp_path / "run").best["v1"]["attempt"] == 2


def test_e14_an_answer_wins_no_longer_than_its_row_is_there(own: Own, tmp_path: Path) -> None:
    """An answer wins over a later failure only if both are of the same row."""
    here(own(ROWS), tmp_path / "run")

    result = here(own([ROWS[0], {**ROWS[1], "question": "It fails"}]), tmp_path / "run", redo_changed=True)

    assert (result["all"]["answered"], result["all"]["failed"]) == (1, 1)


class Stopping(Disk):
    """Fails at the n-th step to the disk."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise OSError(5, "stopped")

    def write(self, descriptor: int, content: bytes) -> int:
        self._count()
        return super().write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)


def test_e14_interrupted_at_any_step_no_answer_counts_for_another_row(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = own(ROWS), own(OTHER["other answer"])
    expected = {each.version: here(each, tmp_path / each.version)["all"]["accuracy"] for each in (old, new)}
    assert len(set(expected.values())) == 2
    ended = False
    for step in range(1, 100):
        out = tmp_path / f"run{step}"
        here(old, out)
        monkeypatch.setattr(disk, "DISK", Stopping(step))
        try:
            here(new, out, redo_changed=True)
            ended = True
        except RunError:
            shown = status(out)
            assert shown["done"] + shown["missing"] == 2
        monkeypatch.setattr(disk, "DISK", Disk())
        for benchmark in (old, new):
            again = partial(here, benchmark, out)
            try:
                result = again()
            except (RunError, UsageError) as error:
                assert "--redo-changed" in str(error)
                result = again(redo_changed=True)
            assert read_run(out).version == benchmark.version
            assert result["all"]["missing"] == 0 and result["all"]["accuracy"] == expected[benchmark.version]
        if ended:
            break
    assert ended and step > 8


def test_e14_until_they_are_asked_again_changed_rows_count_as_missing(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    here(own(ROWS), out)
    with toy_runs.evaluation(own(OTHER["changed"]), out, model=toy_runs.model(), redo_changed=True):
        pass  # stopped before the first question

    assert summary(out)["all"]["missing"] == 1 and status(out)["missing"] == 1
    with pytest.raises(RunError, match=r"answers from rows that were changed since: v1; ask these 1 .*--redo-changed"):
        here(own(OTHER["changed"]), out)


def test_e14_rows_are_not_replaced_while_another_shard_runs(own: Own, tmp_path: Path) -> None:
    here(own(ROWS), tmp_path / "run")
    with (
        toy_runs.evaluation(own(ROWS), tmp_path / "run", shard="1/2", model=toy_runs.model()),
        pytest.raises(RunError, match=r"lock-1of2 is in use; stop that run first"),
    ):
        here(own(OTHER["changed"]), tmp_path / "run", shard="2/2", redo_changed=True)
    orphan = disk.new_file(tmp_path / "run" / "records-s1of2.w9-host-1-0.jsonl")
    assert orphan is not None
    with closing(os.fdopen(orphan)), pytest.raises(RunError, match=r"records-s1of2.* is in use"):
        here(own(OTHER["changed"]), tmp_path / "run", shard="2/2", redo_changed=True)

    assert lines(tmp_path / "run") == Counter(["v0", "v1"])


def test_a_run_of_an_older_version_has_no_rows_and_goes_on_only_with_the_same(own: Own, tmp_path: Path) -> None:
    here(own(ROWS), tmp_path / "run")
    made_older(tmp_path / "run", "row")

    here(own(ROWS), tmp_path / "run")
    with pytest.raises(UsageError, match="by a version that did not record them; name another folder"):
        here(own(OTHER["changed"]), tmp_path / "run", redo_changed=True)

    assert toy_runs.calls() == Counter(["v0", "v1"])
