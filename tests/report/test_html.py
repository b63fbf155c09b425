"""Templates: what is not escaped is written by the package, and a value that is missing is an error."""

import re
from importlib.resources import files

import pytest
from jinja2 import UndefinedError

from gridprobe.report.html import render_part

TEMPLATES = [each for each in (files("gridprobe.report") / "templates").iterdir() if each.name.endswith(".j2")]
OURS = {"policy", "style", "script", "data", "pareto.svg"}
"""Made by the package: stylesheets, the script, JSON without < and &, and a plot that is a template itself."""


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_only_what_the_package_writes_is_not_escaped(template: object) -> None:
    text = template.read_text(encoding="utf-8")  # type: ignore[attr-defined]

    assert set(re.findall(r"([\w.]+)\s*\|\s*safe", text)) <= OURS
    assert not re.search(r"autoescape|Markup|\|\s*(?!safe\b)\w*safe", text)


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        render_part("page.html.j2", policy="", style="", version="")
