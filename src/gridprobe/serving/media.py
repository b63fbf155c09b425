"""Pictures of a session's frames, and its file for a player."""

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from gridprobe.grid import Grid
from gridprobe.serving.bounds import Bounds
from gridprobe.serving.desk import Desk
from gridprobe.serving.native import desk_of
from gridprobe.serving.pictures import jpeg
from gridprobe.serving.refusals import Refusal, check_descriptors
from gridprobe.serving.sessions import VideoSession
from gridprobe.video.sheet import contact_sheet

__all__ = ["DecodePool", "router"]

T = TypeVar("T")
router = APIRouter(prefix="/v1/gridprobe/sessions/{id}", tags=["pictures"])
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "a picture"}}
KINDS = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
}
Side = Annotated[int | None, Query(ge=1, le=64)]
Width = Annotated[int, Query(ge=16, le=2048)]


class DecodePool:
    """Threads for requests that decode pictures outside of the queue of jobs: a few at a time, and few that wait."""

    def __init__(self, bounds: Bounds) -> None:
        self._turns = asyncio.Semaphore(bounds.decoders)
        self._room = bounds.decoders + bounds.queue

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns, once it is its turn; 429 if too many wait."""
        if not self._room:
            message = "too many requests for pictures at once; try again soon"
            raise Refusal(message, status=429, code="busy", Retry_After="5")
        self._room -= 1
        try:
            async with self._turns:
                return await run_in_threadpool(work)
        finally:
            self._room += 1


@router.get("/sheet.jpg", summary="The contact sheet", responses=JPEG, response_class=Response)
async def sheet(id: str, request: Request, k: Side = None, width: Width = 1200) -> Response:
    """K columns; time runs left to right, row by row. Without `k`, as the session was sampled last."""
    desk = desk_of(request)
    session = desk.sessions.get(id)

    def drawn() -> bytes:
        pixels, times = desk.pool(session, k)
        return jpeg(contact_sheet(pixels, Grid.holding(len(times)).k), width)

    return Response(await request.app.state.decoding.run(drawn), media_type="image/jpeg")


@router.get("/frame.jpg", summary="A frame", responses=JPEG, response_class=Response)
async def frame(
    id: str,
    request: Request,
    t: Annotated[float | None, Query(ge=0, le=1e7, allow_inf_nan=False)] = None,
    index: Annotated[int | None, Query(ge=0, le=4096)] = None,
    k: Side = None,
    width: Width = 640,
) -> Response:
    """At a time in seconds, or by its place in the grid of K². The header X-Time has its true time."""
    desk = desk_of(request)
    session = desk.sessions.get(id)
    if (t is None) == (index is None):
        raise Refusal("give either t or index", param="t")

    def drawn() -> tuple[bytes, float]:
        if index is not None:
            pixels, time = desk.indexed(session, index, k, width)
        else:
            pixels, time = desk.frame(session, t or 0.0, width)
        return jpeg(pixels, width), time

    content, time = await request.app.state.decoding.run(drawn)
    return Response(content, media_type="image/jpeg", headers={"X-Time": f"{time:.6f}"})


@router.get("/video", summary="The file, with byte ranges", response_class=FileResponse)
async def video(id: str, request: Request) -> Response:
    """For a player; there is none for a list of pictures."""
    session = desk_of(request).sessions.get(id)
    handle = await run_in_threadpool(_opened, desk_of(request), session)
    kind = KINDS.get(os.path.splitext(session.source.name)[1].lower(), "application/octet-stream")
    return OpenFile(handle, kind)


class OpenFile(FileResponse):
    """An open file with byte ranges; its descriptor is closed however the response ends.

    FileResponse skips its background task after a range that it refuses, so that is no place to close it.
    """

    def __init__(self, handle: int, kind: str) -> None:
        self._handle = handle
        # The path of the descriptor that was checked: whatever is under the name now, this is served.
        path, headers = f"/proc/self/fd/{handle}", {"Content-Disposition": "inline"}
        super().__init__(path, media_type=kind, stat_result=os.fstat(handle), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the file, then close it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._handle)


def _opened(desk: Desk, session: VideoSession) -> int:
    """A descriptor of the session's file."""
    source = session.source
    if source.path.is_dir():
        raise Refusal("this video is a list of pictures; there is no file", status=404, code="not_found")
    try:
        if source.private or desk.sources.folder is None:
            return os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with desk.sources.folder.opened(str(source.path)) as (handle, _):
            return os.dup(handle)
    except OSError as error:
        check_descriptors(error)
        raise Refusal("the file is gone", status=404, code="not_found") from None
