"""Video sessions: a video is opened and decoded once and asked many times; bounded by bytes, number and age."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any

from gridprobe.options import Plan
from gridprobe.video import SampleSpec, Video
from gridprobe_serve.errors import ApiError, new_id, not_found
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.sources import Source, Sources

__all__ = ["Sessions", "VideoSession"]

MOST_SAMPLINGS = 3
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
        self._samplings: OrderedDict[SampleSpec, Video] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Bytes of decoded frames in memory."""
        return sum(each.memory_used for each in list(self._samplings.values()))

    @property
    def latest(self) -> Video | None:
        """The sampling that was used last."""
        return next(reversed(self._samplings.values()), None) if self._samplings else None

    def sampled(self, plan: Plan) -> Video:
        """The video, sampled as a plan says; threads that want the same wait for one of them to open it."""
        assert plan.sampling is not None
        with self._lock:
            if plan.sampling not in self._samplings:
                video = plan.open(self.source.path)
                if self.source.fingerprint not in (None, video.info.fingerprint):
                    raise ApiError("the file changed while it was opened; try again", status=409, code="changed")
                self._samplings[plan.sampling] = video
            self._samplings.move_to_end(plan.sampling)
            while len(self._samplings) > MOST_SAMPLINGS:
                self._samplings.popitem(last=False)
            return self._samplings[plan.sampling]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the path."""
        video = self.latest
        return {
            "id": self.id,
            "name": self.source.name,
            "video": video.info.to_dict() | {"path": self.source.name} if video else None,
            "bytes": self.bytes,
            "questions": self.questions,
            "created": self.created,
            "used": self.used,
        }


class Sessions:
    """All open videos, by content."""

    def __init__(self, sources: Sources, limits: ServerLimits, clock: Callable[[], float] = time.time) -> None:
        self._sources = sources
        self._limits = limits
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
            if source.key not in self._open:
                self._open[source.key] = VideoSession(self._sources.held(source), self._clock())
            session = self._open[source.key]
            session.users += 1
            self._open.move_to_end(source.key)
        try:
            yield session
        finally:
            with self._lock:
                session.users -= 1
                session.used = self._clock()
                if session.latest is None and not session.users:  # it could not be opened
                    self._close(session)
            self.trim()

    def get(self, id: str) -> VideoSession:
        """The session with this id."""
        with self._lock:
            session = next((each for each in self._open.values() if each.id == id), None)
        if session is None:
            raise not_found("session")
        return session

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
        """Close sessions that are old, and the least recently used ones where all of them take too much."""
        with self._lock:
            for session in [each for each in self._open.values() if not each.users]:
                old = session.used < self._clock() - self._limits.session_age
                if old or self.bytes > self._limits.session_bytes or len(self._open) > self._limits.sessions:
                    self._close(session)

    def _close(self, session: VideoSession) -> None:
        if self._open.get(session.source.key) is session:
            del self._open[session.source.key]
            self._sources.release(session.source)
