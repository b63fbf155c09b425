"""docs/selectors.md has a row for every selector and encoder of the registry."""

from pathlib import Path

import pytest

from gridprobe.registry import ENCODERS, SELECTORS

PAGE = (Path(__file__).parent.parent / "docs" / "selectors.md").read_text(encoding="utf-8")
NAMES = [entry.written(name) for registry in (SELECTORS, ENCODERS) for name, entry in registry.items()]


@pytest.mark.parametrize("written", NAMES)
def test_it_has_one_row(written: str) -> None:
    row = "\n| `{}` |".format(written.replace("|", "\\|"))

    assert PAGE.count(row) == 1, f"docs/selectors.md needs one row for {written}"
