"""A run or calibration that has nothing to ask says why, with the line of the first cause and how many there are."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import toy_runs
from gridprobe.cli import cli

pytestmark = pytest.mark.usefixtures("decode_here")

QUESTION = {"question": "Is it green?", "options": ["yes", "no"]}
OUTSIDE, MALFORMED, MISSING = {**QUESTION, "video": "../v.mp4"}, "{", {**QUESTION, "video": "nowhere.mp4"}


def asked(verb: str, folder: Path, *lines: Any) -> Result:
    """The verb on a file of these lines, after an empty one."""
    file = folder / "mine.jsonl"
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(["", *text, ""]))
    out = ["--out", str(folder / "run"), "--workers", "0"] if verb == "eval" else []
    return CliRunner().invoke(cli, [verb, "jsonl", "--data", str(file), *out, "--model", "embedded", "--k", "2"])


@pytest.mark.parametrize("verb", ["eval", "calibrate"])
@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (OUTSIDE, "the first is line 2 (1): {}/v.mp4 is outside the data folder; allow it with --with outside=true"),
        (MALFORMED, "the first is line 2: not a JSON object"),
        (MISSING, "none of the 1 videos is there: line 2 (1) names {}/data/nowhere.mp4"),
    ],
)
def test_the_first_cause_is_named_with_its_line(verb: str, line: Any, cause: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    result = asked(verb, tmp_path / "data", line, line)

    assert result.exit_code == 1 and not (tmp_path / "data" / "run").exists()
    assert cause.format(tmp_path).replace("/data/../", "/") in result.stderr.replace("/data/../", "/")
    assert line is MISSING or "2 of 2 rows cannot be asked" in result.stderr


@pytest.mark.parametrize("verb", ["eval", "calibrate"])
def test_what_is_left_out_is_counted_before_the_others_are_asked(verb: str, tmp_path: Path) -> None:
    toy_runs.make_video(tmp_path / "v0")

    result = asked(verb, tmp_path, {**QUESTION, "video": "v0"}, OUTSIDE, MISSING, MALFORMED)

    assert "2 of 4 rows cannot be asked, the first is line 5: not a JSON object" in result.stderr
    assert f"1 of 2 videos are not there, so questions about them fail: line 4 (3) names {tmp_path}" in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for verb, out in (("eval", ["--out", str(tmp_path / "run")]), ("calibrate", [])):
        result = CliRunner().invoke(cli, [verb, "jsonl", "--data", str(tmp_path / "no.jsonl"), *out, "-m", "embedded"])

        assert result.exit_code == 1 and f"{tmp_path}/no.jsonl does not exist" in result.stderr
