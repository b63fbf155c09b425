"""Real Ray Serve on this machine: an ingress and two replicas, one of which is killed while it answers."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import gridprobe
import ray_serve_desk
from serving_kit import KEY, as_data
from videos import numbered_video
from waiting import wait_until

pytest.importorskip("mmh3", reason="Ray Serve is not installed; run: make test-ray-serve")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

VIDEOS = [f"v{number}.mp4" for number in range(8)]
JSON = {"Content-Type": "application/json"}


@dataclass
class Running:
    client: httpx.Client
    videos: Path
    notes: Path

    def ask(self, video: str, question: str = "What?") -> dict[str, Any]:
        body = {"video": video, "question": question, "options": ["red", "blue"], "settings": {"k": 3}}
        reply = self.client.post("/v1/gridprobe/ask", json=body)
        assert reply.status_code == 200, reply.text
        result: dict[str, Any] = reply.json()
        return result

    def called(self) -> set[int]:
        """ProcessPool whose model has been called."""
        return {int(each.name.partition("-")[2]) for each in self.notes.glob("called-*")}

    def close_gate(self) -> None:
        for each in self.notes.iterdir():
            each.unlink()
        (self.notes / "closed").touch()

    def open_gate(self) -> None:
        (self.notes / "closed").unlink()

    def jobs(self) -> int:
        """Jobs that run or wait, in all replicas."""
        found = dict(line.rsplit(" ", 1) for line in self.metrics() if not line.startswith("#"))
        return sum(int(found[f"gridprobe_jobs_{name}"]) for name in ("running", "waiting"))

    def metrics(self) -> list[str]:
        return self.client.get("/metrics").text.splitlines()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    import ray
    import ray_serve
    from ray import serve

    videos, notes = tmp_path_factory.mktemp("videos"), tmp_path_factory.mktemp("notes")
    for number, name in enumerate(VIDEOS):
        numbered_video(videos / name, 20 + number, size=(64, 32))
    places = (Path(ray_serve_desk.__file__).parent, Path(gridprobe.__file__).parents[1])
    variables = {"PYTHONPATH": ":".join(map(str, places)), "GRIDPROBE_KEY": KEY, "GRIDPROBE_CACHE": "off"}
    variables |= {ray_serve_desk.FOLDER: str(notes), "OMP_NUM_THREADS": "1"}
    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env={"env_vars": variables},
    )
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "ERROR"})
        given = ray_serve.options({"videos": str(videos), "concurrency": 4, "allow_urls": "false"})
        size = ray_serve.Size(min_replicas=2, max_replicas=2, ingresses=1, cpus=0.5)
        serve.run(ray_serve.application(given, size, ray_serve_desk.make_service))
        address = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {KEY}"}
        limits = httpx.Limits(max_connections=None)
        with httpx.Client(base_url=address, headers=headers, timeout=None, limits=limits, trust_env=False) as client:
            yield Running(client, videos, notes)
    finally:
        serve.shutdown()
        ray.shutdown()


def mark(reply: dict[str, Any]) -> str:
    return str(reply["session"])[:8]


def test_questions_about_a_video_reach_the_replica_that_has_it_open(server: Running) -> None:
    first = {name: server.ask(name) for name in VIDEOS}
    assert len({mark(each) for each in first.values()}) == 2, "both replicas have work"
    for name, reply in first.items():
        again = server.ask(f"file://{server.videos / name}", "What else?")
        assert again["session"] == reply["session"], "a follow-up meets the open video, however it is named"
    listed = server.client.get("/v1/gridprobe/sessions").json()["sessions"]
    assert {each["id"]: each["questions"] for each in listed} == {each["session"]: 2 for each in first.values()}
    sheet = server.client.get(f"/v1/gridprobe/sessions/{listed[0]['id']}/sheet.jpg")
    assert sheet.status_code == 200 and sheet.content.startswith(b"\xff\xd8")


def test_an_upload_and_a_job_are_found_again(server: Running) -> None:
    content = (server.videos / VIDEOS[0]).read_bytes()
    sent = server.client.post(
        "/v1/gridprobe/uploads?name=mine.mp4", content=content, headers={"Content-Type": "video/mp4"}
    )
    assert sent.status_code == 201 and sent.json()["bytes"] == len(content)
    upload = sent.json()["url"]
    assert mark(server.ask(upload)) == upload.removeprefix("upload://")[:8]
    body = {"video": upload, "question": "What?", "options": ["red", "blue"]}
    job = server.client.post("/v1/gridprobe/jobs", json=body).json()
    events = server.client.get(f"/v1/gridprobe/jobs/{job['id']}/events").text
    assert [line for line in events.splitlines() if line.startswith("event: ")][-1] == "event: answer"
    assert server.client.delete(f"/v1/gridprobe/uploads/{sent.json()['id']}").status_code == 204
    assert server.client.post("/v1/gridprobe/ask", json=body | {"video": "upload://nobody"}).status_code == 404
    assert server.client.get("/v1/gridprobe/jobs/nobody").status_code == 404


def test_rules_and_limits_are_those_of_the_server(server: Running) -> None:
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.get("/v1/models", headers={"Authorization": ""}).status_code == 401
    assert server.client.post("/v1/gridprobe/ask", json={"video": 5}).status_code == 400
    large = server.client.post("/v1/gridprobe/ask", content=b" " * (65 << 20), headers=JSON)
    assert large.status_code == 413
    assert streamed(server, as_data((server.videos / VIDEOS[1]).read_bytes())).startswith(":")


def test_a_client_that_goes_away_cancels_its_question(server: Running) -> None:
    server.close_gate()
    body = json.dumps({"video": VIDEOS[0], "question": "Who leaves?", "options": ["a", "b"], "settings": {"k": 2}})
    address = server.client.base_url
    head = (
        f"POST /v1/gridprobe/ask HTTP/1.1\r\nHost: {address.host}\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((address.host, address.port or 80)) as leaving:
        leaving.sendall((head + body).encode())
        wait_until(server.called)
    wait_until(lambda: 'gridprobe_jobs_total{outcome="cancelled"} 1' in server.metrics())
    server.open_gate()


def test_a_replica_is_killed_while_it_answers_and_no_question_is_lost(server: Running) -> None:
    before = {name: mark(server.ask(name)) for name in VIDEOS}
    server.close_gate()
    questions = [(name, f"Question {number}?") for number in range(4) for name in VIDEOS]
    with ThreadPoolExecutor(len(questions) + len(VIDEOS)) as pool:
        asked = [pool.submit(server.ask, *each) for each in questions]
        streams = [pool.submit(streamed, server, name) for name in VIDEOS]
        wait_until(lambda: server.jobs() == len(questions) + len(VIDEOS) and len(server.called()) == 2)
        killed = min(server.called())
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not running(killed))
        server.open_gate()
        replies = [each.result() for each in asked]
        texts = [each.result() for each in streams]
    assert [each["answer"]["choice"] for each in replies] == ["A"] * len(questions)
    assert [(text.count('"content":"A"'), text.count("data: [DONE]")) for text in texts] == [(1, 1)] * len(VIDEOS)
    survivors = {mark(each) for each in replies} & set(before.values())
    assert len(survivors) == 1, "of the two replicas from before, one is left"
    moved = [(before[name], mark(reply)) for (name, _), reply in zip(questions, replies, strict=True)]
    assert all(now == then for then, now in moved if then in survivors), "its own videos stayed with it"
    assert any(then not in survivors for then, now in moved), "the other one had questions when it died"


def streamed(server: Running, video: str) -> str:
    content = [{"type": "video_url", "video_url": {"url": video}}, {"type": "text", "text": "What?\nA. red\nB. blue"}]
    chat = {"model": "gridprobe", "stream": True, "messages": [{"role": "user", "content": content}]}
    reply = server.client.post("/v1/chat/completions", json=chat)
    assert reply.status_code == 200, reply.text
    return reply.text.replace('": "', '":"')


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def relayed(*messages: tuple[bytes, bool], kind: bytes) -> tuple[list[bytes], bool]:
    """What a client has got of a response when its replica dies, and whether the request must not be repeated."""
    from ray_serve import Relay

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def add_all() -> bool:
        relay = Relay(send)
        await relay.add({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for body, more in messages:
            await relay.add({"type": "http.response.body", "body": body, "more_body": more})
        return relay.committed

    committed = asyncio.run(add_all())
    assert [each["type"] for each in sent[:1]] == ["http.response.start"][: len(sent)]
    return [each["body"] for each in sent[1:]], committed


def test_a_response_is_repeated_only_if_the_client_has_got_nothing_that_counts() -> None:
    json_type, events = b"application/json", b"text/event-stream"
    assert relayed((b"{", True), kind=json_type) == ([], False)
    assert relayed((b"{", True), (b"}", False), kind=json_type) == ([b"{", b"}"], True)
    assert relayed((b": waiting", True), (b": opened", True), kind=events) == ([b": waiting", b": opened"], False)
    assert relayed((b": waiting", True), (b"data: 1", True), kind=events) == ([b": waiting", b"data: 1"], True)
    large = b"x" * (5 << 20)
    assert relayed((large, True), kind=b"video/mp4") == ([large], True)
