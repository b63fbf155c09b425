"""The package's models are checked before they are loaded (supply chain): a changed, added or lost file is refused."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridprobe import load_model
from gridprobe.errors import ModelError
from gridprobe_world import embedded
from gridprobe_world import encoder as encoder
from gridprobe_world.embedded import HASHES, check_shipped, hashes

REAL = embedded.SHIPPED


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's folder, used in its place."""
    folder = tmp_path / "models"
    shutil.copytree(REAL, folder, ignore=shutil.ignore_patterns("micro"))
    monkeypatch.setattr(embedded, "SHIPPED", folder)
    for place in ("gridprobe_world.embedded.WEIGHTS", "gridprobe_world.encoder.WEIGHTS"):
        monkeypatch.setattr(place, folder)
    check_shipped.cache_clear()
    yield folder
    check_shipped.cache_clear()


def test_the_list_is_that_of_the_models_in_the_package() -> None:
    folders = {each.name: hashes(each) for each in REAL.iterdir() if each.is_dir()}
    assert json.loads((REAL / HASHES).read_text()) == {".": hashes(REAL), **folders}
    for folder in folders:
        check_shipped(REAL / folder)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("model", "file"), [("nano", "model.safetensors"), ("nano", "chat_template.jinja"), ("clip", "model.safetensors")]
)
def test_one_changed_bit_is_one_sentence(models: Path, model: str, file: str) -> None:
    flip(models / model / file)
    with pytest.raises(ModelError, match=rf"/{model}/{file} is not the file that was released with gridprobe; reinst"):
        encoder.load() if model == "clip" else load_model("embedded:nano")


def test_the_list_of_words_is_checked_with_every_model(models: Path) -> None:
    (models / "vocabulary.json").write_text('["anything"]')
    with pytest.raises(ModelError, match=r"/vocabulary\.json is not the file"):
        load_model("embedded:nano")


def test_a_file_that_was_added_or_lost_is_named(models: Path) -> None:
    (models / "nano" / "adapter_config.json").write_text("{}")
    (models / "clip" / "config.json").unlink()
    for name, file in (("nano", "adapter_config.json"), ("clip", "config.json")):
        with pytest.raises(ModelError, match=f"{file} is not the file"):
            check_shipped(models / name)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"nano": 3}', "{}"])
def test_without_a_list_nothing_is_loaded(models: Path, content: str | None) -> None:
    (models / HASHES).unlink()
    if content is not None:
        (models / HASHES).write_text(content)
    with pytest.raises(ModelError, match=r"cannot be checked .*; reinstall gridprobe$"):
        check_shipped(models / "nano")


def test_a_folder_of_the_user_is_not_checked(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "nano", tmp_path / "mine")
    flip(tmp_path / "mine" / "model.safetensors")
    check_shipped(tmp_path / "mine")


def test_files_are_read_once_in_a_process(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_shipped(models / "nano")
    monkeypatch.setattr(embedded, "hashes", None)
    check_shipped(models / "nano")
