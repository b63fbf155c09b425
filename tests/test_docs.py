"""The documentation cannot rot: its code runs, its flags exist, its links lead somewhere."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import gridprobe as gp
from gridprobe.benchmarks import BENCHMARKS, SUBTITLE_MODES
from gridprobe.benchmarks.verify import RELEASES
from gridprobe.cli import cli
from gridprobe.settings import Settings
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

    if "answer" in names:
        answer = names["answer"]
        assert Path("map.png").exists() and isinstance(answer, gp.Answer) and answer.choice in "ABC"


def test_python_in_the_benchmarks_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(_blocks("python", (ROOT / "docs" / "benchmarks.md").read_text()))

    names: dict[str, object] = {}
    exec(compile(code, "docs/benchmarks.md", "exec"), names)

    assert len(list(Path("gridworld-videos").iterdir())) == 1 and names["metric"]


def test_the_benchmarks_page_knows_every_benchmark_and_subtitle_mode() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()

    for name in BENCHMARKS:
        assert page.count(f"\n| `{name}` |") == 2
    for name in SUBTITLE_MODES:
        assert f"| `{name}` |" in page
    for rows in RELEASES.values():
        assert str(rows[""]) in page


def test_every_flag_in_the_readme_exists() -> None:
    known = {flag for command in cli.commands.values() for p in command.params for flag in p.opts}
    ours = re.sub(r"`python [^`]*`", "", README)  # programs under speed/ have flags of their own
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))

    assert used and used <= known, used - known


def test_every_verb_is_in_the_readme_and_has_a_help_text() -> None:
    for name, command in cli.commands.items():
        assert command.help
        assert f"gridprobe {name}" in README, f"README does not mention `gridprobe {name}`"


def test_every_setting_named_in_the_method_page_exists() -> None:
    named = set(re.findall(r"`(\w+)=", (ROOT / "docs" / "method.md").read_text()))

    assert named <= {each.name for each in fields(Settings)} | {"model", "answer_model"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_the_docs_exist(page: Path) -> None:
    for name in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_make_targets_named_in_the_docs_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`?make ([a-z-]+)`", page.read_text()):
            assert re.search(rf"^{target}:", makefile, flags=re.M), f"{page.name} names make {target}"


def test_the_changelog_knows_this_version() -> None:
    assert f"## {gp.__version__} " in (ROOT / "CHANGELOG.md").read_text()
