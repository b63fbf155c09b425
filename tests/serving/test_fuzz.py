"""Requests made up from the OpenAPI description, and broken ones: no 500, always an error body, always our headers."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from gridprobe_serve.app import make_app
from gridprobe_serve.middleware import HEADERS, AccessRules
from gridprobe_serve.service import VideoService
from serving_kit import CHATS, as_data, client_of, jpeg, running_service, video_folder

VIDEOS = [
    "talk.mp4",
    "../x",
    "upload://0",
    "session://0",
    "data:video/mp4;base64,AAAA",
    "http://x/y",
    "\ud800",
    "",
    "a\0b",
]
NAMES = [
    "k",
    "frames",
    "video",
    "type",
    "url",
    "text",
    "question",
    "options",
    "settings",
    "messages",
    "content",
    "role",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(VIDEOS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder, quota=1 << 22, decode_seconds=60) as found:
        yield found


def valid(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that fit a JSON schema; now and then one that does not."""
    if "$ref" in schema:
        return valid(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([valid(each, schemas, depth) for each in schema["anyOf"]])
    makers: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "object": lambda: _object(schema, schemas, depth),
        "array": lambda: st.lists(valid(schema.get("items", {}), schemas, depth + 1), max_size=3),
        "string": lambda: st.sampled_from([*VIDEOS, "gridprobe", "auto", "Which?", "user"]) | st.text(max_size=12),
        "integer": lambda: (
            st.integers(int(schema.get("minimum", -1)), int(schema.get("maximum", 20))) | st.integers(-2, 20)
        ),
        "number": lambda: st.floats(0, 1) | st.floats(),
        "boolean": st.booleans,
        "null": st.none,
    }
    make = makers.get(schema.get("type", ""))
    return make() if make else JSON


def _object(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    fields = schema.get("properties")
    if not fields or depth > 4:
        return st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3)
    required = {name: valid(fields[name], schemas, depth + 1) for name in schema.get("required", ())}
    optional = {name: valid(each, schemas, depth + 1) for name, each in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=dict(list(optional.items())[:12]))


PART = st.one_of(
    st.just({"type": "text", "text": "Which?"}),
    st.builds(lambda url: {"type": "video_url", "video_url": {"url": url}}, st.sampled_from(VIDEOS)),
    st.just({"type": "image_url", "image_url": {"url": as_data(jpeg(), "image/jpeg")}}),
    st.builds(lambda kind, value: {"type": kind, kind: value}, st.sampled_from(["video", "file", "input_video"]), JSON),
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3),
)
MESSAGE = st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(PART, max_size=4)})
TURNS = st.lists(MESSAGE, min_size=1, max_size=2)
CHAT = st.fixed_dictionaries(
    {"model": st.just("gridprobe"), "messages": TURNS, "input": TURNS, "max_tokens": st.just(9)},
    optional={"gridprobe": JSON, "stream": st.booleans(), "logprobs": st.booleans(), "mm_processor_kwargs": JSON},
)


@st.composite
def requests(draw: st.DrawFn, api: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Method, path and the rest of a request."""
    path, methods = draw(st.sampled_from(sorted(api["paths"].items())))
    method, route = draw(st.sampled_from(sorted(methods.items())))
    values = st.sampled_from(["0", "-1", "1e999", "nan", "3", "x" * 50, "%00", "..%2f", "\u202e"])
    path = path.replace("{id}", draw(values))
    more: dict[str, Any] = {}
    query = [each["name"] for each in route.get("parameters", []) if each["in"] == "query"]
    if query:
        more["params"] = draw(st.dictionaries(st.sampled_from(query), values, max_size=3))
    content = route.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        fitting = valid(content["application/json"]["schema"], api["components"]["schemas"])
        body = draw(st.one_of(fitting, fitting, CHAT if path in CHATS else fitting, JSON))
        more["json_body"] = body
    elif content:
        more["content"] = draw(st.binary(max_size=200))
        more["headers"] = {"Content-Type": "application/octet-stream"}
    if draw(st.integers(0, 9)) == 0:
        method = draw(st.sampled_from(["get", "post", "put", "delete", "head", "options", "patch"]))
    return method.upper(), path, more


def fuzz(service: VideoService, count: int) -> dict[int, int]:
    """Send so many requests; returns how often each status came."""
    app = make_app(service, AccessRules())
    api: dict[str, Any] = app.app.openapi()  # type: ignore[attr-defined]
    statuses: dict[int, int] = {}
    loop = asyncio.new_event_loop()
    client = client_of(service, timeout=None)

    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(requests(api))
    def one(request: tuple[str, str, dict[str, Any]]) -> None:
        method, path, more = request
        more = dict(more)
        if "json_body" in more:
            more["content"] = json.dumps(more.pop("json_body")).encode()
            more["headers"] = {"Content-Type": "application/json"}
        reply = loop.run_until_complete(client.request(method, path, **more))
        statuses[reply.status_code] = statuses.get(reply.status_code, 0) + 1
        assert reply.status_code < 500 or reply.status_code in (502, 503, 507), (request, reply.text)
        assert set(HEADERS) <= set(reply.headers)
        if reply.status_code >= 400 and method != "HEAD":
            assert reply.json()["error"]["message"], request
        assert "Traceback" not in reply.text and str(service.store.folder) not in reply.text

    try:
        one()
    finally:
        loop.run_until_complete(client.aclose())
        loop.close()
    return statuses


def test_no_request_is_a_500(service: VideoService) -> None:
    statuses = fuzz(service, 300)
    assert sum(statuses.values()) >= 300 and {200, 400, 404} <= set(statuses)


@pytest.mark.slow
def test_no_request_of_many_is_a_500(service: VideoService) -> None:
    statuses = fuzz(service, 5000)
    assert sum(statuses.values()) >= 5000 and {200, 400, 404} <= set(statuses)
    print(statuses)
