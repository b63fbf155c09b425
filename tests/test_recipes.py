"""Every recipe gives commands that the command line accepts; none of them is run here."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gridprobe.cli import cli

RECIPES = Path(__file__).parents[1] / "recipes"
PAPER = sorted((RECIPES / "paper").glob("*.sh"))


def commands(recipe: Path, *arguments: str) -> list[list[str]]:
    """What a recipe would call, with a gridprobe that only prints."""
    printed = subprocess.run(
        [str(recipe), *arguments], env=os.environ | {"GRIDPROBE": "echo"}, capture_output=True, text=True, check=True
    ).stdout
    return [shlex.split(line) for line in printed.splitlines()]


def accepted(command: list[str]) -> dict[str, object]:
    verb, *rest = command
    return cli.commands[verb].make_context(verb, rest).params


@pytest.mark.parametrize("benchmark", ["video-mme-v2", "longvideobench"])
@pytest.mark.parametrize("recipe", PAPER, ids=lambda recipe: recipe.stem)
def test_recipes_of_the_paper(recipe: Path, benchmark: str) -> None:
    called = commands(recipe, benchmark, "/data", "--workers", "8")

    assert called
    for command in called:
        given = accepted(command)
        assert command[1] == benchmark and given["preset"] == "paper" and given["workers"] == 8
        assert given["subtitles"] == ("paper" if benchmark == "longvideobench" else "none")
    assert len({command[command.index("--out") + 1] for command in called}) == len(called)


def test_each_row_has_a_folder_of_its_own() -> None:
    folders = [c[c.index("--out") + 1] for recipe in PAPER for c in commands(recipe, "video-mme-v2", "/data")]

    assert len(set(folders)) == len(folders) >= 18


def test_the_gridworld_recipe(tmp_path: Path) -> None:
    called = commands(RECIPES / "gridworld.sh", str(tmp_path), "--workers", "2")

    assert [command[0] for command in called] == ["eval"] * 5 + ["score", "report"]
    evaluated = [accepted(command) for command in called[:5]]
    assert [given["selector"] for given in evaluated] == ["all", "all-small", "gridprobe", "gridprobe", "gridprobe"]
    assert [given["effort"] for given in evaluated[2:]] == ["focus", None, None]
    assert evaluated[4]["model"] == "embedded:nano" and all(given["workers"] == 2 for given in evaluated)


def test_the_recipe_for_a_checkpoint_of_yours(tmp_path: Path) -> None:
    recipe, data = RECIPES / "check-model.sh", tmp_path / "videos"
    options = ("embedded:nano", "gridworld", str(data), "--preset", "gridworld", "--count", "1", "--k", "2")
    environment = os.environ | {"PYTHON": sys.executable, "RUNS": str(tmp_path)}
    done = subprocess.run([str(recipe), *options], env=environment, capture_output=True, text=True, check=True)

    ways = ("all native", "all small", "published", "ours quick", "ours auto", "ours full", "map fresh", "map memory")
    assert all(f"| {way} |" in done.stdout for way in ways)
    assert "exit for at most 2% mistaken exits" in done.stdout
    assert (tmp_path / "check-embedded:nano-gridworld.jsonl").is_file()


def test_every_recipe_is_in_the_table() -> None:
    table = (RECIPES / "README.md").read_text(encoding="utf-8")

    assert all(f"`{recipe.stem}`" in table for recipe in PAPER)


def test_a_recipe_without_data_says_how_it_is_called() -> None:
    result = subprocess.run([str(PAPER[0])], capture_output=True, text=True)

    assert result.returncode == 2 and result.stderr.startswith("usage: ")
