"""What a question would take, over HTTP, and limits in requests."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gridprobe import load_model
from gridprobe.models import cost_model_of
from gridprobe.options import Options
from gridprobe_eval.planning import Models
from gridprobe_serve.service import VideoService
from gridprobe_serve.store import AllowedFolders
from serving_kit import client_of, running_service, video_folder

ASK = {"video": "talk.mp4", "question": "Which?", "options": ["one", "two"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture
def service(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VideoService]:
    """The embedded model with its prices; what it learns of its speed stays in a folder of the test."""
    monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path / "cache"))
    gauge = cost_model_of("embedded:nano")
    found = VideoService(
        load_model("embedded:nano"),
        settings=Options(k=3),
        folder=AllowedFolders.at(folder),
        cost_models=Models(gauge, gauge),
    )
    yield found
    found.close()


def send(service: VideoService, *bodies: tuple[str, dict[str, Any]]) -> list[Any]:
    """Replies to requests one after another; `{session}` in a path is the session of the first reply."""

    async def run() -> list[Any]:
        replies: list[Any] = []
        async with client_of(service) as client:
            for path, body in bodies:
                session = replies[0].json().get("id") if replies else ""
                replies.append(await client.post("/v1/gridprobe" + path.format(session=session), json=body))
        return replies

    return asyncio.run(run())


def test_the_plan_prices_each_effort_as_a_share_of_all_frames(service: VideoService) -> None:
    _, plan = send(service, ("/sessions", {"video": "talk.mp4"}), ("/sessions/{session}/plan", {}))
    offers = {each["name"]: each for each in plan.json()["offers"]}

    assert list(offers) == ["quick", "auto", "full", "all frames"]
    assert offers["all frames"]["share"] == [1.0, 1.0]
    assert offers["all frames"]["frames"] == [9, 9]
    assert offers["quick"]["frames"] == [0, 0]
    most = min(1.0, offers["full"]["share"][1])
    assert offers["auto"]["share"] == [offers["quick"]["share"][0], most], "never dearer than all frames"
    assert re.fullmatch(r"[\d.]+(–[\d.]+)?%", offers["auto"]["share_words"]), "a range has one percent sign"
    assert offers["quick"]["seconds"] is None


def test_a_limit_is_planned_and_kept(service: VideoService) -> None:
    asked = {"question": ASK["question"], "options": ASK["options"]}
    opened, plan = send(service, ("/sessions", {"video": "talk.mp4"}), ("/sessions/{session}/plan", asked))
    full = next(each for each in plan.json()["offers"] if each["name"] == "full")
    quick = next(each for each in plan.json()["offers"] if each["name"] == "quick")
    settings = {"max_tflops": (quick["tflops"][0] + full["tflops"][0]) / 2, "effort": "full"}
    planned, answered = send(
        service,
        (f"/sessions/{opened.json()['id']}/plan", asked | {"settings": settings}),
        ("/ask", ASK | {"settings": settings}),
    )
    limited = {each["name"]: each for each in planned.json()["offers"]}

    assert limited["quick"]["fits"] == "yes"
    assert limited["full"]["fits"] == "no"
    assert "--max-tflops" in limited["full"]["over"]
    assert answered.status_code == 200
    answer = answered.json()["answer"]
    assert answer["cost"]["tflops"] <= settings["max_tflops"]
    assert any("--max-tflops" in each for each in answer["warnings"])


def test_a_limit_that_nothing_fits_is_refused_with_the_least_that_fits(service: VideoService) -> None:
    (reply,) = send(service, ("/ask", ASK | {"settings": {"max_tokens": 1}}))

    assert reply.status_code == 400
    assert "--max-tokens" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "limit", [{"max_tokens": 0}, {"max_tflops": -1.0}, {"max_seconds": "5"}, {"max_gpu_memory": 1}]
)
def test_what_is_no_limit_is_refused(service: VideoService, limit: dict[str, Any]) -> None:
    (reply,) = send(service, ("/ask", ASK | {"settings": limit}))

    assert reply.status_code == 400
    assert next(iter(limit)) in reply.json()["error"]["message"]


def test_seconds_are_known_after_an_answer(service: VideoService) -> None:
    replies = send(
        service,
        ("/sessions", {"video": "talk.mp4"}),
        ("/ask", ASK),
        ("/sessions/{session}/plan", {"question": "What?"}),
    )

    assert replies[1].status_code == 200
    assert all(each["seconds"] is not None for each in replies[2].json()["offers"])


def test_models_without_prices_offer_nothing(folder: Path) -> None:
    with running_service(folder) as service:
        _, plan, unknown = send(
            service,
            ("/sessions", {"video": "talk.mp4"}),
            ("/sessions/{session}/plan", {}),
            ("/sessions/none/plan", {}),
        )

    assert plan.json() == {"offers": []}
    assert unknown.status_code == 404
