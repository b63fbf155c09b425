"""Faults between two starts of a run: damage, signals, other settings, other data, other clocks, moved folders."""

import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import toy_runs
from gridprobe import MockModel
from gridprobe.errors import RunError, UsageError
from gridprobe_eval import read_records, summary
from gridprobe_eval.benchmarks import Benchmark
from gridprobe_eval.folder import status
from toy_runs import has_lines, here, ids, kill_when, lines, toy_benchmark

pytestmark = pytest.mark.usefixtures("decode_here")


@pytest.fixture(autouse=True)
def _calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(toy_runs.CALLS, str(tmp_path / "calls"))


@pytest.fixture
def toy(tmp_path: Path) -> Benchmark:
    return toy_benchmark(tmp_path / "data")


def content(folder: Path) -> dict[str, bytes]:
    """Every file but the locks."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith("lock")}


@pytest.mark.parametrize("garbage", [b"\0" * 300, b'{"id": "v0-q1"}', b"\xff\xfe{"])
def test_e05_a_damaged_record_is_reported_with_its_place_and_its_question_alone_asked_again(
    toy: Benchmark, tmp_path: Path, garbage: bytes
) -> None:
    here(toy, tmp_path / "run")
    (file,) = (tmp_path / "run").glob("records-*.jsonl")
    first, _, *rest = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([first, garbage, *rest]))

    assert read_records(tmp_path / "run").damage == [f"{file.name}, byte {len(first) + 1}: not a record"]
    result = here(toy, tmp_path / "run")

    assert toy_runs.calls() == Counter(ids(toy)) + Counter(["v0-q1"])
    assert result["all"]["answered"] == 6
    (reported,) = status(tmp_path / "run")["damage"]
    assert file.name in reported and str(len(first) + 1) in reported


# SIGHUP and SIGUSR1 take the same way as the first two.
@pytest.mark.parametrize(
    "by",
    [
        signal.SIGINT,
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.release),
        pytest.param(signal.SIGUSR1, marks=pytest.mark.release),
    ],
    ids=lambda by: by.name,
)
def test_e06_a_signal_ends_a_run_and_its_workers_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    toy = toy_benchmark(tmp_path / "data", videos=12, questions=1)
    monkeypatch.setenv(toy_runs.GATE, str(tmp_path / "gate"))
    with closing(toy_runs.Gate(tmp_path / "gate")) as gate:
        gate.let(3)
        code = kill_when(partial(has_lines, tmp_path / "run", 3), tmp_path, 2, by)
    monkeypatch.delenv(toy_runs.GATE)
    asked = toy_runs.calls()

    here(toy, tmp_path / "run", model=None, workers=1)

    assert code == -by
    assert lines(tmp_path / "run") == Counter(ids(toy))
    again = toy_runs.calls() - asked
    assert again.total() == 9, "the three recorded questions are not asked again"


@pytest.mark.parametrize("place", ["/proc/gridprobe-run", "/dev/null/run", "FILE/run"])
def test_e08_a_folder_that_cannot_be_written_is_found_before_the_model_is_loaded(
    toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "FILE").touch()
    monkeypatch.setattr(toy_runs.ToyModel, "load", lambda *_, **__: pytest.fail("loaded"))

    with pytest.raises((RunError, UsageError), match=r"^[^\n]*run[^\n]*$"):
        here(toy, tmp_path / place, model=None, workers=0)


def test_e08_64_open_files_are_enough(tmp_path: Path) -> None:
    toy = toy_benchmark(tmp_path / "data", videos=12, questions=1)
    command = [sys.executable, toy_runs.__file__, str(tmp_path / "data"), str(tmp_path / "run"), "2"]
    done = subprocess.run(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path / "run") == Counter(ids(toy))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"k": 3}, "k was 2"),
        ({"model": MockModel(toy_runs.answer, name="other")}, "toy"),
        ({"template": "paper"}, "template"),
        ({"packing": "pairs"}, "packing"),
        ({"precision": "keyframe"}, "precision"),
        ({"limit": 4}, "limit was null"),
        ({"subtitles": "concat"}, "subtitles was"),
        ({"benchmark": "other"}, "benchmark was"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_e13_other_settings_are_refused_with_their_name_and_the_folder_stays(
    toy: Benchmark, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    here(toy, tmp_path / "run", shard="1/2")
    before, asked = content(tmp_path / "run"), toy_runs.calls()

    with pytest.raises(UsageError, match=rf"(?s)begun with another spec: .*{named}.*name another folder"):
        other = replace(toy, name=change["benchmark"]) if "benchmark" in change else toy
        here(other, tmp_path / "run", **{name: change[name] for name in change if name != "benchmark"})

    assert content(tmp_path / "run") == before and toy_runs.calls() == asked


def test_e15_shards_one_missing_one_twice_one_overlapping_are_counted_once(toy: Benchmark, tmp_path: Path) -> None:
    run = tmp_path / "run"
    here(toy, run, shard="1/3")
    part = here(toy, run, shard="1/3")["all"]
    assert part["questions"] == 6 and 0 < part["answered"] < 6 and part["missing"] == 6 - part["answered"]

    here(toy, run, shard="2/2")  # it has questions in common with shards of three
    whole = here(toy, run)["all"]

    assert toy_runs.calls() == Counter(ids(toy)) == lines(run)
    assert (whole["answered"], whole["missing"]) == (6, 0)


@pytest.mark.parametrize("count", [2, 3])
def test_e15_all_shards_together_ask_everything_once(toy: Benchmark, tmp_path: Path, count: int) -> None:
    for number in range(1, count + 1):
        result = here(toy, tmp_path / "run", shard=f"{number}/{count}")["all"]

    assert toy_runs.calls() == Counter(ids(toy)) == lines(tmp_path / "run")
    assert (result["answered"], result["missing"]) == (6, 0)


def test_e19_a_clock_that_runs_backwards_or_stands_still_changes_nothing(
    toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(toy, tmp_path / "whole")
    backwards = itertools.count(2_000_000_000, -3600)
    for name, clock in (("back", lambda: float(next(backwards))), ("still", lambda: 1e9)):
        monkeypatch.setattr(time, "time", clock)
        for shard in ("1/2", "1/1", "1/1"):
            here(toy, tmp_path / name, shard=shard)
        assert lines(tmp_path / name) == Counter(ids(toy))
        assert summary(tmp_path / name)["all"]["accuracy"] == summary(tmp_path / "whole")["all"]["accuracy"]
    assert toy_runs.calls() == Counter(ids(toy) * 3)


@pytest.mark.parametrize("step", [-3600, 0], ids=["back", "still"])
def test_e19_of_two_failures_the_second_counts_though_its_time_is_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    toy = toy_benchmark(tmp_path / "data", words={"v0-q0": "fails"})
    hours = itertools.count(2_000_000_000, step)
    monkeypatch.setattr("gridprobe_eval.records.now", lambda: str(next(hours)))
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    for _ in range(2):
        here(toy, tmp_path / "run", retry_failed=True, max_failures=1)

    assert read_records(tmp_path / "run").best["v0-q0"]["attempt"] == 2
    assert lines(tmp_path / "run") == Counter(ids(toy)) + Counter(["v0-q0"])


def test_e23_a_resume_keeps_few_fields_of_each_record(toy: Benchmark, tmp_path: Path) -> None:
    here(toy, tmp_path / "run")

    with toy_runs.evaluation(toy, tmp_path / "run", model=toy_runs.model()) as resumed:
        kept = {name for record in resumed._before.best.values() for name in record}

    assert kept == {"id", "outcome", "attempt", "identity", "row", "right"}


def test_e20_a_moved_folder_and_a_deleted_cache_are_no_matter(
    toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path / "cache"))
    here(toy, tmp_path / "run", shard="1/2")
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "run", tmp_path / "elsewhere" / "run")

    result = here(toy, tmp_path / "elsewhere" / "run")

    assert not (tmp_path / "run").exists()
    assert toy_runs.calls() == Counter(ids(toy)) and result["all"]["answered"] == 6
