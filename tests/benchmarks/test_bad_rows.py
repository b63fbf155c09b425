"""Q06: one bad row of a benchmark is a finding that names the row, and the other rows can be asked."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

import toy_runs
from gridprobe.errors import DataError
from gridprobe_eval import read_records
from gridprobe_eval.benchmarks import load_benchmark
from gridprobe_eval.folder import status
from gridprobe_eval.reader import read_items

pytestmark = pytest.mark.usefixtures("decode_here")

GOOD = {"id": "good", "video": "v0", "question": "Is it <good>?", "options": ["yes", "no"], "answer": "A"}
LONG = "9" * 5000


def with_good(folder: Path, *lines: bytes) -> Path:
    file = folder / "mine.jsonl"
    toy_runs.make_video(folder / "v0")
    file.write_bytes(b"\n".join([json.dumps(GOOD).encode(), *lines, b""]))
    return file


def changed(**changes: Any) -> bytes:
    return json.dumps({**GOOD, "id": "bad", **changes}).encode()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (changed(id="\ud800"), "'id' is not valid text"),
        (changed(video="\udfff.mp4"), "'video' is not valid text"),
        (changed(video="v0\0.mp4"), "'video' is not valid text"),
        (changed(subtitles="\ud800.srt"), "'subtitles' is not valid text"),
        (changed(bins={"topic": "\ud800"}), "'bins' is not valid text"),
        (changed(bins={"\ud800": "news"}), "'bins' is not valid text"),
        (changed().replace(b'"bad"', LONG.encode()), "a whole number of 5000 digits is too long"),
        (changed(bins={"n": 0}).replace(b"0}", LONG.encode() + b"}"), "a whole number of 5000 digits is too long"),
        (changed(question="caf\xe9?").replace(rb"\u00e9", b"\xe9"), "'question' is not valid text"),
        (b"[" * 100_000, "not a JSON object"),
    ],
)
def test_the_row_is_a_finding_and_the_rest_is_asked(tmp_path: Path, line: bytes, what: str) -> None:
    benchmark = load_benchmark("jsonl", with_good(tmp_path, line))

    with toy_runs.evaluation(benchmark, tmp_path / "run", model=toy_runs.model(), workers=0) as running:
        running.run()

    (problem,) = benchmark.problems
    assert problem.where.startswith("line 2") and what in problem.what
    (problem.where + problem.what).encode("utf-8")  # it can be printed
    assert read_records(tmp_path / "run").ids("answered") == {"good"}


def test_a_long_number_in_an_array_is_a_finding_of_its_row(tmp_path: Path) -> None:
    rows = [{"video_path": "a.mp4", "id": "one", "candidates": ["a", "b"], "question": "Q?", "correct_choice": 0}]
    rows += [{**rows[0], "id": "two", "duration": "LONG"}]
    (tmp_path / "lvb_val.json").write_text(json.dumps(rows).replace('"LONG"', LONG))

    found = load_benchmark("longvideobench", tmp_path)

    assert any("5000 digits" in problem.what for problem in found.problems)
    assert not any("5000 digits" in problem.what for problem in found.problems if problem.where.startswith("row 1"))


def test_a_number_beyond_all_floats_is_a_finding(tmp_path: Path) -> None:
    rows = [{"video_path": "a.mp4", "id": "one", "candidates": ["a", "b"], "question": "Q?", "correct_choice": 10**400}]
    (tmp_path / "lvb_val.json").write_text(json.dumps(rows))

    (problem,) = load_benchmark("longvideobench", tmp_path).problems

    assert "must be a number below 1e308" in problem.what


def test_a_file_in_utf_16_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps(GOOD), encoding="utf-16")

    with pytest.raises(DataError, match="it is UTF-16; save it as UTF-8"):
        load_benchmark("jsonl", tmp_path / "mine.jsonl")


def test_a_data_folder_whose_name_is_not_utf_8_is_a_failure_of_each_question(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    benchmark = load_benchmark("jsonl", with_good(folder))

    with toy_runs.evaluation(benchmark, tmp_path / "run", model=toy_runs.model(), workers=0, max_failures=1) as running:
        running.run()

    assert len(read_items(tmp_path / "run")) == 1
    assert status(tmp_path / "run")["missing"] == 0


@pytest.mark.parametrize("field", ["video", "subtitles"])
@pytest.mark.parametrize("name", ["../secret.mp4", "a/../../secret.mp4", "/etc/passwd", "../data-2/v.mp4"])
def test_annotations_name_only_files_in_the_data_folder(tmp_path: Path, field: str, name: str) -> None:
    """A06: unless the user opens that door."""
    (tmp_path / "data").mkdir()
    file = with_good(tmp_path / "data", changed(**{field: name}), changed(id="in", video="a/../b/v.mp4"))

    found = load_benchmark("jsonl", file)
    opened = load_benchmark("jsonl", file, outside=True)

    assert [item.id for item in found.items] == ["good", "in"]
    (problem,) = found.problems
    assert (
        problem.where == "line 2 (bad)"
        and "is outside the data folder; allow it with --with outside=true" in problem.what
    )
    assert [item.id for item in opened.items] == ["good", "bad", "in"] and not opened.problems
    assert found.version == opened.version


def test_a_link_in_the_data_folder_may_lead_anywhere(tmp_path: Path) -> None:
    """A06: it was made by the user, not by the annotations."""
    (tmp_path / "data").mkdir()
    file = with_good(tmp_path / "data", changed(video="link/v.mp4"))
    (tmp_path / "data" / "link").symlink_to(tmp_path)

    assert not load_benchmark("jsonl", file).problems


def test_an_official_file_cannot_name_a_video_elsewhere(tmp_path: Path) -> None:
    """A06."""
    row = {"qid": "0", "video": "../../secret", "question": "Q?", "a0": "a", "a1": "b", "a2": "c", "a3": "d", "a4": "e"}
    rows = [row | {"answer": "0", "type": "TP"}, row | {"answer": "0", "type": "TP", "qid": "1", "video": "7"}]
    with (tmp_path / "val.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)

    found = load_benchmark("nextqa", tmp_path)

    assert len(found.items) == 1 and "is outside the data folder" in found.problems[0].what
