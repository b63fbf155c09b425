"""What a wheel carries: every data file of the package is named by a pattern."""

import ast
import re
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gridprobe"


def patterns() -> list[str]:
    """`package-data` of pyproject.toml; Python 3.10 has no reader for TOML."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r"^\[tool\.setuptools\.package-data\]\ngridprobe = (\[.*?\])$", text, flags=re.M | re.S)
    assert found
    return list(ast.literal_eval(found[1]))


def packed(file: PurePath) -> bool:
    return any(len(file.parts) == pattern.count("/") + 1 and file.match(pattern) for pattern in patterns())


def test_every_data_file_is_packed() -> None:
    files = [file.relative_to(PACKAGE) for file in PACKAGE.rglob("*") if file.is_file() and file.suffix != ".pyc"]

    assert [str(file) for file in files if file.suffix != ".py" and not packed(file)] == []


@pytest.mark.parametrize("size", ["micro", "nano"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_a_checkpoint_is_packed(size: str, name: str) -> None:
    assert packed(PurePath("models", size, name)) and packed(PurePath("models", "vocabulary.json"))
