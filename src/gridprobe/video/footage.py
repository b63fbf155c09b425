"""Footage: a video that is opened once and decoded as far as it is looked at. sample(): all of it at one size."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from gridprobe.errors import UsageError, VideoError
from gridprobe.grid import MAX_K
from gridprobe.video.cache import FrameCache
from gridprobe.video.decode import Reel, Sampling, open_reel
from gridprobe.video.files import VideoFile, check_file
from gridprobe.video.frames import NATIVE, FramePool, FrameSize, Pixels, Taken, Undecoded
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Limits
from gridprobe.video.notes import Ticks, frame_key, from_json, plan_key, to_json
from gridprobe.video.pictures import Album, open_album
from gridprobe.video.plan import Precision
from gridprobe.video.shelf import Shelf

__all__ = ["Footage", "Moved", "sample"]


class Moved(VideoError):
    """Frames of a damaged video are not where they were said to be; its pool has to be decoded again."""


class Footage:
    """The frames on display at `cells` moments of a video; look, measure and plan are done once, here.

        footage = Footage("talk.mp4", cells=144)
        small = footage.pool(FrameSize(max_side=224))        # all of them, decoded straight to this size
        large = footage.frames([3, 17, 90], NATIVE)          # some of them, by the same plan

    What was decoded stays at hand, up to `Limits.memory` bytes, and in the cache on disk if one is given. Arguments as
    for `sample`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cells: int,
        sampling: Sampling = "middle",
        precision: Precision = "exact",
        limits: Limits | None = None,
        cache: FrameCache | None = None,
    ) -> None:
        limits = limits or Limits()
        _check_arguments(cells, sampling, precision)
        self._cache = cache
        self._shelf = Shelf(int(limits.memory))
        self._ticks: Ticks | None = None
        self._promises = True
        self._key: str | None = None
        self._film: Reel | Album
        if os.path.isdir(path):
            self._film = open_album(Path(path), cells=cells, sampling=sampling, limits=limits)
            return
        file = check_file(path)
        if cache is not None:
            self._key = plan_key(file, cells=cells, sampling=sampling, precision=precision, limits=limits)
            known = _noted(cache, self._key, file, cells=cells, limits=limits)
            if known is not None:
                self._film, self._ticks = known
                return
        self._film = open_reel(file, cells=cells, sampling=sampling, precision=precision, limits=limits)

    def __repr__(self) -> str:
        known = "not decoded yet" if self._ticks is None else f"{len(self._ticks.ticks)} frames"
        return f"Footage({self.info.path!r}, {known})"

    @property
    def info(self) -> VideoInfo:
        """The video's properties."""
        return self._film.info

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why the cache on disk is of no use, if it is."""
        return (self._cache.trouble,) if self._cache is not None and self._cache.trouble else ()

    def pool(self, size: FrameSize = NATIVE) -> FramePool:
        """All frames, decoded; the first call finds out which can be."""
        shown = self._fit(size)
        if self._ticks is not None and self._ticks.decoded:
            return self._pool(self._ticks.ticks, self._pixels(self._ticks.ticks, shown))
        taken = self._film.read(shown)
        self._settle(Ticks(tuple(taken.ticks), taken.damaged))
        self._keep(taken, shown)
        return self._pool(taken.ticks, taken.pixels)

    def outline(self, size: FrameSize = NATIVE) -> FramePool:
        """All frames, undecoded: the times are known, or told by the packets, and the pixels come when looked at.

        A damaged frame that nobody has tried to decode is part of it; it turns out to be black.
        """
        ticks, shown = self._known(), self._fit(size)
        if ticks is None:
            return self.pool(size)
        return Undecoded.of(
            lambda: self._pixels(ticks, shown, gaps=True),
            shown,
            tuple(map(self._film.seconds, ticks)),
            source=self.info.fingerprint,
            info=self.info,
            warnings=self._warnings(),
        )

    def frames(self, indices: Sequence[int], size: FrameSize = NATIVE) -> FramePool:
        """The frames at these places of the pool, in the order given; Moved where a promised one is damaged."""
        known = self._known()
        if known is None:
            return self.pool(size).take(indices)
        rows = sorted(set(indices))
        pixels = self._pixels([known[row] for row in rows], self._fit(size))
        if rows != list(indices):
            pixels = pixels[[rows.index(row) for row in indices]]
        return self._pool([known[row] for row in indices], pixels)

    def _known(self) -> tuple[int, ...] | None:
        """The frames' ticks; before anything is decoded, those the packets promise, if they tell."""
        if self._ticks is None and self._promises:
            promised = self._film.promised()
            if promised is not None:
                self._settle(Ticks(tuple(promised), decoded=False))
        return self._ticks.ticks if self._ticks else None

    def _pool(self, ticks: Sequence[int], pixels: Pixels) -> FramePool:
        times = tuple(map(self._film.seconds, ticks))
        return FramePool(pixels, times, source=self.info.fingerprint, info=self.info, warnings=self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        known = self._ticks or Ticks(())
        return self._film.warnings(found=len(known.ticks), damaged=known.damaged)

    def _pixels(self, ticks: Sequence[int], size: tuple[int, int], *, gaps: bool = False) -> Pixels:
        """The frames at these rising ticks: from memory, from the cache on disk, and the rest decoded."""
        together = self._shelf.together(size, ticks)
        if together is not None:
            return together
        rows = {tick: row for tick in ticks if (row := self._shelf.get(size, tick)) is not None}
        for batch in self._fetched([tick for tick in ticks if tick not in rows], size, gaps=gaps):
            if batch.ticks == list(ticks):
                return batch.pixels
            rows.update(zip(batch.ticks, batch.pixels, strict=True))
        pixels = np.zeros((len(ticks), size[1], size[0], 3), np.uint8)
        for place, tick in enumerate(ticks):
            if tick in rows:
                pixels[place] = rows[tick]
        return pixels

    def _fetched(self, ticks: list[int], size: tuple[int, int], *, gaps: bool) -> Iterator[Taken]:
        stored = self._stored(ticks, size)
        if stored.ticks:
            self._shelf.put(size, stored.ticks, stored.pixels)
            yield stored
        missing = sorted(set(ticks) - set(stored.ticks))
        if missing:
            taken = self._read(missing, size, gaps=gaps)
            self._keep(taken, size)
            yield taken

    def _read(self, ticks: list[int], size: tuple[int, int], *, gaps: bool) -> Taken:
        """Decode these frames. In a damaged video only the way of the first pass is sure to find the same ones."""
        known = self._ticks or Ticks(())
        taken = self._film.read(size, ticks, whole=known.damaged > 0)
        if taken.ticks != ticks and known.decoded and not known.damaged:
            taken = self._film.read(size, ticks, whole=True)
        if taken.ticks == ticks:
            return taken
        if gaps:
            rows = [row for row, tick in enumerate(taken.ticks) if tick in ticks]
            return Taken([taken.ticks[row] for row in rows], taken.pixels[rows])
        self._ticks, self._promises = None, False
        if self._cache is not None and self._key is not None:
            self._cache.remove(self._key)
        raise Moved(f"{self.info.path}: frames are damaged and not found again; open the video again")

    def _settle(self, ticks: Ticks) -> None:
        self._ticks = ticks
        if self._key is not None and isinstance(self._film, Reel):
            self._store([(self._key, to_json(self._film, ticks))])

    def _keep(self, taken: Taken, size: tuple[int, int]) -> None:
        self._shelf.put(size, taken.ticks, taken.pixels)
        keys = (self._frame_key(tick, size) for tick in taken.ticks)
        self._store((key, row.tobytes()) for key, row in zip(keys, taken.pixels, strict=True))

    def _store(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Put something into the cache on disk, unless it may be about another file by now."""
        if self._cache is not None and self._film.unchanged:
            self._cache.write(entries)

    def _stored(self, ticks: list[int], size: tuple[int, int]) -> Taken:
        """Those of the frames that are in the cache on disk."""
        width, height = size
        found: dict[int, bytes] = {}
        if self._cache is not None:
            for tick in ticks:
                content = self._cache.read(self._frame_key(tick, size))
                if content is not None and len(content) == width * height * 3:
                    found[tick] = content
        pixels = np.empty((len(found), height, width, 3), np.uint8)
        for place, content in enumerate(found.values()):
            pixels[place] = np.frombuffer(content, np.uint8).reshape(height, width, 3)
        return Taken(list(found), pixels)

    def _frame_key(self, tick: int, size: tuple[int, int]) -> str:
        film = self._film
        return frame_key(decoder=film.decoder, source=film.info.fingerprint, time=film.seconds(tick), size=size)

    def _fit(self, size: FrameSize) -> tuple[int, int]:
        try:
            return size.fit(self.info.width, self.info.height)
        except VideoError as error:
            raise VideoError(f"{self.info.path}: {error}") from None


def _noted(cache: FrameCache, key: str, file: VideoFile, *, cells: int, limits: Limits) -> tuple[Reel, Ticks] | None:
    """What the cache knows about the file, so that it need not be opened."""
    content = cache.read(key)
    if content is None:
        return None
    try:
        return from_json(content, file, cells=cells, limits=limits)
    except (ValueError, TypeError, KeyError, RecursionError):
        cache.remove(key)
        return None


def sample(
    path: str | os.PathLike[str],
    *,
    cells: int,
    sampling: Sampling = "middle",
    precision: Precision = "exact",
    size: FrameSize = NATIVE,
    limits: Limits | None = None,
) -> FramePool:
    """The frames on display at `cells` moments of a video, decoded at one size; no cache is read or written.

    "middle" takes the middle of `cells` intervals equal in time; "linspace" takes the frames numbered
    round(linspace(0, n - 1, cells)), as the paper does. A frame on display at several of these moments appears once, so
    the pool can be smaller.

    "exact" takes the frame on display at each moment. "keyframe" takes the nearest keyframe instead, which is much
    faster and off by up to half a group of pictures. "auto" takes a keyframe where one lies within AUTO_FRACTION of a
    cell's width, and is exact elsewhere. The pool's times are those of the frames taken, whatever was asked for.
    """
    return Footage(path, cells=cells, sampling=sampling, precision=precision, limits=limits).pool(size)


def _check_arguments(cells: int, sampling: str, precision: str) -> None:
    if isinstance(cells, bool) or not isinstance(cells, int) or not 1 <= cells <= MAX_K**2:
        raise UsageError(f"cells must be a whole number from 1 to {MAX_K**2}, got {cells!r}")
    if sampling not in ("middle", "linspace"):
        raise UsageError(f'sampling must be "middle" or "linspace", got {sampling!r}')
    if precision not in ("exact", "keyframe", "auto"):
        raise UsageError(f'precision must be "exact", "keyframe" or "auto", got {precision!r}')
