"""deploy/audit.py says what was not checked, where pip-audit alone would report success."""

import json
import subprocess
from pathlib import Path
from typing import Any

import audit
import pytest

CLEAN = {"name": "click", "version": "8.1", "vulns": []}
BAD = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1"}]}
SKIPPED = {"name": "new", "skip_reason": "Dependency not found"}


def answer(monkeypatch: pytest.MonkeyPatch, stdout: str, stderr: str = "", code: int = 0) -> None:
    def run(*_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], code, stdout, stderr)

    monkeypatch.setattr(audit, "tool", run)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ([CLEAN], None),
        ([CLEAN, BAD], "old 1.0: PYSEC-1"),
        ([CLEAN, SKIPPED], "vulnerabilities of 1 of 2 packages were NOT checked (Dependency not found)"),
        ([], "vulnerabilities of 0 of 0 packages were NOT checked (no package was named)"),
    ],
)
def test_a_skipped_package_is_not_a_clean_one(
    monkeypatch: pytest.MonkeyPatch, packages: list[dict[str, Any]], expected: str | None
) -> None:
    answer(monkeypatch, json.dumps({"dependencies": packages}))
    assert audit.vulnerabilities(Path("requirements.txt")) == expected


def test_without_the_network_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "", "Traceback\nConnectionError: no route", 1)
    found = audit.vulnerabilities(Path("requirements.txt"))
    assert found == "vulnerabilities were NOT checked: pip-audit could not do its work (ConnectionError: no route)"


def test_the_list_of_licences_has_every_package_but_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = {"gridprobe": "Apache-2.0", "click": "BSD-3-Clause", "av": "BSD-3-Clause"}
    answer(monkeypatch, json.dumps([{"Name": name, "Version": "1", "License": each} for name, each in names.items()]))

    table = audit.licences(Path("python"), tmp_path / "licences.csv")

    assert table == "   2  BSD-3-Clause"
    assert (tmp_path / "licences.csv").read_text().splitlines() == [
        "Name,Version,License",
        "click,1,BSD-3-Clause",
        "av,1,BSD-3-Clause",
    ]
