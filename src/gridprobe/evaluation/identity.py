"""The identity of a video file: its size, its time and a hash of samples of its content.

A run keeps it in each record. So a resumed run notices that a video was replaced, also under the same name and with the
same size. Size and hash decide: a copy on another machine is the same video. While size and time are the same, nothing
is read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gridprobe.benchmarks import Item

__all__ = ["Identity", "changed_items", "identity_of"]

BLOCK = 1 << 16
BLOCKS = 16
"""So many blocks are hashed, at equal distances, the first and the last included: at most 1 MiB of a file."""

Identity = Mapping[str, Any]


def identity_of(video: Path) -> Identity | None:
    """The identity of a file or of a folder of pictures; None if it cannot be read."""
    try:
        files = _files(video)
        return {**_status(files), "sample": _sample(files)}
    except OSError:
        return None


def changed_items(items: Iterable[Item], best: Mapping[str, Mapping[str, Any]]) -> list[Item]:
    """The items that were answered from another video than the one that is there now.

    A video that is gone, and a record without an identity, as older versions wrote them, count as unchanged.
    """
    known: dict[Path, _Current] = {}
    changed = []
    for item in items:
        record = best.get(item.id, {})
        identity = record.get("identity")
        if record.get("outcome") == "answered" and isinstance(identity, dict):
            current = known.setdefault(item.video, _Current(item.video))
            if current.differs(identity):
                changed.append(item)
    return changed


class _Current:
    """A video as it is now, read only as far as necessary."""

    def __init__(self, video: Path) -> None:
        self._video = video
        self._whole: Identity | None = None
        try:
            self._status: Identity | None = _status(_files(video))
        except OSError:
            self._status = None

    def differs(self, identity: Identity) -> bool:
        if self._status is None or all(identity.get(name) == value for name, value in self._status.items()):
            return False
        if identity.get("size") != self._status["size"]:
            return True
        self._whole = self._whole or identity_of(self._video)
        return self._whole is not None and self._whole["sample"] != identity.get("sample")


def _files(video: Path) -> list[Path]:
    return sorted(path for path in video.iterdir() if path.is_file()) if video.is_dir() else [video]


def _status(files: Iterable[Path]) -> dict[str, int]:
    found = [path.stat() for path in files]
    return {
        "size": sum(status.st_size for status in found),
        "mtime": max((status.st_mtime_ns for status in found), default=0),
    }


def _sample(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        name = path.name if len(files) > 1 else ""  # the order of pictures is that of their names
        size = path.stat().st_size
        digest.update(f"{name}\n{size}\n".encode("utf-8", "surrogateescape"))
        with path.open("rb", buffering=0) as stream:
            for place in _places(size, BLOCKS if len(files) == 1 else 2):
                stream.seek(place)
                digest.update(stream.read(BLOCK))
    return digest.hexdigest()[:16]


def _places(size: int, blocks: int) -> list[int]:
    """Where the blocks of a file of this size begin."""
    last = max(0, size - BLOCK)
    return sorted({last * number // (blocks - 1) for number in range(blocks)})
