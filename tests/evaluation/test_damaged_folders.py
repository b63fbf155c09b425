"""E05, E24: whatever stands in a run folder, `score` and `status` print numbers or one sentence, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evaluation_runs import item, record, resealed, write_run
from gridprobe.cli import cli
from gridprobe_eval.tasks import taken_by

LONG = "9" * 400
"""A whole number that is no float."""
BEAT = {
    "worker": "w0",
    "pid": 1,
    "host": "here",
    "records": "records-w0.jsonl",
    "started": "2026-01-01T00:00:00Z",
    "question": None,
    "since": "2026-01-01T00:00:00Z",
    "done": 1,
    "failed": 0,
}


def gridprobe(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def is_sentence_or_result(result: Result) -> bool:
    ended = result.exception is None or isinstance(result.exception, SystemExit)
    return ended and (result.exit_code == 0 or len(result.stderr.strip().splitlines()) == 1)


def damaged(folder: Path, old: str, new: str, *, file: str = "records-w0.jsonl", **changes: Any) -> Path:
    path = write_run(folder, [item("a-1"), item("b-1")], [{**record("a-1"), **changes}])
    text = (path / file).read_text()
    assert old in text
    (path / file).write_text(text.replace(old, new, 1))
    if file.startswith("records"):
        resealed(path / file)
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"right": true, ', ""),
        ('"confidence": 0.7', '"confidence": 1e400'),
        ('"confidence": 0.7', '"confidence": 7'),
        ('"confidence": 0.7', f'"confidence": {LONG}'),
        ('"tflops": 4.0', f'"tflops": {LONG}'),
        ('"pool": 9', '"pool": 1e400'),
        ('"timestamps": [0.0', f'"timestamps": [{LONG}'),
        ('"warnings": []', '"warnings": 3'),
        ('"logprobs": {', '"logprobs": [1], "was": {'),
        ('"cost": {', '"cost": [1], "was": {'),
        ('"shape": null', '"shape": [1]'),
    ],
)
def test_a_damaged_record(tmp_path: Path, old: str, new: str) -> None:
    path = damaged(tmp_path / "run", old, new)

    scored = gridprobe("score", path)

    assert scored.exit_code == 1 and "the record of 'a-1'" in scored.stderr, scored.output
    assert is_sentence_or_result(scored) and gridprobe("status", path).exit_code == 0


@pytest.mark.parametrize("error", ["text", {"message": 3}, {"class": None}, [1], 3])
def test_a_failed_record_with_an_odd_error(tmp_path: Path, error: Any) -> None:
    path = write_run(tmp_path / "run", [item("a-1")], [record("a-1", None, error=error)])

    assert gridprobe("status", path).exit_code == gridprobe("score", path).exit_code == 0


@pytest.mark.parametrize("where", ['"setup": {', '"selector": {'])
def test_a_deep_spec(tmp_path: Path, where: str) -> None:
    deep = where + '"deep": ' + '{"a":' * 900 + "1" + "}" * 900 + ","
    path = damaged(tmp_path / "run", where, deep, file="spec.json")

    for command in ("score", "status"):
        refused = gridprobe(command, path)
        assert refused.exit_code == 1 and "spec.json" in refused.stderr and is_sentence_or_result(refused)


@pytest.mark.parametrize(
    "beat",
    [
        "[" * 100_000,
        "[]",
        json.dumps({**BEAT, "since": "0001-01-01T00:00:00"}),
        json.dumps({key: value for key, value in BEAT.items() if key != "question"}),
        json.dumps({**BEAT, "done": 0}).replace('"done": 0', '"done": 1e400'),
        json.dumps({**BEAT, "done": 0}).replace('"done": 0', f'"done": {LONG}'),
        json.dumps({**BEAT, "records": "r\0"}),
        json.dumps({**BEAT, "failed": "many"}),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_odd_heartbeat_is_left_out(tmp_path: Path, beat: str, form: tuple[str, ...]) -> None:
    path = write_run(tmp_path / "run", [item("a-1")], [record("a-1")])
    (path / "heartbeat-w0.json").write_text(beat)
    (path / "heartbeat-w1.json").write_text(json.dumps(BEAT))

    shown = gridprobe("status", path, *form)

    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("DEAD" if not form else '"state": "dead"') == 1


def test_a_folder_in_the_place_of_records(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [item("a-1")], [record("a-1")])
    (path / "records-w1.jsonl").mkdir()

    for command in ("score", "status"):
        refused = gridprobe(command, path)
        output = " ".join((refused.stdout + refused.stderr).split())
        assert refused.exit_code == 0 and ("no record" in output or "not a regular file" in output)


@pytest.mark.parametrize("cost", [None, [1], {}, {"tokens": 1, "tflops": 10**400}])
def test_what_a_damaged_record_took_is_not_known(cost: Any) -> None:
    assert taken_by(record("a-1", cost=cost)) is None
    assert taken_by(record("a-1")) == {"tokens": 1000, "tflops": 4.0, "seconds": 2.0}
