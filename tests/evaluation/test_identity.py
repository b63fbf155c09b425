"""A video that was replaced between two runs is noticed, named, and asked about again if the user says so."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import toy_runs
from evaluation_runs import made_older
from gridprobe.errors import RunError
from gridprobe_eval import read_records
from gridprobe_eval.benchmarks import Benchmark
from gridprobe_eval.tasks import BLOCK, identity_of
from toy_runs import make_video, toy_benchmark

pytestmark = pytest.mark.usefixtures("decode_here")


@pytest.fixture
def toy(tmp_path: Path) -> Benchmark:
    return toy_benchmark(tmp_path / "data")


def asked(benchmark: Benchmark, out: Path, **options: Any) -> list[str]:
    """Run, and return the ids that were asked."""
    seen: list[str] = []
    with toy_runs.evaluation(benchmark, out, model=toy_runs.model(), workers=0, **options) as running:
        todo = {item.id for task in running._tasks() for item in task.items}
        running.run()
        seen += sorted(todo)
    return seen


def replace_video(folder: Path, shade: int = 200) -> None:
    shutil.rmtree(folder)
    make_video(folder, shade)


def test_a_replaced_video_is_refused_by_name_or_redone(toy: Benchmark, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked(toy, out)
    before = read_records(out).best
    replace_video(tmp_path / "data" / "v1")

    with pytest.raises(RunError, match=r"were replaced since: \S*/v1; ask these 2 questions again with --redo-ch"):
        asked(toy, out)
    again = asked(toy, out, redo_changed=True)
    once_more = asked(toy, out)

    found = read_records(out)
    assert again == ["v1-q0", "v1-q1"] and once_more == []
    assert found.best["v1-q0"]["confidence"] != before["v1-q0"]["confidence"]
    assert found.best["v0-q0"] == before["v0-q0"]
    assert not found.repeated


def test_a_refusal_leaves_the_folder_free(toy: Benchmark, tmp_path: Path) -> None:
    asked(toy, tmp_path / "run")
    replace_video(tmp_path / "data" / "v0")
    for _ in range(2):  # a lock that is left behind would be another sentence
        with pytest.raises(RunError, match="were replaced"):
            asked(toy, tmp_path / "run")


def test_an_old_answer_does_not_stand_for_a_video_that_cannot_be_read_now(toy: Benchmark, tmp_path: Path) -> None:
    asked(toy, tmp_path / "run")
    for file in (tmp_path / "data" / "v1").iterdir():
        file.write_bytes(b"no picture")

    asked(toy, tmp_path / "run", redo_changed=True, max_failures=9)

    assert read_records(tmp_path / "run").ids("failed") == {"v1-q0", "v1-q1"}


def test_a_copy_of_another_time_and_a_video_that_is_gone_are_no_change(toy: Benchmark, tmp_path: Path) -> None:
    asked(toy, tmp_path / "run")
    for file in (tmp_path / "data" / "v0").iterdir():
        os.utime(file, (1, 1))
    shutil.rmtree(tmp_path / "data" / "v2")

    assert asked(toy, tmp_path / "run") == []


def test_a_run_of_an_older_version_has_no_identities_and_resumes(toy: Benchmark, tmp_path: Path) -> None:
    asked(toy, tmp_path / "run")
    made_older(tmp_path / "run", "identity")
    replace_video(tmp_path / "data" / "v1")

    assert asked(toy, tmp_path / "run") == []


def test_a_video_that_failed_before_may_be_repaired(tmp_path: Path) -> None:
    toy = toy_benchmark(tmp_path / "data")
    for file in (tmp_path / "data" / "v1").iterdir():
        file.write_bytes(b"no picture")
    asked(toy, tmp_path / "run", max_failures=9)
    replace_video(tmp_path / "data" / "v1")

    assert asked(toy, tmp_path / "run", retry_failed=True) == ["v1-q0", "v1-q1"]
    assert len(read_records(tmp_path / "run").ids("answered")) == 6


@pytest.mark.parametrize("place", [0, 20 * BLOCK, 40 * BLOCK - 1])
def test_a_large_file_of_the_same_size_and_time_differs_where_it_is_sampled(tmp_path: Path, place: int) -> None:
    file = tmp_path / "film.mp4"
    file.write_bytes(bytes(40 * BLOCK))
    before = identity_of(file)
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(b"x" * 4 * BLOCK if place == 20 * BLOCK else b"x")

    after = identity_of(file)

    assert before and after and before["sample"] != after["sample"]
