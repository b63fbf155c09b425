"""Every row of the paper has a recipe with its options, and every recipe runs on a tiny benchmark."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from benchmark_files import lvb_row, v2_group, write_json, write_parquet
from gridprobe.cli import cli
from gridprobe.options import ENCODER, PRESETS, Options, parse_changes
from gridprobe.registry import COMMANDS, SELECTORS
from gridprobe_eval.reader import read_run
from videos import numbered_video

pytestmark = pytest.mark.release
RECIPES = Path(__file__).parents[2] / "recipes"
PAPER_RECIPES = RECIPES.parent / "paper" / "recipes"
GRIDPROBE = str(Path(sys.executable).parent / "gridprobe")
PAPER = sorted(path for path in PAPER_RECIPES.glob("*.sh") if path.stem != "common")


def commands(recipe: Path, *arguments: str, **environment: str) -> list[list[str]]:
    """What a recipe would call, with a gridprobe that only prints."""
    changed = os.environ | {"GRIDPROBE": "echo", "PYTHON": sys.executable} | environment
    printed = subprocess.run([str(recipe), *arguments], env=changed, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in printed.splitlines()]


def accepted(command: list[str]) -> dict[str, Any]:
    verb, *rest = command
    params: dict[str, Any] = COMMANDS[verb].load().make_context(verb, rest).params
    return {"context": None, **params, **parse_changes(params.get("changes") or ())}


class Row(NamedTuple):
    """A row of the paper's tables: what it prints, the run that gives it, and how that run must differ from others."""

    table: str
    row: str
    printed: str
    recipe: str
    run: str
    options: dict[str, Any]


TWO, FOUR, EIGHT = ("Qwen/Qwen3-VL-2B-Instruct", "Qwen/Qwen3-VL-4B-Instruct", "Qwen/Qwen3-VL-8B-Instruct")
ALL, CONTROL = {"selector": "all"}, {"selector": "uniform-like"}
SMALL, LARGE = {"limit": 400}, {"limit": 1800}
ROWS = (
    Row("Table 1", "Qwen3-VL-2B", "9.45 23.16 56.4", "all-2b", "all-2b", {**ALL, "model": TWO}),
    Row("Table 1", "Qwen3-VL-4B", "14.11 30.06 64.1", "all-4b", "all-4b", {**ALL, "model": FOUR}),
    Row("Table 1", "Qwen3-VL-8B", "14.91 30.94 62.7", "all-8b", "all-8b", {**ALL, "model": EIGHT}),
    Row("Table 1", "GP-2B", "8.39 21.53 57.3", "gp-2b", "gp-2b", {"model": TWO}),
    Row("Table 1", "GP-4B", "12.86 28.28 62.4", "gp-4b", "gp-4b", {"model": FOUR}),
    Row("Table 1", "GP-8B", "12.60 28.06 60.7", "gp-8b", "gp-8b", {"model": EIGHT}),
    Row("Table 1", "Uniform-M → 8B", "10.83 26.22 58.5", "uniform-2b-8b", "uniform-2b-8b",
        {**CONTROL, "model": TWO, "answer_model": EIGHT}),
    Row("Table 1", "GP-2B → 4B", "10.76 25.22 60.4", "gp-2b-4b", "gp-2b-4b", {"model": TWO, "answer_model": FOUR}),
    Row("Table 1", "GP-2B → 8B", "11.70 26.72 59.7", "gp-2b-8b", "gp-2b-8b", {"model": TWO, "answer_model": EIGHT}),
    Row("Tables 2, 3", "GridProbe, M = 8", "7.49 20.12 54.6", "gp-2b-m8", "gp-2b-m8", {"model": TWO, "frames": 8}),
    Row("Table 2", "MDP3, M = 8", "7.38 20.09 51.0", "mdp3-2b-m8", "mdp3-2b-m8",
        {"selector": "mdp3", "model": TWO, "frames": 8}),
    Row("LVB by duration", "8B, uniform", "59.3", "uniform-8b", "uniform-8b", {**CONTROL, "model": EIGHT}),
    Row("LVB by duration", "2B → 4B, uniform", "58.8", "uniform-2b-4b", "uniform-2b-4b",
        {**CONTROL, "model": TWO, "answer_model": FOUR}),
    Row("Selector size", "2B", "26.25", "selector-size", "selector-2b", {**SMALL, "model": TWO}),
    Row("Selector size", "4B", "26.00", "selector-size", "selector-4b", {**SMALL, "model": FOUR, "answer_model": TWO}),
    Row("Selector size", "8B", "24.75", "selector-size", "selector-8b", {**SMALL, "model": EIGHT, "answer_model": TWO}),
    Row("Frame order", "time", "26.25", "order", "order-time", {**SMALL, "model": TWO}),
    Row("Frame order", "importance", "25.00", "order", "order-importance",
        {**SMALL, "model": TWO, "changes": ("show=importance",)}),
    Row("Collated", "baseline", "23.10", "collage", "collage-all", {**LARGE, **ALL, "model": TWO}),
    Row("Collated", "two-stage", "21.27", "collage", "collage-frames", {**LARGE, "model": TWO}),
    Row("Collated", "collated", "20.11", "collage", "collage", {**LARGE, "model": TWO, "changes": ("show=collage",)}),
    *(Row("Figure 1b", f"K = {k}, all", "", "k-sweep", f"k-{k}-all", {**SMALL, **ALL, "model": TWO, "k": k})
      for k in (6, 8, 12, 16, 24, 32)),
    *(Row("Figure 1b", f"K = {k}", "", "k-sweep", f"k-{k}", {**SMALL, "model": TWO, "k": k})
      for k in (6, 8, 12, 16, 24, 32)),
)  # fmt: skip
"""Tables 1 to 3, those of the ablations and of the appendix (breakdowns there have the rows of Table 1), Figure 1b."""


def options_of(command: list[str]) -> dict[str, Any]:
    """What a command says that is not the same for every row or the default."""
    given, usual = accepted(command), accepted([*command[:2], "--data", "x", "--out", "x"])
    same = ("data", "out", "preset", "subtitles", "options")
    known = {name: value for name, value in given.items() if name in usual}  # others are in `changes`, too
    return {name: value for name, value in known.items() if value != usual[name] and name not in same}


@pytest.fixture(scope="module")
def called() -> dict[tuple[str, str], list[str]]:
    """Every command of every recipe, by recipe and name of the run."""
    found = {}
    for recipe in PAPER:
        for command in commands(recipe, "video-mme-v2", "/data"):
            found[recipe.stem, Path(command[command.index("--out") + 1]).name] = command
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table}: {row.row}")
def test_a_row_of_the_paper_has_a_run_with_its_options(row: Row, called: dict[tuple[str, str], list[str]]) -> None:
    command = called[row.recipe, row.run]
    header = (PAPER_RECIPES / f"{row.recipe}.sh").read_text(encoding="utf-8").splitlines()[1]

    assert options_of(command) == row.options
    assert accepted(command)["preset"] == "paper" and command[1] == "video-mme-v2"
    assert all(number in header for number in row.printed.split()), header


def test_every_run_of_the_recipes_is_a_row_of_the_paper(called: dict[tuple[str, str], list[str]]) -> None:
    assert sorted(called) == sorted((row.recipe, row.run) for row in ROWS)
    assert len({run for _, run in called}) == len(called), "each has a folder of its own"


@pytest.mark.parametrize("recipe", PAPER, ids=lambda recipe: recipe.stem)
def test_longvideobench_is_asked_with_the_published_subtitles_and_questions(recipe: Path) -> None:
    for command in commands(recipe, "longvideobench", "/data", "--workers", "8"):
        given = accepted(command)
        assert (given["subtitles"], given["options"], given["workers"]) == ("paper", ("paper_subset=true",), 8)


# Every recipe, run: a benchmark in the official layout with one video, the embedded models, a small grid.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("benchmarks")
    v2, lvb = folder / "video-mme-v2", folder / "longvideobench"
    write_parquet(v2 / "test.parquet", v2_group("001"))
    (v2 / "videos").mkdir()
    numbered_video(v2 / "videos" / "001.mp4", 40)
    write_json(lvb / "lvb_val.json", [lvb_row("abcdefghijk_0", "abcdefghijk", duration=2.0, duration_group=15)])
    (lvb / "videos").mkdir()
    numbered_video(lvb / "videos" / "abcdefghijk.mp4", 50)
    said = {"start": "00:00:00.500", "end": "00:00:01.000", "line": "Hi"}
    write_json(lvb / "subtitles" / "abcdefghijk_en.json", [said])
    return {"video-mme-v2": v2, "longvideobench": lvb}


V2_TOO = ("all-2b", "gp-2b", "uniform-2b-8b")


@pytest.mark.parametrize(
    ("recipe", "benchmark"),
    [
        *((recipe, "longvideobench") for recipe in PAPER),
        *((recipe, "video-mme-v2") for recipe in PAPER if recipe.stem in V2_TOO),
    ],
    ids=lambda value: value if isinstance(value, str) else value.stem,
)
def test_a_recipe_runs(
    recipe: Path, benchmark: str, tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, model in (("2B", "nano"), ("4B", "nano"), ("8B", "micro")):
        monkeypatch.setenv(f"QWEN_{size}", f"embedded:{model}")
    monkeypatch.setenv("RUNS", str(tmp_path))
    for preset in PRESETS:
        monkeypatch.setitem(ENCODER, preset, "embedded")
    here = ("--k", "2", "--workers", "0", "--device", "cpu")
    for command in commands(recipe, benchmark, str(tiny[benchmark]), *here):
        done = CliRunner().invoke(cli, command)

        assert done.exit_code == 0, done.output
        found = read_run(Path(command[command.index("--out") + 1]))
        assert [result.answered is not None for result in found.results] == [True] * (4 if "mme" in benchmark else 1)


def test_a_recipe_runs_by_itself_and_resumes(tiny: dict[str, Path], tmp_path: Path) -> None:
    environment = os.environ | {"GRIDPROBE": GRIDPROBE, "RUNS": str(tmp_path), "QWEN_2B": "embedded:nano"}
    recipe, options = PAPER_RECIPES / "gp-2b.sh", ("--k", "3", "--device", "cpu")
    call = [str(recipe), "video-mme-v2", str(tiny["video-mme-v2"]), *options]

    first, second = (subprocess.run(call, env=environment, capture_output=True, text=True) for _ in range(2))

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "4 done, 0 failed, 0 to do" in second.stderr


def test_the_gridworld_recipe(tmp_path: Path) -> None:
    called = commands(RECIPES / "gridworld.sh", str(tmp_path), "--workers", "2")

    assert [command[0] for command in called] == ["eval"] * 5 + ["score", "report"]
    evaluated = [accepted(command) for command in called[:5]]
    assert [given["selector"] for given in evaluated] == ["all", "all-small", "gridprobe", "gridprobe", "gridprobe"]
    assert [given["effort"] for given in evaluated[2:]] == ["focus", None, None]
    assert evaluated[4]["model"] == "embedded:nano" and all(given["workers"] == 2 for given in evaluated)


WITHOUT_FILE = {name: entry for name, entry in SELECTORS.items() if entry.optional or not entry.argument}


class TestSelectors:
    RECIPE = RECIPES / "selectors.sh"

    @pytest.fixture(scope="class")
    @classmethod
    def asked(cls, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("selectors")
        called = commands(cls.RECIPE, str(folder), "--workers", "2", MODELS="embedded:nano")
        assert [command[0] for command in called[-2:]] == ["score", "report"]
        assert all(given["workers"] == 2 for given in map(accepted, called[:-2]))
        return [accepted(command) for command in called[:-2]]

    @pytest.mark.parametrize("name", WITHOUT_FILE)
    def test_no_selector_is_missing(self, name: str, asked: list[dict[str, Any]]) -> None:
        mine = {(given["frames"], given["context"]) for given in asked if given["selector"] == name}
        fewer: dict[str, list[int | str]] = {"q-frame": [4, 8, "auto"], "uniform-like": ["auto"]}
        sizes = fewer.get(name, [8, 16, "auto"])
        if WITHOUT_FILE[name].frames == "needed":
            sizes.remove("auto")

        if WITHOUT_FILE[name].frames == "none":
            assert mine == {(None, None)}
        else:
            assert {(size, context) for size in sizes for context in ("none", "small")} <= mine

    def test_each_run_has_a_folder_of_its_own_and_a_setup_that_can_be_made(self, asked: list[dict[str, Any]]) -> None:
        assert len({given["out"] for given in asked}) == len(asked)
        for given in asked:
            changes = {name: given[name] for name in ("frames", "effort", "context") if given[name] is not None}
            settings = Options.from_preset(given["preset"], **changes)
            settings.resolve(model=given["model"], selector=given["selector"])

    def test_it_runs(self, tmp_path: Path) -> None:
        few = {"COUNT": "2", "FIRST": "0", "SOURCE": "rendered", "BUDGETS": "2", "ONLY": "avua"}
        environment = os.environ | few | {"GRIDPROBE": GRIDPROBE, "PYTHON": sys.executable, "MODELS": "embedded:nano"}
        folder = tmp_path / "runs"
        command = [str(self.RECIPE), str(folder), "--k", "3"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

        names = ("all-small", "all", "gridprobe", "avua-2", "avua-2-context")
        assert all(len(read_run(folder / "embedded:nano" / name).results) == 2 for name in names)
        assert "Kept frames against the evidence" in done.stdout and "avua-2-context" in done.stdout
        assert "Pareto front" in (folder / "embedded:nano" / "report.html").read_text(encoding="utf-8")


def test_the_recipe_for_a_checkpoint_of_yours(tmp_path: Path) -> None:
    recipe, data = RECIPES / "check-model.sh", tmp_path / "videos"
    options = ("embedded:nano", "gridworld", str(data), "--preset", "gridworld", "--count", "1", "--k", "2")
    environment = os.environ | {"PYTHON": sys.executable, "RUNS": str(tmp_path)}
    done = subprocess.run([str(recipe), *options], env=environment, capture_output=True, text=True, check=True)

    ways = ("all native", "all small", "published", "ours quick", "ours auto", "ours full", "map fresh")
    assert all(f"| {way} |" in done.stdout for way in ways)
    assert "exit for at most 2% mistaken exits" in done.stdout
    assert (tmp_path / "check-embedded:nano-gridworld.jsonl").is_file()


def test_every_recipe_is_in_the_table() -> None:
    table = (PAPER_RECIPES.parent / "README.md").read_text(encoding="utf-8")

    assert all(f"`{recipe.stem}`" in table for recipe in PAPER)


def test_a_recipe_without_data_says_how_it_is_called() -> None:
    result = subprocess.run([str(PAPER[0])], capture_output=True, text=True)

    assert result.returncode == 2 and result.stderr.startswith("usage: ")
