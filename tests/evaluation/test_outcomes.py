"""Records of answers: what is written can be read, and says how the answer was reached."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation_runs import item, write_run
from gridprobe import Answer
from gridprobe.early_exit import EarlyExit
from gridprobe.record import Record
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.reader import read_run
from gridprobe_eval.records import of_run
from report.answers import CITIES, by_frame, handmade, posterior, reached, without_map

UNSURE = posterior(C=0.43, B=0.3)


def record(answer: Answer) -> dict[str, Any]:
    asked = Item("v1-a", CITIES, Path("v.mp4"), "v1", {})
    written = of_run(Record.of(answer), asked, attempt=1, worker="w0").to_line()
    loaded: dict[str, Any] = json.loads(json.dumps(written, allow_nan=False))
    return loaded


def read(folder: Path, answer: Answer) -> Record:
    (result,) = read_run(write_run(folder, [item("v1-a", options=list(CITIES.options))], [record(answer)])).results
    assert result.answered is not None
    return result.answered


def test_an_answer_from_the_overview(tmp_path: Path) -> None:
    answer = reached(handmade(), "overview", overview=posterior(B=0.998), exit=EarlyExit(), native=False)

    found = read(tmp_path / "r", replace(answer, posterior=posterior(B=0.998)))

    assert found.reached["by"] == "overview" and found.stage("focus") is None and found.threshold == 0.99
    name, confidence = found.stage("overview") or ("", 0.0)
    assert name == "B" and confidence == pytest.approx(0.998)
    assert found.shown_native == 0 and found.selection["kept"] == 3


def test_an_answer_from_the_focused_pass_with_a_map_by_frame(tmp_path: Path) -> None:
    scores = (0.1, 0.2, 0.3, 0.4, 0.9, 0.1, 0.0123456789)
    answer = reached(by_frame(scores), "focus", overview=UNSURE)
    found = read(tmp_path / "r", answer)

    assert (found.reached["by"], found.threshold) == ("focus", None)
    assert found.stage("overview") == ("C", UNSURE.confidence)
    assert found.stage("focus") == ("B", answer.posterior.confidence)
    assert (found.selection["map"], found.shown_native, found.selection["row_confidence"]) == ("attention", 1, None)
    assert found.by_frame == pytest.approx(scores, rel=1e-3)


@pytest.mark.parametrize(("kind", "count"), [("certainty", 7), ("probes", 6)])
def test_one_answer_for_each_probe(kind: Any, count: int, tmp_path: Path) -> None:
    answer = by_frame((0.5,) * 7, kind=kind) if kind == "certainty" else handmade(cells=7)
    selection = replace(answer.selection, probes=(posterior(B=0.9),) * count)

    assert read(tmp_path / "r", replace(answer, selection=selection)).selection["probe_choices"] == ["B"] * count


def test_the_published_method_has_no_overview(tmp_path: Path) -> None:
    found = read(tmp_path / "r", handmade())

    assert found.reached["by"] == "focus" and found.stage("overview") is None
    assert found.shown_native == found.selection["kept"] == len(found.selection["row_confidence"]) == 3
    assert found.selection["map"] == "probes" and found.selection["importance"] is None, "rows and columns say it"
    assert read(tmp_path / "s", without_map(handmade())).selection["map"] is None


def test_answers_to_some_of_the_probes_are_not_recorded(tmp_path: Path) -> None:
    answer = handmade(cells=7)
    selection = replace(answer.selection, probes=(posterior(B=0.9),) * 5)  # hybrid asks about promising rows only

    assert read(tmp_path / "r", replace(answer, selection=selection)).selection["probe_choices"] is None
