"""lmms-eval itself, unmodified, with gridprobe as its model; `make test-lmms` runs this in its own environment."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gridprobe_eval.benchmarks import Benchmark, load_benchmark
from gridprobe_serve import lmms_eval_manifest
from lmms_task import write_task

pytest.importorskip("lmms_eval", reason="lmms-eval is installed by `make test-lmms` only")

COUNT = 12
MODEL = "pretrained=embedded,preset=gridworld,effort=full"
"""Every question is taken to the focused pass, so that frames are kept."""


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return load_benchmark("gridworld", tmp_path_factory.mktemp("gridworld"), count=COUNT, first=500, part="all")


def lmms_eval(include: Path, out: Path, *more: str, model_args: str = MODEL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmms_eval", "--model", "gridprobe", "--model_args", model_args, *more]
    command += ["--tasks", "gridprobe_gridworld", "--include_path", str(include), "--batch_size", "1"]
    command += ["--output_path", str(out)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(out / "hf"), "WANDB_MODE": "disabled"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **offline})


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_entry_point_names_both_classes() -> None:
    from lmms_eval.models import get_model

    assert get_model("gridprobe").__name__ == "GridProbeChat" and lmms_eval_manifest().model_id == "gridprobe"
    assert get_model("gridprobe", force_simple=True).__name__ == "GridProbeSimple"


@pytest.mark.parametrize("more", [(), ("--force_simple",)], ids=["chat", "simple"])
def test_answers_and_kept_frames_are_those_of_gridprobe_eval(
    benchmark: Benchmark, tmp_path: Path, more: tuple[str, ...]
) -> None:
    include, answers = write_task(tmp_path / "task", benchmark), tmp_path / "answers.jsonl"
    done = lmms_eval(include, tmp_path / "theirs", *more, model_args=f"{MODEL},out={answers}")
    assert done.returncode == 0 and answers.is_file(), done.stdout[-2000:] + done.stderr[-2000:]
    command = [sys.executable, "-m", "gridprobe", "eval", "gridworld", "--data", benchmark.data]
    command += ["--with", f"count={COUNT}", "--with", "first=500", "--with", "part=all"]
    command += ["--preset", "gridworld", "--effort", "full", "--out"]
    subprocess.run([*command, str(tmp_path / "run")], check=True, capture_output=True)

    ours = [line for file in (tmp_path / "run").glob("records-*.jsonl") for line in _lines(file)]
    theirs = {int(line["id"].split("/")[2]): line for line in _lines(answers)}
    records = {each["id"]: each for each in ours if each.get("outcome")}
    assert len(records) == len(theirs) == COUNT
    for place, item in enumerate(benchmark.items):
        mine, found = records[item.id], theirs[place]
        assert mine["choice"] == found["choice"]
        assert mine["selection"]["indices"] == found["selection"]["indices"]
    right = sum(each["right"] for each in records.values()) / COUNT
    (scores,) = (tmp_path / "theirs").rglob("*_results.json")
    assert json.loads(scores.read_text())["results"]["gridprobe_gridworld"]["right,none"] == pytest.approx(right)


def test_a_run_in_which_every_question_fails_has_an_exit_code(benchmark: Benchmark, tmp_path: Path) -> None:
    include = write_task(tmp_path / "task", benchmark, prompt="Describe the video.")
    done = lmms_eval(include, tmp_path)

    assert done.returncode == 1
    assert f"gridprobe: {COUNT} of {COUNT} questions failed; the first was" in done.stderr
    assert "no options were found in the prompt 'Describe the video.'" in done.stderr


def test_an_unknown_setting_has_an_exit_code(benchmark: Benchmark, tmp_path: Path) -> None:
    done = lmms_eval(write_task(tmp_path / "task", benchmark), tmp_path, model_args=f"{MODEL},kk=3")

    assert done.returncode == 1 and "gridprobe: unknown setting 'kk'" in done.stderr
