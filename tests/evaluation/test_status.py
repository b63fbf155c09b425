"""Status reads a folder while others write to it, and names who is stuck or dead."""

import errno
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import toy_runs
from gridprobe import MockModel
from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.models import Request
from gridprobe_eval import Choice, Shard, run
from gridprobe_eval.folder import status
from toy_runs import toy_benchmark

pytestmark = pytest.mark.usefixtures("decode_here")


def test_e24_a_record_that_is_being_written_is_no_damage_and_status_changes_nothing(tmp_path: Path) -> None:
    run(toy_benchmark(tmp_path / "data"), tmp_path / "run", setup=toy_runs.toy_setup(toy_runs.model()))
    (file,) = (tmp_path / "run").glob("records-*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    before = {each.name: each.read_bytes() for each in (tmp_path / "run").iterdir()}

    found = status(tmp_path / "run")

    assert (found["done"], found["missing"], found["damage"]) == (5, 1, [])
    assert {each.name: each.read_bytes() for each in (tmp_path / "run").iterdir()} == before


# E24 of tests/reliability.md
def test_a_run_in_progress_shows_its_pace_and_its_worker(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def looks(request: Request) -> Mapping[str, float]:
        if "<v2-q0>" in request.prompt and not seen:
            seen.append(status(tmp_path / "run"))
            seen.append(status(tmp_path / "run", timeout=60.0, clock=lambda: time.time() + 61))
        return toy_runs.answer(request)

    toy = toy_benchmark(tmp_path / "data", words={"v0-q0": "fails"})
    run(toy, tmp_path / "run", setup=toy_runs.toy_setup(MockModel(looks)))

    during, impatient = seen
    assert (during["done"], during["failed"], during["missing"]) == (3, 1, 2)
    assert during["rate"] > 0 and during["eta"] == pytest.approx(2 / during["rate"])
    (worker,) = during["workers"]
    assert (worker["state"], worker["question"], worker["done"], worker["failed"]) == ("working", "v2-q0", 3, 1)
    assert impatient["workers"][0]["state"] == "stuck"
    after = status(tmp_path / "run")
    assert after["workers"] == [] and after["missing"] == 0 and after["rate"] is None
    assert after["errors"] == [
        {"class": "ModelError", "message": "the model was told to fail", "count": 1, "example": "v0-q0"}
    ]


def test_a_worker_that_left_without_a_word_is_dead(tmp_path: Path) -> None:
    toy = toy_benchmark(tmp_path / "data")
    choice = Choice(shard=Shard(1, 3))
    run(toy, tmp_path / "run", setup=toy_runs.toy_setup(toy_runs.model()), choice=choice)
    beat = {"worker": "w7", "pid": 1, "host": "elsewhere", "records": "records-w7-elsewhere-1-0.jsonl", "done": 1}
    times = {"started": "2026-01-01T00:00:00.000Z", "since": "2026-01-01T00:00:01.000Z"}
    text = json.dumps({**beat, **times, "question": "v1-q0", "failed": 0})
    (tmp_path / "run" / "heartbeat-w7.json").write_text(text)
    (tmp_path / "run" / "heartbeat-torn.json").write_text(text[:40])

    shown = CliRunner().invoke(cli, ["status", str(tmp_path / "run")])

    assert shown.exit_code == 0
    assert "2 done, 0 failed, 4 missing of 6" in " ".join(shown.output.split())
    assert "no worker is running" in shown.output
    assert "w7 DEAD at v1-q0" in shown.output and "elsewhere" in shown.output


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    run(toy_benchmark(tmp_path / "data"), tmp_path / "run", setup=toy_runs.toy_setup(toy_runs.model()))
    (tmp_path / "run" / "records-x.jsonl").write_bytes(b"\0\0\0\n")

    assert status(tmp_path / "run")["damage"] == ["records-x.jsonl, byte 0: not a record"]


@pytest.mark.parametrize("timeout", [0.0, -1.0, math.nan, math.inf])
def test_timeout_is_a_number_of_seconds_that_can_pass(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(UsageError, match=r"^--timeout must be a finite number of seconds above 0, got "):
        status(tmp_path, timeout=timeout)


def test_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a run: it holds no spec\.json"):
        status(tmp_path)


def test_a_run_whose_workers_load_is_not_called_idle(tmp_path: Path) -> None:
    """E24: until a worker is ready there is no heartbeat, but the run's lock is held."""
    seen: list[str] = []

    class Slow(toy_runs.ToyModel):
        def load(self, **options: Any) -> Any:
            seen.append(CliRunner().invoke(cli, ["status", str(tmp_path / "run")]).output)
            return super().load(**options)

    with toy_runs.evaluation(toy_benchmark(tmp_path / "data"), tmp_path / "run", model=Slow(), workers=0) as running:
        running.run()
    after = CliRunner().invoke(cli, ["status", str(tmp_path / "run")]).output

    assert "its workers are loading their models" in seen[0] and "no worker is running" not in seen[0]
    assert "loading" not in after and status(tmp_path / "run")["loading"] is False


def test_where_locks_do_not_work_the_state_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def looks(request: Request) -> Mapping[str, float]:
        with monkeypatch.context() as patch:
            patch.setattr("fcntl.flock", _no_locks)
            seen.append(status(tmp_path / "run"))
        return toy_runs.answer(request)

    run(toy_benchmark(tmp_path / "data"), tmp_path / "run", setup=toy_runs.toy_setup(MockModel(looks)))

    assert seen[0]["workers"][0]["state"] == "unknown"


def _no_locks(descriptor: int, how: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_package_versions_are_kept_once_and_shown(tmp_path: Path) -> None:
    run(toy_benchmark(tmp_path / "data"), tmp_path / "run", setup=toy_runs.toy_setup(toy_runs.model()))

    shown = " ".join(CliRunner().invoke(cli, ["status", str(tmp_path / "run")]).output.split())

    versions = status(tmp_path / "run")["versions"]
    assert {"gridprobe", "av", "numpy", "pillow", "torch", "transformers"} == set(versions)
    assert f"begun with gridprobe {versions['gridprobe']}, av {versions['av']}," in shown
