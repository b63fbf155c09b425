"""The files of the page, and the reports of answers, without a browser."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gridprobe.video import FramePool
from gridprobe_serve import routes
from gridprobe_serve.errors import ApiError
from gridprobe_serve.service import Answers, VideoService
from gridprobe_serve.store import AllowedFolders
from serving_kit import KEY, client_of, running_service, video_folder

PAGE = Path(routes.__file__).parent / "page"
ASK = {"video": "talk.mp4", "question": "Which?", "options": ["one", "two"], "map": True}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VideoService]:
    with running_service(video_folder(tmp_path_factory.mktemp("videos") / "all")) as found:
        yield found


def get(service: VideoService, path: str, **options: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with client_of(service, **options) as client:
            return await client.get(path)

    return asyncio.run(run())


def asked(service: VideoService) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with client_of(service) as client:
            found: dict[str, Any] = (await client.post("/v1/gridprobe/ask", json=ASK)).json()
            return found

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/", *(f"/page/{file.name}" for file in sorted(PAGE.iterdir()))])
def test_a_file_of_the_page_comes_under_a_strict_policy(service: VideoService, path: str) -> None:
    reply = get(service, path)

    assert reply.status_code == 200
    assert reply.headers["content-security-policy"] == routes.PAGE_POLICY
    assert "unsafe" not in routes.PAGE_POLICY
    assert reply.content == (PAGE / (path.removeprefix("/page/").strip("/") or "index.html")).read_bytes()


@pytest.mark.parametrize("name", ["app.py", "..%2Fapp.py", "%2e%2e%2fapp.py", "nothing.js", "app.js%00"])
def test_other_files_are_not_found(service: VideoService, name: str) -> None:
    assert get(service, f"/page/{name}").status_code == 404


def test_the_page_needs_the_key(service: VideoService) -> None:
    assert get(service, "/", key=KEY).status_code == get(service, "/page/app.js", key=KEY).status_code == 401
    assert get(service, "/", key=KEY, send=KEY).status_code == 200


def test_no_script_reads_text_as_markup() -> None:
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
    for file in PAGE.glob("*.js"):
        assert not re.search(sinks, file.read_text(encoding="utf-8")), file.name
    markup = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|https?://", markup)


def test_an_answer_can_be_downloaded_as_report_and_picture(service: VideoService) -> None:
    found = asked(service)
    base = f"/v1/gridprobe/jobs/{found['job']}"
    report, picture = get(service, f"{base}/report.html"), get(service, f"{base}/map.png")

    assert found["view"]["said"] == "one"
    assert found["sentence"] == f"{found['view']['said']}: {found['view']['where']}"
    assert "talk.mp4" in report.text
    assert isinstance(service.sources.folder, AllowedFolders)
    assert str(service.sources.folder.roots[0]) not in report.text
    assert "attachment" in report.headers["content-disposition"]
    assert picture.content.startswith(b"\x89PNG")


def test_a_report_of_an_unknown_job_is_not_found(service: VideoService) -> None:
    assert get(service, "/v1/gridprobe/jobs/none/report.html").status_code == 404


def test_old_answers_make_room(service: VideoService, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = service.answers.get(asked(service)["job"])
    monkeypatch.setattr("gridprobe_serve.service.MOST_BYTES", 2500)
    answers = Answers()
    for name in ("first", "second", "third"):
        pool = FramePool.from_arrays(np.zeros((1, 20, 20, 3), np.uint8))
        answers.keep(name, replace(answer, pool=pool, frames=pool))

    with pytest.raises(ApiError, match="no such answer"):
        answers.get("first")
    assert answers.get("second") and answers.get("third")
