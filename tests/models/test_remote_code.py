"""Code that lies in a checkpoint never runs, whatever standard input answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from encoder_checkpoints import make_encoder
from gridprobe import load_model
from gridprobe.errors import ModelError
from gridprobe.models import cost_model_of
from gridprobe_selectors.clip import load as load_encoder
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


# Names of kernels, which transformers would download from the hub and run.


def change_part(file: Path, part: str, **values: Any) -> None:
    """Set fields of the config, or of a part of it."""
    config = json.loads(file.read_text())
    (config[part] if part else config).update(values)
    file.write_text(json.dumps(config))


@pytest.mark.parametrize("part", ["", "text_config", "vision_config"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("_attn_implementation", "owner/kernel"),
        ("attn_implementation", "owner/kernel@main:attend"),
        ("_attn_implementation_internal", "paged|owner/kernel"),
        ("attn_implementation", {"": "sdpa", "vision_config": "owner/kernel"}),
        ("_experts_implementation", "owner/kernel"),
    ],
)
def test_a_config_that_names_code_on_the_hub_is_refused_before_transformers_reads_it(
    tiny_checkpoint: Path, tmp_path: Path, part: str, field: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    change_part(folder / "config.json", part, **{field: value})
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("it was read"))
    place = f"{part}.{field}" if part else field

    for use in (load_model, cost_model_of):
        with pytest.raises(ModelError, match=rf"checkpoint: {place} in config\.json names code on the hub, .*; remove"):
            use(str(folder))


def test_an_encoder_that_names_code_on_the_hub_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_encoder(tmp_path / "clip", "clip")
    change_part(folder / "config.json", "vision_config", _attn_implementation="owner/kernel")
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("it was read"))

    with pytest.raises(ModelError, match=r"vision_config\._attn_implementation in config\.json names code on the hub"):
        load_encoder(str(folder))


def test_the_config_does_not_choose_how_attention_is_computed(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder, encoder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "one")), make_encoder(tmp_path / "two", "clip")
    for each in (folder, encoder):
        for part in ("", "text_config", "vision_config"):
            change_part(each / "config.json", part, _attn_implementation="eager")

    loaded: Any = load_model(str(folder), device="cpu")
    for model in (loaded._model, load_encoder(str(encoder), device="cpu")._checkpoint.model):
        config = model.config
        parts = {each._attn_implementation for each in (config, config.text_config, config.vision_config)}
        assert parts == {"sdpa"}


# Sizes that would take forever, or all memory, to build.


@pytest.mark.parametrize(
    ("part", "field", "value", "bound"),
    [
        ("text_config", "num_hidden_layers", 10**7, 1024),
        ("text_config", "hidden_size", 1e9, 1 << 17),
        ("text_config", "num_attention_heads", 5000, 4096),
        ("text_config", "vocab_size", 10**12, 1 << 22),
        ("text_config", "head_dim", 1 << 18, 1 << 17),
        ("text_config", "max_position_embeddings", 1 << 25, 1 << 24),
        ("vision_config", "depth", 10**7, 1024),
        ("vision_config", "image_size", [224, 1 << 20], 4096),
        ("vision_config", "in_channels", 1 << 20, 4096),
    ],
)
def test_sizes_are_bounded_before_anything_is_built(
    tiny_checkpoint: Path,
    tmp_path: Path,
    part: str,
    field: str,
    value: Any,
    bound: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    change_part(folder / "config.json", part, **{field: value})
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("it was read"))

    for use in (load_model, cost_model_of):
        with pytest.raises(ModelError) as caught:
            use(str(folder))
        assert str(caught.value) == f"{folder}: {part}.{field} in config.json is {value!r}, more than {bound}"
