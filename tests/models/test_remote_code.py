"""Code that lies in a checkpoint never runs, whatever standard input answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gridprobe import load_model
from gridprobe.errors import ModelError
from gridprobe.models import cost_model_of
from videos import numbered_video

PROGRAM = "import pathlib\npathlib.Path({marker!r}).touch()\n"
CLASSES = {
    "AutoConfig": "attack.Config",
    "AutoTokenizer": ["attack.Tokenizer", "attack.Tokenizer"],
    "AutoModelForImageTextToText": "attack.Model",
}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that exists once code of the checkpoint ran."""
    return tmp_path / "marker"


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path, marker: Path) -> Path:
    """A genuine checkpoint that names its own classes at every place transformers looks at."""
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    change(folder / "config.json", auto_map=CLASSES)
    change(folder / "tokenizer_config.json", auto_map=CLASSES)
    (folder / "custom_generate").mkdir()
    for file in ("attack.py", "custom_generate/generate.py"):
        (folder / file).write_text(PROGRAM.format(marker=str(marker)))
    return folder


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


# M13 of tests/reliability.md
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("attack", "{} is of the model family attack, which gridprobe cannot run; see `gridprobe list models`"),
        (None, "cannot load the checkpoint {}: its config.json names no model_type"),
    ],
)
def test_a_standard_input_that_says_yes_runs_nothing(
    checkpoint: Path, marker: Path, kind: str | None, sentence: str
) -> None:
    change(checkpoint / "config.json", model_type=kind)
    video = numbered_video(checkpoint.parent / "clip.mp4", 9)
    command = [sys.executable, "-m", "gridprobe", "ask", video, "What?", "-o", "a", "-o", "b", "--model", checkpoint]
    environment = {**os.environ, "HF_MODULES_CACHE": str(checkpoint.parent / "modules")}

    done = subprocess.run(
        [*map(str, command)],
        input="y\n" * 20,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )

    assert not marker.exists()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [f"gridprobe: {sentence.format(checkpoint)}"]


# M13 of tests/reliability.md
def test_a_model_that_transformers_knows_is_loaded_without_the_code_beside_it(
    checkpoint: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _="": "y")

    assert type(load_model(str(checkpoint), device="cpu")).__name__ == "Qwen3VL"
    assert not marker.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model_type": []}', "[" * 100_000])
def test_a_config_without_a_type_is_one_sentence(checkpoint: Path, text: str) -> None:
    (checkpoint / "config.json").write_text(text)

    with pytest.raises(ModelError, match=r"checkpoint: its config\.json names no model_type$"):
        load_model(str(checkpoint))


def test_planning_runs_nothing_with_the_tokenizer_or_without(
    checkpoint: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(checkpoint / "tokenizer_config.json", tokenizer_class="Attack")
    monkeypatch.setattr("builtins.input", lambda _="": "y")

    assert cost_model_of(str(checkpoint)).exact  # counted by transformers' own class
    (checkpoint / "tokenizer.json").unlink()
    assert not cost_model_of(str(checkpoint)).exact
    assert not marker.exists()


def test_planning_refuses_a_foreign_model_and_runs_nothing(
    checkpoint: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(checkpoint / "config.json", model_type="attack")
    change(checkpoint / "tokenizer_config.json", tokenizer_class="Attack")
    monkeypatch.setattr("builtins.input", lambda _="": "y")

    with pytest.raises(ModelError, match="is of the model family attack, which gridprobe cannot run; see `gridprobe"):
        cost_model_of(str(checkpoint))
    assert not marker.exists()
