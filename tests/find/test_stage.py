"""The stage for batches: all rows come back, and an error is a column."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridprobe import MockModel
from gridprobe.errors import ServerUnavailable, UsageError
from gridprobe.models import LazyModel
from gridprobe_find.stage import Asker
from library_kit import painted, sees_red


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(LazyModel, "load", lambda self, **_: MockModel(sees_red))
    monkeypatch.setenv("GRIDPROBE_CACHE", "off")
    red, blue = painted(tmp_path / "red.mp4", [("red", 4)]), painted(tmp_path / "blue.mp4", [("blue", 4)])
    return [str(red), str(tmp_path / "gone.mp4"), str(blue)]


def test_every_row_comes_back_and_an_error_is_a_column(films: list[str]) -> None:
    asker = Asker("Is it red?", options=("yes", "no"), model="mock", k=3)

    out = asker({"video": np.array(films, object), "id": np.arange(3)})

    assert [*out] == ["video", "id", "answer", "confidence", "start", "end", "tokens", "seconds", "error"]
    assert out["answer"].tolist() == ["yes", "", "no"]
    assert np.isnan(out["confidence"]).tolist() == [False, True, False]
    assert out["error"][0] == "" and "gone.mp4: no such file" in out["error"][1]
    assert (out["tokens"] > 0).tolist() == [True, False, True]


def test_a_question_for_each_row_and_errors_that_end_a_run_elsewhere(
    films: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(request: Any) -> dict[str, float]:
        raise ServerUnavailable("the server is gone")

    asker = Asker(options=("yes", "no"), model="mock", k=3)
    batch = {"video": [films[0], films[2]], "question": ["Is it red?", ""]}
    first = asker(batch)
    monkeypatch.setattr(LazyModel, "load", lambda self, **_: MockModel(lost))
    second = Asker(options=("yes", "no"), model="mock", k=3)(batch)

    assert first["answer"].tolist() == ["yes", ""] and "question" in first["error"][1]
    assert second["error"][0] == "the server is gone"


def test_it_can_be_sent_before_and_after_its_model_is_loaded(films: list[str]) -> None:
    asker = Asker("Is it red?", options=("yes", "no"), model="mock", k=3)

    before = pickle.loads(pickle.dumps(asker))
    asker({"video": films[:1]})
    after = pickle.loads(pickle.dumps(asker))

    assert before({"video": films[:1]})["answer"] == after({"video": films[:1]})["answer"] == ["yes"]


def test_what_cannot_work_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="give its name"):
        Asker("Who?", model=MockModel(sees_red))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        Asker("Who?", framse=3)
