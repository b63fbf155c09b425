"""The identity of a checkpoint covers every byte that can decide an answer."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import ModelError
from gridprobe.models.local import loading as module
from gridprobe.models.local.loading import fingerprint
from gridprobe.video import FrameCache
from scoring import load_qwen

WEIGHTS = "model.safetensors"


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path / "tiny")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the hash cache, in use for files of any size."""
    monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "LARGE", 1)
    return tmp_path / "cache" / "hashes"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was read for its hash."""
    counted: Counter[str] = Counter()
    original = module._content_hash

    def count(file: Path) -> bytes:
        counted[file.name] += 1
        return original(file)

    monkeypatch.setattr(module, "_content_hash", count)
    return counted


def identity(folder: Path) -> str:
    return load_qwen(str(folder), device="cpu").identity


def negate(file: Path, *, start: int = -4096) -> None:
    """Flip the signs of some weights in the last 4 KiB: the size and the first 64 KiB stay as they are."""
    content = bytearray(file.read_bytes())
    assert len(content) + start > 65_536
    content[start + 3 :: 4] = bytes(byte ^ 0x80 for byte in content[start + 3 :: 4])
    before = file.stat().st_ctime_ns
    file.write_bytes(content)
    while file.stat().st_ctime_ns == before:  # two writes within one tick of the file system's clock
        os.utime(file)


def new_mean(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"image_mean": [0.4] * 3}))


def replace_text(old: str, new: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (WEIGHTS, negate),
        ("config.json", replace_text("10000.0", "20000.0")),
        ("preprocessor_config.json", new_mean),
        ("video_preprocessor_config.json", new_mean),
        ("tokenizer.json", replace_text('"add_prefix_space": false', '"add_prefix_space": true ')),
        ("tokenizer_config.json", replace_text('"<|im_end|>"', '"<|IM_END|>"')),
        ("chat_template.jinja", replace_text("user", "User")),
    ],
)
def test_a_changed_file_is_another_identity(checkpoint: Path, name: str, change: Callable[[Path], None]) -> None:
    (checkpoint / "chat_template.jinja").write_text("user: {{ messages }}")
    before = identity(checkpoint)
    size = (checkpoint / name).stat().st_size

    change(checkpoint / name)

    assert (checkpoint / name).stat().st_size == size
    assert identity(checkpoint) != before


@pytest.mark.parametrize(
    "name", ["vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "processor_config.json"]
)
def test_older_tokenizer_files_and_the_joint_processor_file_count(checkpoint: Path, name: str) -> None:
    seen = {fingerprint(checkpoint)}
    for text in ("{}", "[]"):
        (checkpoint / name).write_text(text)
        seen.add(fingerprint(checkpoint))

    assert len(seen) == 3


def test_a_moved_or_copied_folder_is_the_same_model(checkpoint: Path, tmp_path: Path) -> None:
    before = identity(checkpoint)
    copy = shutil.copytree(checkpoint, tmp_path / "elsewhere" / "tiny")
    assert identity(copy) == before

    moved = checkpoint.rename(tmp_path / "renamed")
    assert identity(moved).partition("@")[2] == before.partition("@")[2]
    assert before.startswith("tiny@") and identity(moved).startswith("renamed@")


def test_names_count_and_files_that_nothing_loads_do_not(checkpoint: Path) -> None:
    before = fingerprint(checkpoint)
    (checkpoint / "README.md").write_text("about the model")
    (checkpoint / "optimizer.pt").write_bytes(b"state")
    (checkpoint / "runs.json").mkdir()
    assert fingerprint(checkpoint) == before

    (checkpoint / "chat_template.jinja").write_text("x")
    first = fingerprint(checkpoint)
    (checkpoint / "chat_template.jinja").rename(checkpoint / "other.jinja")
    assert len({before, first, fingerprint(checkpoint)}) == 3


@pytest.mark.parametrize("by", ["index", "config"])
def test_weights_that_are_named_elsewhere_count(checkpoint: Path, by: str) -> None:
    (checkpoint / "parts").mkdir()
    (checkpoint / WEIGHTS).rename(checkpoint / "parts" / "one.safetensors")
    if by == "index":
        index = {"metadata": {}, "weight_map": {"a": "parts/one.safetensors", "b": "parts/absent.safetensors"}}
        (checkpoint / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    else:
        config = json.loads((checkpoint / "config.json").read_text()) | {
            "transformers_weights": "parts/one.safetensors"
        }
        (checkpoint / "config.json").write_text(json.dumps(config))
    before = fingerprint(checkpoint)

    negate(checkpoint / "parts" / "one.safetensors")

    assert fingerprint(checkpoint) != before


def test_a_hub_snapshot_of_links_is_the_folder_it_shows(checkpoint: Path, tmp_path: Path, cache: Path) -> None:
    snapshot, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    snapshot.mkdir()
    shutil.copytree(checkpoint, blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert fingerprint(snapshot) == fingerprint(checkpoint)

    negate(blobs / WEIGHTS)
    assert fingerprint(snapshot) != fingerprint(checkpoint)


# The cache.


def test_a_large_file_is_read_once(checkpoint: Path, cache: Path, reads: Counter[str]) -> None:
    first = fingerprint(checkpoint)
    assert reads[WEIGHTS] == 1 and cache.is_dir()

    assert fingerprint(checkpoint) == first
    assert set(reads.values()) == {1}


def test_a_small_file_is_read_every_time(
    checkpoint: Path, cache: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", (checkpoint / WEIGHTS).stat().st_size)
    fingerprint(checkpoint)
    fingerprint(checkpoint)

    assert (reads[WEIGHTS], reads["tokenizer.json"]) == (1, 2)
    assert len(list(cache.rglob("?" * 64))) == 1


def test_a_touched_file_is_read_again_and_the_same(checkpoint: Path, cache: Path, reads: Counter[str]) -> None:
    first = fingerprint(checkpoint)
    os.utime(checkpoint / WEIGHTS, ns=(1, 1))

    assert fingerprint(checkpoint) == first
    assert reads[WEIGHTS] == 2 and reads["config.json"] == 1


@pytest.mark.parametrize("way", ["replaced", "written in place"])
def test_new_content_of_the_same_size_and_time_is_noticed(checkpoint: Path, cache: Path, way: str) -> None:
    file = checkpoint / WEIGHTS
    before, status = fingerprint(checkpoint), file.stat()
    if way == "replaced":
        other = Path(shutil.copy(file, checkpoint / "new"))
        negate(other)
        os.replace(other, file)
    else:
        negate(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    now = file.stat()
    assert (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert (now.st_ino == status.st_ino) is (way == "written in place")
    assert fingerprint(checkpoint) != before


@pytest.mark.parametrize("fault", ["off", "owner", "open to all", "a file", "damaged"])
def test_a_cache_that_cannot_be_used_costs_only_time(
    checkpoint: Path, cache: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    right = fingerprint(checkpoint)
    if fault == "damaged":
        for entry in cache.rglob("?" * 64):
            entry.write_bytes(b"poison")
    elif fault == "off":
        monkeypatch.setenv("GRIDPROBE_CACHE", "off")
    elif fault == "owner":
        monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    elif fault == "open to all":
        cache.chmod(0o777)
    elif fault == "a file":
        shutil.rmtree(cache)
        cache.touch()

    assert fingerprint(checkpoint) == right
    assert reads[WEIGHTS] == 2


def test_a_folder_of_somebody_else_cannot_choose_a_hash(
    checkpoint: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fingerprint(checkpoint)
    monkeypatch.setattr(module, "_content_hash", lambda file: bytes(32))
    shutil.rmtree(cache)
    poisoned = fingerprint(checkpoint)
    monkeypatch.undo()
    monkeypatch.setenv("GRIDPROBE_CACHE", str(cache.parent))
    monkeypatch.setattr(module, "LARGE", 1)
    assert fingerprint(checkpoint) == poisoned != right  # one's own folder is trusted

    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    assert fingerprint(checkpoint) == right


def test_a_file_written_to_while_it_is_read_is_not_kept(
    checkpoint: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = module._content_hash

    def disturbed(file: Path) -> bytes:
        found = original(file)
        if file.name == WEIGHTS:
            negate(file)
        return found

    monkeypatch.setattr(module, "_content_hash", disturbed)
    before = fingerprint(checkpoint)
    monkeypatch.setattr(module, "_content_hash", original)

    assert fingerprint(checkpoint) != before


# Around it.


def test_a_checkpoint_that_changes_while_it_is_loaded_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gridprobe.models.local import loading

    original = loading._read_model

    def disturbed(name: str, folder: Path, options: dict[str, object]) -> object:
        model = original(name, folder, options)
        negate(folder / WEIGHTS)
        return model

    monkeypatch.setattr(loading, "_read_model", disturbed)
    with pytest.raises(ModelError, match=r"tiny changed while it was loaded; try again when it is complete$"):
        load_qwen(str(checkpoint), device="cpu")


def test_a_file_that_cannot_be_read_is_one_sentence(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(file: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(module, "_content_hash", refused)
    with pytest.raises(ModelError, match=r"^cannot read \S+/tiny/\S+ of the checkpoint: Permission denied$"):
        fingerprint(checkpoint)


def test_a_large_file_reports_progress(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 1 << 20)
    monkeypatch.setattr(module, "LARGE", 3 << 20)
    (checkpoint / "extra.safetensors").write_bytes(bytes(3 << 20))
    said: list[ProgressEvent] = []

    with listening(said.append):
        fingerprint(checkpoint)

    assert said == [("hash", done, 3) for done in (1, 2, 3)]


def test_frames_and_hashes_share_no_folder(checkpoint: Path, cache: Path) -> None:
    fingerprint(checkpoint)
    FrameCache(cache.with_name("frames"), 10**8).write([("key", b"content")])

    assert sorted(path.name for path in cache.parent.iterdir()) == ["frames", "hashes"]
