"""Records of answers: what is written can be read, and says how the answer was reached."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation_runs import item, write_run
from gridprobe import Answer
from gridprobe.benchmarks import Item
from gridprobe.early_exit import EarlyExit
from gridprobe.evaluation.reader import Answered, Stages, read_run
from gridprobe.evaluation.records import answered
from report.answers import CITIES, by_frame, handmade, posterior, reached, without_map

UNSURE = posterior(C=0.43, B=0.3)


def record(answer: Answer) -> dict[str, Any]:
    asked = Item("v1-a", CITIES, Path("v.mp4"), "v1", {})
    written = answered(asked, answer, attempt=1, worker="w0", opening=0.0)
    loaded: dict[str, Any] = json.loads(json.dumps(written, allow_nan=False))
    return loaded


def read(folder: Path, answer: Answer) -> Answered:
    (result,) = read_run(write_run(folder, [item("v1-a", options=list(CITIES.options))], [record(answer)])).results
    assert result.answered is not None
    return result.answered


def test_an_answer_from_the_overview(tmp_path: Path) -> None:
    answer = reached(handmade(), "overview", overview=posterior(B=0.998), exit=EarlyExit(), native=False)

    found = read(tmp_path / "r", replace(answer, posterior=posterior(B=0.998)))

    assert found.stages.by == "overview" and found.stages.focus is None and found.stages.threshold == 0.99
    assert found.stages.overview is not None and found.stages.overview[0] == "B"
    assert found.stages.overview[1] == pytest.approx(0.998)
    assert found.native == 0 and found.kept == 3


def test_an_answer_from_the_focused_pass_with_a_map_by_frame(tmp_path: Path) -> None:
    scores = (0.1, 0.2, 0.3, 0.4, 0.9, 0.1, 0.0123456789)
    answer = reached(by_frame(scores), "focus", overview=UNSURE)
    found = read(tmp_path / "r", answer)

    assert found.stages == Stages("focus", ("C", UNSURE.confidence), ("B", answer.posterior.confidence), None)
    assert (found.map, found.native, found.rows) == ("attention", 1, ())
    assert found.by_frame == pytest.approx(scores, rel=1e-3)
    assert "importance" not in record(answer)["selection"]


@pytest.mark.parametrize(("kind", "count"), [("certainty", 7), ("probes", 6)])
def test_one_answer_for_each_probe(kind: Any, count: int, tmp_path: Path) -> None:
    answer = by_frame((0.5,) * 7, kind=kind) if kind == "certainty" else handmade(cells=7)
    selection = replace(answer.selection, probes=(posterior(B=0.9),) * count)

    assert read(tmp_path / "r", replace(answer, selection=selection)).probes == ("B",) * count


def test_the_published_method_has_no_overview(tmp_path: Path) -> None:
    found = read(tmp_path / "r", handmade())

    assert found.stages.by == "focus" and found.stages.overview is None
    assert found.map == "probes" and found.native == found.kept == 3 and len(found.rows) == 3
    assert read(tmp_path / "s", without_map(handmade())).map == ""


def test_answers_to_some_of_the_probes_are_not_recorded(tmp_path: Path) -> None:
    answer = handmade(cells=7)
    selection = replace(answer.selection, probes=(posterior(B=0.9),) * 5)  # hybrid asks about promising rows only

    assert read(tmp_path / "r", replace(answer, selection=selection)).probes == ()
