"""tests/reliability.md lists every case once, and every test that it names exists and contains the case's id."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "reliability.md"
CASES = {"V": 28, "D": 7, "Q": 12, "M": 15, "E": 27, "S": 13, "A": 25, "C": 6}
"""How many cases each group has; they are numbered from 01."""
IDS = [f"{group}{number:02}" for group, count in CASES.items() for number in range(1, count + 1)]
ROW = re.compile(r"^\| ([A-Z]\d\d) \| ([^|]+) \| ([^|]+) \|$", flags=re.M)


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall(PAGE.read_text())


@cache
def source_of(file: str, name: str) -> str:
    """A test with its decorators and the comments above it; "" if there is none."""
    text = (HERE.parent / file).read_text() if (HERE.parent / file).is_file() else ""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
            while start and lines[start - 1].lstrip().startswith("#"):
                start -= 1
            return "\n".join(lines[start : node.end_lineno])
    return ""


def names_case(source: str, case: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){case}(?![0-9])", source, flags=re.I) is not None


def test_every_case_is_on_the_page_once_and_in_order() -> None:
    assert len(IDS) == 133
    assert [case for case, _, _ in rows()] == IDS


def test_a_case_has_a_test_that_names_it_or_a_reason() -> None:
    wrong = [f"{case}: {problem}" for case, promise, proof in rows() for problem in problems(case, promise, proof)]

    assert wrong == []


def problems(case: str, promise: str, proof: str) -> Iterator[str]:
    """What is wrong with a row of the page."""
    named = [re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", part) for part in proof.split(", ")]
    if len(promise) <= 5 or not (all(named) or re.match(r"no test: .{20,}", proof)):
        yield f"has no promise, or neither tests nor a reason: {proof}"
    for each in filter(None, named):
        source = source_of(each[1], each[2])
        if not source:
            yield f"{each[1]} has no test {each[2]}"
        elif not names_case(source, case):
            yield f"{each[2]} does not contain {case}"


def test_the_check_sees_what_is_missing() -> None:
    assert source_of("tests/test_reliability.py", "test_that_is_not_there") == ""
    assert source_of("tests/no_such_file.py", "test_x") == ""
    here = "`tests/test_reliability.py::test_that_is_not_there`"
    assert [*problems("V01", "a promise", here)] == ["tests/test_reliability.py has no test test_that_is_not_there"]
    assert len([*problems("V01", "a promise", "no test")]) == len([*problems("V01", "", "no test: " + 20 * "x")]) == 1
    assert names_case("def test_v01_is_empty", "V01") and not names_case("def test_x(): V010 = AV01", "V01")


def test_the_summary_in_the_docs_has_the_numbers_of_cases() -> None:
    guarantees = (HERE.parent / "docs" / "guarantees.md").read_text()

    counts = re.findall(r"^\| [^|]+ \| (\d+) \| ", guarantees, flags=re.M)
    assert [int(count) for count in counts] == list(CASES.values()) and f"lists {len(IDS)} " in guarantees
