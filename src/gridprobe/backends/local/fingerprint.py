"""fingerprint(): a hash over every byte of a checkpoint that can affect an answer, wherever the folder is.

Files  Weights, configurations, tokenizer and templates directly in the folder, and the weights that an index or
       config.json names elsewhere. Links, as in the hub's cache, are followed.
Cache  Reading 16 GB takes many seconds, so the hash of a large file is kept in `hashes` beside the frame cache. The key
       holds the file's path, device, inode, size and both times: an edit that restores the time of modification still
       sets the time of change. A broken cache only costs time.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gridprobe.errors import ModelError
from gridprobe.progress import report
from gridprobe.video import FrameCache, cache_folder

__all__ = ["Stamps", "file_stamps", "fingerprint"]

Stamps = Mapping[str, tuple[int, ...]]
"""For each file of a checkpoint what its cached hash depends on: device, inode, size and times."""

SUFFIXES = frozenset({".json", ".safetensors", ".jinja", ".txt", ".model"})
INDEX = ".safetensors.index.json"
DIGITS = 16
CHUNK = 1 << 23
LARGE = 1 << 25
"""Smaller files are read every time, in a few hundredths of a second."""
CACHE_BYTES = 1 << 20
"""Room for some ten thousand hashes."""


def fingerprint(folder: Path) -> str:
    """The hash of a checkpoint, from the names and contents of its files."""
    place = cache_folder()
    cache = FrameCache(place.with_name("hashes"), CACHE_BYTES) if place else None
    digest = hashlib.sha256()
    with _one_sentence(folder):
        for name in _names(folder):
            digest.update(f"{name!a} {_file_hash(folder / name, cache).hex()}\n".encode())
    return digest.hexdigest()[:DIGITS]


def file_stamps(folder: Path) -> Stamps:
    """What changes when a file of the checkpoint is written or replaced; weights are not read."""
    with _one_sentence(folder):
        return {name: _stamp(os.stat(folder / name)) for name in _names(folder)}


@contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"cannot read {error.filename or folder} of the checkpoint: {error.strerror}") from error


def _names(folder: Path) -> list[str]:
    names = {file.name for file in folder.iterdir() if file.suffix in SUFFIXES}
    explicit = _read_json(folder / "config.json").get("transformers_weights")
    names |= {explicit} if isinstance(explicit, str) else set()
    for index in [name for name in names if name.endswith(INDEX)]:
        shards = _read_json(folder / index).get("weight_map")
        names |= {shard for shard in shards.values() if isinstance(shard, str)} if isinstance(shards, dict) else set()
    return sorted(name for name in names if (folder / name).is_file())


def _read_json(file: Path) -> dict[str, Any]:
    """The file's JSON object, or an empty one; reporting a bad file is left to the loader."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _file_hash(file: Path, cache: FrameCache | None) -> bytes:
    """SHA-256 of a file's content, from the cache if it is large and unchanged."""
    stamp = _stamp(os.stat(file))
    if cache is None or stamp[2] < LARGE:
        return _content_hash(file)
    key = f"sha256\n{os.path.realpath(file)!a}\n{stamp}"
    known = cache.read(key)
    if known is not None:
        return known
    found = _content_hash(file)
    if _stamp(os.stat(file)) == stamp:  # otherwise it may be a hash of partly old and partly new content
        cache.write([(key, found)])
    return found


def _content_hash(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        size, done = os.fstat(stream.fileno()).st_size, 0
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if size >= LARGE:
                report("hash", done >> 20, size >> 20)
    return digest.digest()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
