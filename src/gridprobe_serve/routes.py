"""The routes under /v1/gridprobe/: asking, jobs, uploads and sessions."""

import asyncio
import io
import os
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gridprobe.importance import Grid
from gridprobe.report.answer_page import render
from gridprobe.report.html import POLICY
from gridprobe.report.picture import draw_answer, encoded
from gridprobe.video.frames import contact_sheet
from gridprobe_serve.jobs import ApiError, Job, check_descriptors, not_found
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.schemas import AskBody, PlanBody, SessionBody
from gridprobe_serve.service import Json, VideoQuestion, VideoService, as_event, job_dict, messages, until_over
from gridprobe_serve.sessions import VideoSession
from gridprobe_serve.sources import Frames, Remote, Source, shown

__all__ = [
    "PAGE_POLICY",
    "DecodePool",
    "found_source",
    "jpeg",
    "media_router",
    "page_router",
    "report_router",
    "router",
    "service_of",
    "user_of",
]

router = APIRouter(prefix="/v1/gridprobe", tags=["gridprobe"])
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}, "description": "named events"}}


def service_of(request: Request) -> VideoService:
    """The server's desk."""
    service: VideoService = request.app.state.service
    return service


def user_of(request: Request, name: str | None) -> str:
    """Who asks, for taking turns: the client's address, and a name if the client gives one."""
    return f"{request.client.host if request.client else ''}|{name or ''}"


async def found_source(service: VideoService, named: str | Frames) -> Source | Remote:
    """The video that a request names, on disk."""
    return await run_in_threadpool(service.sources.find, named)


async def _begin(body: SessionBody, request: Request) -> Job:
    """Queue what a body asks for."""
    service, user = service_of(request), user_of(request, body.user)
    service.jobs.check_room(user)
    question = body.asked() if isinstance(body, AskBody) else None
    settings, selector = body.settings.changes()
    await run_in_threadpool(service.check, settings, selector)
    source = await found_source(service, body.video)
    show_map = isinstance(body, AskBody) and body.map
    return service.submit(VideoQuestion(source, question, settings, selector, show_map), user)


@router.post("/ask", summary="Ask a question and wait for the answer")
async def ask(body: AskBody, request: Request) -> Response:
    """Closing the connection cancels the question."""
    job = await _begin(body, request)
    return Json(await until_over(job, service_of(request).jobs, request))


@router.post("/jobs", status_code=202, summary="Ask a question and get a job")
async def create_job(body: AskBody, request: Request) -> Response:
    """The job's events say how far it is."""
    job = await _begin(body, request)
    return Json(job_dict(job, service_of(request).jobs), 202)


@router.get("/jobs/{id}", summary="A job")
async def get_job(id: str, request: Request) -> Response:
    """Its state, progress, and result or error."""
    jobs = service_of(request).jobs
    return Json(job_dict(jobs.get(id), jobs))


@router.delete("/jobs/{id}", summary="Cancel a job")
async def cancel_job(id: str, request: Request) -> Response:
    """A job that has ended stays as it is."""
    jobs = service_of(request).jobs
    job = jobs.get(id)
    jobs.cancel(job)
    return Json(job_dict(job, jobs))


@router.get("/jobs/{id}/events", summary="The events of a job", responses=STREAM, response_class=StreamingResponse)
async def job_events(id: str, request: Request) -> Response:
    """Server-sent events, from the first one or from the one after `Last-Event-ID`."""
    job = service_of(request).jobs.get(id)
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0
    events = (as_event(message) async for message in messages(job, after))
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@router.get("/videos", summary="Files that requests may name")
async def videos(request: Request) -> Response:
    """Files under the folder of `--videos`."""
    folder = service_of(request).sources.folder
    listed = await run_in_threadpool(folder.listed) if folder else []
    return Json({"enabled": folder is not None, "videos": [vars(each) for each in listed]})


@router.post(
    "/uploads",
    status_code=201,
    summary="Upload a video",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(request: Request, name: str = Query("video", max_length=500)) -> Response:
    """The file is the body. It is written to disk as it arrives."""
    service = service_of(request)
    with service.shelf.receiving(service.bounds.max_upload) as incoming:
        async for chunk in request.stream():
            await run_in_threadpool(incoming.write, chunk)
        found = await run_in_threadpool(service.shelf.upload, incoming, shown(name))
    about = {"id": found.id, "url": f"upload://{found.id}", "name": found.name}
    return Json({**about, "bytes": found.blob.size, "sha256": found.blob.sha256}, 201)


@router.delete("/uploads/{id}", status_code=204, summary="Delete an upload")
async def delete_upload(id: str, request: Request) -> Response:
    """Its content goes when no open session uses it."""
    await run_in_threadpool(service_of(request).shelf.remove, id)
    return Response(status_code=204)


@router.post("/sessions", summary="Open a video without a question")
async def open_session(body: SessionBody, request: Request) -> Response:
    """Decodes the frames of the grid, so that pictures and answers come sooner."""
    job = await _begin(body, request)
    return Json(await until_over(job, service_of(request).jobs, request))


@router.get("/sessions", summary="Open videos")
async def list_sessions(request: Request) -> Response:
    """Least recently used first."""
    return Json({"sessions": [each.to_dict() for each in service_of(request).sessions.all()]})


@router.get("/sessions/{id}", summary="An open video")
async def get_session(id: str, request: Request) -> Response:
    """With the times of the frames that were sampled last."""
    service = service_of(request)
    session = service.sessions.get(id)
    return Json(await run_in_threadpool(service.about, session))


@router.post("/sessions/{id}/plan", summary="What a question would take")
async def plan(id: str, body: PlanBody, request: Request) -> Response:
    """Frames, tokens, TFLOPs, seconds and memory of quick, auto and full answers and all frames; what limits buy.

    Nothing is computed by the models. Without a question, a typical one is priced.
    """
    service, question = service_of(request), body.asked()
    settings, selector = body.settings.changes()

    def offered() -> list[dict[str, Any]]:
        with service.using(id) as video:
            return service.plan(video, settings, selector, question)

    return Json({"offers": await request.app.state.decoding.run(offered)})


@router.delete("/sessions/{id}", status_code=204, summary="Close a video")
async def close_session(id: str, request: Request) -> Response:
    """Questions that are being answered go on."""
    service_of(request).sessions.close(id)
    return Response(status_code=204)


@router.get("/info", summary="What this server offers")
async def info(request: Request) -> Response:
    """Models, limits, and what is enabled."""
    service = service_of(request)
    bounds, settings = service.bounds, service.settings
    return Json(
        {
            "models": list(service.models),
            "preset": settings.preset,
            "k": settings.k,
            "limits": {
                name: getattr(bounds, name)
                for name in ("max_k", "max_body", "max_upload", "queue", "together", "max_side", "session_age")
            },
            "videos": service.sources.folder is not None,
            "urls": service.sources.fetches,
            "ready": not service.jobs.closing,
        }
    )


# The report and the picture of an answer, for downloading.

report_router = APIRouter(prefix="/v1/gridprobe/jobs/{id}", tags=["gridprobe"])


@report_router.get("/report.html", summary="The report of an answer", response_class=HTMLResponse)
async def report(id: str, request: Request) -> Response:
    """A self-contained page, as `gridprobe ask --report` writes it."""
    answer = service_of(request).answers.get(id)
    policy = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"}
    return HTMLResponse(await run_in_threadpool(render, [answer]), headers={**policy, **_named("report.html")})


@report_router.get("/map.png", summary="The picture of an answer", response_class=Response)
async def picture(id: str, request: Request) -> Response:
    """The picture that `gridprobe ask --map` writes."""
    answer = service_of(request).answers.get(id)
    content = await run_in_threadpool(lambda: encoded(draw_answer(answer), Path("map.png")))
    return Response(content, media_type="image/png", headers=_named("map.png"))


def _named(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="gridprobe-{name}"'}


# Frames as JPEG.


def jpeg(pixels: Any, side: int) -> bytes:
    """A picture, not wider or higher than `side`."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()


# Pictures of a session's frames, and its file for a player.

T = TypeVar("T")
media_router = APIRouter(prefix="/v1/gridprobe/sessions/{id}", tags=["pictures"])
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

    def __init__(self, bounds: ServerLimits) -> None:
        self._turns = asyncio.Semaphore(bounds.decoders)
        self._room = bounds.decoders + bounds.queue

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns, once it is its turn; 429 if too many wait."""
        if not self._room:
            message = "too many requests for pictures at once; try again soon"
            raise ApiError(message, status=429, code="busy", Retry_After="5")
        self._room -= 1
        try:
            async with self._turns:
                return await run_in_threadpool(work)
        finally:
            self._room += 1


@media_router.get("/sheet.jpg", summary="The contact sheet", responses=JPEG, response_class=Response)
async def sheet(id: str, request: Request, k: Side = None, width: Width = 1200) -> Response:
    """K columns; time runs left to right, row by row. Without `k`, as the session was sampled last."""
    service = service_of(request)
    session = service.sessions.get(id)

    def drawn() -> bytes:
        pixels, times = service.pool(session, k)
        return jpeg(contact_sheet(pixels, Grid.holding(len(times)).k), width)

    return Response(await request.app.state.decoding.run(drawn), media_type="image/jpeg")


@media_router.get("/frame.jpg", summary="A frame", responses=JPEG, response_class=Response)
async def frame(
    id: str,
    request: Request,
    t: Annotated[float | None, Query(ge=0, le=1e7, allow_inf_nan=False)] = None,
    index: Annotated[int | None, Query(ge=0, le=4096)] = None,
    k: Side = None,
    width: Width = 640,
) -> Response:
    """At a time in seconds, or by its place in the grid of K². The header X-Time has its true time."""
    service = service_of(request)
    session = service.sessions.get(id)
    if (t is None) == (index is None):
        raise ApiError("give either t or index", param="t")

    def drawn() -> tuple[bytes, float]:
        if index is not None:
            pixels, time = service.indexed(session, index, k, width)
        else:
            pixels, time = service.frame(session, t or 0.0, width)
        return jpeg(pixels, width), time

    content, time = await request.app.state.decoding.run(drawn)
    return Response(content, media_type="image/jpeg", headers={"X-Time": f"{time:.6f}"})


@media_router.get("/video", summary="The file, with byte ranges", response_class=FileResponse)
async def video(id: str, request: Request) -> Response:
    """For a player; there is none for a list of pictures."""
    session = service_of(request).sessions.get(id)
    handle = await run_in_threadpool(_opened, service_of(request), session)
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


def _opened(service: VideoService, session: VideoSession) -> int:
    """A descriptor of the session's file."""
    source = session.source
    if source.path.is_dir():
        raise ApiError("this video is a list of pictures; there is no file", status=404, code="not_found")
    try:
        if source.private or service.sources.folder is None:
            return os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with service.sources.folder.opened(str(source.path)) as (handle, _):
            return os.dup(handle)
    except OSError as error:
        check_descriptors(error)
        raise ApiError("the file is gone", status=404, code="not_found") from None


# The page for people: its files, under a policy that allows scripts, styles and media of this server only.

page_router = APIRouter(include_in_schema=False)
PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "media-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
PAGE_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@page_router.get("/")
async def index() -> Response:
    return _file("index.html")


@page_router.get("/page/{name}")
async def part(name: str) -> Response:
    if name not in _contents():
        raise not_found("file")
    return _file(name)


def _file(name: str) -> Response:
    kind = next(kind for ending, kind in PAGE_KINDS.items() if name.endswith(ending))
    return Response(
        _contents()[name], media_type=f"{kind}; charset=utf-8", headers={"Content-Security-Policy": PAGE_POLICY}
    )


@cache
def _contents() -> dict[str, bytes]:
    """All files of the page, by name; nothing else can be asked for."""
    folder = files("gridprobe_serve").joinpath("page")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.endswith(tuple(PAGE_KINDS))}
