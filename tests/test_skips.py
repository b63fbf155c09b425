"""Every reason for which a test may be skipped has a command that runs it, and the table names both."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skips import command_for, skipped_table

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent


def reasons() -> Iterator[str]:
    for file in HERE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            name = ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else ""
            if not isinstance(call, ast.Call) or name not in ("skip", "skipif", "importorskip"):
                continue
            given = [each.value for each in call.keywords if each.arg == "reason"]
            texts = given or (call.args[:1] if name != "skipif" else [])
            for text in texts:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value if given or name == "skip" else f"could not import '{text.value}'"


def test_every_reason_in_the_tests_has_a_command() -> None:
    found = set(reasons())
    assert len(found) > 10 and {"needs strace", "no CUDA device", "could not import 'ray'"} <= found
    assert [reason for reason in found if command_for(reason) is None] == []


def test_reasons_are_counted_and_left_out_marks_are_named() -> None:
    lines = skipped_table(["Skipped: needs strace", "Skipped: needs strace", "no CUDA device"], "not slow and not vllm")
    assert [line.split()[0] for line in lines] == ["2", "1", "all", "all"]
    assert "needs strace" in lines[0] and lines[0].endswith("apt-get install strace && make test")
    assert lines[2].endswith("make test-slow") and lines[3].endswith("make test-vllm")
    assert skipped_table([]) == []


@pytest.mark.parametrize("workers", ["0", "1"])
def test_the_table_is_printed_with_and_without_workers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    pytester.makeconftest((HERE / "conftest.py").read_text())
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    pytester.makepyfile("import pytest\n\ndef test_traced():\n    pytest.skip('needs strace')")
    done = pytester.runpytest_subprocess("-n", workers)
    done.stdout.re_match_lines(
        [r"=+ not run: count, reason, command =+", r"    1  needs strace  apt-get install strace"]
    )
