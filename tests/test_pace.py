"""How fast a model is: measured, followed, kept."""

from pathlib import Path

import pytest

from gridprobe.limits import Pace, learn_pace, read_pace
from gridprobe.models.base import Cost

SEEN = Cost(tokens=1, flops_computed=1e12)


def test_newer_measurements_count_more() -> None:
    pace = Pace()
    assert not pace.known and pace.seconds_for(Cost(flops=1e12)) == 0.0
    pace.note(Cost(tokens=10, flops_computed=1e12), 1.0)
    assert pace.seconds_for(Cost(flops=3e12)) == pytest.approx(3.0)
    for _ in range(20):
        pace.note(Cost(tokens=10, flops_computed=1e12), 2.0)
    assert pace.seconds_for(Cost(flops=3e12)) == pytest.approx(6.0, rel=0.01)


def test_tokens_count_where_operations_are_not_known() -> None:
    pace = Pace()
    pace.note(Cost(tokens=100), 2.0)
    assert pace.seconds_for(Cost(tokens=50, unpriced=1)) == pytest.approx(1.0)


def test_what_took_no_time_says_nothing() -> None:
    pace = Pace()
    pace.note(Cost(tokens=100, flops_computed=1e12), 0.0)
    pace.note(Cost(), 1.0)
    assert not pace.known


def test_it_is_kept_for_each_model(tmp_path: Path) -> None:
    learn_pace("one", Cost(tokens=10, flops_computed=2e12), 4.0, folder=tmp_path)
    learn_pace("one", Cost(tokens=10, flops_computed=2e12), 4.0, folder=tmp_path)
    assert read_pace("one", folder=tmp_path).seconds_for(Cost(flops=1e12)) == pytest.approx(2.0)
    assert not read_pace("another", folder=tmp_path).known


@pytest.mark.parametrize("content", ["", "[]", '{"tflops": 1}', '{"tflops": -1, "tokens": 1, "seconds": 1}', "{"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    learn_pace("one", SEEN, 1.0, folder=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert not read_pace("one", folder=tmp_path).known


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    learn_pace("one", SEEN, 1.0, folder=tmp_path / "file")
    assert not read_pace("one", folder=tmp_path / "file").known


def test_without_a_cache_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", "off")
    learn_pace("one", SEEN, 1.0)
    assert not read_pace("one").known
