"""The website, without mkdocs: every page is in the navigation, links and anchors resolve, code runs or is marked."""

import ast
import json
import re
import runpy
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import gridprobe as gp
from gridprobe.registry import COMMANDS
from videos import numbered_video

pytestmark = pytest.mark.release
ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, ROOT / "examples" / "README.md"]
HOOK = runpy.run_path(str(ROOT / "docs" / "site_hook.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.S | re.M)
NOT_RUN = {"serving.md": "needs a server"}
"""Pages whose Python is only compiled."""
TESTED = {"evaluation.md", "models.md", "selectors.md"}
"""Pages whose Python has a test of its own in test_docs.py."""


def ids(page: Path) -> str:
    return page.name


def listed(nav: Any) -> Iterator[str]:
    """The files of a navigation, at any depth."""
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from listed(each)


def slugs(text: str) -> set[str]:
    """The anchors of a page, as the toc extension of Markdown makes them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), flags=re.M)
    plain = (re.sub(r"\]\([^)]*\)|[\[`*]", "", head) for head in heads)
    folded = (unicodedata.normalize("NFKD", head).encode("ascii", "ignore").decode() for head in plain)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in folded}


def test_pages_that_are_not_run_exist() -> None:
    assert NOT_RUN.keys() | TESTED <= {page.name for page in DOCS if "```python" in page.read_text()}


def test_every_page_is_in_the_navigation_once() -> None:
    found = sorted(listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))

    assert found == [page.name for page in DOCS]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_and_anchors_resolve(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target, anchor in re.findall(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)", text):
        file = (page.parent / target) if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in slugs(file.read_text()), f"{page.name} links to {target}#{anchor}"


class TestHook:
    def test_a_link_out_of_docs_leads_to_a_copy(self) -> None:
        moved = HOOK["moved"]("[a](../CONTRIBUTING.md#a-selector) [b](glossary.md)", "docs/selectors.md")

        assert moved == "[a](repository/CONTRIBUTING.md#a-selector) [b](glossary.md)"

    def test_a_copy_links_back(self) -> None:
        moved = HOOK["moved"]("[a](../../docs/glossary.md) [b](overview.md)", "speed/results/method.md")

        assert moved == "[a](../../../glossary.md) [b](overview.md)"

    def test_code_is_left_alone(self) -> None:
        code = "```\n[a](../README.md)\n```\n"

        assert HOOK["moved"](code, "docs/glossary.md") == code

    @pytest.mark.parametrize(
        ("html", "loads"),
        [
            ('<script src="https://cdn.example/x.js">', True),
            ('<link href="https://fonts.example/x.css" rel="stylesheet">', True),
            ('<link rel="stylesheet" href="https://fonts.example/x.css">', True),
            ('<a href="https://example.org">', False),
            ('<script src="assets/x.js">', False),
        ],
    )
    def test_what_is_loaded_from_elsewhere_is_found(self, html: str, loads: bool) -> None:
        assert bool(HOOK["LOADS"].search(html)) == loads

    def test_every_file_that_is_copied_exists(self) -> None:
        needed = HOOK["needed"]()

        assert "CONTRIBUTING.md" in needed and all((ROOT / path).exists() for path in needed)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_gridprobe_commands_have_verbs_and_options_that_exist(page: Path) -> None:
    blocks = [code for language, code in FENCE.findall(page.read_text()) if language in ("", "sh")]
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if "gridprobe" not in words or words[-1] == "gridprobe":
            continue
        verb, *rest = words[words.index("gridprobe") + 1 :]
        if words.index("gridprobe") and "=" not in words[0]:
            continue  # not the command itself, as in `pip install gridprobe`
        assert verb in COMMANDS, line
        command = COMMANDS[verb].load()
        command = command.commands[rest[0]] if isinstance(command, click.Group) else command
        known = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
        assert {word for word in rest if re.match("--[a-z]", word)} <= known | {"--help"}, line


@pytest.mark.parametrize("page", [page for page in DOCS if "```python" in page.read_text()], ids=ids)
def test_python_runs(page: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [code for language, code in FENCE.findall(page.read_text()) if language == "python"]
    codes = [compile(code, page.name, "exec") for code in blocks]
    if page.name in NOT_RUN or page.name in TESTED:
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gp, "load_model", lambda name: tiny_model)
    numbered_video(Path("talk.mp4"), 150)
    questions = [gp.Question("Which?", options=["x", "y"]), gp.Question("Where?", options=["x", "y", "z"])]
    with gp.Session("talk.mp4", model=tiny_model) as session:
        names: dict[str, Any] = {
            "gp": gp, "model": tiny_model, "session": session, "questions": questions, "question": questions[0]
        }  # fmt: skip
        names["video"] = "talk.mp4"
        for code in codes:
            exec(code, names)


@pytest.mark.parametrize("page", [page for page in PAGES if "```json" in page.read_text()], ids=ids)
def test_json_is_json(page: Path) -> None:
    for language, code in FENCE.findall(page.read_text()):
        if language == "json":
            assert json.loads(code), code


def said() -> Iterator[str]:
    """Every text in the source, with … for what is filled in."""
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_sentence_of_the_troubleshooting_page_is_in_the_source() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    sentences = re.findall(r"^### `(.+)`$", page, flags=re.M)
    source = "\n".join(said())

    assert len(sentences) >= 20 and page.count("\n### ") == len(sentences)
    for sentence in sentences:
        assert sentence in source, sentence


def test_the_page_about_gpus_is_what_its_program_makes() -> None:
    made = runpy.run_path(str(ROOT / "speed" / "gpus.py"))["section"]()

    assert made.strip() == (ROOT / "speed" / "results" / "gpus.md").read_text(encoding="utf-8").strip()
