"""paper/figures.py, as typed."""

import io
import json
import xml.etree.ElementTree as ElementTree
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

from evaluation_runs import large_run
from figures import main

PLAN = ("--model", "Qwen/Qwen3-VL-2B-Instruct", "--k", "6,8 12")


class Result(NamedTuple):
    exit_code: int
    stderr: str


def figure(*arguments: object) -> Result:
    with redirect_stderr(io.StringIO()) as stderr, pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return Result(ended.value.code or 0, stderr.getvalue())  # type: ignore[arg-type]  # main exits with a number


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [large_run(folder / name, count=120, selector=name, k=4) for name in ("gridprobe", "all")]


@pytest.mark.parametrize("kind", ["compute", "skew", "regime"])
@pytest.mark.parametrize("form", ["svg", pytest.param("png", marks=pytest.mark.release)])
def test_every_kind_is_drawn_in_both_formats_the_same_every_time(
    kind: str, form: str, runs: list[Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        result = figure(kind, *runs, "--out", tmp_path / f"{name}.{form}")
        assert result.exit_code == 0 and f"figure saved to {tmp_path}" in result.stderr

    one, two = ((tmp_path / f"{name}.{form}").read_bytes() for name in ("one", "two"))
    assert one == two
    if form == "svg":
        assert ElementTree.fromstring(one).tag.endswith("svg")
    else:
        Image.open(tmp_path / "one.png", formats=["PNG"]).load()


def test_compute_can_be_planned_without_runs(tmp_path: Path) -> None:
    for more in ((), ("--kept", 9), ("--kept", "3,9,53", "--size", "640x360", "--convention", "published")):
        result = figure("compute", *PLAN, *more, "--out", tmp_path / "f.svg", "--width", 100)
        assert result.exit_code == 0, result.stderr
    assert ElementTree.parse(tmp_path / "f.svg").getroot().get("width") == f"{100 / 25.4 * 72:.6f}pt"


def test_missing_videos_are_a_note(runs: list[Path], tmp_path: Path) -> None:
    result = figure("regime", *runs, "--ids", "v0001-1, v0002-2", "--out", tmp_path / "f.svg")

    assert result.exit_code == 0 and "note: 2 videos have no thumbnails" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compute", "--out", "f.svg"], "needs runs, or a model"),
        (["compute", "--k", "6", "--out", "f.svg"], "to plan, name a model and grid sizes"),
        (["compute", *PLAN[:3], "six", "--out", "f.svg"], "--k takes whole numbers above 0, as in 6,8,12; got 'six'"),
        (["compute", *PLAN, "--size", "big", "--out", "f.svg"], "--size takes a width and a height"),
        (["compute", *PLAN, "--out", "f.pdf"], "saved as .svg or .png"),
        (["compute", *PLAN, "--out", "gone/f.svg"], "the folder"),
        (["skew", "--out", "f.svg"], "name at least one run folder"),
        (["regime", "empty", "--out", "f.svg"], "empty is not a run"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    result = figure(*arguments)

    assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1
    assert not Path("f.svg").exists()


@pytest.mark.parametrize("kind", ["compute", "skew", "regime"])
def test_runs_of_two_releases_are_one_sentence(kind: str, runs: list[Path], tmp_path: Path) -> None:
    other = large_run(tmp_path / "other", count=120, selector="all", k=4)
    spec = json.loads((other / "spec.json").read_text())
    from gridprobe_eval.reader import Spec

    changed = Spec(**{name: spec[name] for name in vars(Spec.read(other))} | {"benchmark_version": "toy-2"})
    (other / "spec.json").write_text(changed.to_json())
    result = figure(kind, runs[0], other, "--out", tmp_path / "f.svg")

    assert result.exit_code == 2 and "different benchmark versions" in result.stderr
    assert len(result.stderr.splitlines()) == 1
