"""The routes under /v1/gridprobe/ and those for operators, in this process."""

import asyncio
import io
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
from PIL import Image

from gridprobe.errors import TooLarge
from gridprobe_serve.middleware import HEADERS
from gridprobe_serve.service import VideoService
from serving_kit import Gated, as_data, client_of, running_service, video_folder
from waiting import wait_until

T = TypeVar("T")
ASK = {"video": "talk.mp4", "question": "Which?", "options": ["one", "two"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder) as found:
        yield found


def with_client(service: VideoService, work: Callable[[httpx.AsyncClient], Awaitable[T]], **options: Any) -> T:
    async def run() -> T:
        async with client_of(service, **options) as client:
            return await work(client)

    return asyncio.run(run())


def get(service: VideoService, path: str, **headers: str) -> httpx.Response:
    return with_client(service, lambda client: client.get(path, headers=headers))


def post(service: VideoService, path: str, body: Any) -> httpx.Response:
    return with_client(service, lambda client: client.post(path, json=body))


def delete(service: VideoService, path: str) -> httpx.Response:
    return with_client(service, lambda client: client.delete(path))


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_ask_gives_the_answer_with_times_and_sentence(service: VideoService) -> None:
    reply = post(service, "/v1/gridprobe/ask", ASK | {"map": True})
    assert reply.status_code == 200
    result = reply.json()
    assert result["answer"]["schema"] == "gridprobe.answer/3"
    assert result["answer"]["choice"] == "A" and result["sentence"].startswith("one: ")
    assert result["answer"]["selection"]["importance"] is not None
    session = get(service, f"/v1/gridprobe/sessions/{result['session']}").json()
    assert session["times"] == result["times"] and session["questions"] == 1 and session["k"] == 3


def test_a_job_is_created_watched_and_read(service: VideoService) -> None:
    created = post(service, "/v1/gridprobe/jobs", ASK)
    assert created.status_code == 202
    path = f"/v1/gridprobe/jobs/{created.json()['id']}"
    stream = get(service, f"{path}/events")
    assert stream.headers["content-type"].startswith("text/event-stream")
    told = events(stream.text)
    assert [name for name, _ in told if name != "progress"] == ["queued", "started", "opened", "overview", "answer"]
    opened = dict(told)["opened"]
    assert opened["k"] == 3 and len(opened["times"]) == 9 and opened["video"]["path"] == "talk.mp4"
    job = get(service, path).json()
    assert job["state"] == "done" and job["result"] == dict(told)["answer"] and job["error"] is None
    again = events(get(service, f"{path}/events", **{"last-event-id": str(len(told) - 1)}).text)
    assert [name for name, _ in again] == ["answer"]
    assert events(get(service, f"{path}/events", **{"last-event-id": str(len(told))}).text) == []


def test_a_job_is_cancelled(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model) as service:
        job = post(service, "/v1/gridprobe/jobs", ASK).json()
        assert model.waiting.wait()
        cancelled = delete(service, f"/v1/gridprobe/jobs/{job['id']}").json()
        assert cancelled["state"] == "cancelled"
        assert events(get(service, f"/v1/gridprobe/jobs/{job['id']}/events").text)[-1] == ("cancelled", {})


def test_a22_ids_are_random_and_no_route_lists_jobs(service: VideoService) -> None:
    made = [post(service, "/v1/gridprobe/jobs", ASK).json()["id"] for _ in range(3)]
    assert len({each[:16] for each in made} | {each[-16:] for each in made}) == 6, "no part of an id repeats"
    assert all(len(each) >= 32 and int(each[-32:], 16) for each in made), "128 bits"
    assert get(service, "/v1/gridprobe/jobs").status_code in (404, 405)
    guessed = made[0][:-1] + ("0" if made[0][-1] != "0" else "1")
    assert get(service, f"/v1/gridprobe/jobs/{guessed}").status_code == 404


# S02 of tests/reliability.md
def test_a_client_that_goes_away_cancels_its_question(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model) as service:

        async def leave(client: httpx.AsyncClient) -> None:
            task = asyncio.create_task(client.post("/v1/gridprobe/ask", json=ASK))
            while not model.waiting.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])

        with_client(service, leave, timeout=None)
        assert service.jobs.counts["cancelled"] == 1
        wait_until(lambda: service.jobs.running == 0)
        assert len(model.calls) == 1 and not model.gate.is_set(), "it ended in its first call of the model"


# S01 of tests/reliability.md
def test_a_full_queue_is_429_with_retry_after_while_health_answers(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model, concurrency=1, queue=32) as service:

        async def crowd(client: httpx.AsyncClient) -> list[int]:
            asks = [
                asyncio.create_task(client.post("/v1/gridprobe/ask", json=ASK | {"user": str(n)})) for n in range(200)
            ]
            while sum(task.done() for task in asks) < 167:
                await asyncio.sleep(0.01)
            assert (await client.get("/health")).status_code == 200
            refused = [task.result() for task in asks if task.done()]
            assert service.jobs.waiting == 32 and service.jobs.running == 1
            kind = {"content-type": "application/json"}
            unread = await client.post("/v1/gridprobe/ask", content=b"{", headers=kind)
            assert unread.status_code == 429, "refused before the body is read, which takes time in a crowd"
            assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
            model.gate.set()
            return sorted(each.status_code for each in await asyncio.gather(*asks))

        assert with_client(service, crowd, timeout=None) == [200] * 33 + [429] * 167


def test_s13_good_and_bad_requests_leave_no_descriptor_session_or_file(folder: Path) -> None:
    """The long form, which also looks at memory, is `make load LOAD="--soak 300"`."""
    with running_service(folder) as service:

        async def mixed(client: httpx.AsyncClient) -> None:
            kind = {"content-type": "video/mp4"}
            good = (await client.post("/v1/gridprobe/uploads", content=video, headers=kind)).json()
            bad = (await client.post("/v1/gridprobe/uploads", content=b"no video", headers=kind)).json()
            replies = [
                await client.post("/v1/gridprobe/ask", json=ASK | {"video": each})
                for each in (
                    good["url"],
                    bad["url"],
                    "talk.mp4",
                    "missing.mp4",
                    "data:x",
                    as_data(b"x"),
                    as_data(video),
                )
            ]
            assert [each.status_code for each in replies] == [200, 422, 200, 403, 400, 422, 200]
            job = (await client.post("/v1/gridprobe/jobs", json=ASK)).json()["id"]
            await client.get(f"/v1/gridprobe/jobs/{job}/events")
            session = replies[0].json()["session"]
            await client.get(f"/v1/gridprobe/sessions/{session}/video", headers={"range": "bytes=0-9"})
            await client.get(f"/v1/gridprobe/sessions/{session}/sheet.jpg")
            for each in (good, bad):
                await client.delete(f"/v1/gridprobe/uploads/{each['id']}")
            await client.delete(f"/v1/gridprobe/sessions/{session}")

        def left() -> tuple[int, int, int, int]:
            wait_until(lambda: service.jobs.running == 0)
            files = len(os.listdir(service.store.folder))
            return len(os.listdir("/proc/self/fd")), files, service.store.size, len(service.sessions)

        video = (folder / "sub" / "talk.mp4").read_bytes()
        for _ in range(3):  # until every pool of threads and processes has what it needs
            with_client(service, mixed, timeout=None)
        before = left()
        for _ in range(4):
            with_client(service, mixed, timeout=None)
        assert left() == before
        assert [each.source.name for each in service.sessions.all()] == ["talk.mp4"]
        assert service.store.size == 0 and sorted(os.listdir(service.store.folder)) == ["in-use", "jobs"]


def test_an_upload_is_asked_about_and_deleted(service: VideoService, folder: Path) -> None:
    content = (folder / "talk.mp4").read_bytes()

    async def send(client: httpx.AsyncClient) -> httpx.Response:
        kind = {"content-type": "video/mp4"}
        return await client.post("/v1/gridprobe/uploads?name=../../my talk.mp4", content=content, headers=kind)

    reply = with_client(service, send)
    assert reply.status_code == 201
    upload = reply.json()
    assert upload["name"] == "my talk.mp4" and upload["bytes"] == len(content)
    answered = post(service, "/v1/gridprobe/ask", ASK | {"video": upload["url"]}).json()
    assert answered["answer"]["video"]["path"] == "my talk.mp4"
    assert delete(service, f"/v1/gridprobe/uploads/{upload['id']}").status_code == 204
    assert service.store.size == len(content), "the session still uses it"
    assert delete(service, f"/v1/gridprobe/sessions/{answered['session']}").status_code == 204
    assert service.store.size == 0
    assert post(service, "/v1/gridprobe/ask", ASK | {"video": upload["url"]}).status_code == 404


def test_pictures_of_a_session(service: VideoService) -> None:
    session = post(service, "/v1/gridprobe/sessions", {"video": "talk.mp4", "settings": {"k": 4}}).json()
    assert len(session["times"]) == 16 and session["k"] == 4
    path = f"/v1/gridprobe/sessions/{session['id']}"
    sheet = get(service, f"{path}/sheet.jpg?width=400")
    assert sheet.headers["content-type"] == "image/jpeg"
    picture = Image.open(io.BytesIO(sheet.content), formats=("JPEG",))
    assert picture.width == pytest.approx(2 * picture.height, abs=2) and picture.width <= 400
    frame = get(service, f"{path}/frame.jpg?t=0.5")
    assert float(frame.headers["x-time"]) == pytest.approx(0.48)
    assert float(get(service, f"{path}/frame.jpg?t=99").headers["x-time"]) == pytest.approx(1.16), "the last frame"
    indexed = get(service, f"{path}/frame.jpg?index=3&width=32")
    assert float(indexed.headers["x-time"]) == pytest.approx(session["times"][3])
    assert Image.open(io.BytesIO(indexed.content), formats=("JPEG",)).size == (32, 16)
    assert get(service, f"{path}/frame.jpg?index=16").status_code == 404
    part = get(service, f"{path}/frame.jpg?index=0&k=2&start=-0.4&width=32")
    assert float(part.headers["x-time"]) == pytest.approx(0.84), "the first of four moments from 0.8 s on"
    assert get(service, f"{path}/sheet.jpg?k=2&start=0.6&end=1").status_code == 200
    assert "outside of the video" in get(service, f"{path}/sheet.jpg?k=2&start=5").json()["error"]["message"]
    assert get(service, f"{path}/frame.jpg").status_code == 400
    assert get(service, f"{path}/frame.jpg?t=nan").status_code == 400
    assert get(service, f"{path}/frame.jpg?t=1&width=100000").status_code == 400


def test_pictures_are_decoded_a_few_at_a_time_and_few_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, begun = threading.Event(), []

    def frame(*_: Any) -> tuple[Any, float]:
        begun.append(1)
        go.wait()
        return np.zeros((32, 64, 3), np.uint8), 0.5

    async def crowd(client: httpx.AsyncClient) -> list[int]:
        opened = (await client.post("/v1/gridprobe/sessions", json={"video": "talk.mp4"})).json()
        path = f"/v1/gridprobe/sessions/{opened['id']}/frame.jpg?t=0.5"
        tasks = [asyncio.create_task(client.get(path)) for _ in range(10)]
        try:
            while len(begun) + sum(each.done() for each in tasks) < 7:
                await asyncio.sleep(0.01)
            assert len(begun) == 2 and (await client.get("/health")).status_code == 200
        finally:
            go.set()
        tasks.append(asyncio.create_task(client.get(f"{path}&index=1")))
        return sorted([each.status_code for each in await asyncio.gather(*tasks)])

    with running_service(folder, decoders=2, queue=3) as service:
        monkeypatch.setattr(service, "frame", frame)
        assert with_client(service, crowd, timeout=None) == [200] * 5 + [400] + [429] * 5


# S10 of tests/reliability.md
def test_the_file_of_a_session_has_byte_ranges(service: VideoService, folder: Path) -> None:
    content = (folder / "talk.mp4").read_bytes()
    session = post(service, "/v1/gridprobe/sessions", {"video": "talk.mp4"}).json()
    path = f"/v1/gridprobe/sessions/{session['id']}/video"
    assert get(service, path).content == content
    part = get(service, path, range="bytes=10-19")
    assert (part.status_code, part.content) == (206, content[10:20])
    assert get(service, path, range="bytes=-5").content == content[-5:]
    assert get(service, path, range="bytes=0-").content == content
    several = get(service, path, range="bytes=0-1,5-6")
    assert several.status_code == 206 and several.headers["content-type"].startswith("multipart/byteranges")
    assert content[:2] in several.content and content[5:7] in several.content and len(several.content) < len(content)
    assert get(service, path, range=f"bytes={len(content)}-").status_code == 416
    for bad in ("bytes=1" + "0" * 30 + "-", "bytes=9-3", "bytes=x-", "bytes=", "bytes=1e30-"):
        assert get(service, path, range=bad).status_code in (400, 416), bad


def test_s10_no_range_leaves_the_file_open(service: VideoService, folder: Path) -> None:
    async def upload(client: httpx.AsyncClient) -> httpx.Response:
        content = (folder / "talk.mp4").read_bytes()
        return await client.post("/v1/gridprobe/uploads", content=content, headers={"content-type": "video/mp4"})

    stored = with_client(service, upload).json()
    session = post(service, "/v1/gridprobe/sessions", {"video": stored["url"]}).json()
    for bad in ("bytes=abc", "bytes=9999999999-", "bytes=9-3", "lines=1-2", "bytes=0-9"):
        get(service, f"/v1/gridprobe/sessions/{session['id']}/video", range=bad)
    delete(service, f"/v1/gridprobe/uploads/{stored['id']}")
    delete(service, f"/v1/gridprobe/sessions/{session['id']}")
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    paths = [os.readlink(link) for link in links if os.path.islink(link)]
    assert not [path for path in paths if path.startswith(f"{service.store.folder}/{stored['sha256']}")]


def test_videos_info_and_operators(service: VideoService) -> None:
    listed = get(service, "/v1/gridprobe/videos").json()
    assert listed["enabled"] and [each["name"] for each in listed["videos"]] == ["talk.mp4", "sub/talk.mp4"]
    info = get(service, "/v1/gridprobe/info").json()
    assert (
        info["models"] == ["scripted:gated"] and info["limits"]["max_k"] == 16 and not info["urls"] and not info["demo"]
    )
    assert get(service, "/health").json() == {"status": "ok"}
    assert get(service, "/ready").json() == {"status": "ready"}
    post(service, "/v1/gridprobe/ask", ASK)
    text = get(service, "/metrics").text
    assert 'gridprobe_jobs_total{outcome="done"} 1' in text and "gridprobe_sessions 1" in text


def test_a_server_that_shuts_down_is_not_ready(service: VideoService) -> None:
    service.jobs.close(0)
    assert get(service, "/ready").status_code == 503
    refused = post(service, "/v1/gridprobe/ask", ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")


def test_the_api_is_described_with_examples_on_a_page_without_scripts(service: VideoService) -> None:
    api = get(service, "/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/gridprobe/ask", "/v1/gridprobe/jobs/{id}/events", "/metrics"} <= set(
        api["paths"]
    )
    for methods in api["paths"].values():
        assert all(route["summary"] for route in methods.values())
    assert api["components"]["schemas"]["AskBody"]["examples"] and api["components"]["schemas"]["ChatBody"]["examples"]
    page = get(service, "/docs")
    assert "/v1/gridprobe/ask" in page.text and "<script" not in page.text and "Which colour is the ball?" in page.text
    assert "script" not in page.headers["content-security-policy"].replace("default-src", "")
    assert "`" not in page.text and "<code>--videos</code>" in page.text
    assert "<td>integer, 1 to 64</td>" in page.text and "<td>list of string</td>" in page.text
    routes = [f"{path}" for path, methods in api["paths"].items() for _ in methods]
    assert page.text.count("curl -H") >= len(routes), "an example for each route"
    assert "$SERVER/v1/gridprobe/jobs/$ID/events" in page.text and "-T talk.mp4" in page.text


# A05, A21 of tests/reliability.md
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"settings": {"k": 1_000_000}}, "settings.k"),
        ({"settings": {"k": 3.5}}, "settings.k"),
        ({"settings": {"k": True}}, "settings.k"),
        ({"settings": {"k": -1}}, "settings.k"),
        ({"settings": {"k": 20}}, "k"),
        ({"settings": {"frames": 0}}, None),
        ({"settings": {"frames": 10**9}}, None),
        ({"settings": {"max_frames": 10**9}}, "settings.max_frames"),
        ({"settings": {"model": "x"}}, "settings.model"),
        ({"settings": {"trust_remote_code": True}}, "settings.trust_remote_code"),
        ({"model": "../../x"}, "model"),
        ({"options": ["only one"]}, None),
        ({"options": ["x"] * 27}, "options"),
        ({"options": ["x", "y", " X"]}, None),
        ({"question": "  "}, None),
        ({"question": "nul \0"}, None),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_breaks_a_rule_is_a_400_that_names_it(
    service: VideoService, change: dict[str, Any], param: str | None
) -> None:
    reply = post(service, "/v1/gridprobe/ask", ASK | change)
    error = reply.json()["error"]
    assert reply.status_code == 400 and error["message"] and error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


# S12 of tests/reliability.md
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/gridprobe/ask", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/gridprobe/jobs/0", 404),
        ("GET", "/v1/gridprobe/sessions/0/sheet.jpg", 404),
        ("GET", "/v1/models/", 404),
        ("OPTIONS", "/v1/models", 405),
        ("PUT", "/v1/gridprobe/jobs/0", 415),
        ("PATCH", "/health/", 415),
        ("GET", "/v1/gridprobe/ask/", 404),
    ],
)
def test_wrong_routes_and_methods_are_json_errors_with_all_headers(
    service: VideoService, method: str, path: str, status: int
) -> None:
    reply = with_client(service, lambda client: client.request(method, path))
    assert reply.status_code == status and reply.json()["error"]["code"]
    assert set(HEADERS) <= set(reply.headers) and "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(("path", "status"), [("/health", 405), ("/nothing", 404), ("/v1/gridprobe/ask", 405)])
def test_s12_head_is_refused_where_get_is_meant(service: VideoService, path: str, status: int) -> None:
    reply = with_client(service, lambda client: client.head(path))
    assert reply.status_code == status and reply.headers["content-type"] == "application/json"


# A19, V01, V02 of tests/reliability.md
@pytest.mark.parametrize("content", [b"", b"nothing of a video"])
def test_a_video_that_cannot_be_decoded_is_a_422_without_paths(
    service: VideoService, folder: Path, content: bytes
) -> None:
    (folder / "bad.mp4").write_bytes(content)
    try:
        reply = post(service, "/v1/gridprobe/ask", ASK | {"video": "bad.mp4"})
    finally:
        (folder / "bad.mp4").unlink()
    assert reply.status_code == 422 and "bad.mp4" in reply.text and str(folder) not in reply.text
    assert "nothing" not in reply.text


def test_a_request_may_choose_the_video_stream(service: VideoService) -> None:
    """V21. The video has one stream, number 0."""
    chosen = post(service, "/v1/gridprobe/ask", ASK | {"settings": {"stream": 0}})
    assert chosen.status_code == 200 and '"stream": 0' in json.dumps(chosen.json())
    missing = post(service, "/v1/gridprobe/ask", ASK | {"settings": {"stream": 7}})
    assert missing.status_code == 422 and "the file has no stream 7; choose stream 0 (" in missing.text
    assert post(service, "/v1/gridprobe/ask", ASK | {"settings": {"stream": -1}}).status_code in (400, 422)


# S07, A19 of tests/reliability.md
def test_a_mistake_of_ours_is_a_500_without_details_and_the_next_question_works(folder: Path) -> None:
    class Broken(Gated):
        def _posterior(self, *given: Any) -> Any:
            if not self.gate.is_set():
                raise ZeroDivisionError("/secret/path")
            return super()._posterior(*given)

        def run(self, requests: Any) -> Any:
            return super(Gated, self).run(requests)

    model = Broken(opened=False)
    with running_service(folder, model=model) as service:
        reply = post(service, "/v1/gridprobe/ask", ASK)
        assert reply.status_code == 500 and "secret" not in reply.text and reply.headers["x-request-id"]
        model.gate.set()
        assert post(service, "/v1/gridprobe/ask", ASK).status_code == 200


# S07, A19 of tests/reliability.md
def test_a_mistake_outside_of_a_job_is_a_500_without_details(
    service: VideoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError(f"/secret/path of {object()}")

    monkeypatch.setattr(service.sessions, "all", broken)
    reply = get(service, "/v1/gridprobe/sessions")
    assert reply.status_code == 500 and reply.json()["error"]["code"] == "internal_error"
    assert "secret" not in reply.text and "0x" not in reply.text and reply.headers["x-request-id"]
    assert get(service, "/health").status_code == 200


@pytest.mark.parametrize(
    ("path", "change", "param", "words"),
    [
        ("ask", {"question": "x" * 20_001}, "question", "the question has 20,001 characters; at most 20,000"),
        ("ask", {"options": ["x", "y" * 2001]}, "options", "the option has 2,001 characters; at most 2,000"),
        ("ask", {"subtitles": "x" * 1_000_001}, "subtitles", "the subtitle text has 1,000,001 characters"),
        ("jobs", {"question": "x" * 20_001}, "question", "the question has 20,001 characters; at most 20,000"),
    ],
)
def test_a_text_that_is_too_long_is_413(
    service: VideoService, path: str, change: dict[str, Any], param: str, words: str
) -> None:
    reply = post(service, f"/v1/gridprobe/{path}", ASK | change)
    error = reply.json()["error"]
    assert reply.status_code == 413 and words in error["message"]
    assert (error["param"], error["code"], error["type"]) == (param, "too_long", "invalid_request_error")


def test_a_question_that_does_not_fit_into_memory_is_413(folder: Path) -> None:
    class Full(Gated):
        def run(self, requests: Any) -> Any:
            raise TooLarge("9 frames of 64×32 and the question are 9 tokens, but 0.0 GB of memory are free")

    with running_service(folder, model=Full()) as service:
        reply = post(service, "/v1/gridprobe/ask", ASK)
    assert reply.status_code == 413 and reply.json()["error"]["code"] == "too_long"
    assert reply.json()["error"]["message"].endswith("0.0 GB of memory are free")
