"""gridprobe calibrate, and what it asks, with a scripted model."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridprobe import MockModel, early_exit
from gridprobe._util import ProgressEvent, listening
from gridprobe.cli import cli
from gridprobe.early_exit import Calibration, EarlyExit, binomial_upper
from gridprobe.errors import RunError, UsageError
from gridprobe.models import LazyModel, Request
from gridprobe_eval.benchmarks import Benchmark
from gridprobe_eval.runner import Agreement, calibrate, draw
from toy_runs import make_video, toy_benchmark, toy_setup
from ways import OURS

pytestmark = pytest.mark.usefixtures("decode_here")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a store of its own."""
    monkeypatch.setenv(early_exit.VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


# Asking.


def eyes(request: Request) -> Mapping[str, float]:
    """The overview is as sure as the question's text says; the focused pass changes its mind where that says so."""
    said = re.search(r"sure (\d\.\d+)", request.prompt)
    sure = float(said.group(1)) if said else 0.99
    if "fails" in request.prompt:
        raise ValueError("nobody foresaw this")
    focused = request.groups[0].view.pixels.max_pixels is not None
    return {"A": 0.1, "B": 0.9} if focused and "changes" in request.prompt else {"A": sure, "B": 1 - sure}


def questions(folder: Path, words: Mapping[str, str] | None = None) -> Benchmark:
    """Forty questions about ten videos; at ε = δ = 0.1 a calibration needs 22 exits."""
    return toy_benchmark(folder, videos=10, questions=4, words=words)


def compared(benchmark: Benchmark, model: MockModel | None = None, **changes: Any) -> Agreement:
    setup = toy_setup(model or MockModel(eyes, name="toy"), **{**OURS, **changes})
    return calibrate(benchmark, setup, items=benchmark.items, epsilon=0.1, delta=0.1)


def test_the_overview_is_compared_with_the_full_path(tmp_path: Path) -> None:
    words = {f"v{video}-q3": "sure 0.7, changes" for video in range(10)}

    found = compared(questions(tmp_path, words)).calibration

    # Thirty are sure at 0.99 and stay; the ten at 0.7 change, so that 0.71 is the last that passes.
    assert found == Calibration(0.71, 0.1, 0.1, 40, 30, 0, binomial_upper(0, 30, 0.1))


def test_answers_of_the_questions_are_not_used(tmp_path: Path) -> None:
    benchmark = questions(tmp_path, {"v0-q0": "changes"})
    unlabelled = [replace(item, question=replace(item.question, answer=None)) for item in benchmark.items]

    one, other = compared(benchmark), compared(replace(benchmark, items=tuple(unlabelled)))

    assert one.calibration == other.calibration and one.calibration.differing == 1


@pytest.mark.parametrize(
    "changes", [{"effort": "quick"}, {"effort": "auto", "exit_confidence": 0.5}, {"effort": "full"}]
)
def test_every_question_is_taken_to_the_end_whatever_the_effort(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = MockModel(eyes, name="toy")

    found = compared(questions(tmp_path), model, **changes)

    focused = [each for each in model.requests if each.groups[0].view.pixels.max_pixels is not None]
    assert len(focused) == 40 and found.videos == 10
    assert found.setup.effort == "full"


def test_questions_about_one_video_share_its_session(tmp_path: Path) -> None:
    model = MockModel(eyes, name="toy")

    compared(questions(tmp_path), model)

    overviews = [each for each in model.requests if each.groups[0].view.pixels.max_pixels is None]
    assert overviews and all(each.keep_kv for each in overviews)


def test_progress_counts_questions_and_nothing_else(tmp_path: Path) -> None:
    seen: list[ProgressEvent] = []

    with listening(seen.append):
        compared(questions(tmp_path))

    assert seen == [ProgressEvent("questions", done, 40) for done in range(1, 41)]


def test_a_failing_question_is_left_out_and_named(tmp_path: Path) -> None:
    found = compared(questions(tmp_path, {"v3-q1": "fails"}))

    assert found.calibration.questions == 39
    assert found.failures == (("v3-q1", "ValueError: nobody foresaw this"),)


def test_more_than_a_tenth_of_failures_end_it_at_once(tmp_path: Path) -> None:
    model = MockModel(eyes, name="toy")
    words = {f"v{video}-q0": "fails" for video in range(10)}

    with pytest.raises(RunError, match=r"5 of 40 questions failed, and at most 10% may, such as v0-q0: ValueError"):
        compared(questions(tmp_path, words), model)

    assert not any("<v5-" in each.prompt for each in model.requests)


def test_a_missing_video_fails_its_own_questions(tmp_path: Path) -> None:
    benchmark = questions(tmp_path)
    items = [replace(item, video=tmp_path / "gone.mp4") if item.group == "v2" else item for item in benchmark.items]

    found = compared(replace(benchmark, items=tuple(items)))

    assert [name for name, _ in found.failures] == [f"v2-q{i}" for i in range(4)]
    assert all("VideoError" in why for _, why in found.failures)


@pytest.mark.parametrize(("changes", "why"), [({"effort": "focus"}, "takes no overview")])
def test_a_way_without_its_first_overview_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        compared(questions(tmp_path), **changes)


def test_drawing_is_seeded_even_and_in_order(tmp_path: Path) -> None:
    items = questions(tmp_path).items

    drawn = [draw(items, 10, seed=seed) for seed in range(300)]

    assert draw(items, None) == items and draw(items, 10, seed=7) == drawn[7]
    assert all([items.index(item) for item in each] == sorted(items.index(item) for item in each) for each in drawn)
    counts = [sum(item in each for each in drawn) for item in items]
    assert min(counts) > 75 - 4.5 * math.sqrt(75 * 0.75) and max(counts) < 75 + 4.5 * math.sqrt(75 * 0.75)


def test_no_video_has_a_second_question_before_every_video_has_one(tmp_path: Path) -> None:
    items = questions(tmp_path).items

    for seed in range(50):
        one, more = draw(items, 10, seed=seed), draw(items, 15, seed=seed)
        assert len({item.group for item in one}) == 10 and all(item in more for item in one)
        assert max(sum(item.group == each.group for item in more) for each in more) == 2


# The command.


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty questions of one's own without answers, and a scripted model under whatever name."""
    monkeypatch.setattr(LazyModel, "load", lambda self, **options: MockModel(eyes, name=self.name))
    for video in range(10):
        make_video(tmp_path / f"v{video}")
    return write(tmp_path)


def write(folder: Path, words: Mapping[int, str] | None = None) -> Path:
    rows = [
        {"video": f"v{i % 10}", "question": f"Is it {i}? {(words or {}).get(i, '')}", "options": ["yes", "no"]}
        for i in range(40)
    ]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "mine.jsonl"


def command(data: Path, *more: object) -> Result:
    levels = ("--epsilon", 0.1, "--delta", 0.1, "--k", 2)
    arguments = ("calibrate", "jsonl", "--data", data, "--model", "toy", *levels, *more)
    return CliRunner(env={"GRIDPROBE_MODEL": ""}).invoke(cli, [str(each) for each in arguments])


def test_command_prints_and_stores_what_a_session_then_finds(data: Path, folder: Path) -> None:
    done = command(data)

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "threshold  0.4",
        "exits      40 of 40 questions about 10 videos (100.0%)",
        "differing  0 of the 40 exits",
        "bound      5.59% differ at most (epsilon 0.1), confidence 0.9",
        "           Clopper-Pearson, fixed-sequence testing",
    ]
    (file,) = folder.iterdir()
    assert f"calibration saved to {file}" in done.stderr
    setup = toy_setup(MockModel(eyes, name="toy"), **OURS)
    assert setup.loaded().exit == EarlyExit(0.4, "calibrated", 0.1, 0.1, 40)


def test_command_as_json(data: Path, folder: Path) -> None:
    done = command(write(data.parent, {3: "fails", 5: "changes"}), "--json")

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["threshold"], said["questions"], said["exits"], said["differing"]) == (0.4, 39, 39, 1)
    assert said["failed"] == [{"id": "4", "error": "ValueError: nobody foresaw this"}]
    assert Path(said["file"]).parent == folder and said["method"].startswith("Clopper-Pearson")
    assert "1 questions failed and are left out, such as 4: ValueError" in done.stderr


def test_dry_run_stores_nothing(data: Path, folder: Path) -> None:
    done = command(data, "--dry-run")

    assert done.exit_code == 0 and done.stdout.startswith("threshold  0.4\n")
    assert not folder.exists() and "saved" not in done.stderr


def test_n_draws_questions(data: Path) -> None:
    assert json.loads(command(data, "-n", 30, "--json").stdout)["questions"] == 30


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (dict.fromkeys(range(0, 40, 5), "changes"), "the full path differs in 8 of the 40 questions"),
        (dict.fromkeys(range(40), "sure 0.6, changes"), "the full path differs in 40 of the 40 questions"),
    ],
)
def test_differing_too_often_is_an_error_and_nothing_is_stored(
    data: Path, folder: Path, words: Mapping[int, str], why: str
) -> None:
    done = command(write(data.parent, words), "--json")

    assert done.exit_code == 1 and why in done.stderr and not folder.exists()
    assert json.loads(done.stdout)["threshold"] is None and json.loads(done.stdout)["file"] is None
    assert len([line for line in done.stderr.splitlines() if line.startswith("gridprobe: ")]) == 1


def test_note_says_if_questions_share_a_video(data: Path) -> None:
    def noted() -> bool:
        return "note: the bound counts questions about one video as independent" in command(data).stderr

    assert noted()
    for video in range(10, 40):
        make_video(data.parent / f"v{video}")
    rows = [json.loads(line) | {"video": f"v{i}"} for i, line in enumerate(data.read_text().splitlines())]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert not noted()


def test_too_few_exits_say_how_many_are_needed(data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Four options and an overview that is never surer than 0.35: nothing exits at the lowest threshold, 0.4.
    rows = [json.loads(line) | {"options": ["a", "b", "c", "d"]} for line in data.read_text().splitlines()]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    unsure = MockModel(lambda request: {"A": 0.35, "B": 0.25, "C": 0.2, "D": 0.2})
    monkeypatch.setattr(LazyModel, "load", lambda self, **options: unsure)

    done = command(data)

    assert done.exit_code == 1 and not folder.exists()
    assert "0 of 40 questions exit at the lowest one, and epsilon=0.1 with delta=0.1 needs at least 22" in done.stderr


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["-n", 20], "epsilon=0.1 and delta=0.1 need at least 22 questions, got 20"),
        (["-n", 41], "-n must be from 1 to the number of questions, 40, got 41"),
        (["-n", 0], "-n must be from 1 to"),
        (["--epsilon", 2], "epsilon must be between 0 and 1, got 2.0"),
        (["--preset", "paper"], "effort=focus takes no overview"),
        (["--selector", "all"], "effort=focus takes no overview"),
        (["--set", "fraems=1"], "did you mean 'frames'"),
        (["--ids", "nope"], "no question 'nope'"),
    ],
)
def test_a_mistake_is_one_sentence(data: Path, more: list[object], why: str, folder: Path) -> None:
    done = command(data, *more)

    assert done.exit_code == 2 and why in done.stderr and not folder.exists()
    assert len(done.stderr.strip().splitlines()) == 1


def test_every_line_fits_into_80_columns(data: Path) -> None:
    done = command(data, "--epsilon", 0.123456, "--delta", 0.0123456)

    assert done.exit_code == 0 and max(map(len, done.stdout.splitlines())) <= 80
