"""The documentation cannot rot: its code runs, its flags exist, its links lead somewhere."""

import re
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gridprobe as gp
from gridprobe.importance import Fixed, Grid, ImportanceMap, NoiseAware
from gridprobe.options import Options
from gridprobe.question import TEMPLATES
from gridprobe.registry import COMMANDS, FAMILIES, REFUSED, Entry
from gridprobe_eval.benchmarks import BENCHMARKS, SUBTITLE_MODES
from gridprobe_eval.benchmarks.verify import RELEASES
from videos import numbered_video

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()


def _blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.S | re.M)


@pytest.mark.parametrize("code", _blocks("python"))
def test_python_in_the_readme_runs(
    code: str, tiny_model: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gp, "load_model", lambda name: tiny_model)  # the only change: no gigabytes are downloaded
    numbered_video(Path("talk.mp4"), 150)

    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)

    answer = names["answer"]
    assert Path("map.png").exists() and isinstance(answer, gp.Answer) and answer.choice in "ABC"


def run_only_block(page: str, **names: Any) -> dict[str, Any]:
    """The names that the only Python of a page defines; there is a video, talk.mp4, in the current folder."""
    numbered_video(Path("talk.mp4"), 150)
    (code,) = _blocks("python", (ROOT / "docs" / page).read_text())
    exec(compile(code, page, "exec"), names)
    return names


def test_python_in_the_evaluation_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text('{"video": "talk.mp4", "question": "Which?", "options": ["x", "y"], "answer": "B"}\n')

    assert run_only_block("evaluation.md")["result"]["all"]["accuracy"] == 1.0


def test_the_selector_of_the_docs_keeps_four_frames(
    tiny_model: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gp, "load_model", lambda name: tiny_model)

    answer = run_only_block("selectors.md")["answer"]

    assert answer.selection.selector == "motion" and answer.selection.kept == 4


@pytest.mark.parametrize(("level", "text"), [(250, "day"), (5, "night")])
def test_the_model_of_the_docs_tells_day_from_night(
    level: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_only_block("models.md")
    frames = gp.FramePool.from_arrays(np.full((9, 32, 32, 3), level, dtype=np.uint8), fps=1.0)

    assert gp.ask(frames, names["question"], model=names["Brightness"](), probes="fresh").text == text


CONTRIBUTING_IMPORTS = """
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from gridprobe import FramePool, FrameSize, Question, Selection, Selector, UsageError
from gridprobe.models import CostModel, Model, Posterior, Request
from gridprobe_eval.benchmarks.base import Benchmark, Item, Metric
from gridprobe_eval.benchmarks.files import find_files, read_rows
from gridprobe_eval.benchmarks.files import choose, gather, letter, text
from gridprobe_eval.benchmarks.base import accuracy
from gridprobe.importance import Budget, Fixed, top
from gridprobe.models.base import Cost
from gridprobe.importance import ImportanceMap
from gridprobe.registry import Entry
from gridprobe_eval.report.tables import RunScores
from gridprobe.selectors import Parts
"""
SAMPLES = _blocks("python", (ROOT / "CONTRIBUTING.md").read_text())


def sample(name: str) -> dict[str, Any]:
    """The names that the block of CONTRIBUTING.md with this text defines."""
    (code,) = (each for each in SAMPLES if name in each and not each.startswith('"'))
    names: dict[str, Any] = {}
    exec(compile(CONTRIBUTING_IMPORTS + code, "CONTRIBUTING.md", "exec"), names)
    return names


class TestContributing:
    """Each sample does what its section says."""

    @pytest.mark.parametrize("code", SAMPLES)
    def test_every_sample_is_a_line_of_a_registry_or_defines_something(self, code: str) -> None:
        names: dict[str, Any] = {}
        exec(CONTRIBUTING_IMPORTS, names)
        before = len(names)

        exec(f"entries = {{{code}}}" if code.startswith('"') else code, names)

        assert len(names) > before and all(isinstance(entry, Entry) for entry in names.get("entries", {}).values())

    def test_budget(self) -> None:
        share = sample("class Share")["Share"].parse("0.1")

        assert share.kept(ImportanceMap(Grid(4), (0.5,) * 4, (0.5,) * 4)) == 2 and share.bounds(16) == (2, 2)

    def test_selector(self) -> None:
        names = sample("def make")
        names["Motion"] = lambda budget: budget

        assert names["make"]("", SimpleNamespace(budget=Fixed(4))) == Fixed(4)
        with pytest.raises(gp.UsageError, match="needs a number of frames"):
            names["make"]("", SimpleNamespace(budget=NoiseAware()))

    def test_benchmark(self, tmp_path: Path) -> None:
        names = sample("def metrics")
        row = '{"id": "1", "question": "Which?", "options": ["x", "y"], "answer": "B", "video": "talk.mp4"}'
        (tmp_path / "val.json").write_text(f"[{row}]")

        found = names["load"](tmp_path)

        assert [item.question.answer for item in found.items] == ["B"] and not found.problems
        assert names["metrics"](found.items, {"1": True})[0].value == 100.0


def test_the_evaluation_page_knows_every_benchmark_template_and_subtitle_mode() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()

    for name in BENCHMARKS:
        assert page.count(f"\n| `{name}` |") == 1 + (name in RELEASES), "where its files go, and what is official"
    for name in SUBTITLE_MODES:
        assert f"| `{name}` |" in page
    for name in TEMPLATES:
        assert f"`{name}`" in page
    for rows in RELEASES.values():
        assert str(rows[""]) in page


def test_the_models_page_lists_every_family_with_what_it_lacks() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    rows = {
        cells[0].strip("`"): tuple(cells[1:])
        for line in page.splitlines()
        if line.startswith("| `") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 7
    }

    assert {name: row[:2] for name, row in rows.items()} == {
        name: (entry.help, entry.lacks) for name, entry in FAMILIES.items()
    }
    for name, (_, _, tokens, *_) in rows.items():
        assert tokens.startswith(("fixed", "by size")), name
    for name in REFUSED:
        assert name not in FAMILIES


def test_every_flag_in_the_readme_exists() -> None:
    known = {flag for entry in COMMANDS.values() for p in entry.load().params for flag in p.opts}
    ours = re.sub(
        r"`python [^`]*`|^(?:python|pip) .*$", "", README, flags=re.M
    )  # pip and programs under speed/ have flags of their own
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))

    assert used and used <= known, used - known


def test_every_verb_has_a_help_text() -> None:
    assert all(entry.load().help for entry in COMMANDS.values())


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()


@pytest.mark.parametrize("place", re.findall(r"\| `([\w.]+)` \|$", GLOSSARY, flags=re.M))
def test_the_glossary_names_code_that_exists(place: str) -> None:
    name = place if place.startswith("gridprobe_") else f"gridprobe.{place}"

    assert resolve_name(name) is not None


def test_the_glossary_is_in_order_and_each_term_has_one_line() -> None:
    terms = re.findall(r"^\| (\w[^|]*) \| [^|]+ \| `", GLOSSARY, flags=re.M)

    assert len(terms) > 30 and terms == sorted(set(terms), key=str.lower)


LEFT_BEHIND = re.compile(r"\bbeside\b|\bso many\b|(?<!F)\d %|\bnative size\b|\bthe whole way\b|\bstretch(?:es)? of\b")
"""Wording that the docs do not use: next to; that many; 12%; full size; full path; segments."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    assert not LEFT_BEHIND.findall(page.read_text())


def test_the_docs_are_short() -> None:
    pages = [README, *(page.read_text() for page in (ROOT / "docs").rglob("*.md"))]

    assert len(README.splitlines()) <= 90
    assert len(pages) <= 1 + 13 and sum(len(page.split()) for page in pages) <= 18_000


def test_every_setting_named_in_the_method_page_exists() -> None:
    named = set(re.findall(r"`([a-z_]+)=", (ROOT / "docs" / "method.md").read_text()))

    assert named <= {each.name for each in fields(Options)} | {"model", "answer_model"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_the_docs_exist(page: Path) -> None:
    for name in re.findall(r"`((?:src|tests|docs|recipes|speed|paper)/[\w./-]+)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_make_targets_named_in_the_docs_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`?make ([a-z-]+)`", page.read_text()):
            assert re.search(rf"^{target}:", makefile, flags=re.M), f"{page.name} names make {target}"


def test_the_changelog_knows_this_version() -> None:
    assert f"## {gp.__version__} " in (ROOT / "CHANGELOG.md").read_text()
