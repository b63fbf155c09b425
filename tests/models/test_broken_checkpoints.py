"""M13: files of a checkpoint that are damaged, or hold values of other types, are one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gridprobe import load_model
from gridprobe.errors import ModelError
from gridprobe.models import cost_model_of
from gridprobe.models.local import checkpoint

PROCESSOR = "video_preprocessor_config.json"


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "[" * 100_000,
        '{"video_processor": 3}',
        '{"image_mean": 3}',
        '{"image_mean": [0.5]}',
        '{"image_mean": ["a", "b", "c"]}',
        '{"image_std": [0, 0, 0]}',
    ],
)
def test_a_processor_that_cannot_be_used(copy: Path, text: str) -> None:
    (copy / PROCESSOR).write_text(text)

    with pytest.raises(ModelError, match=rf"{PROCESSOR}|^image_(mean|std) in"):
        load_model(str(copy), device="cpu")


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("vision_config", "patch_size", "14"),
        ("vision_config", "patch_size", None),
        ("text_config", "hidden_size", [64]),
        ("text_config", "num_hidden_layers", "two"),
        ("text_config", "rope_parameters", 3),
    ],
)
def test_a_mistyped_field_of_the_config(copy: Path, part: str, field: str, value: Any) -> None:
    config = json.loads((copy / "config.json").read_text())
    config[part][field] = value
    (copy / "config.json").write_text(json.dumps(config))

    with pytest.raises(ModelError, match=rf"cannot load the checkpoint .*{field}"):
        load_model(str(copy), device="cpu")
    if field != "rope_parameters":  # no cost depends on these
        with pytest.raises(ModelError, match=r"config\.json is not that of a Qwen3-VL model"):
            cost_model_of(str(copy))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "[" * 100_000])
def test_a_broken_index_in_the_cache_counts_as_an_incomplete_download(
    copy: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "model.safetensors.index.json").write_text(text)

    def download(name: str, *, local_files_only: bool, **_: Any) -> str:
        if not local_files_only:
            raise OSError("the hub cannot be reached")
        return str(copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)

    with pytest.raises(ModelError, match="cannot find the model owner/name: no such folder, not in the local cache"):
        checkpoint.find_folder("owner/name")
