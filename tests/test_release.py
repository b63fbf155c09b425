"""What a release needs: the program that makes it refuses what it should, and the files around it fit together."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import release
import yaml

import gridprobe

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small clone that may be released."""
    (tmp_path / "src/gridprobe_world/weights/m").mkdir(parents=True)
    (tmp_path / "src/gridprobe").mkdir()
    (tmp_path / "src/gridprobe/_version.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "src/gridprobe_world/weights/m/m.safetensors").write_bytes(b"weights")
    digest = release.sha256(tmp_path / "src/gridprobe_world/weights/m/m.safetensors")
    (tmp_path / "src/gridprobe_world/weights/hashes.json").write_text(json.dumps({"m": {"m.safetensors": digest}}))
    (tmp_path / "CITATION.cff").write_text("title: x\nversion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 – 2026-11-16\n\n- New.\n\n## 1.1.0 – 2026-10-01\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments], cwd=tree, check=True)


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "state")


def test_a_good_tree_gives_its_version_and_its_part_of_the_changelog(tree: Path) -> None:
    assert release.check_tree(tree) == ("1.2.0", "## 1.2.0 – 2026-11-16\n\n- New.")


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("CHANGELOG.md", "2026-11-16", "unreleased", "write the day of the release"),
        ("CHANGELOG.md", "## 1.2.0", "## 1.3.0", "has no section '## 1.2.0"),
        ("CITATION.cff", "1.2.0", "1.1.0", "make them equal"),
        ("src/gridprobe_world/weights/m/m.safetensors", "weights", "others", "differ from weights/hashes.json"),
    ],
)
def test_a_tree_that_does_not_fit_together_is_refused(tree: Path, file: str, old: str, new: str, reason: str) -> None:
    text = (tree / file).read_text(encoding="utf-8")
    (tree / file).write_text(text.replace(old, new), encoding="utf-8")
    commit(tree)

    with pytest.raises(release.ReleaseError, match=re.escape(reason)):
        release.check_tree(tree)


def test_changes_and_an_old_tag_are_refused(tree: Path) -> None:
    (tree / "new").touch()
    with pytest.raises(release.ReleaseError, match="commit or remove them"):
        release.check_tree(tree)
    (tree / "new").unlink()
    git(tree, "tag", "v1.2.0")
    with pytest.raises(release.ReleaseError, match=r"the tag v1\.2\.0 exists"):
        release.check_tree(tree)


def test_weights_without_a_hash_are_refused(tree: Path) -> None:
    shutil.copy(
        tree / "src/gridprobe_world/weights/m/m.safetensors", tree / "src/gridprobe_world/weights/m/n.safetensors"
    )

    with pytest.raises(release.ReleaseError, match=r"n\.safetensors differ"):
        release.check_weights(tree)


def test_a_wheel_with_tests_or_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "gridprobe-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("gridprobe/__init__.py", "")
        packed.writestr("gridprobe-1.dist-info/METADATA", "")
    release.check_wheel(wheel)
    monkeypatch.setattr(release, "MOST_BYTES", 100)
    with pytest.raises(release.ReleaseError, match="must have fewer than 100"):
        release.check_wheel(wheel)
    with zipfile.ZipFile(wheel, "a") as packed:
        packed.writestr("tests/test_x.py", "")
    with pytest.raises(release.ReleaseError, match="holds tests beside the package"):
        release.check_wheel(wheel)


def test_the_embedded_weights_have_the_hashes_of_the_release() -> None:
    release.check_weights(ROOT)


def test_the_citation_is_of_this_version() -> None:
    cited: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))

    assert cited["version"] == gridprobe.__version__ and cited["license"] == "Apache-2.0"
    assert cited["preferred-citation"]["title"] in (ROOT / "docs" / "method.md").read_text().replace("\n", " ")
    assert len(cited["preferred-citation"]["authors"]) == 5


class TestWorkflow:
    def test_it_runs_all_tests_on_every_python_and_three_systems(self) -> None:
        jobs = yaml.safe_load((GITHUB / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]
        matrix = jobs["test"]["strategy"]["matrix"]
        runs = [step.get("run", "") for step in jobs["test"]["steps"]]

        assert matrix["python"] == [f"3.{minor}" for minor in range(10, 15)]
        assert matrix["system"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
        assert "make test-all" in runs and (ROOT / ".ci" / "run").stat().st_mode & 0o100
        assert jobs["docs"]["steps"][-1]["run"] == "make docs"

    def test_windows_runs_the_tests_that_make_runs(self) -> None:
        jobs = yaml.safe_load((GITHUB / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]
        (tests,) = re.findall(r"-m pytest .*", jobs["test"]["steps"][-1]["run"])

        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        (parallel,) = re.findall(r"^PARALLEL := (.*)$", makefile, flags=re.M)
        assert f"{tests}\n" in makefile.replace("$(PARALLEL)", parallel)

    @pytest.mark.parametrize("form", sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda form: form.name)
    def test_an_issue_form_asks_for_something(self, form: Path) -> None:
        found = yaml.safe_load(form.read_text(encoding="utf-8"))

        assert found["name"] and found["description"]
        assert any(part.get("validations", {}).get("required") for part in found["body"])


@pytest.mark.parametrize("file", ["docs/requirements.txt", "deploy/release-requirements.txt"])
def test_tools_are_pinned_and_do_not_contradict_the_constraints(file: str) -> None:
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    names = {line.partition("==")[0].lower() for line in lines}
    wanted = {line.partition(";")[0].lower() for line in lines}
    constrained = (line.partition(";")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines())

    assert lines and all(re.fullmatch(r"[\w.-]+==[\w.]+(; .+)?", line) for line in lines), lines
    assert {each for each in constrained if each.partition("==")[0] in names} <= wanted


def test_the_program_has_a_help_text() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "release.py", "--help"], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert "--no-tag" in done.stdout
