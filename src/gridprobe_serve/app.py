"""The application: all routes, errors in OpenAI's form, metrics, the API's page, and the middleware around them."""

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from markupsafe import Markup, escape
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Scope

from gridprobe import __version__
from gridprobe.errors import GridProbeError
from gridprobe.report.html import asset, render_part
from gridprobe_serve import routes
from gridprobe_serve.chat import answering
from gridprobe_serve.errors import LOG, ApiError, Json, as_api_error, error_response, log_line, scrubbed
from gridprobe_serve.middleware import AccessRules, SecurityMiddleware
from gridprobe_serve.service import VideoService

DESCRIPTION = "Ask long videos questions with a vision-language model that sees only the frames that matter."


def make_app(
    service: VideoService, rules: AccessRules, *, names: Sequence[str] = (), pages: Sequence[APIRouter] = ()
) -> SecurityMiddleware:
    """The application as an ASGI callable; it closes the service at shutdown.

    Args:
        service: does the work.
        rules: who may ask.
        names: what requests may call the model, besides "gridprobe".
        pages: further routes, behind the same middleware.
    """
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
    app.state.metrics = Metrics(service)
    app.state.names = ("gridprobe", *(name for name in dict.fromkeys(names) if name != "gridprobe"))
    app.state.started = time.time()
    for router in (answering.router, routes.router, routes.page_router, *pages):
        app.include_router(router)
    _add_operators(app)
    _add_errors(app)
    check_room = service.jobs.check_any_room
    return SecurityMiddleware(app, rules, service.limits, count=app.state.metrics.count, check_room=check_room)


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
    async def ready(service: routes.Service) -> Response:
        """503 while the server shuts down."""
        if service.jobs.closing:
            raise ApiError("the server is shutting down", status=503, code="shutting_down")
        return Json({"status": "ready"})

    @app.get("/metrics", tags=["operators"], summary="Numbers for Prometheus", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """Text format of Prometheus."""
        return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        style = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
        return HTMLResponse(docs_page(request.app.openapi()), headers=style)


def _add_errors(app: FastAPI) -> None:
    async def on_known(request: Request, error: Any) -> Response:
        return error_response(as_api_error(error))

    async def on_invalid(request: Request, error: Any) -> Response:
        first: dict[str, Any] = error.errors()[0] if error.errors() else {"loc": (), "msg": "the request is malformed"}
        place = ".".join(str(each) for each in first["loc"] if each != "body")[:200]
        message = f"{place}: {first['msg']}" if place else str(first["msg"])
        return error_response(ApiError(scrubbed(message)[:500], param=place or None))

    async def on_http(request: Request, error: Any) -> Response:
        codes = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large", 429: "busy"}
        code = codes.get(error.status_code, "invalid_request")
        public = ApiError(str(error.detail), status=error.status_code, code=code)
        public.headers = dict(error.headers or {})
        return error_response(public)

    async def on_bug(request: Request, error: Exception) -> Response:
        LOG.error("request %s: %s", request.state.id, log_line(repr(error)))
        return error_response(as_api_error(error))

    app.add_exception_handler(GridProbeError, on_known)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_bug)


class Metrics:
    """Counts of responses, and what the service knows about itself when somebody asks."""

    def __init__(self, service: VideoService) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._service = service
        self._registry = CollectorRegistry()
        self._registry.register(self)
        help, labels = "Responses by route and status.", ["route", "status"]
        self._responses = Counter("gridprobe_responses", help, labels, registry=self._registry)

    def count(self, scope: Scope, status: int) -> None:
        """A response was sent. Routes are counted by their patterns, so clients cannot make up new lines."""
        self._responses.labels(route=getattr(scope.get("route"), "path", "other"), status=status).inc()

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for."""
        service, jobs = self._service, self._service.jobs
        outcomes = CounterMetricFamily("gridprobe_jobs", "Jobs by outcome.", labels=["outcome"])
        for name, count in jobs.counts.items():
            outcomes.add_metric([name], count)
        yield outcomes
        yield GaugeMetricFamily("gridprobe_jobs_waiting", "Jobs in the queue.", jobs.waiting)
        yield GaugeMetricFamily("gridprobe_jobs_running", "Jobs at work.", jobs.running)
        yield GaugeMetricFamily("gridprobe_queue_size", "Jobs that may wait.", jobs.queue)
        yield GaugeMetricFamily("gridprobe_sessions", "Open videos.", len(service.sessions))
        yield GaugeMetricFamily("gridprobe_session_bytes", "Decoded frames in memory.", service.sessions.bytes)
        yield GaugeMetricFamily("gridprobe_uploads", "Uploads.", service.store.uploads)
        yield GaugeMetricFamily("gridprobe_media_bytes", "Media on disk.", service.store.size)
        yield CounterMetricFamily("gridprobe_model_calls", "Calls of the models.", service.batcher.calls)
        help = "Requests in these calls; more than calls if merged."
        yield CounterMetricFamily("gridprobe_model_requests", help, service.batcher.parts)

    def text(self) -> str:
        """The page."""
        return generate_latest(self._registry).decode()


def docs_page(api: Mapping[str, Any]) -> str:
    """GET /docs: a plain page made from the OpenAPI description; no scripts, nothing from other servers."""
    routes = [
        {
            "path": path,
            "method": method,
            "words": _code(f"{route['summary']}. {route.get('description', '')}"),
            "rows": [*_parameter_rows(route), *_field_rows(_body_schema(route, api), api)],
            "examples": _examples(path, method, route, api),
        }
        for path, methods in api["paths"].items()
        for method, route in methods.items()
    ]
    return render_part("docs.html.j2", style=asset("docs.css"), about=api["info"], routes=routes)


def _code(text: str) -> Markup:
    """A docstring as HTML."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _resolved(schema: Mapping[str, Any], api: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the one that its reference names."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return api["components"]["schemas"][name] if name else schema


def _body_schema(route: Mapping[str, Any], api: Mapping[str, Any]) -> Mapping[str, Any]:
    body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    return _resolved(body.get("schema", {}), api)


Row = tuple[str, str, str, Markup]


def _parameter_rows(route: Mapping[str, Any]) -> Iterator[Row]:
    for each in route.get("parameters", []):
        place = f"{each['in']}{', required' if each.get('required') else ''}"
        yield each["name"], place, _type(each["schema"]), _code(each.get("description", ""))


def _field_rows(schema: Mapping[str, Any], api: Mapping[str, Any], prefix: str = "") -> Iterator[Row]:
    """The fields of a body, those of objects in it as "object.field"."""
    for name, each in schema.get("properties", {}).items():
        inner = _resolved(each, api)
        if "properties" in inner:
            yield from _field_rows(inner, api, f"{prefix}{name}.")
        else:
            place = "body, required" if name in schema.get("required", ()) else "body"
            yield f"{prefix}{name}", place, _type(each), _code(each.get("description", ""))


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value in words, with its bounds."""
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_type(each) for each in choices if each.get("type") != "null"))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else None):
        return ", ".join(json.dumps(each) for each in choices)
    kind = "object" if "$ref" in schema else schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return str(kind)
    return f"{kind}, at least {_number(low)}" if high is None else f"{kind}, {_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else str(value)


def _examples(path: str, method: str, route: Mapping[str, Any], api: Mapping[str, Any]) -> list[str]:
    """Commands for a shell; one for each example of the body."""
    command = f'curl -H "Authorization: Bearer $GRIDPROBE_KEY" -X {method.upper()} "$SERVER{path}"'
    command = re.sub(r"\{(\w+)\}", lambda match: f"${match[1].upper()}", command)
    content = route.get("requestBody", {}).get("content", {})
    if "application/octet-stream" in content:
        return [f"{command} -H 'Content-Type: application/octet-stream' -T talk.mp4"]
    if not content:
        return [command]
    bodies = _body_schema(route, api).get("examples", [{}])
    head = f"{command} -H 'Content-Type: application/json' -d"
    return [f"{head} '{json.dumps(each, indent=2)}'" for each in bodies]
