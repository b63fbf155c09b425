"""Footage: a video that is opened once and decoded as far as it is looked at. sample(): all of it at one size."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np

from gridprobe.errors import VideoError
from gridprobe.video.cache import FrameCache, MemoryCache, frame_key, plan_key
from gridprobe.video.clips import Checked, Clip, Place
from gridprobe.video.decode import FileClip, open_file_clip
from gridprobe.video.decoder_pool import InChild
from gridprobe.video.files import VideoLimits, check_file
from gridprobe.video.frames import NATIVE, FramePool, FrameSize, Pending, Pixels
from gridprobe.video.pictures import open_folder_clip
from gridprobe.video.sampling import DecodeIn, Found, Precision, SampleSpec, Sampling
from gridprobe.video.source import VideoInfo, decoder_version

__all__ = ["Moved", "Video", "sample"]


class Moved(VideoError):
    """Frames of a damaged video are not where they were said to be; its pool has to be decoded again."""


class Video:
    """The frames on display at `cells` moments of a video; look, measure and plan are done once, here.

        footage = Footage("talk.mp4", cells=144)
        small = footage.pool(FrameSize(max_side=224))        # all of them, decoded straight to this size
        large = footage.frames([3, 17, 90], NATIVE)          # some of them, by the same plan

    What was decoded stays at hand, up to `VideoLimits.memory` bytes, and in the cache on disk if one is given. Several
    threads may use it; what two of them want is decoded once. Arguments as for `sample`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cells: int,
        sampling: Sampling = "middle",
        precision: Precision = "exact",
        limits: VideoLimits | None = None,
        cache: FrameCache | None = None,
        stretches: tuple[tuple[float, float], ...] = (),
        decode_in: DecodeIn = "process",
        stream: int | None = None,
    ) -> None:
        self.spec = SampleSpec(cells, sampling, precision, limits or VideoLimits(), stretches, decode_in, stream)
        """How the video is sampled."""
        self._path = path
        self._cache = cache
        self._shelf = MemoryCache(int(self.spec.limits.memory))
        self._found: Found | None = None
        self._timed: tuple[tuple[int, ...], tuple[float, ...]] = (), ()
        self._latest: tuple[Found | None, ref[FramePool] | None] = None, None
        self._promises = True
        self._lock = RLock()
        self._key: str | None = None
        self._film: Clip
        place = _place(path, self.spec)
        checked = place.check()
        if cache is not None and checked.file is not None:
            self._key = plan_key(checked.file, self.spec, checked.decoder)
            known = _noted(cache, self._key, place, checked)
            if known is not None:
                self._film, self._found = known
                return
        self._film = place.open(checked)

    def __repr__(self) -> str:
        known = "not decoded yet" if self._found is None else f"{len(self._found.ticks)} frames"
        return f"Footage({self.info.path!r}, {known})"

    def within(self, stretches: tuple[tuple[float, float], ...]) -> "Video":
        """As many frames of the same video, but all from these intervals of seconds."""
        spec = self.spec
        return Video(
            self._path,
            cells=spec.cells,
            precision=spec.precision,
            limits=spec.limits,
            cache=self._cache,
            stretches=stretches,
            decode_in=spec.decode_in,
            stream=spec.stream,
        )

    @property
    def info(self) -> VideoInfo:
        """The video's properties."""
        return self._film.info

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why the cache on disk is of no use, if it is."""
        return (self._cache.trouble,) if self._cache is not None and self._cache.trouble else ()

    @property
    def held(self) -> int:
        """Bytes of decoded frames in memory."""
        with self._lock:
            return self._shelf.bytes

    def pool(self, size: FrameSize = NATIVE) -> FramePool:
        """All frames, decoded; the first call finds out which can be, and refuses a video with too much damage.

        More frames than `VideoLimits.memory` holds are decoded when they are looked at, as many as are looked at
        together.
        """
        shown = self._shown(size)
        if 3 * shown[0] * shown[1] * self.spec.cells > self.spec.limits.memory and self._known() is not None:
            return self.undecoded(size)
        with self._lock:
            if self._found is not None and self._found.decoded:
                return self._pool(self._found.ticks, self._pixels(self._found.ticks, shown))
            found, pixels = self._film.read(shown)
            self._settle(found)
            self._keep(found.ticks, pixels, shown)
            return self._pool(found.ticks, pixels)

    def undecoded(self, size: FrameSize = NATIVE) -> FramePool:
        """All frames before they are decoded: times are known, or told by the packets; pixels come when looked at.

        A damaged frame that nobody has tried to decode is part of it; it turns out to be black.
        """
        ticks, (width, height) = self._known(), self._shown(size)
        if ticks is None:
            return self.pool(size)
        shape = (len(ticks), height, width, 3)

        def decode(rows: Sequence[int]) -> Pixels:
            return self._pixels([ticks[row] for row in rows], (width, height), gaps=True)

        pending = Pending(decode, shape, keeps=math.prod(shape) <= self.spec.limits.memory)
        return FramePool(pending, self._times(ticks), **self._facts())

    def frames(self, indices: Sequence[int], size: FrameSize = NATIVE) -> FramePool:
        """The frames at these places of the pool, in the order given; Moved where a promised one is damaged."""
        with self._lock:
            known = self._known()
            if known is None:
                return self.pool(size).take(indices)
            rows = sorted(set(indices))
            pixels = self._pixels([known[row] for row in rows], self._shown(size))
            if rows != list(indices):
                pixels = pixels[[rows.index(row) for row in indices]]
            return self._pool([known[row] for row in indices], pixels)

    def _shown(self, size: FrameSize) -> tuple[int, int]:
        return size.fit(self.info.width, self.info.height)

    def _known(self) -> tuple[int, ...] | None:
        """The frames' ticks; before anything is decoded, those the packets promise, if they tell."""
        with self._lock:
            if self._found is None and self._promises:
                promised = self._film.expected_ticks()
                if promised is not None:
                    self._settle(Found(tuple(promised), decoded=False))
            return self._found.ticks if self._found else None

    def _pool(self, ticks: Sequence[int], pixels: Pixels) -> FramePool:
        """Frames as a pool; the same object for the same frames as long as it is used, since it knows its identity."""
        found, latest = self._latest
        pool = latest() if latest and found is self._found else None
        if pool is None or pool.data is not pixels:
            pool = FramePool(pixels, self._times(ticks), **self._facts())
            self._latest = self._found, ref(pool)
        return pool

    def _times(self, ticks: Sequence[int]) -> tuple[float, ...]:
        found = self._found
        if found is None or ticks is not found.ticks:
            return tuple(map(self._film.seconds, ticks))
        if self._timed[0] is not found.ticks:  # every question needs them several times
            self._timed = found.ticks, tuple(map(self._film.seconds, found.ticks))
        return self._timed[1]

    def _facts(self) -> dict[str, Any]:
        """The fields that all pools of this footage share."""
        found = self._found or Found(())
        return {
            "source": self._film.source,
            "info": self.info,
            "warnings": self._film.warnings(found),
            "substituted": found.substituted,
        }

    def _pixels(self, ticks: Sequence[int], size: tuple[int, int], *, gaps: bool = False) -> Pixels:
        """The frames at these rising ticks: from memory, from the cache on disk, and the rest decoded."""
        with self._lock:
            together = self._shelf.together(size, ticks)
            if together is not None:
                return together
            rows = {tick: row for tick in ticks if (row := self._shelf.get(size, tick)) is not None}
            for there, batch in self._fetched([tick for tick in ticks if tick not in rows], size, gaps=gaps):
                if there == list(ticks):
                    return batch
                rows.update(zip(there, batch, strict=True))
            pixels = np.zeros((len(ticks), size[1], size[0], 3), np.uint8)
            for place, tick in enumerate(ticks):
                if tick in rows:
                    pixels[place] = rows[tick]
            return pixels

    def _fetched(self, ticks: list[int], size: tuple[int, int], *, gaps: bool) -> Iterator[tuple[list[int], Pixels]]:
        stored, pixels = self._stored(ticks, size)
        if stored:
            self._shelf.put(size, stored, pixels)
            yield stored, pixels
        missing = sorted(set(ticks) - set(stored))
        if missing:
            yield self._read(missing, size, gaps=gaps)

    def _read(self, ticks: list[int], size: tuple[int, int], *, gaps: bool) -> tuple[list[int], Pixels]:
        """Decode these frames. In a damaged video only the way of the first pass is sure to find the same ones.

        With `gaps` some may be missing, or smeared; such frames are for looking at only, and not kept.
        """
        known = self._found or Found(())
        found, pixels = self._film.read(size, ticks, whole=not known.smooth)
        if known.decoded and known.smooth and not (found.smooth and list(found.ticks) == ticks):
            found, pixels = self._film.read(size, ticks, whole=True)
        there = list(found.ticks)
        if there == ticks and (known.decoded or found.smooth):
            self._keep(ticks, pixels, size)
            return there, pixels
        if gaps:
            rows = [row for row, tick in enumerate(there) if tick in ticks]
            return [there[row] for row in rows], pixels[rows]
        self._found, self._promises = None, False
        if self._cache is not None and self._key is not None:
            self._cache.remove(self._key)
        raise Moved(f"{self.info.path}: frames are damaged and not found again; open the video again")

    def _settle(self, found: Found) -> None:
        self._found = found
        if self._cache is not None and self._key is not None and (content := self._film.to_json(found)) is not None:
            self._cache.write([(self._key, content)])

    def _keep(self, ticks: Sequence[int], pixels: Pixels, size: tuple[int, int]) -> None:
        self._shelf.put(size, ticks, pixels)
        if self._cache is not None:
            keys = (self._frame_key(tick, size) for tick in ticks)
            self._cache.write((key, row.tobytes()) for key, row in zip(keys, pixels, strict=True))

    def _stored(self, ticks: list[int], size: tuple[int, int]) -> tuple[list[int], Pixels]:
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
        return list(found), pixels

    def _frame_key(self, tick: int, size: tuple[int, int]) -> str:
        film = self._film
        return frame_key(decoder=film.decoder, source=film.source, time=film.seconds(tick), size=size)


@dataclass(frozen=True)
class InProcess:
    """Opens one video in this process."""

    path: str | os.PathLike[str]
    spec: SampleSpec

    def check(self) -> Checked:
        """Identify the file, or say that it is a folder."""
        return Checked(None, "") if os.path.isdir(self.path) else Checked(check_file(self.path), decoder_version())

    def open(self, checked: Checked) -> Clip:
        """Inspect, measure and plan."""
        if checked.file is None:
            return open_folder_clip(Path(self.path), self.spec)
        return open_file_clip(checked.file, self.spec)

    def restore(self, content: bytes, checked: Checked) -> tuple[Clip, Found]:
        """The clip and its frames from the cache; ValueError, TypeError or KeyError for malformed content."""
        assert checked.file is not None
        return FileClip.from_json(content, checked.file, self.spec)


def _place(path: str | os.PathLike[str], spec: SampleSpec) -> Place:
    in_child = spec.decode_in == "child" and os.name == "posix"
    return InChild(path, spec) if in_child else InProcess(path, spec)


def _noted(cache: FrameCache, key: str, place: Place, checked: Checked) -> tuple[Clip, Found] | None:
    """What the cache knows about the file, so that it need not be opened."""
    content = cache.read(key)
    if content is None:
        return None
    try:
        return place.restore(content, checked)
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
    limits: VideoLimits | None = None,
    decode_in: DecodeIn = "process",
    stream: int | None = None,
) -> FramePool:
    """The frames on display at `cells` moments of a video, decoded at one size; no cache is read or written.

    "middle" takes the middle of `cells` intervals equal in time; "linspace" takes the frames numbered
    round(linspace(0, n - 1, cells)), as the paper does. A frame on display at several of these moments appears once, so
    the pool can be smaller.

    "exact" takes the frame on display at each moment. "keyframe" takes the nearest keyframe instead, which is much
    faster and off by up to half a group of pictures. "auto" takes a keyframe where one lies within AUTO_FRACTION of a
    cell's width, and is exact elsewhere. The pool's times are those of the frames taken, whatever was asked for.

    `stream` is the number of a video stream, for files with several; None is the default one.

    With decode_in="child" a process with limits decodes, so that a decoder that crashes, hangs or takes too much memory
    is a VideoError of one line; see `gridprobe.video.decoder_pool`.
    """
    spec = {"sampling": sampling, "precision": precision, "limits": limits, "decode_in": decode_in}
    return Video(path, cells=cells, stream=stream, **spec).pool(size)  # type: ignore[arg-type]
