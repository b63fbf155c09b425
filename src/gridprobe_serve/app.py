"""The application: all routes, errors in OpenAI's form, and the guard around it."""

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from gridprobe import __version__
from gridprobe.errors import GridProbeError
from gridprobe.report.html import asset, render_part
from gridprobe_serve import chat, routes
from gridprobe_serve.jobs import ApiError, as_api_error
from gridprobe_serve.middleware import Guard, Metrics, Rules
from gridprobe_serve.service import LOG, Json, VideoService, log_line, refused, scrubbed

__all__ = ["docs_page", "make_app"]

# GET /docs: the API as a plain page, made from the OpenAPI description; no scripts, nothing from other servers.


def docs_page(api: Mapping[str, Any]) -> str:
    """The page."""
    routes = [
        {"path": path, "method": method, "about": route, **_body(route, api)}
        for path, methods in api["paths"].items()
        for method, route in methods.items()
    ]
    return render_part("docs.html.j2", style=asset("docs.css"), about=api["info"], routes=routes)


def _body(route: Mapping[str, Any], api: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a route's table, and examples of its body."""
    body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schema = api.get("components", {}).get("schemas", {}).get(body.get("$ref", "").rpartition("/")[2], {})
    examples = [json.dumps(each, indent=2) for each in schema.get("examples", [])]
    return {"rows": [*_parameters(route), *_fields(schema)], "examples": examples}


def _parameters(route: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for each in route.get("parameters", []):
        place = f"{each['in']}{', required' if each.get('required') else ''}"
        yield each["name"], place, each.get("description", "")


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, each in schema.get("properties", {}).items():
        place = "body, required" if name in schema.get("required", ()) else "body"
        yield name, place, each.get("description", "")


DESCRIPTION = "Ask long videos questions with a vision-language model that sees only the frames that matter."


def make_app(
    service: VideoService, rules: Rules, *, names: Sequence[str] = (), pages: Sequence[APIRouter] = ()
) -> Guard:
    """The application as an ASGI callable; it closes the service at shutdown.

    Args:
        service: does the work.
        rules: who may ask.
        names: what requests may call the model, besides "gridprobe".
        pages: further routes, behind the same guard.
    """
    metrics = Metrics(service)
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
    app.state.service = service
    app.state.metrics = metrics
    app.state.decoding = routes.DecodePool(service.bounds)
    app.state.names = ("gridprobe", *(name for name in dict.fromkeys(names) if name != "gridprobe"))
    app.state.started = time.time()
    for router in (chat.router, routes.router, routes.media_router, routes.report_router, routes.page_router, *pages):
        app.include_router(router)
    _add_operators(app)
    _add_errors(app)
    return Guard(app, rules, service.bounds, metrics, check_room=service.jobs.check_any_room)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await run_in_threadpool(app.state.service.close)


def _add_operators(app: FastAPI) -> None:
    @app.get("/health", tags=["operators"], summary="The process lives")
    async def health() -> Response:
        """Needs no key."""
        return Json({"status": "ok"})

    @app.get("/ready", tags=["operators"], summary="Questions are accepted")
    async def ready(request: Request) -> Response:
        """503 while the server shuts down."""
        if request.app.state.service.jobs.closing:
            raise ApiError("the server is shutting down", status=503, code="shutting_down")
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
        return refused(as_api_error(error))

    async def on_invalid(request: Request, error: Any) -> Response:
        found: dict[str, Any] = error.errors()[0] if error.errors() else {"loc": (), "msg": "the request is malformed"}
        place = ".".join(str(each) for each in found["loc"] if each != "body")[:200]
        message = f"{place}: {found['msg']}" if place else str(found["msg"])
        return refused(ApiError(scrubbed(message)[:500], param=place or None))

    async def on_http(request: Request, error: Any) -> Response:
        codes = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large", 429: "busy"}
        refusal = ApiError(
            str(error.detail), status=error.status_code, code=codes.get(error.status_code, "invalid_request")
        )
        refusal.headers = dict(error.headers or {})
        return refused(refusal)

    async def on_bug(request: Request, error: Exception) -> Response:
        LOG.error("request %s: %s", request.state.id, log_line(repr(error)))
        return refused(as_api_error(error))

    app.add_exception_handler(GridProbeError, on_known)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_bug)
