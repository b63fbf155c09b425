"""deploy/open_webui_pipe.py: with Open WebUI's modules replaced, and in a real Open WebUI (`make test-openwebui`)."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from open_webui_pipe import Pipe

from browser import CHROMIUM
from gridprobe_serve.service import HELP, VideoService
from gridprobe_world import demo
from serving_kit import KEY, client_of, running_service, video_folder
from waiting import wait_until

COMMAND = os.environ.get("GRIDPROBE_OPENWEBUI", "")
needs_open_webui = pytest.mark.skipif(not COMMAND, reason="GRIDPROBE_OPENWEBUI does not name the open-webui command")
PIPE = Path(__file__).parents[2] / "deploy" / "open_webui_pipe.py"
QUESTION, FOLLOW_UP = "Pick the colour of the triangle.", "Which colour does the cross have?"
WITH_TIMES = re.compile(r"\w+ \((?:\d+:\d\d[–, ]*)+\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder) as found:
        yield found


@pytest.fixture
def pipe(folder: Path, service: VideoService, monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """The pipe in an Open WebUI where anna owns talk.mp4, and bob a text and a video."""
    owned = {("talk", "anna"): "video/mp4", ("text", "bob"): "text/plain", ("other", "bob"): "video/mp4"}

    async def get(id: str, user: str) -> Any:
        if (id, user) not in owned:
            return None
        about = {"content_type": owned[id, user]}
        return types.SimpleNamespace(id=id, filename="talk.mp4", path=str(folder / "talk.mp4"), meta=about)

    files: Any = types.ModuleType("open_webui.models.files")
    files.Files = types.SimpleNamespace(get_file_by_id_and_user_id=get)
    storage: Any = types.ModuleType("open_webui.storage.provider")
    storage.Storage = types.SimpleNamespace(get_file=lambda path: path)
    for name, module in (("models.files", files), ("storage.provider", storage)):
        monkeypatch.setitem(sys.modules, f"open_webui.{name}", module)
    found = Pipe()
    monkeypatch.setattr(found, "_client", lambda: client_of(service))
    return found


def said(
    pipe: Pipe, *texts: str, file: str = "", user: str = "anna", **more: Any
) -> tuple[str, list[Mapping[str, Any]]]:
    events: list[Mapping[str, Any]] = []

    async def emit(event: Mapping[str, Any]) -> None:
        events.append(event)

    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    files = [{"type": "file", "id": file}] if file else []
    call = pipe.pipe({"messages": messages}, files, {"id": user}, __event_emitter__=emit, **more)
    return asyncio.run(call), events


def test_a_video_is_sent_once_and_the_answer_comes_with_frames_and_a_link(pipe: Pipe, service: VideoService) -> None:
    uploads = service.store.uploads
    reply, events = said(pipe, "Which?\nA. one\nB. two", file="talk")
    assert re.match(r"one.*\n\n\[Look at it\]\(http://127\.0\.0\.1:8765/#s=\w+&j=\w+&q=Which", reply, re.DOTALL), reply
    frames = [picture for event in events if event["type"] == "files" for picture in event["data"]["files"]]
    assert frames and all(each["url"].startswith("data:image/jpeg;base64,/9j/") for each in frames)
    assert events[-1]["data"]["done"] and any("sending" in str(event) for event in events)
    tagged = '<attached_files>\n<file id="talk"/>\n</attached_files>\n\nWhich one?'
    reply, events = said(pipe, "Which?", reply, tagged, file="talk")
    assert reply.startswith("a red ball") and service.store.uploads == uploads + 1
    with_passages = said(pipe, "Passages of files", file="talk", __metadata__={"base_user_prompt": tagged})[0]
    assert "q=Which+one%3F" in with_passages and "Passages" not in with_passages


def test_an_upload_that_the_server_has_no_more_is_sent_again(pipe: Pipe, service: VideoService) -> None:
    said(pipe, "Which?", file="talk")
    for url in pipe._uploads.values():
        service.store.remove(url.removeprefix("upload://"))
    assert said(pipe, "Which?", file="talk")[0].startswith("a red ball")


def test_files_of_others_are_not_sent_and_texts_are_no_videos(pipe: Pipe, service: VideoService) -> None:
    uploads = service.store.uploads
    for file, user in (("other", "anna"), ("talk", "bob"), ("text", "bob"), ("../x", "anna")):
        reply, events = said(pipe, "Hello", file=file, user=user)
        assert reply == "a red ball", "the model of this server chats"
        assert not any(event["type"] == "files" for event in events)
    assert service.store.uploads == uploads


def test_a_title_is_written_and_searches_of_files_are_not(pipe: Pipe) -> None:
    assert said(pipe, "Write a title", file="talk", __task__="title_generation")[0] == "a red ball"
    assert said(pipe, "Write queries", file="talk", __task__="query_generation")[0] == ""


def test_errors_are_one_line(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "20,000" in said(pipe, "x" * 20_001, file="talk")[0]
    monkeypatch.undo()
    pipe.valves.server = "http://127.0.0.1:9"
    assert said(pipe, "Hello", __task__="title_generation")[0].startswith("gridprobe cannot be reached at http://127")


# A real Open WebUI.


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(command: list[str], address: str, log: Path, **environment: str) -> Iterator[str]:
    """A server as a process, until it answers /health."""

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return httpx.get(f"{address}/health", timeout=30).status_code == 200
        except httpx.HTTPError:
            return False

    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, **environment}, cwd=log.parent, start_new_session=True
        )
    try:
        wait_until(answers)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the demo."""
    demo.write(path := tmp_path_factory.mktemp("demo") / "demo.mp4")
    return path


@pytest.fixture(scope="module")
def open_webui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of an Open WebUI in which an administrator has installed the pipe."""
    folder = tmp_path_factory.mktemp("open-webui")
    ours, theirs = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    model = ("--model", "embedded:micro", "--preset", "gridworld", "--device", "cpu")
    serve = [sys.executable, "-m", "gridprobe", "serve", "--port", ours.rpartition(":")[2], *model]
    listen = ["serve", "--host", "127.0.0.1", "--port", theirs.rpartition(":")[2]]
    settings = dict.fromkeys(("WEBUI_AUTH", "ENABLE_OLLAMA_API", "ENABLE_OPENAI_API"), "False")
    settings |= {"OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1", "RAG_EMBEDDING_ENGINE": "openai", "PYTHONPATH": ""}
    with ExitStack() as stack:
        stack.enter_context(running(serve, ours, folder / "ours.log", GRIDPROBE_KEY=KEY, OMP_NUM_THREADS="1"))
        data = {"DATA_DIR": str(folder / "data"), "WEBUI_SECRET_KEY": "secret", **settings}
        stack.enter_context(running([COMMAND, *listen], theirs, folder / "theirs.log", **data))
        client = stack.enter_context(httpx.Client(base_url=theirs, timeout=600))
        token = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"
        source = {"content": PIPE.read_text(), "meta": {"description": "videos"}}
        calls: dict[str, Any] = {
            "functions/create": {"id": "gridprobe", "name": "gridprobe", **source},
            "functions/id/gridprobe/toggle": None,
            "functions/id/gridprobe/valves/update": {"server": ours, "key": KEY},
            "users/user/settings/update": {"ui": {"version": "0.12.4"}},  # no dialog about what is new
        }
        for path, body in calls.items():
            assert client.post(f"/api/v1/{path}", json=body).status_code == 200, path
        yield client


def chat(client: httpx.Client, *texts: str, file: str | None = None) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    files = [{"type": "file", "id": file}] if file else []
    body = {"model": "gridprobe", "messages": messages, "stream": False, "files": files}
    reply = client.post("/api/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


@pytest.mark.slow
@needs_open_webui
def test_a_conversation_through_the_real_api(open_webui: httpx.Client, video: Path) -> None:
    sent = open_webui.post("/api/v1/files/", files={"file": ("demo.mp4", video.read_bytes(), "video/mp4")})
    file = sent.json()["id"]
    answer = chat(open_webui, QUESTION, file=file)
    assert WITH_TIMES.match(answer) and answer.startswith("cyan (2:40") and "[Look at it](http://127." in answer
    assert chat(open_webui, QUESTION, answer, FOLLOW_UP, file=file).startswith("red (")
    assert chat(open_webui, "Hello") == HELP
    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": answer}]
    for task in ("title", "tags", "follow_up"):
        reply = open_webui.post(f"/api/v1/tasks/{task}/completions", json={"model": "gridprobe", "messages": turns})
        assert reply.status_code == 200, reply.text
        assert reply.json()["choices"][0]["message"]["content"] == HELP


@pytest.mark.slow
@needs_open_webui
def test_a_conversation_through_the_real_page(open_webui: httpx.Client, video: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.goto(str(open_webui.base_url))
        page.wait_for_selector("#chat-input")
        with page.expect_response(lambda reply: "/api/v1/files/" in reply.url and reply.request.method == "POST"):
            page.locator("input[type=file]").first.set_input_files(video)
        for number, question in enumerate((QUESTION, FOLLOW_UP)):
            page.locator("#chat-input").click()
            page.keyboard.type(question)
            page.keyboard.press("Enter")
            page.get_by_role("link", name="Look at it").nth(number).wait_for()
        words = page.inner_text("body")
        assert "cyan (2:40" in words and "red (" in words
        pictures = "[...document.images].filter((each) => each.src.startsWith('data:image/jpeg'))"
        page.wait_for_function(f"{pictures}.length >= 2 && {pictures}.every((each) => each.naturalWidth > 100)")
        page.wait_for_function("document.title.startsWith('Pick the colour of the tri')")
        browser.close()
