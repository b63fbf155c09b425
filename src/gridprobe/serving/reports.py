"""The report and the picture of an answer, for downloading."""

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from gridprobe.report.answer_page import render
from gridprobe.report.html import POLICY
from gridprobe.report.picture import draw_answer, encoded
from gridprobe.serving.native import desk_of

__all__ = ["router"]

router = APIRouter(prefix="/v1/gridprobe/jobs/{id}", tags=["gridprobe"])


@router.get("/report.html", summary="The report of an answer", response_class=HTMLResponse)
async def report(id: str, request: Request) -> Response:
    """A self-contained page, as `gridprobe ask --report` writes it."""
    answer = desk_of(request).answers.get(id)
    policy = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"}
    return HTMLResponse(await run_in_threadpool(render, [answer]), headers={**policy, **_named("report.html")})


@router.get("/map.png", summary="The picture of an answer", response_class=Response)
async def picture(id: str, request: Request) -> Response:
    """The picture that `gridprobe ask --map` writes."""
    answer = desk_of(request).answers.get(id)
    content = await run_in_threadpool(lambda: encoded(draw_answer(answer), Path("map.png")))
    return Response(content, media_type="image/png", headers=_named("map.png"))


def _named(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="gridprobe-{name}"'}
