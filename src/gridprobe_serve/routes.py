"""The routes under /v1/gridprobe (asking, jobs, uploads, sessions, pictures), and those of the page for people."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gridprobe.importance import Grid
from gridprobe.report.answer_page import render
from gridprobe.report.html import POLICY
from gridprobe.report.picture import draw_answer, encoded
from gridprobe.video import Window
from gridprobe.video.frames import contact_sheet
from gridprobe_serve.errors import ApiError, Json, check_descriptors, not_found
from gridprobe_serve.jobs import Job, JobMessage, Jobs
from gridprobe_serve.schemas import AskBody, PlanBody, SessionBody
from gridprobe_serve.service import VideoQuestion, VideoService, VideoSession, jpeg
from gridprobe_serve.sources import display_name

router = APIRouter(prefix="/v1/gridprobe", tags=["gridprobe"])
page_router = APIRouter(include_in_schema=False)
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}, "description": "named events"}}
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "a picture"}}
BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
VIDEO_TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""The page may use scripts, styles and media of this server only."""
PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def _service_of(request: Request) -> VideoService:
    service: VideoService = request.app.state.service
    return service


Service = Annotated[VideoService, Depends(_service_of)]
Side = Annotated[int | None, Query(ge=1, le=64)]
Width = Annotated[int, Query(ge=16, le=2048)]
Second = Annotated[float | None, Query(ge=-1e7, le=1e7, allow_inf_nan=False)]


def _window_of(start: Second = None, end: Second = None) -> Window | None:
    """The part of the video that was sampled, as in `settings.window`."""
    return None if start is None and end is None else (start or 0.0, end)


Part = Annotated[Window | None, Depends(_window_of)]


def user_of(request: Request, name: str | None) -> str:
    """Who asks, for taking turns: the client's address, and a name if the client gives one."""
    return f"{request.client.host if request.client else ''}|{name or ''}"


async def until_over(job: Job, jobs: Jobs, request: Request) -> Mapping[str, Any]:
    """The result of a job. It is cancelled if the client goes away; its error is raised."""
    waits = [asyncio.wrap_future(job.finished), asyncio.ensure_future(_disconnected(request))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        if not job.over:
            jobs.cancel(job)
    return job.outcome()


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event_stream(events: AsyncIterator[str]) -> Response:
    """Server-sent events. Starlette ends the iterator when the client goes away."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _event(message: JobMessage | None) -> str:
    """A message as a named server-sent event; None is a comment, which keeps the connection open."""
    if message is None:
        return ": waiting\n\n"
    return f"id: {message.number}\nevent: {message.name}\ndata: {json.dumps(message.data, allow_nan=False)}\n\n"


async def _submit(body: SessionBody, request: Request, service: VideoService) -> Job:
    """Queue what a body asks for."""
    user = user_of(request, body.user)
    service.jobs.check_room(user)
    question, show_map = (body.parse(), body.map) if isinstance(body, AskBody) else (None, False)
    settings, selector = body.settings.changes()
    await run_in_threadpool(service.plan_for, settings, selector, private=True)  # a refusal costs no fetching
    source = await run_in_threadpool(service.sources.find, body.video)
    return service.submit(VideoQuestion(source, question, settings, selector, show_map), user)


@router.post("/ask", summary="Ask a question and wait for the answer")
async def ask(body: AskBody, request: Request, service: Service) -> Response:
    """Closing the connection cancels the question."""
    return Json(await until_over(await _submit(body, request, service), service.jobs, request))


@router.post("/jobs", status_code=202, summary="Ask a question and get a job")
async def create_job(body: AskBody, request: Request, service: Service) -> Response:
    """The job's events say how far it is."""
    job = await _submit(body, request, service)
    return Json(service.jobs.to_dict(job), 202)


@router.get("/jobs/{id}", summary="A job")
async def get_job(id: str, service: Service) -> Response:
    """Its state, progress, and result or error."""
    return Json(service.jobs.to_dict(service.jobs.get(id)))


@router.delete("/jobs/{id}", summary="Cancel a job")
async def cancel_job(id: str, service: Service) -> Response:
    """A job that has ended stays as it is."""
    job = service.jobs.get(id)
    service.jobs.cancel(job)
    return Json(service.jobs.to_dict(job))


@router.get("/jobs/{id}/events", summary="The events of a job", responses=STREAM, response_class=StreamingResponse)
async def job_events(id: str, request: Request, service: Service) -> Response:
    """Server-sent events, from the first one or from the one after `Last-Event-ID`."""
    job = service.jobs.get(id)
    last = request.headers.get("last-event-id", "")
    number = int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0
    return event_stream(_event(message) async for message in job.stream(number))


@router.get("/jobs/{id}/report.html", summary="The report of an answer", response_class=HTMLResponse)
async def report(id: str, service: Service) -> Response:
    """A self-contained page, as `gridprobe ask --report` writes it."""
    page = await run_in_threadpool(render, [service.answers.get(id)])
    policy = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"}
    return HTMLResponse(page, headers={**policy, **_download("report.html")})


@router.get("/jobs/{id}/map.png", summary="The picture of an answer", response_class=Response)
async def picture(id: str, service: Service) -> Response:
    """The picture that `gridprobe ask --map` writes."""
    answer = service.answers.get(id)
    content = await run_in_threadpool(lambda: encoded(draw_answer(answer), Path("map.png")))
    return Response(content, media_type="image/png", headers=_download("map.png"))


def _download(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="gridprobe-{name}"'}


@router.get("/videos", summary="Files that requests may name")
async def videos(service: Service) -> Response:
    """Files under the folder of `--videos`."""
    folder = service.sources.folder
    listed = await run_in_threadpool(folder.listed) if folder else []
    return Json({"enabled": folder is not None, "videos": [vars(each) for each in listed]})


@router.post(
    "/uploads",
    status_code=201,
    summary="Upload a video",
    openapi_extra={"requestBody": {"required": True, "content": BINARY}},
)
async def upload(request: Request, service: Service, name: str = Query("video", max_length=500)) -> Response:
    """The file is the body. It is written to disk as it arrives."""
    with service.store.receiving(service.limits.max_upload) as incoming:
        async for chunk in request.stream():
            await run_in_threadpool(incoming.write, chunk)
        stored = await run_in_threadpool(service.store.upload, incoming, display_name(name))
    about = {"id": stored.id, "url": f"upload://{stored.id}", "name": stored.name}
    return Json({**about, "bytes": stored.blob.size, "sha256": stored.blob.sha256}, 201)


@router.delete("/uploads/{id}", status_code=204, summary="Delete an upload")
async def delete_upload(id: str, service: Service) -> Response:
    """Its content goes when no open session uses it."""
    await run_in_threadpool(service.store.remove, id)
    return Response(status_code=204)


@router.post("/sessions", summary="Open a video without a question")
async def open_session(body: SessionBody, request: Request, service: Service) -> Response:
    """Decodes the frames of the grid, so that pictures and answers come sooner."""
    return Json(await until_over(await _submit(body, request, service), service.jobs, request))


@router.get("/sessions", summary="Open videos")
async def list_sessions(service: Service) -> Response:
    """Least recently used first."""
    return Json({"sessions": [each.to_dict() for each in service.sessions.all()]})


@router.get("/sessions/{id}", summary="An open video")
async def get_session(id: str, service: Service) -> Response:
    """With the times of the frames that were sampled last."""
    return Json(await run_in_threadpool(service.about, service.sessions.get(id)))


@router.delete("/sessions/{id}", status_code=204, summary="Close a video")
async def close_session(id: str, service: Service) -> Response:
    """Questions that are being answered go on."""
    service.sessions.close(id)
    return Response(status_code=204)


@router.post("/sessions/{id}/plan", summary="What a question would take")
async def plan(id: str, body: PlanBody, service: Service) -> Response:
    """Frames, tokens, TFLOPs, seconds and memory of quick, auto and full answers and all frames; what limits buy.

    Nothing is computed by the models. Without a question, a typical one is priced.
    """
    question = body.parse()
    settings, selector = body.settings.changes()

    def price() -> list[dict[str, Any]]:
        with service.using(id) as video:
            return service.offers(video, settings, selector, question)

    return Json({"offers": await service.decode_pool.run(price)})


@router.get("/sessions/{id}/sheet.jpg", summary="The contact sheet", responses=JPEG, response_class=Response)
async def sheet(id: str, service: Service, window: Part, k: Side = None, width: Width = 1200) -> Response:
    """K columns; time runs left to right, row by row. Without `k`, as the session was sampled last."""
    session = service.sessions.get(id)

    def draw() -> bytes:
        pixels, times = service.pool(session, k, window=window)
        return jpeg(contact_sheet(pixels, Grid.holding(len(times)).k), width)

    return Response(await service.decode_pool.run(draw), media_type="image/jpeg")


@router.get("/sessions/{id}/frame.jpg", summary="A frame", responses=JPEG, response_class=Response)
async def frame(
    id: str,
    service: Service,
    window: Part,
    *,
    t: Annotated[float | None, Query(ge=0, le=1e7, allow_inf_nan=False)] = None,
    index: Annotated[int | None, Query(ge=0, le=4096)] = None,
    k: Side = None,
    width: Width = 640,
) -> Response:
    """At a time in seconds, or by its place in the grid of K². The header X-Time has its true time."""
    session = service.sessions.get(id)
    if (t is None) == (index is None):
        raise ApiError("give either t or index", param="t")

    def draw() -> tuple[bytes, float]:
        if index is not None:
            pixels, time = service.indexed(session, index, k, width, window=window)
        else:
            pixels, time = service.frame(session, t or 0.0, width)
        return jpeg(pixels, width), time

    content, time = await service.decode_pool.run(draw)
    return Response(content, media_type="image/jpeg", headers={"X-Time": f"{time:.6f}"})


@router.get("/sessions/{id}/video", summary="The file, with byte ranges", response_class=FileResponse)
async def video(id: str, service: Service) -> Response:
    """For a player; there is none for a list of pictures."""
    session = service.sessions.get(id)
    handle = await run_in_threadpool(_file_of, service, session)
    kind = VIDEO_TYPES.get(os.path.splitext(session.source.name)[1].lower(), "application/octet-stream")
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


def _file_of(service: VideoService, session: VideoSession) -> int:
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


@router.get("/info", summary="What this server offers")
async def info(service: Service) -> Response:
    """Models, limits, and what is enabled."""
    limits = ("max_k", "max_body", "max_upload", "queue", "concurrency", "max_side", "session_age")
    return Json(
        {
            "models": list(service.models),
            "preset": service.settings.preset,
            "k": service.settings.k,
            "limits": {name: getattr(service.limits, name) for name in limits},
            "videos": service.sources.folder is not None,
            "urls": service.sources.fetches,
            "demo": service.demo,
            "ready": not service.jobs.closing,
        }
    )


@page_router.get("/")
async def index() -> Response:
    """The page."""
    return await page_file("index.html")


@page_router.get("/page/{name}")
async def page_file(name: str) -> Response:
    """A style sheet, a script or another file of the page."""
    if name not in _page_files():
        raise not_found("file")
    kind = next(kind for ending, kind in PAGE_TYPES.items() if name.endswith(ending))
    policy = {"Content-Security-Policy": PAGE_POLICY}
    return Response(_page_files()[name], media_type=f"{kind}; charset=utf-8", headers=policy)


@cache
def _page_files() -> dict[str, bytes]:
    """All files of the page, by name; nothing else can be asked for."""
    folder = files("gridprobe_serve").joinpath("page")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.endswith(tuple(PAGE_TYPES))}
