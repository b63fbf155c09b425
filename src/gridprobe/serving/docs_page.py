"""GET /docs: the API as a plain page, made from the OpenAPI description; no scripts, nothing from other servers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gridprobe.report.html import asset, render_part

__all__ = ["docs_page"]


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
