"""The application: all routes, errors in OpenAI's form, and the guard around it."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from gridprobe._version import __version__
from gridprobe.errors import GridProbeError
from gridprobe.serving import chat, media, native, page_routes, reports
from gridprobe.serving.desk import Desk, scrubbed
from gridprobe.serving.docs_page import docs_page
from gridprobe.serving.guard import Guard, Rules
from gridprobe.serving.metrics import Metrics
from gridprobe.serving.refusals import Refusal, as_refusal
from gridprobe.serving.replies import LOG, Json, log_line, refused

__all__ = ["make_app"]

DESCRIPTION = "Ask long videos questions with a vision-language model that sees only the frames that matter."


def make_app(desk: Desk, rules: Rules, *, names: Sequence[str] = (), pages: Sequence[APIRouter] = ()) -> Guard:
    """The application as an ASGI callable; it closes the desk at shutdown.

    Args:
        desk: does the work.
        rules: who may ask.
        names: what requests may call the model, besides "gridprobe".
        pages: further routes, behind the same guard.
    """
    metrics = Metrics(desk)
    app = FastAPI(
        title="gridprobe",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        default_response_class=Json,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.desk = desk
    app.state.metrics = metrics
    app.state.decoding = media.DecodePool(desk.bounds)
    app.state.names = ("gridprobe", *(name for name in dict.fromkeys(names) if name != "gridprobe"))
    app.state.started = time.time()
    for router in (chat.router, native.router, media.router, reports.router, page_routes.router, *pages):
        app.include_router(router)
    _add_operators(app)
    _add_errors(app)
    return Guard(app, rules, desk.bounds, metrics, check_room=desk.jobs.check_any_room)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await run_in_threadpool(app.state.desk.close)


def _add_operators(app: FastAPI) -> None:
    @app.get("/health", tags=["operators"], summary="The process lives")
    async def health() -> Response:
        """Needs no key."""
        return Json({"status": "ok"})

    @app.get("/ready", tags=["operators"], summary="Questions are accepted")
    async def ready(request: Request) -> Response:
        """503 while the server shuts down."""
        if request.app.state.desk.jobs.closing:
            raise Refusal("the server is shutting down", status=503, code="shutting_down")
        return Json({"status": "ready"})

    @app.get("/metrics", tags=["operators"], summary="Numbers for Prometheus", response_class=PlainTextResponse)
    async def numbers(request: Request) -> Response:
        """Text format 0.0.4."""
        return PlainTextResponse(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        style = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
        return HTMLResponse(docs_page(request.app.openapi()), headers=style)


def _add_errors(app: FastAPI) -> None:
    async def on_known(request: Request, error: Any) -> Response:
        return refused(as_refusal(error))

    async def on_invalid(request: Request, error: Any) -> Response:
        found: dict[str, Any] = error.errors()[0] if error.errors() else {"loc": (), "msg": "the request is malformed"}
        place = ".".join(str(each) for each in found["loc"] if each != "body")[:200]
        message = f"{place}: {found['msg']}" if place else str(found["msg"])
        return refused(Refusal(scrubbed(message)[:500], param=place or None))

    async def on_http(request: Request, error: Any) -> Response:
        codes = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large", 429: "busy"}
        refusal = Refusal(
            str(error.detail), status=error.status_code, code=codes.get(error.status_code, "invalid_request")
        )
        refusal.headers = dict(error.headers or {})
        return refused(refusal)

    async def on_bug(request: Request, error: Exception) -> Response:
        LOG.error("request %s: %s", request.state.id, log_line(repr(error)))
        return refused(as_refusal(error))

    app.add_exception_handler(GridProbeError, on_known)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_bug)
