"""Video sessions: a video is opened and decoded once and asked many times; bounded by bytes, number and age."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any

from gridprobe.options import Plan
from gridprobe.video import SampleSpec, Video
from gridprobe_serve.jobs import ApiError, new_id, not_found
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.sources import Source, Sources

__all__ = ["Sessions", "VideoSession"]

MOST_FOOTAGE = 3
"""Samplings of one video that are kept open."""


class VideoSession:
    """A video that is open."""

    def __init__(self, source: Source, now: float) -> None:
        self.id = new_id()
        self.source = source
        self.created = self.used = now
        self.questions = 0
        self.users = 0
        """Jobs that use it now."""
        self._lock = Lock()
        self._footage: OrderedDict[SampleSpec, Video] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Bytes of decoded frames in memory."""
        return sum(each.memory_used for each in list(self._footage.values()))

    @property
    def latest(self) -> Video | None:
        """The sampling that was used last."""
        return next(reversed(self._footage.values()), None) if self._footage else None

    def footage(self, setup: Plan) -> Video:
        """The video, sampled as a setup says; threads that want the same wait for one of them to open it."""
        assert setup.sampling is not None
        with self._lock:
            found = self._footage.get(setup.sampling)
            if found is None:
                found = setup.open(self.source.path)
                if self.source.fingerprint not in (None, found.info.fingerprint):
                    raise ApiError("the file changed while it was opened; try again", status=409, code="changed")
                self._footage[setup.sampling] = found
            self._footage.move_to_end(setup.sampling)
            while len(self._footage) > MOST_FOOTAGE:
                self._footage.popitem(last=False)
            return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the path."""
        found = self.latest
        return {
            "id": self.id,
            "name": self.source.name,
            "video": found.info.to_dict() | {"path": self.source.name} if found else None,
            "bytes": self.bytes,
            "questions": self.questions,
            "created": self.created,
            "used": self.used,
        }


class Sessions:
    """All open videos, by content."""

    def __init__(self, sources: Sources, bounds: ServerLimits, clock: Callable[[], float] = time.time) -> None:
        self._sources = sources
        self._bounds = bounds
        self._clock = clock
        self._lock = RLock()
        self._open: OrderedDict[str, VideoSession] = OrderedDict()
        sources.of_session = lambda id: self.get(id).source

    def __len__(self) -> int:
        return len(self._open)

    @property
    def bytes(self) -> int:
        """Bytes of decoded frames in memory."""
        return sum(each.bytes for each in list(self._open.values()))

    @contextmanager
    def using(self, source: Source) -> Iterator[VideoSession]:
        """The session of a video; it is not closed within the block."""
        with self._lock:
            found = self._open.get(source.key)
            if found is None:
                found = self._open[source.key] = VideoSession(self._sources.held(source), self._clock())
            found.users += 1
            self._open.move_to_end(source.key)
        try:
            yield found
        finally:
            with self._lock:
                found.users -= 1
                found.used = self._clock()
                if found.latest is None and not found.users:  # it could not be opened
                    self._close(found)
            self.trim()

    def get(self, id: str) -> VideoSession:
        """The session with this id."""
        with self._lock:
            for found in self._open.values():
                if found.id == id:
                    return found
        raise not_found("session")

    def all(self) -> list[VideoSession]:
        """Those that are open, least recently used first."""
        self.trim()
        with self._lock:
            return list(self._open.values())

    def close(self, id: str) -> None:
        """Close a session; jobs that use it go on."""
        with self._lock:
            self._close(self.get(id))

    def trim(self) -> None:
        """Close sessions that are old, and the least recently used ones where all together take too much."""
        with self._lock:
            idle = [each for each in self._open.values() if not each.users]
            for session in idle:
                old = session.used < self._clock() - self._bounds.session_age
                if old or self.bytes > self._bounds.session_bytes or len(self._open) > self._bounds.sessions:
                    self._close(session)

    def _close(self, session: VideoSession) -> None:
        if self._open.get(session.source.key) is session:
            del self._open[session.source.key]
            self._sources.release(session.source)
