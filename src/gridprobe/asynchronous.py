"""AsyncSession and aask(): questions for programs with an event loop.

async with gridprobe.AsyncSession("talk.mp4", model=model) as session:
    one, other = await asyncio.gather(session.ask("What is it?"), session.ask("Which colour?"))

The work is done in threads. Questions that are asked at the same time are merged into one call of the model. A task
that is cancelled ends its question at the next step, and frees the model.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

from gridprobe._util import shared
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.concurrency import TOGETHER, Batcher, check_together, merged
from gridprobe.question import Question
from gridprobe.video import FramePool, Video

__all__ = ["AsyncSession", "aask"]

T = TypeVar("T")


class AsyncSession:
    """One video, many questions. Arguments as for `Session`; models are loaded by the first question."""

    def __init__(self, video: str | Path | Video | FramePool, *, together: int = TOGETHER, **given: Any) -> None:
        """A session that is not open yet.

        Args:
            video: as for `Session`.
            together: how many questions are asked at the same time; others wait.
            **given: as for `Session`.
        """
        check_together(together)
        self._make = partial(Session, video, **given)
        self._batcher = Batcher()
        self._threads = ThreadPoolExecutor(together, thread_name_prefix="gridprobe-async")
        self._lock = Lock()
        self._session: Session | None = None

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the decoded frames and the threads; questions that are being answered go on."""
        self._threads.shutdown(wait=False)
        self._batcher.close()
        self._session = None

    async def ask(self, question: Question | str, *, show_map: bool = False) -> Answer:
        """As `Session.ask`. A listener of `gridprobe._util` is called from another thread."""
        return await self._in_thread(lambda: self._opened().ask(question, show_map=show_map))

    async def ask_all(self, questions: Sequence[Question | str], *, show_map: bool = False) -> list[Answer]:
        """The answers to all questions, in order."""
        return list(await asyncio.gather(*(self.ask(question, show_map=show_map) for question in questions)))

    def _opened(self) -> Session:
        """The session with its models loaded and its video open; the first thread does that, others wait."""
        with self._lock:
            if self._session is None:
                session = self._make()
                session.setup = merged(session.setup, self._batcher)
                session.open()
                self._session = session
            return self._session

    async def _in_thread(self, work: Callable[[], T]) -> T:
        cancel = Event()
        with shared(cancel):
            context = copy_context()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)
        except asyncio.CancelledError:
            cancel.set()
            raise


async def aask(
    video: str | Path | Video | FramePool, question: Question | str, *, show_map: bool = False, **given: Any
) -> Answer:
    """As `ask`, for programs with an event loop."""
    async with AsyncSession(video, together=1, reuse=False, **given) as session:
        return await session.ask(question, show_map=show_map)
