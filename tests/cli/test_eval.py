"""gridprobe eval, status and plan BENCHMARK as a user meets them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridprobe.cli import cli
from gridprobe_eval import summary
from videos import numbered_video
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("decode_here")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark of one's own: two videos, three questions each."""
    folder = tmp_path_factory.mktemp("mine")
    rows = []
    for video in range(2):
        numbered_video(folder / f"v{video}.mp4", 60)
        for number in range(3):
            row = {"id": f"v{video}q{number}", "video": f"v{video}.mp4", "question": f"Is it {number}?"}
            rows.append({**row, "options": ["yes", "no"], "answer": "A", "bins": {"kind": f"k{number}"}})
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "mine.jsonl"


def gridprobe(*arguments: object) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": ""}).invoke(cli, [str(each) for each in arguments])


def evaluate(data: Path, out: Path, model: Path, *more: object) -> Result:
    here = ("--k", 3, "--workers", 0, "--device", "cpu")
    return gridprobe("eval", "jsonl", "--data", data, "--out", out, "--model", model, *here, *more)


def test_a_run_a_resume_and_a_refusal(data: Path, tmp_path: Path, tiny_checkpoint: Path) -> None:
    first = evaluate(data, tmp_path / "run", tiny_checkpoint, "--limit", 3, "--shard", "1/2")
    again = evaluate(data, tmp_path / "run", tiny_checkpoint, "--limit", 3)
    once_more = evaluate(data, tmp_path / "run", tiny_checkpoint, "--limit", 3, "--json")
    other = evaluate(data, tmp_path / "run", tiny_checkpoint, "--limit", 4)

    assert first.exit_code == 0, first.output
    assert "3 of 6 questions about" in first.stderr and "0 done, 0 failed," in first.stderr
    done = int(again.stderr.split(" done, 0 failed, ")[0].split()[-1])
    assert 0 < done < 3 and f"{done} done, 0 failed, {3 - done} to do" in again.stderr
    assert "3 done, 0 failed, 0 to do" in once_more.stderr
    assert json.loads(once_more.stdout) == summary(tmp_path / "run")
    assert other.exit_code == 2 and "limit was 3 and is now 4" in other.stderr
    assert "3 done, 0 failed, 0 missing of 3" in " ".join(gridprobe("status", tmp_path / "run").stdout.split())


def test_e14_changed_rows_are_named_in_one_line(data: Path, tmp_path: Path, tiny_checkpoint: Path) -> None:
    own = data.with_name("changing.jsonl")
    own.write_text("".join(data.read_text().splitlines(keepends=True)[:3]))
    out = tmp_path / "run"
    assert evaluate(own, out, tiny_checkpoint).exit_code == 0
    own.write_text(own.read_text().replace("Is it 1?", "Is it not 1?"))

    refused = evaluate(own, out, tiny_checkpoint)
    redone = evaluate(own, out, tiny_checkpoint, "--redo-changed")

    assert refused.exit_code == 2 and "(changed v0q1)" in refused.stderr and "--redo-changed" in refused.stderr
    assert "rows since the run was begun: changed v0q1; the changed ones are asked again\n" in redone.stderr
    assert "2 done, 0 failed, 1 to do" in redone.stderr


def test_ids_from_a_list_or_a_file_and_settings_reach_the_spec(
    data: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    (tmp_path / "ids.txt").write_text("v1q2\nv0q0\n\n")
    options = ("--set", "frames=shape:0.5", "--set", 'limits={"seconds": 60}', "--template", "paper", "--seed", 7)

    for ids, out in (("v1q2,v0q0", "a"), (tmp_path / "ids.txt", "b")):
        done = evaluate(data, tmp_path / out, tiny_checkpoint, "--ids", ids, *options)
        assert done.exit_code == 0, done.output
    specs = [json.loads((tmp_path / out / "spec.json").read_text()) for out in "ab"]

    assert specs[0] == specs[1]
    told = specs[0]
    setup = told["setup"]
    assert told["ids"] == ["v0q0", "v1q2"] and setup["template"] == "paper" and told["seed"] == 7
    assert setup["selector"]["budget"]["gamma0"] == 0.5 and setup["sampling"]["limits"]["seconds"] == 60


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--shard", "3/2"], "a shard is i/n"),
        (["--set", "fraems=1"], "did you mean 'frames'"),
        (["--ids", "nope"], "no question 'nope'"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--selector", "uniform"], "needs a number of frames"),
        (["--max-failures", "-1"], "--max-failures must be a number"),
        (["--with", "x=1"], "unknown option 'x'"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_folder(data: Path, tmp_path: Path, more: list[str], told: str) -> None:
    done = evaluate(data, tmp_path / "run", tmp_path, *more)

    assert done.exit_code == 2 and told in done.stderr, done.output
    assert not (tmp_path / "run").exists()


def test_a_benchmark_needs_a_model_that_was_named(data: Path, tmp_path: Path) -> None:
    done = gridprobe("eval", "jsonl", "--data", data, "--out", tmp_path / "run")

    assert done.exit_code == 2 and "name the model that is to answer jsonl" in done.stderr


def test_more_failures_than_allowed_are_exit_code_1(data: Path, tmp_path: Path, tiny_checkpoint: Path) -> None:
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    broken = data.parent / "broken.jsonl"
    (broken.parent / "broken.mp4").write_bytes(b"no video")
    broken.write_text("".join(json.dumps({**row, "video": "broken.mp4"}) + "\n" for row in rows))

    done = evaluate(broken, tmp_path / "run", tiny_checkpoint, "--max-failures", 1)

    assert done.exit_code == 1 and "2 of 6 questions failed, more than the 1" in done.stderr
    assert "VideoError × 2, such as v0q0" in " ".join(gridprobe("status", tmp_path / "run").stdout.split())


def test_a_plan_is_of_the_same_questions_and_loads_nothing(data: Path, tiny_checkpoint: Path) -> None:
    options = ("plan", "jsonl", "--data", data, "--model", tiny_checkpoint, "--k", 3, "--limit", 3)
    planned, shown = json.loads(gridprobe(*options, "--json").stdout), gridprobe(*options)

    assert planned["questions"] == planned["focus"]["least"]["calls"] == planned["focus"]["most"]["calls"] == 3
    # These videos are small: one pass over all frames at full size takes less than an overview and a closer look.
    assert planned["overview"]["calls"] == planned["probes"]["calls"] == 0 and not planned["settled_by_overview"]
    full = json.loads(gridprobe(*options, "--effort", "full", "--json").stdout)
    assert full["overview"]["calls"] == full["probes"]["calls"] == 3
    published = json.loads(gridprobe(*options, "--effort", "focus", "--set", "probes=fresh", "--json").stdout)
    assert published["overview"]["calls"] == 0 and published["probes"]["calls"] == 18
    assert "the overview settles" not in shown.stdout
    assert shown.exit_code == 0 and "3 questions about" in shown.stdout and "focus, at most" in shown.stdout
    other = gridprobe("plan", "jsonl", "--data", data, "--model", "Qwen/Qwen3-VL-8B-Instruct")
    assert "estimated at 4 characters" in other.stdout and "17." in other.stdout  # gigabytes of weights


@pytest.mark.parametrize("option", ["--timeout", "--start-timeout"])
@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf"])
def test_timeout_that_makes_no_sense_is_exit_code_2(
    data: Path, tmp_path: Path, tiny_checkpoint: Path, option: str, value: str
) -> None:
    done = evaluate(data, tmp_path / "run", tiny_checkpoint, option, value)

    assert done.exit_code == 2 and f"{option} must be a finite number of seconds above 0" in done.stderr


LOADS_FOR_EVER = """
import threading
open({!r}, "w").close()
threading.Event().wait()
"""
"""Stands in for transformers in a worker."""


def test_ctrl_c_is_exit_code_130_a_second_run_is_refused_meanwhile_and_it_resumes(
    data: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    out, loading = tmp_path / "run", tmp_path / "loading"
    (tmp_path / "transformers.py").write_text(LOADS_FOR_EVER.format(str(loading)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "gridprobe", "eval", "jsonl", "--data", data, "--out", out, "--k", "3"]
    command += ["--model", tiny_checkpoint, "--device", "cpu", "--workers", "1"]
    process = subprocess.Popen(
        [*map(str, command)], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: loading.exists() or process.poll() is not None)
        second = evaluate(data, out, tiny_checkpoint)
    finally:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        _, told = process.communicate()

    assert second.exit_code == 1 and f"in use by process {process.pid}" in second.stderr
    assert process.returncode == 130 and "interrupted" in told and "Traceback" not in told
    assert "the same command resumes the run" in told and "resource_tracker" not in told and "Loading" not in told
    shown = gridprobe("status", out).stdout
    assert "interrupted; repeat the command" in shown and "DEAD" not in shown
    assert evaluate(data, out, tiny_checkpoint).exit_code == 0
    assert summary(out)["all"]["answered"] == 6
    assert "all questions are done" in gridprobe("status", out).stdout and not list(out.glob("interrupted-*"))
