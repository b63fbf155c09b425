"""A run folder on a disk whose every operation fails in turn: nothing is lost, mixed, asked twice or left behind."""

import json
from pathlib import Path

import pytest

import toy_runs
from disk_faults import Crash, every_fault
from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import DataError, RunError
from gridprobe_eval import read_records, summary
from gridprobe_eval.benchmarks import Benchmark
from gridprobe_eval.folder import status
from gridprobe_eval.records import read_file
from gridprobe_eval.tasks import Totals
from toy_runs import evaluation, toy_benchmark


@pytest.fixture(autouse=True)
def decoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe.options.DECODE_IN", "process")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return toy_benchmark(tmp_path_factory.mktemp("data"), videos=1, questions=2)


def run(benchmark: Benchmark, out: Path, *stops: Totals) -> None:
    """Stop at these totals, go on without one, and read the progress."""
    for totals in (*stops, None):
        with evaluation(benchmark, out, model=toy_runs.model(), workers=0, totals=totals) as running:
            running.run()
    status(out)


def written(folder: Path) -> dict[str, str]:
    """Every complete line of the record files, by question."""
    lines = [line for file in folder.glob("records-*.jsonl") for line in read_file(file)]
    assert all(isinstance(line, dict) for line in lines), "no line is damaged"
    found = {str(line["id"]): json.dumps(line) for line in lines if isinstance(line, dict)}
    assert len(found) == len(lines), "no question has two records"
    return found


def test_every_fault_loses_nothing(toy: Benchmark, tmp_path: Path) -> None:
    run(toy, tmp_path / "whole")
    expected = summary(tmp_path / "whole")
    for disk in every_fault(tmp_path, ("EIO", "full", "crash")):
        done = [0]

        def note(event: ProgressEvent, done: list[int] = done) -> None:
            done[0] = max(done[0], event.done if event.stage == "questions" else 0)

        with disk, listening(note):
            try:
                run(toy, disk.place, Totals(tokens=1))
            except (RunError, DataError) as error:
                assert str(disk.place) in str(error)
            except Crash:
                pass
        before = written(disk.place)
        assert len(before) >= done[0], "what was reported as done is recorded"

        run(toy, disk.place)

        after = written(disk.place)
        assert before.items() <= after.items(), "what was recorded is not changed"
        assert summary(disk.place) == expected and not read_records(disk.place).damage
        left = {file.name for file in disk.place.iterdir() if not file.name.startswith("records-")}
        assert left == {"spec.json", "items.jsonl", "models.json", "lock", "lock-1of1"}
