"""The page for people: its files, under a policy that allows scripts, styles and media of this server only."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

from gridprobe.serving.refusals import not_found

__all__ = ["POLICY", "router"]

router = APIRouter(include_in_schema=False)
POLICY = "; ".join(
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
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/")
async def index() -> Response:
    return _file("index.html")


@router.get("/page/{name}")
async def part(name: str) -> Response:
    if name not in _contents():
        raise not_found("file")
    return _file(name)


def _file(name: str) -> Response:
    kind = next(kind for ending, kind in KINDS.items() if name.endswith(ending))
    return Response(_contents()[name], media_type=f"{kind}; charset=utf-8", headers={"Content-Security-Policy": POLICY})


@cache
def _contents() -> dict[str, bytes]:
    """All files of the page, by name; nothing else can be asked for."""
    folder = files("gridprobe.serving").joinpath("page")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.endswith(tuple(KINDS))}
