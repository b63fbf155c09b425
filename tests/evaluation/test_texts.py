"""Answers in words in a run: exact match, token F1, and the verdicts of a judge."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluation_runs import item, record, resealed, write_run
from gridprobe import MockModel
from gridprobe.cli import cli
from gridprobe.errors import DataError
from gridprobe.models import Request
from gridprobe_eval.metrics import PROMPT, VERDICTS, judge, official, score, summary, verdicts
from gridprobe_eval.reader import read_run

WORDS = {"v1-a": ("The red car.", "red car"), "v2-b": ("a blue car", "red car"), "v3-c": ("an automobile", "a car")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three answers in words, of which the first is right, and a question that failed."""
    items = [item(name, options=[], answer=truth) for name, (_, truth) in WORDS.items()]
    records = [record(name, said, right=name == "v1-a", logprobs={said: -0.1}) for name, (said, _) in WORDS.items()]
    return write_run(
        tmp_path / "run", [*items, item("v4-d", options=[], answer="five")], [*records, record("v4-d", None)]
    )


def lenient(request: Request) -> Mapping[str, float]:
    return {"A": 0.9, "B": 0.1} if "automobile" in request.prompt else {"A": 0.2, "B": 0.8}


def test_right_is_exact_match_and_failed_questions_count(folder: Path) -> None:
    run = read_run(folder)

    assert [result.right for result in run.results] == [True, False, False, False]
    assert [result.f1 for result in run.results] == [1.0, 0.5, 0.0, 0.0]
    assert {metric.name: metric.value for metric in official(run)} == {"accuracy": 25.0, "token F1": 37.5}
    assert summary(folder)["all"]["accuracy"] == 0.25
    assert score([run])[0].above_chance is None


def test_a_judge_is_asked_once_about_every_answer_that_does_not_match(folder: Path) -> None:
    model = MockModel(lenient, name="judge")

    assert (judge(read_run(folder), model), judge(read_run(folder), model)) == (2, 0)

    assert [request.labels for request in model.requests] == [("A", "B")] * 2
    assert PROMPT.format(question="What happens in v2-b?", right="red car", given="a blue car") in (
        model.requests[0].prompt
    )
    found = {metric.name: metric for metric in official(read_run(folder))}
    assert found["judged by scripted:judge"].value == 50.0  # the match and the automobile, of four


def test_another_answer_needs_another_verdict(folder: Path) -> None:
    model = MockModel(lenient, name="judge")
    judge(read_run(folder), model)
    lines = (folder / "records-w0.jsonl").read_text().replace("a blue car", "a green car")
    (folder / "records-w0.jsonl").write_text(lines)
    resealed(folder / "records-w0.jsonl")

    metric = official(read_run(folder))[-1]

    assert (metric.count, metric.note) == (3, "1 of 4 not judged")
    assert judge(read_run(folder), model) == 1


def test_verdicts_that_cannot_be_read(folder: Path) -> None:
    (folder / VERDICTS).write_text("[1]")

    with pytest.raises(DataError, match="delete it and judge again"):
        verdicts(folder)


def test_a_run_with_options_has_no_text_scores(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", [item("v1-a")], [record("v1-a")]))

    assert [metric.name for metric in official(run)] == ["accuracy"]


def test_on_the_command_line(folder: Path) -> None:
    found = CliRunner().invoke(cli, ["score", str(folder), "--judge", "embedded"])

    assert found.exit_code == 0 and "2 answers judged" in found.output
    assert "judged by embedded:micro" in CliRunner().invoke(cli, ["score", str(folder), "--all"]).output
