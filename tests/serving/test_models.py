"""Models behind the server: on another server, and two: a small one selects, a large one answers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_server import KEY, Fake, Fault, Open, opener, serving
from gridprobe.options import Options
from gridprobe_serve.command import serve, service_of
from gridprobe_serve.service import VideoService
from gridprobe_serve.store import AllowedFolders
from serving_kit import client_of, video_folder

ASK = {"video": "talk.mp4", "question": "Which?", "options": ["one", "two"], "settings": {"effort": "full"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture
def open_server() -> Iterator[Open]:
    with opener() as found:
        yield found


def send(service: VideoService, path: str, body: dict[str, Any]) -> Any:
    async def run() -> Any:
        async with client_of(service) as client:
            return await client.post(path, json=body)

    return asyncio.run(run())


def test_a_question_reaches_a_model_on_another_server_whose_address_stays_private(
    open_server: Open, folder: Path
) -> None:
    fake = Fake()
    service = VideoService(open_server(fake), settings=Options(k=3), folder=AllowedFolders.at(folder))
    reply = send(service, "/v1/gridprobe/ask", ASK)
    service.close()

    assert reply.status_code == 200
    answer = reply.json()["answer"]
    assert answer["models"]["answerer"] == "server#fake@fake-1;ids"
    assert answer["cost"]["unpriced_calls"] > 1
    assert "127.0.0.1" not in reply.text and KEY not in reply.text


def test_a_small_model_selects_and_a_large_one_answers(open_server: Open, folder: Path) -> None:
    small, large = Fake(), Fake()
    service = VideoService(
        open_server(small), open_server(large), settings=Options(k=3, effort="focus"), folder=AllowedFolders.at(folder)
    )
    before = small.asked, large.asked
    reply = send(service, "/v1/gridprobe/ask", {**ASK, "settings": {}})
    service.close()

    assert reply.status_code == 200
    assert large.asked == before[1] + 1
    assert small.asked > before[0]


def test_a_model_that_is_gone_is_a_503(open_server: Open, folder: Path) -> None:
    fake = Fake()
    model = open_server(fake, patience=0.001)
    fake.faults = [Fault.error(503, "gone")] * 100
    service = VideoService(model, settings=Options(k=3), folder=AllowedFolders.at(folder))
    reply = send(service, "/v1/gridprobe/ask", ASK)
    service.close()

    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "model_unavailable"


def test_without_a_model_the_server_says_so_at_its_start_and_to_clients(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRIDPROBE_MODEL", raising=False)
    context = serve.make_context("serve", ["--videos", str(folder)])
    service, _ = service_of(context.params)
    reply = send(service, "/v1/gridprobe/ask", {"video": "talk.mp4", "question": "What does the philosopher say?"})
    service.close()

    assert "no --model is named" in capsys.readouterr().err and service.demo
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "demo_model")
    words = reply.json()["error"]["message"]
    assert "philosopher" in words and "whoever runs this server" in words and "--model" not in words


def test_the_command_line_gives_both_models_and_their_prices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRIDPROBE_MODEL", raising=False)
    known = ("Qwen/Qwen3-VL-2B-Instruct", "Qwen/Qwen3-VL-8B-Instruct")
    with serving(Fake(models=known)) as url:
        line = ["--model", f"{url}#{known[0]}", "--answer-model", f"{url}#{known[1]}", "--load", "price_in=2"]
        context = serve.make_context("serve", [*line, "--videos", str(folder)])
        service, names = service_of(context.params)
        opened = send(service, "/v1/gridprobe/sessions", {"video": "talk.mp4", "settings": {"k": 3}})
        plan = send(service, f"/v1/gridprobe/sessions/{opened.json()['id']}/plan", {"settings": {"k": 3}})
        service.close()

    assert names == list(known)
    assert [each["name"] for each in plan.json()["offers"]][-1] == "all frames"
    assert all(each["money"][1] > 0 for each in plan.json()["offers"])
