"""The tools for agents, with the client of the official SDK: in this process, over stdio and over HTTP."""

import asyncio
import base64
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image

from fake_server import Fake, serving
from gridprobe.errors import TooLarge
from gridprobe.options import settings
from gridprobe_serve.app import make_app
from gridprobe_serve.middleware import AccessRules
from gridprobe_serve.service import VideoService
from serving_kit import KEY, Gated, running_service, video_folder

pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed: pip install mcp")
from mcp import Client, StdioServerParameters

from gridprobe_serve.mcp import make_tools

T = TypeVar("T")
LOOKING = {"list_videos", "contact_sheet", "frames_at", "transcript"}
"""The tools that need no model."""


async def list_tools(client: Client) -> Any:
    return (await client.list_tools()).tools


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder) as found:
        yield found


def with_client(server: Any, work: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Client(server) as client:
            return await work(client)

    return asyncio.run(run())


def call(service: VideoService, name: str, **arguments: Any) -> Any:
    return with_client(make_tools(service), lambda client: client.call_tool(name, arguments))


def test_the_tools_are_described_with_what_they_return(service: VideoService) -> None:
    tools = {each.name: each for each in with_client(make_tools(service), list_tools)}
    assert set(tools) == {*LOOKING, "ask_video", "look_over"}
    assert set(tools["ask_video"].input_schema["required"]) == {"video", "question"}
    assert "evidence" in (tools["ask_video"].output_schema or {})["properties"]
    assert all(each.description for each in tools.values())


def test_every_setting_of_a_request_is_an_argument_of_agents_and_a_field_of_http(service: VideoService) -> None:
    """A new setting is one line in `Options`."""
    api = make_app(service, AccessRules()).app.openapi()  # type: ignore[attr-defined]
    (tool,) = [each for each in with_client(make_tools(service), list_tools) if each.name == "ask_video"]
    bodies = [api["components"]["schemas"][name] for name in ("SettingsBody", "GridProbeBody")]
    for properties in (tool.input_schema["properties"], *(each["properties"] for each in bodies)):
        for setting in settings():
            if setting.request:
                assert properties[setting.name]["description"] == setting.help
            elif setting.name != "limits":
                assert setting.name not in properties, "requests may not change it"
        assert "max_seconds" in properties


def test_an_agent_may_set_what_a_request_may(service: VideoService) -> None:
    asked = {"video": "talk.mp4", "question": "Which?", "options": ["one", "two"]}
    few = call(service, "ask_video", **asked, effort="full", k=2, frames=1).structured_content
    assert len(few["evidence"]) == 1
    assert {len(each.sampled(service.plan_for({"k": 2}, private=False)).lazy()) for each in service.sessions.all()} == {
        4
    }
    for wrong, words in (
        ({"k": 1000}, "less than or equal to 64"),
        ({"k": 20}, "k may be at most 16"),
        ({"effort": "x"}, "quick"),
    ):
        refused = call(service, "ask_video", **asked, **wrong)
        assert refused.is_error and words in refused.content[0].text


def test_a_question_is_answered_with_structure_and_progress(service: VideoService, folder: Path) -> None:
    heard: list[tuple[float, str | None]] = []

    async def ask(client: Client) -> Any:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append((progress, message))

        arguments = {
            "video": str(folder / "talk.mp4"),
            "question": "Which?",
            "options": ["one", "two"],
            "effort": "full",
        }
        return await client.call_tool("ask_video", arguments, progress_callback=on_progress)

    found = with_client(make_tools(service), ask).structured_content
    assert (found["answer"], found["label"]) == ("one", "A") and found["confidence"] == pytest.approx(0.998)
    assert found["sentence"].startswith("one: ") and found["share_of_compute"] > 0
    assert [each["text"] for each in found["candidates"]] == ["one", "two"]
    assert any(message and message.startswith("decode: ") for _, message in heard)


def test_an_open_question_and_a_follow_up(service: VideoService) -> None:
    for _ in range(2):
        assert (
            call(service, "ask_video", video="talk.mp4", question="What is it?").structured_content["answer"]
            == "a red ball"
        )
    (session,) = service.sessions.all()
    assert session.questions == 2


def test_look_over_says_what_happens_with_times(service: VideoService) -> None:
    found = call(service, "look_over", video="sub/talk.mp4", parts=3).structured_content
    assert found["duration"] == pytest.approx(1.2) and found["name"] == "talk.mp4"
    assert [(each["start"], each["end"]) for each in found["parts"]] == [(0.0, 0.4), (0.4, 0.8), (0.8, 1.2)]
    assert all(each["text"] for each in found["parts"])


def test_frames_are_pictures_with_their_true_times(service: VideoService) -> None:
    found = call(service, "frames_at", video="talk.mp4", times=[0.5, 100.0], width=32)
    texts = [each.text for each in found.content if each.type == "text"]
    pictures = [each for each in found.content if each.type == "image"]
    assert texts == ["0:00 (0.48 s)", "0:01 (1.16 s); 100.00 s is outside of the video, which is 1.20 s long"]
    assert [each.mime_type for each in pictures] == ["image/jpeg"] * 2
    assert Image.open(io.BytesIO(base64.b64decode(pictures[0].data)), formats=("JPEG",)).size == (32, 16)


def test_frames_say_that_a_width_is_out_of_bounds(service: VideoService) -> None:
    first, *_ = call(service, "frames_at", video="talk.mp4", times=[0.5], width=5000).content
    assert first.text == "The frames are at most 2048 pixels wide; a width of 5000 is not possible."


def test_frames_wait_for_their_turn_with_those_of_other_clients(
    service: VideoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.decode_pool, "_room", 0)
    refused = call(service, "frames_at", video="talk.mp4", times=[0.5])
    assert refused.is_error and "too many requests for pictures at once" in refused.content[0].text


def test_the_videos_are_listed_under_names_that_can_be_asked_about(service: VideoService) -> None:
    listed = call(service, "list_videos").structured_content["result"]
    names = [each["name"] for each in listed]
    assert {"talk.mp4", "sub/talk.mp4"} <= set(names) and all(each["bytes"] > 0 for each in listed)
    assert not call(service, "look_over", video="sub/talk.mp4", parts=1).is_error


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("ask_video", {"video": "/etc/passwd", "question": "x"}, "not one that requests may name; list_videos names"),
        ("ask_video", {"video": "../secret.mp4", "question": "x"}, "not one that requests may name"),
        ("ask_video", {"video": "talk.mp4", "question": "x", "options": ["one"]}, "2 to 26 options"),
        ("ask_video", {"video": "talk.mp4", "question": "x", "options": ["a", "A"]}, "options A and B are the same"),
        ("ask_video", {"video": "bad.mp4", "question": "x"}, "bad.mp4"),
        ("ask_video", {"video": "talk.mp4", "question": "x" * 20_001}, "the question has 20,001 characters; at most"),
        ("ask_video", {"video": "talk.mp4", "question": "x", "options": ["a", "b" * 2001]}, "the option has 2,001"),
        ("frames_at", {"video": "http://127.0.0.1/x.mp4", "times": [0]}, "does not fetch addresses"),
        ("frames_at", {"video": "talk.mp4", "times": []}, "times"),
        ("look_over", {"video": "talk.mp4", "parts": 10**9}, "parts"),
    ],
)
def test_an_error_reaches_the_agent_as_our_sentence(
    service: VideoService, folder: Path, name: str, arguments: dict[str, Any], words: str
) -> None:
    (folder / "bad.mp4").write_bytes(b"no video")
    found = call(service, name, **arguments)
    text = found.content[0].text
    assert found.is_error and words in text and str(folder) not in text
    assert "/v1/" not in text and "upload" not in text.partition("address")[0], "an agent has no routes"


def test_a_mistake_of_ours_is_not_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Gated):
        def run(self, requests: Any) -> Any:
            raise ZeroDivisionError("/secret")

    with running_service(folder, model=Broken()) as service:
        found = call(service, "ask_video", video="talk.mp4", question="Which?", options=["one", "two"])
    assert found.is_error and "secret" not in found.content[0].text


COMMAND = [
    sys.executable,
    "-m",
    "gridprobe",
    "mcp",
    "--model",
    "embedded:nano",
    "--device",
    "cpu",
    "--preset",
    "gridworld",
]
ARGUMENTS = {"video": "talk.mp4", "question": "What is the color of the ball?", "options": ["red", "blue"]}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GRIDPROBE_CACHE": "off"}


def test_over_stdio_with_the_embedded_model(folder: Path) -> None:
    arguments = [*COMMAND[1:], "--root", str(folder)]
    server = StdioServerParameters(command=COMMAND[0], args=arguments, env={**os.environ, **ENVIRONMENT})
    found = with_client(server, lambda client: client.call_tool("ask_video", ARGUMENTS))
    assert not found.is_error and found.structured_content["answer"] in ("red", "blue")


def test_over_http_with_a_key(folder: Path) -> None:
    import httpx
    from mcp.client.streamable_http import streamable_http_client

    environment = {**os.environ, **ENVIRONMENT, "GRIDPROBE_KEY": KEY}
    with ExitStack() as stack:
        model = stack.enter_context(serving(Fake()))
        command = [*COMMAND[:4], "--model", model, "--root", str(folder), "--http", "--port", "0"]
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
        try:
            assert process.stderr is not None
            address = next(match[1] for line in process.stderr if (match := re.search(r"tools at (\S+)", line)))
            assert httpx.post(address, json={}).status_code == 401
            evil = {"Authorization": f"Bearer {KEY}", "Origin": "http://evil.example"}
            assert httpx.post(address, json={}, headers=evil).status_code == 403

            async def ask() -> Any:
                client = _http_client()
                async with client, Client(streamable_http_client(address, http_client=client)) as session:
                    return await session.call_tool("ask_video", ARGUMENTS)

            found = asyncio.run(ask())
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
    assert not found.is_error and found.structured_content["answer"] in ("red", "blue")


def _http_client() -> Any:
    """The HTTP client that the SDK uses, with our key."""
    from mcp.shared._httpx_utils import create_mcp_http_client

    return create_mcp_http_client(headers={"Authorization": f"Bearer {KEY}"})


def test_a_question_that_does_not_fit_into_memory_is_an_error_of_one_sentence(folder: Path) -> None:
    class Full(Gated):
        def run(self, requests: Any) -> Any:
            raise TooLarge("9 frames of 64×32 and the question are 9 tokens, but 0.0 GB of memory are free")

    with running_service(folder, model=Full()) as service:
        found = call(service, "ask_video", video="talk.mp4", question="Which?", options=["one", "two"])
    assert found.is_error and found.content[0].text.endswith("0.0 GB of memory are free")
