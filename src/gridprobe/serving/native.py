"""The routes under /v1/gridprobe/: asking, jobs, uploads and sessions."""

from typing import Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from gridprobe.serving.desk import Asked, Desk
from gridprobe.serving.jobs import Job
from gridprobe.serving.replies import Json, as_event, job_dict, messages, until_over
from gridprobe.serving.sources import Frames, Remote, Source, shown
from gridprobe.serving.wire import AskBody, PlanBody, SessionBody

__all__ = ["desk_of", "found_source", "router", "user_of"]

router = APIRouter(prefix="/v1/gridprobe", tags=["gridprobe"])
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}, "description": "named events"}}


def desk_of(request: Request) -> Desk:
    """The server's desk."""
    desk: Desk = request.app.state.desk
    return desk


def user_of(request: Request, name: str | None) -> str:
    """Who asks, for taking turns: the client's address, and a name if the client gives one."""
    return f"{request.client.host if request.client else ''}|{name or ''}"


async def found_source(desk: Desk, named: str | Frames) -> Source | Remote:
    """The video that a request names, on disk."""
    return await run_in_threadpool(desk.sources.find, named)


async def _begin(body: SessionBody, request: Request) -> Job:
    """Queue what a body asks for."""
    desk, user = desk_of(request), user_of(request, body.user)
    desk.jobs.check_room(user)
    question = body.asked() if isinstance(body, AskBody) else None
    settings, selector = body.settings.changes()
    await run_in_threadpool(desk.check, settings, selector)
    source = await found_source(desk, body.video)
    show_map = isinstance(body, AskBody) and body.map
    return desk.submit(Asked(source, question, settings, selector, show_map), user)


@router.post("/ask", summary="Ask a question and wait for the answer")
async def ask(body: AskBody, request: Request) -> Response:
    """Closing the connection cancels the question."""
    job = await _begin(body, request)
    return Json(await until_over(job, desk_of(request).jobs, request))


@router.post("/jobs", status_code=202, summary="Ask a question and get a job")
async def create_job(body: AskBody, request: Request) -> Response:
    """The job's events say how far it is."""
    job = await _begin(body, request)
    return Json(job_dict(job, desk_of(request).jobs), 202)


@router.get("/jobs/{id}", summary="A job")
async def get_job(id: str, request: Request) -> Response:
    """Its state, progress, and result or error."""
    jobs = desk_of(request).jobs
    return Json(job_dict(jobs.get(id), jobs))


@router.delete("/jobs/{id}", summary="Cancel a job")
async def cancel_job(id: str, request: Request) -> Response:
    """A job that has ended stays as it is."""
    jobs = desk_of(request).jobs
    job = jobs.get(id)
    jobs.cancel(job)
    return Json(job_dict(job, jobs))


@router.get("/jobs/{id}/events", summary="The events of a job", responses=STREAM, response_class=StreamingResponse)
async def job_events(id: str, request: Request) -> Response:
    """Server-sent events, from the first one or from the one after `Last-Event-ID`."""
    job = desk_of(request).jobs.get(id)
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0
    events = (as_event(message) async for message in messages(job, after))
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@router.get("/videos", summary="Files that requests may name")
async def videos(request: Request) -> Response:
    """Files under the folder of `--videos`."""
    folder = desk_of(request).sources.folder
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
    desk = desk_of(request)
    with desk.shelf.receiving(desk.bounds.max_upload) as incoming:
        async for chunk in request.stream():
            await run_in_threadpool(incoming.write, chunk)
        found = await run_in_threadpool(desk.shelf.upload, incoming, shown(name))
    about = {"id": found.id, "url": f"upload://{found.id}", "name": found.name}
    return Json({**about, "bytes": found.blob.size, "sha256": found.blob.sha256}, 201)


@router.delete("/uploads/{id}", status_code=204, summary="Delete an upload")
async def delete_upload(id: str, request: Request) -> Response:
    """Its content goes when no open session uses it."""
    await run_in_threadpool(desk_of(request).shelf.remove, id)
    return Response(status_code=204)


@router.post("/sessions", summary="Open a video without a question")
async def open_session(body: SessionBody, request: Request) -> Response:
    """Decodes the frames of the grid, so that pictures and answers come sooner."""
    job = await _begin(body, request)
    return Json(await until_over(job, desk_of(request).jobs, request))


@router.get("/sessions", summary="Open videos")
async def list_sessions(request: Request) -> Response:
    """Least recently used first."""
    return Json({"sessions": [each.to_dict() for each in desk_of(request).sessions.all()]})


@router.get("/sessions/{id}", summary="An open video")
async def get_session(id: str, request: Request) -> Response:
    """With the times of the frames that were sampled last."""
    desk = desk_of(request)
    session = desk.sessions.get(id)
    return Json(await run_in_threadpool(desk.about, session))


@router.post("/sessions/{id}/plan", summary="What a question would take")
async def plan(id: str, body: PlanBody, request: Request) -> Response:
    """Frames, tokens, TFLOPs, seconds and memory of quick, auto and full answers and all frames; what limits buy.

    Nothing is computed by the models. Without a question, a typical one is priced.
    """
    desk, question = desk_of(request), body.asked()
    settings, selector = body.settings.changes()

    def offered() -> list[dict[str, Any]]:
        with desk.using(id) as video:
            return desk.plan(video, settings, selector, question)

    return Json({"offers": await request.app.state.decoding.run(offered)})


@router.delete("/sessions/{id}", status_code=204, summary="Close a video")
async def close_session(id: str, request: Request) -> Response:
    """Questions that are being answered go on."""
    desk_of(request).sessions.close(id)
    return Response(status_code=204)


@router.get("/info", summary="What this server offers")
async def info(request: Request) -> Response:
    """Models, limits, and what is enabled."""
    desk = desk_of(request)
    bounds, settings = desk.bounds, desk.settings
    return Json(
        {
            "models": list(desk.models),
            "preset": settings.preset,
            "k": settings.k,
            "limits": {
                name: getattr(bounds, name)
                for name in ("max_k", "max_body", "max_upload", "queue", "together", "max_side", "session_age")
            },
            "videos": desk.sources.folder is not None,
            "urls": desk.sources.fetches,
            "ready": not desk.jobs.closing,
        }
    )
