"""MemoryCache: decoded frames in memory, at every size they were decoded at, up to a limit in bytes."""

from collections import OrderedDict
from collections.abc import Sequence

from gridprobe.video.frames import Pixels

__all__ = ["MemoryCache"]

Key = tuple[tuple[int, int], int]
"""Size and tick, which identify a frame of one video."""


class MemoryCache:
    """Keeps frames in the arrays they were decoded into, uncopied; evicts whole arrays, least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: OrderedDict[int, tuple[list[Key], Pixels]] = OrderedDict()
        self._places: dict[Key, tuple[int, int]] = {}
        self._added = 0

    @property
    def bytes(self) -> int:
        """Bytes in use."""
        return sum(pixels.nbytes for _, pixels in self._batches.values())

    def put(self, size: tuple[int, int], ticks: Sequence[int], pixels: Pixels) -> None:
        """Keep these frames, unless they alone exceed the limit."""
        if pixels.nbytes > self._limit:
            return
        keys = [(size, tick) for tick in ticks]
        self._added += 1
        self._batches[self._added] = keys, pixels
        self._places.update({key: (self._added, row) for row, key in enumerate(keys)})
        while self.bytes > self._limit:
            number, (evicted, _) = self._batches.popitem(last=False)
            for key in evicted:
                if self._places.get(key, (0, 0))[0] == number:
                    del self._places[key]

    def get(self, size: tuple[int, int], tick: int) -> Pixels | None:
        """One frame, if it is in the cache."""
        batch, row = self._places.get((size, tick), (0, 0))
        if not batch:
            return None
        self._batches.move_to_end(batch)
        found: Pixels = self._batches[batch][1][row]
        return found

    def together(self, size: tuple[int, int], ticks: Sequence[int]) -> Pixels | None:
        """The array that holds exactly these frames, if there is one; it needs no copy."""
        wanted = [(size, tick) for tick in ticks]
        batch, _ = self._places.get(wanted[0], (0, 0)) if wanted else (0, 0)
        keys, pixels = self._batches.get(batch, ([], None))
        if not wanted or keys != wanted:
            return None
        self._batches.move_to_end(batch)
        return pixels
