"""Calibrations are found for the models and settings they were made for, and a damaged one is named."""

import errno
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridprobe import MockModel, early_exit
from gridprobe.early_exit import CAUTIOUS, Calibration, EarlyExit, find, store
from gridprobe.errors import DataError
from gridprobe.models import Model
from gridprobe.plan import Plan
from gridprobe.video import FrameSize
from toy_runs import toy_setup
from ways import OURS

FOUND = Calibration(0.9, 0.02, 0.05, 400, 300, 1, 0.0157)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a store of its own."""
    monkeypatch.setenv(early_exit.VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


def ours(model: Model, **changes: Any) -> Plan:
    return toy_setup(model, **{**OURS, **changes})


def scripted(name: str = "one") -> MockModel:
    return MockModel(lambda request: {"A": 0.9, "B": 0.1}, name=name)


def test_what_was_stored_is_found_for_the_same_setup(folder: Path) -> None:
    setup = ours(scripted())

    file = store(setup.calibrated_for, FOUND)

    assert file.parent == folder and list(folder.iterdir()) == [file]
    assert find(setup.calibrated_for) == EarlyExit(0.9, "calibrated", 0.02, 0.05, 400)
    assert setup.loaded().exit == find(setup.calibrated_for)


@pytest.mark.parametrize(
    "changes", [{"preset": "default", "effort": "full"}, {"effort": "quick"}, {"exit_confidence": 0.7}]
)
def test_preset_effort_and_exit_do_not_matter(changes: dict[str, Any]) -> None:
    store(ours(scripted()).calibrated_for, FOUND)

    assert find(ours(scripted(), **changes).calibrated_for).threshold == 0.9


def test_a_preset_that_ends_in_the_same_settings_does_not_matter() -> None:
    size = FrameSize(max_side=64)
    store(ours(scripted(), small=size).calibrated_for, FOUND)

    assert find(ours(scripted(), preset="gridworld").calibrated_for).threshold == 0.9


@pytest.mark.parametrize(
    "other",
    [
        ours(scripted("two")),
        ours(scripted(), answer_model=scripted("two")),
        ours(scripted(), k=3),
        ours(scripted(), small=FrameSize(max_side=64)),
        ours(scripted(), full=FrameSize(max_pixels=10_000)),
        ours(scripted(), context="none"),
        ours(scripted(), frames="fixed:2"),
        ours(scripted(), probes="fresh"),
        ours(scripted(), rotations=2),
        ours(scripted(), precision="exact"),
        ours(scripted(), template="paper"),
    ],
)
def test_another_model_grid_view_or_way_is_not_found(other: Plan) -> None:
    store(ours(scripted()).calibrated_for, FOUND)

    assert find(other.calibrated_for) == EarlyExit(CAUTIOUS, "default")


def test_a_new_calibration_replaces_the_old_one_and_a_damaged_one(folder: Path) -> None:
    described = ours(scripted()).calibrated_for
    store(described, FOUND).write_bytes(b"{")

    store(described, replace(FOUND, threshold=0.8))

    assert find(described).threshold == 0.8 and len(list(folder.iterdir())) == 1


def test_no_calibration_is_lost_when_many_are_stored_at_once(folder: Path) -> None:
    setups = [ours(scripted(f"model {i}")).calibrated_for for i in range(40)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda described: store(described, FOUND), setups))

    assert [find(each).source for each in setups] == ["calibrated"] * 40 and len(list(folder.iterdir())) == 40


def test_a_calibration_without_a_threshold_is_not_stored(folder: Path) -> None:
    with pytest.raises(ValueError, match="without a threshold"):
        store({}, replace(FOUND, threshold=None))

    assert not folder.exists()


def entry(**changes: Any) -> bytes:
    whole = {"threshold": 0.9, "epsilon": 0.02, "delta": 0.05, "questions": 400, "exits": 300, "differing": 1}
    return json.dumps({"calibration": {**whole, "bound": 0.01, **changes}}).encode()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (entry(bound=math.nan), "it is not JSON"),
        (b"[]", 'it has no object "calibration"'),
        (b'{"calibration": 3}', 'it has no object "calibration"'),
        (b'{"calibration": {"threshold": 0.9}}', "its fields are not threshold, epsilon, delta"),
        (entry(more=1), "its fields are not threshold, epsilon, delta"),
        (entry(threshold=None), "threshold is None, not a number from 0 to 1"),
        (entry(threshold="0.9"), "threshold is '0.9', not a number from 0 to 1"),
        (entry(threshold=1.5), "threshold is 1.5, not a number from 0 to 1"),
        (entry(epsilon=-1), "epsilon is -1, not a number from 0 to 1"),
        (entry(delta=True), "delta is True, not a number from 0 to 1"),
        (entry(questions=3.5), "questions is 3.5, not a count"),
        (entry(exits=-1), "exits is -1, not a count"),
        (entry(differing=[]), "differing is [], not a count"),
    ],
)
def test_a_damaged_file_is_one_sentence_with_a_way_out(content: bytes, why: str) -> None:
    described = ours(scripted()).calibrated_for
    file = store(described, FOUND)
    file.write_bytes(content)

    with pytest.raises(DataError) as raised:
        find(described)

    text = str(raised.value)
    assert text.startswith(f"the calibration {file} is damaged: {why}") and "\n" not in text
    assert text.endswith("; delete it, or calibrate again")


def test_a_damaged_file_of_other_settings_does_no_harm() -> None:
    store(ours(scripted()).calibrated_for, FOUND).write_bytes(b"{")

    assert find(ours(scripted("two")).calibrated_for) == EarlyExit()


def test_a_folder_that_cannot_be_used_is_named(folder: Path) -> None:
    folder.write_text("a file in its place")

    with pytest.raises(DataError, match=r"cannot write the calibration to .*store.*; set GRIDPROBE_CALIBRATION"):
        store({}, FOUND)
    with pytest.raises(DataError, match=r"cannot read the calibration .*store.*; set GRIDPROBE_CALIBRATION"):
        find({})


def test_a_full_disk_leaves_the_old_calibration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store({}, FOUND)

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(early_exit, "write_whole", full)

    with pytest.raises(DataError, match="No space left on device"):
        store({}, replace(FOUND, threshold=0.5))
    assert find({}).threshold == 0.9


class TestFolder:
    @pytest.fixture(autouse=True)
    def _no_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(early_exit.VARIABLE)
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)

    def test_by_default_in_the_users_data_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "home", lambda: tmp_path)

        assert early_exit.calibration_folder() == tmp_path / ".local/share/gridprobe/calibrations"

    def test_xdg_folder_counts_only_if_absolute(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        assert early_exit.calibration_folder() == tmp_path / "data/gridprobe/calibrations"

        monkeypatch.setenv("XDG_DATA_HOME", "data")

        assert early_exit.calibration_folder() == tmp_path / ".local/share/gridprobe/calibrations"

    def test_a_relative_folder_is_under_the_present_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(early_exit.VARIABLE, "mine")

        assert early_exit.calibration_folder() == tmp_path / "mine"

    def test_without_a_home_nothing_is_found_and_storing_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", homeless)

        assert find({}) == EarlyExit()
        with pytest.raises(DataError, match="no folder for calibrations; set GRIDPROBE_CALIBRATION"):
            store({}, FOUND)

    def test_off_finds_nothing_of_the_users(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        store({}, FOUND)
        monkeypatch.setenv(early_exit.VARIABLE, "off")

        assert find({}) == EarlyExit()
