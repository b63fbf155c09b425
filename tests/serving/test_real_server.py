"""`gridprobe serve` as a process, with the embedded model: OpenAI's own client, a plain client, and signals."""

import asyncio
import gc
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from gridprobe_serve import running
from gridprobe_serve.middleware import network_of
from gridprobe_serve.service import HELP
from gridprobe_serve.store import PREFIX
from serving_kit import KEY, as_data, video_folder
from waiting import wait_until

QUESTION = "What is the color of the ball?"


@dataclass
class Running:
    process: "subprocess.Popen[str]"
    address: str
    folder: Path
    temporary: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = video_folder(tmp_path_factory.mktemp("videos") / "all")
    temporary = tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-m", "gridprobe", "serve", "--port", "0", "--model", "embedded:nano", "--device", "cpu"]
    environment = {**os.environ, "GRIDPROBE_KEY": KEY, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--preset", "gridworld", "--videos", str(folder)], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if match := re.search(r"serving at (http://\S+)", line):
            yield Running(process, match[1], folder, temporary)
            break
    else:
        pytest.fail("the server did not start:\n" + "".join(lines))
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@pytest.fixture
def openai(server: Running) -> Any:
    module = pytest.importorskip("openai", reason="the official client is not installed: pip install openai")
    return module.OpenAI(base_url=f"{server.address}/v1", api_key=KEY, timeout=600, max_retries=0)


def video_part(server: Running) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": as_data((server.folder / "talk.mp4").read_bytes())}}


def test_the_official_client_gets_an_answer_and_our_object(server: Running, openai: Any) -> None:
    assert [each.id for each in openai.models.list()] == ["gridprobe", "embedded:nano"]
    reply = openai.chat.completions.create(
        model="gridprobe",
        messages=[{"role": "user", "content": [video_part(server), {"type": "text", "text": QUESTION}]}],
        logprobs=True,
        top_logprobs=2,
        extra_body={"gridprobe": {"options": ["red", "blue"], "k": 3}},
    )
    assert reply.choices[0].message.content in ("A", "B")
    assert sum(
        2.718281828**each.logprob for each in reply.choices[0].logprobs.content[0].top_logprobs
    ) == pytest.approx(1)
    extra = reply.model_extra["gridprobe"]
    assert extra["sentence"] and extra["answer"]["cost"]["tflops"] > 0 and len(extra["times"]) == 9
    assert reply.usage.prompt_tokens > 0


def test_the_official_client_streams_and_never_sees_progress_as_a_chunk(server: Running, openai: Any) -> None:
    stream = openai.chat.completions.create(
        model="gridprobe",
        messages=[
            {"role": "user", "content": [video_part(server), {"type": "text", "text": f"{QUESTION}\nA. red\nB. blue"}]}
        ],
        stream=True,
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text.startswith(("red", "blue")) and chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].model_extra["gridprobe"]["parsed_options"]


def test_the_official_client_gets_our_errors_as_its_own(server: Running, openai: Any) -> None:
    import openai as module

    bad = {"type": "video_url", "video_url": {"url": as_data(b"no video")}}
    with pytest.raises(module.UnprocessableEntityError, match="video"):
        openai.chat.completions.create(
            model="gridprobe", messages=[{"role": "user", "content": [bad, {"type": "text", "text": QUESTION}]}]
        )
    with pytest.raises(module.BadRequestError, match="unknown content part 'hologram'"):
        openai.chat.completions.create(
            model="gridprobe",
            messages=[{"role": "user", "content": [{"type": "hologram"}, {"type": "text", "text": "x"}]}],
        )
    with pytest.raises(module.AuthenticationError):
        openai.with_options(api_key="wrong").models.list()


def test_the_official_client_chats_without_a_video(server: Running, openai: Any) -> None:
    title = [{"role": "user", "content": "### Task:\nGenerate a concise, 3-5 word title for the chat."}]
    reply = openai.chat.completions.create(model="gridprobe", messages=title, max_tokens=50, tools=[])
    assert reply.choices[0].message.content == HELP
    assert openai.models.list().data[0].model_extra["input_modalities"] == ["text", "image", "video"]


def test_the_official_client_gets_a_response(server: Running, openai: Any) -> None:
    parts = [{"type": "input_video", "video_url": video_part(server)["video_url"]["url"]}]
    asked = {"role": "user", "content": [*parts, {"type": "input_text", "text": QUESTION}]}
    options = {"gridprobe": {"options": ["red", "blue"], "k": 3}}
    reply = openai.responses.create(model="gridprobe", input=[asked], instructions="Be brief.", extra_body=options)
    assert reply.output_text.startswith(("red", "blue")) and reply.status == "completed"
    assert reply.usage.input_tokens > 0 and reply.model_extra["gridprobe"]["answer"]["confidence"] > 0
    turns = [asked, *(each.model_dump() for each in reply.output), {"role": "user", "content": QUESTION}]
    with openai.responses.stream(model="gridprobe", input=turns, extra_body=options) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(pieces) == stream.get_final_response().output_text != ""
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    form = {"format": {"type": "json_schema", "name": "seen", "schema": schema}}
    reply = openai.responses.create(model="gridprobe", input=[asked], text=form, extra_body=options)
    assert json.loads(reply.output_text)["answer"] in ("red", "blue")
    assert openai.responses.create(model="gridprobe", input="Hello").output_text == HELP


@pytest.fixture
def anthropic(server: Running) -> Any:
    module = pytest.importorskip("anthropic", reason="the official client is not installed: pip install anthropic")
    return module.Anthropic(base_url=server.address, api_key=KEY, timeout=600, max_retries=0)


def test_the_other_official_client_gets_a_message(server: Running, anthropic: Any) -> None:
    data = video_part(server)["video_url"]["url"].partition(",")[2]
    video = {"type": "video", "source": {"type": "base64", "media_type": "video/mp4", "data": data}}
    asked = {"role": "user", "content": [video, {"type": "text", "text": QUESTION, "cache_control": None}]}
    body = {"model": "gridprobe", "max_tokens": 100, "system": "Be brief.", "messages": [asked]}
    options = {"gridprobe": {"options": ["red", "blue"], "k": 3}}
    reply = anthropic.messages.create(**body, extra_body=options)
    assert reply.content[0].text.startswith(("red", "blue")) and reply.stop_reason == "end_turn"
    assert reply.usage.input_tokens > 0 and reply.model_extra["gridprobe"]["answer"]["confidence"] > 0
    with anthropic.messages.stream(**body, extra_body=options) as stream:
        assert "".join(stream.text_stream) == stream.get_final_text() == reply.content[0].text


def test_the_other_official_client_gets_our_errors_as_its_own(anthropic: Any) -> None:
    import anthropic as module

    hello = {"role": "user", "content": [{"type": "hologram"}, {"type": "text", "text": "x"}]}
    with pytest.raises(module.BadRequestError, match="unknown content part 'hologram'"):
        anthropic.messages.create(model="gridprobe", max_tokens=9, messages=[hello])
    with pytest.raises(module.AuthenticationError):
        anthropic.with_options(api_key="wrong").messages.create(model="gridprobe", max_tokens=9, messages=[hello])


def test_a_follow_up_is_answered_from_kept_memory(server: Running) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    computed = []
    with httpx.Client(base_url=server.address, headers=headers, timeout=600) as client:
        for text in (QUESTION, "What is the shape of the red ball?"):
            body = {"video": "sub/talk.mp4", "question": text, "options": ["red", "blue"]}
            reply = client.post("/v1/gridprobe/ask", json=body | {"settings": {"k": 5, "effort": "quick"}})
            computed.append(reply.json()["answer"]["cost"]["tflops_computed"])
    assert computed[1] < 0.2 * computed[0]


# S12 of tests/reliability.md
def test_raw_http_that_no_client_library_sends(server: Running) -> None:
    host, port = server.address.removeprefix("http://").rsplit(":", 1)
    key = f"Authorization: Bearer {KEY}\r\n"
    cases = {
        f"GET /health HTTP/1.1\r\n{key}\r\n": b"400",
        "GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n": b"200",
        "GET /health HTTP/1.0\r\n\r\n": b"400",
        f"GET /health HTTP/1.1\r\nHost: evil.example\r\n{key}\r\n": b"403",
        f"POST /v1/gridprobe/ask HTTP/1.1\r\nHost: localhost\r\n{key}Content-Type: application/json\r\n"
        "Content-Length: 99999999999\r\n\r\n": b"413",
        "garbage\r\n\r\n": b"400",
    }
    for sent, status in cases.items():
        with socket.create_connection((host, int(port)), timeout=600) as connection:
            connection.sendall(sent.encode())
            assert connection.recv(65536).split()[1] == status, sent


def test_connections_do_not_delay_small_packets() -> None:
    """A packet of a reply that waited for the client's acknowledgement took 40 ms."""
    with (
        running.bind("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@contextmanager
def listening_app(status: int = 200, content: bytes = b"ok") -> Iterator[tuple[str, int]]:
    """The address of a server in this process, whose application reads no body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        length = (b"content-length", str(len(content)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [length]})
        await send({"type": "http.response.body", "body": content})

    config = uvicorn.Config(app, http=running.TimedProtocol, log_level="error", lifespan="off", ws="none")
    site, listening = uvicorn.Server(config), running.bind("127.0.0.1", 0)
    thread = threading.Thread(target=site.run, kwargs={"sockets": [listening]})
    thread.start()
    wait_until(lambda: site.started)
    try:
        yield listening.getsockname()
    finally:
        site.should_exit = True
        thread.join()


def everything(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


# S04 of tests/reliability.md
def test_headers_that_never_end_close_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CLIENT_SECONDS", 0.2)
    with listening_app() as address:
        for sent in (
            b"",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow:",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
        ):
            with socket.create_connection(address, timeout=600) as connection:
                connection.sendall(sent)
                assert everything(connection).endswith(b"ok") is sent.endswith(b"GET /"), sent


def test_s04_a_body_that_nobody_reads_does_not_keep_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CLIENT_SECONDS", 0.2)
    with listening_app(401) as address, socket.create_connection(address, timeout=600) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        received = b""
        for _ in range(999):
            connection.sendall(b"x")
            if select.select([connection], [], [], 0.01)[0]:
                if not (part := connection.recv(65536)):
                    break
                received += part
        else:
            pytest.fail("it is still open")
        assert received.startswith(b"HTTP/1.1 401 ")


def test_s04_a_client_that_never_reads_does_not_keep_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()
    end = running.TimedProtocol.connection_lost

    def note(self: running.TimedProtocol, exc: Exception | None) -> None:
        end(self, exc)
        lost.set()

    monkeypatch.setattr(running.TimedProtocol, "connection_lost", note)
    monkeypatch.setattr(running, "UNREAD_SECONDS", 0.2)
    content = bytes(64 << 20)
    with listening_app(content=content) as address, socket.create_connection(address, timeout=600) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        lost.wait()
        assert len(everything(connection)) < len(content)


def test_s04_a_client_that_reads_slowly_is_waited_for() -> None:
    loop, transport = Mock(), Mock()
    timed = running.TimedProtocol(uvicorn.Config(Mock(), log_level="error"), ServerState(), {}, loop)
    timed.connection_made(transport)
    transport.get_write_buffer_size.side_effect = [900, 500, 100, 100]
    timed.pause_writing()
    for aborted in (False, False, True):
        _, check, before = loop.call_later.call_args.args
        check(before)
        assert transport.abort.called is aborted


def status(address: tuple[str, int], path: str, source: str) -> bytes:
    with socket.create_connection(address, timeout=600, source_address=(source, 0)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return everything(connection).split()[1]


def test_s04_connections_are_bounded_for_each_address_and_health_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(running, "MOST_FOR_HEALTH", 2)
    one, two, three = "127.0.0.1", "127.0.0.2", "127.0.0.3"
    with listening_app() as address, ExitStack() as stack:

        def opened(source: str, count: int) -> None:
            for _ in range(count):
                connection = socket.create_connection(address, timeout=600, source_address=(source, 0))
                stack.enter_context(connection)

        opened(one, 12)
        assert [status(address, "/", each) for each in (one, two, three)] == [b"503", b"200", b"200"]
        opened(two, 12)
        assert [status(address, "/", each) for each in (one, two, three)] == [b"503"] * 3
        assert [status(address, "/health", each) for each in (one, two, three)] == [b"200"] * 3
        stack.close()
        wait_until(lambda: status(address, "/", one) == b"200")


def test_s04_there_are_descriptors_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    unbounded = resource.RLIM_INFINITY
    for soft, hard, raised, most in (
        (1024, 1 << 20, 4096, 1024),
        (1024, 2048, 2048, 512),
        (256, unbounded, 4096, 1024),
        (1 << 20, 1 << 20, 1 << 20, 1024),
        (unbounded, unbounded, unbounded, 1024),
    ):
        limits = [(soft, hard)]
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits[-1])
        monkeypatch.setattr(resource, "setrlimit", lambda _, pair, limits=limits: limits.append(pair))
        running.raise_descriptors()
        assert (*limits[-1], running.most_connections()) == (raised, hard, most)


def test_one_machine_counts_as_one_whatever_its_address_of_ipv6() -> None:
    one, other = (network_of((f"2001:db8:0:{number}::5", 1)) for number in (1, 2))
    assert network_of(("2001:db8:0:1:ffff::9%eth0", 1)) == one != other
    assert network_of(("10.0.0.1", 1)) == "10.0.0.1" and network_of(None) == ""


def test_a_signal_ends_it_in_order_after_all_questions(server: Running) -> None:
    """The last test of the file: it ends the server."""
    headers = {"Authorization": f"Bearer {KEY}"}
    ask = {"video": "talk.mp4", "question": QUESTION, "options": ["red", "blue"], "settings": {"k": 3}}
    with httpx.Client(base_url=server.address, headers=headers, timeout=600) as client:
        jobs = [client.post("/v1/gridprobe/jobs", json=ask).json() for _ in range(12)]
        job = jobs[-1]
        with client.stream("GET", f"/v1/gridprobe/jobs/{job['id']}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("id: 1")
            server.process.send_signal(signal.SIGTERM)
            names = [line.partition(": ")[2] for line in lines if line.startswith("event: ")]
    assert names[-1] == "answer", "the running job was finished"
    _, errors = server.process.communicate()
    assert server.process.returncode in (0, -signal.SIGTERM) and "Traceback" not in errors
    assert not list(server.temporary.glob(f"{PREFIX}*")), "its media are gone"


@pytest.mark.slow
def test_known_attacks_are_withstood() -> None:
    """With few clients; `python tests/attacks.py` has them all."""
    command = [sys.executable, str(Path(__file__).parents[1] / "attacks.py"), "--share", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("withstood") == 10, done.stdout + done.stderr


def test_loaded_objects_are_not_searched_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes 190 ms with a model loaded, and /health would wait for it."""

    async def listen(self: uvicorn.Server, sockets: Any = None) -> None:
        pass

    monkeypatch.setattr(uvicorn.Server, "startup", listen)
    frozen: list[int] = []
    server = running._Server(uvicorn.Config("unused"), lambda: frozen.append(gc.get_freeze_count()), lambda: None)
    before = gc.get_freeze_count()
    try:
        asyncio.run(server.startup())
    finally:
        gc.unfreeze()
    assert frozen[0] > before + 10_000
