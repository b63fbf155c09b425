"""GET /docs: the API as a plain page, made from the OpenAPI description; no scripts, nothing from other servers."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["docs_page"]

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1d24;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #8886}code,pre{font:14px/1.4 ui-monospace,monospace}
pre{background:#8881;padding:.8rem;border-radius:.4rem;overflow-x:auto}table{border-collapse:collapse}
td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}.m{font-weight:700;text-transform:uppercase}
@media(prefers-color-scheme:dark){body{color:#e6e8ee;background:#12141a}}
"""


def docs_page(api: Mapping[str, Any]) -> str:
    """The page."""
    about = api["info"]
    routes = [
        _route(path, method, route, api) for path, methods in api["paths"].items() for method, route in methods.items()
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(about["title"])} API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(about['title'])} {escape(about['version'])}</h1><p>{escape(about['description'])}</p>"
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>' + "".join(routes) + "</body></html>"
    )


def _route(path: str, method: str, route: Mapping[str, Any], api: Mapping[str, Any]) -> str:
    rows = [
        (each["name"], f"{each['in']}{', required' if each.get('required') else ''}", each.get("description", ""))
        for each in route.get("parameters", [])
    ]
    body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schema = api.get("components", {}).get("schemas", {}).get(body.get("$ref", "").rpartition("/")[2], {})
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        rows.append((name, "body, required" if name in required else "body", each.get("description", "")))
    table = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    examples = "".join(f"<pre>{escape(json.dumps(each, indent=2))}</pre>" for each in schema.get("examples", []))
    return (
        f'<h2><span class="m">{escape(method)}</span> <code>{escape(path)}</code></h2>'
        f"<p>{escape(route.get('summary', ''))}. {escape(route.get('description', ''))}</p>"
        + (f"<table>{table}</table>" if table else "")
        + examples
    )
