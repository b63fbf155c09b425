"""FeatureCache: vectors by key, in memory and on disk, both limited in bytes."""

from collections import OrderedDict

import numpy as np

from gridprobe.encoders.base import Vectors
from gridprobe.video import FrameCache, FramePool, cache_folder

__all__ = ["FeatureCache", "frame_keys"]

FORMAT = 1
"""Part of every key on disk; raised when the same encoder gives other vectors for the same frame."""
MEMORY_BYTES = 64 * 2**20
"""Room for about 15,000 vectors of SigLIP so400m."""
DISK_BYTES = 512 * 2**20


class FeatureCache:
    """Vectors of one encoder. The least recently used are dropped first; a broken folder only costs time.

    On disk they lie in `features` beside the frame cache, with a checksum each; see `gridprobe.video.disk_cache`.
    """

    def __init__(self, identity: str, *, disk: bool = True, limit: int = MEMORY_BYTES) -> None:
        folder = cache_folder() if disk else None
        self._disk = FrameCache(folder.with_name("features"), DISK_BYTES) if folder else None
        self._identity, self._limit, self._bytes = identity, limit, 0
        self._known: OrderedDict[str, Vectors] = OrderedDict()

    def get(self, key: str) -> Vectors | None:
        """The vector; it counts as used now."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        content = self._disk.read(self._on_disk(key)) if self._disk else None
        if content is None or not content or len(content) % 4:
            return None
        found = np.frombuffer(content, dtype="<f4").astype(np.float32)
        self._keep(key, found)
        return found

    def put(self, vectors: dict[str, Vectors]) -> None:
        """Keep these vectors."""
        for key, vector in vectors.items():
            self._keep(key, vector)
        if self._disk:
            self._disk.write((self._on_disk(key), vector.astype("<f4").tobytes()) for key, vector in vectors.items())

    def _keep(self, key: str, vector: Vectors) -> None:
        if key not in self._known:
            self._bytes += vector.nbytes
        self._known[key] = vector
        while self._bytes > self._limit:
            _, dropped = self._known.popitem(last=False)
            self._bytes -= dropped.nbytes

    def _on_disk(self, key: str) -> str:
        return f"feature {FORMAT}\n{self._identity}\n{key}"


def frame_keys(frames: FramePool) -> list[str]:
    """A key for every frame: its own, and the decoder of a file, whose next version may give other pixels."""
    decoder = frames.info.decoder if frames.info else ""
    return [f"image\n{decoder}\n{key!r}" for key in frames.keys]
