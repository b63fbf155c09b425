"""Names become values in one place, and other packages can add to them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gridprobe
from gridprobe.errors import ModelError, UsageError
from gridprobe.importance import Budget, Grid, ImportanceMap
from gridprobe.registry import (
    BENCHMARKS,
    BUDGETS,
    ENCODERS,
    FAMILIES,
    MODELS,
    SELECTORS,
    Entry,
    Registry,
    explain_missing,
    suggestion,
)
from videos import numbered_video

REGISTRIES = (MODELS, FAMILIES, ENCODERS, SELECTORS, BUDGETS, BENCHMARKS)

EXTENSION = """
from gridprobe import MockModel, Selection, Selector
from gridprobe_eval.benchmarks import Benchmark, jsonl

class Last(Selector):
    name = "last"
    def select(self, pool, question):
        return Selection.of("last", pool, (len(pool) - 1,))

def last(argument, parts):
    return Last()

class Fake:
    @staticmethod
    def load(argument, **options):
        return MockModel(lambda request: {label: 1.0 + (label == argument) for label in request.labels}, name="fake")

class Mine:
    load, metrics = staticmethod(jsonl.load), staticmethod(jsonl.metrics)
"""
POINTS = """
[gridprobe.selectors]
last = extension:last
[gridprobe.models]
fake = extension:Fake
[gridprobe.benchmarks]
mine = extension:Mine
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small package of somebody else, as pip would install it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "extension.py").write_text(EXTENSION)
    metadata = folder / "extension-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extension\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    return folder


def command(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    source = Path(gridprobe.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{source}", "GRIDPROBE_CACHE": "off"}
    line = [sys.executable, "-m", "gridprobe", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env=environment)


def test_another_package_adds_a_selector_and_a_backend(site: Path, tmp_path: Path) -> None:
    clip = numbered_video(tmp_path / "clip.mp4", 50)

    listed = command(site, "list", "selectors")
    asked = command(
        site, "ask", clip, "When?", "-o", "a", "-o", "b", "--selector", "last", "--model", "fake:B", "--json"
    )

    assert "from the package extension" in listed.stdout and "last" in listed.stdout
    assert asked.returncode == 0, asked.stderr
    answer = json.loads(asked.stdout)
    assert (answer["choice"], answer["selection"]["kept"], answer["selection"]["selector"]) == ("B", 1, "last")
    assert answer["settings"]["selector"] == {"name": "last"} and answer["models"]["answerer"] == "scripted:fake"


def test_another_package_adds_a_benchmark_and_everything_is_evaluated_together(site: Path, tmp_path: Path) -> None:
    numbered_video(tmp_path / "clip.mp4", 50)
    rows = [{"id": f"q{n}", "video": "clip.mp4", "question": "?", "options": ["a", "b"], "answer": "B"} for n in (1, 2)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--data", tmp_path, "--out", tmp_path / "run", "--model", "fake:B", "--selector", "last", "--workers", 1)

    done = command(site, "eval", "mine", *options, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["all"]["accuracy"] == 1.0
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["setup"]["selector"] == {"name": "last"} and spec["setup"]["answerer"] == "fake:B"


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_entry_of_ours_can_be_loaded_and_has_a_line_of_help(registry: Registry) -> None:
    for name, entry in registry.items():
        assert entry.load() is not None, name
        assert entry.help and entry.help[0] != " " and not entry.help.endswith(".")
    assert len(registry.listed()) == len(registry)


def test_backends_families_and_benchmarks_offer_what_their_registry_asks_for() -> None:
    for entry in MODELS.values():
        assert callable(entry.load().load) and callable(entry.load().cost_model)
    for entry in FAMILIES.values():
        assert callable(entry.load().load) and callable(entry.load().cost_model)
        assert isinstance(entry.load().KNOWN, tuple)
    for entry in BENCHMARKS.values():
        assert callable(entry.load().load) and callable(entry.load().metrics)


def test_names_take_an_argument_only_where_they_say_so() -> None:
    with pytest.raises(UsageError, match="the selector 'keyframes' needs an argument: keyframes:FILE"):
        SELECTORS.resolve("keyframes")
    with pytest.raises(UsageError, match="the selector 'all' takes no argument, got '3'"):
        SELECTORS.resolve("all:3")
    assert BUDGETS.resolve("shape")[1] == "" and BUDGETS.resolve("shape:0.5")[1] == "0.5"
    assert "keyframes:FILE" in SELECTORS.listed() and "shape[:GAMMA0]" in BUDGETS.listed()


def test_an_unknown_name_suggests_a_near_one_or_all() -> None:
    assert suggestion("unifrom", SELECTORS) == "did you mean 'uniform'?"
    assert suggestion("xyz", ["a", "b"]) == "choose one of a, b" and suggestion("x", []) == "there is none"
    with pytest.raises(UsageError, match=r"unknown budget 'nose'; did you mean 'noise'\?"):
        BUDGETS.find("nose")


def test_nobody_replaces_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value, attr, dist = "all", "elsewhere:thing", "thing", None

    monkeypatch.setattr("gridprobe.registry.entry_points", lambda group: [Point])
    ours = Registry("thing", {"all": Entry("gridprobe.errors", "ours")}, group="g")

    assert ours["all"].help == "ours"


def test_a_missing_package_names_the_extra_that_installs_it() -> None:
    sentence = r"needs fancy, which is not installed; run: pip install 'gridprobe\[local\]'"
    with pytest.raises(ModelError, match=sentence), explain_missing("local"):
        raise ModuleNotFoundError("No module named 'fancy'", name="fancy")
    with pytest.raises(ModelError, match="torch is installed but cannot be imported"), explain_missing("local"):
        raise ImportError("libcudart.so.12: cannot open shared object file", name="torch")
    with pytest.raises(ImportError, match="ours"), explain_missing("local"):
        raise ImportError("ours", name="gridprobe.models")
    with pytest.raises(ModuleNotFoundError), explain_missing("local"):
        raise ModuleNotFoundError("No module named 'gridprobe.typo'", name="gridprobe.typo")


@pytest.mark.parametrize("name", BUDGETS)
@given(st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6), st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6))
def test_every_budget_keeps_within_its_bounds(name: str, rows: list[float], columns: list[float]) -> None:
    make, argument = BUDGETS.resolve("fixed:4" if name == "fixed" else name)
    budget: Budget = make(argument)
    kept = budget.kept(ImportanceMap(Grid(6), tuple(rows), tuple(columns)))

    least, most = budget.bounds(36)
    assert 1 <= least <= kept <= most <= 36 and budget.describe()["name"] == name
