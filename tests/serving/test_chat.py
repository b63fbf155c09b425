"""POST /v1/chat/completions: all content parts, options, streams and what is refused."""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gridprobe import MockModel
from gridprobe.models import Request
from gridprobe_serve.app import make_app
from gridprobe_serve.chat.reading import read_chat
from gridprobe_serve.errors import ApiError
from gridprobe_serve.middleware import AccessRules
from gridprobe_serve.schemas import ChatBody
from gridprobe_serve.service import HELP, VideoService
from gridprobe_serve.sources import Frames
from serving_kit import Gated, as_data, client_of, jpeg, make_service, running_service, video_folder

TEXT = {"type": "text", "text": "Which?"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder) as found:
        yield found


@pytest.fixture(scope="module")
def data(folder: Path) -> str:
    return as_data((folder / "talk.mp4").read_bytes())


def send(service: VideoService, body: dict[str, Any]) -> httpx.Response:
    async def run() -> httpx.Response:
        async with client_of(service) as client:
            return await client.post("/v1/chat/completions", json={"model": "gridprobe", **body})

    return asyncio.run(run())


def said(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], "gridprobe": {"options": ["one", "two"]}, **more}


def meant(*parts: Any, **more: Any) -> Any:
    return read_chat(ChatBody.model_validate({"model": "gridprobe", **said(*parts, **more)}))


PICTURE = as_data(jpeg(), "image/jpeg")
IMAGE = {"type": "image_url", "image_url": {"url": PICTURE}}
SEQUENCE = "data:video/jpeg;base64," + ",".join(PICTURE.partition(",")[2] for _ in range(3))


def video_parts(data: str) -> dict[str, Any]:
    upper = data.replace("data:video/mp4;base64", "data:video/mp4;codecs=avc1;base64")
    return {
        "video_url": {"type": "video_url", "video_url": {"url": data}, "uuid": "abc"},
        "parameters": {"type": "video_url", "video_url": {"url": upper}},
        "no type": {"video_url": {"url": data}},
        "text": {"type": "video_url", "video_url": data},
        "file name": {"type": "video_url", "video_url": {"url": "sub/talk.mp4"}},
        "video": {"type": "video", "video": data},
        "input_video": {"type": "input_video", "input_video": {"url": data}},
        "input_video data": {"type": "input_video", "input_video": {"data": data.partition(",")[2], "format": "mp4"}},
        "file": {"type": "file", "file": {"file_data": data, "filename": "talk.mp4"}},
        "sequence": {"type": "video_url", "video_url": {"url": SEQUENCE}},
        "list": {"type": "video", "video": [PICTURE, PICTURE], "fps": 2.0},
    }


@pytest.mark.parametrize("form", list(video_parts("")))
def test_every_form_of_a_video_is_answered(service: VideoService, data: str, form: str) -> None:
    reply = send(service, said(video_parts(data)[form], TEXT))
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert found["object"] == "chat.completion" and found["choices"][0]["message"]["content"].startswith("one")
    assert found["choices"][0]["finish_reason"] == "stop"
    usage = found["usage"]
    assert usage["prompt_tokens_details"]["video_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_file_address_and_an_upload_are_answered(service: VideoService, folder: Path) -> None:
    part = {"type": "video_url", "video_url": {"url": (folder / "talk.mp4").as_uri()}}
    assert send(service, said(part, TEXT)).status_code == 200
    with service.store.receiving(1 << 20) as incoming:
        incoming.write((folder / "talk.mp4").read_bytes())
        upload = service.store.upload(incoming, "talk.mp4")
    for part in (
        {"type": "video_url", "video_url": {"url": f"upload://{upload.id}"}},
        {"type": "file", "file": {"file_id": upload.id}},
    ):
        assert send(service, said(part, TEXT)).status_code == 200


def test_the_gridprobe_object_has_map_times_stages_and_cost(service: VideoService, data: str) -> None:
    body = said({"video_url": data}, TEXT, gridprobe={"options": ["one", "two"], "effort": "full", "content": "both"})
    found = send(service, body).json()
    assert found["choices"][0]["message"]["content"] == "A. one"
    extra = found["gridprobe"]
    assert extra["answer"]["selection"]["importance"] and extra["answer"]["selection"]["timestamps"]
    assert set(extra["answer"]["reached"]["stages"]) == {"overview", "focus"} and extra["answer"]["cost"]["tflops"] > 0
    assert extra["options"] == ["one", "two"] and not extra["parsed_options"]


def test_logprobs_are_those_of_the_letters(service: VideoService, data: str) -> None:
    found = send(service, said({"video_url": data}, TEXT, logprobs=True, top_logprobs=2)).json()
    assert found["choices"][0]["message"]["content"] == "A"
    (token,) = found["choices"][0]["logprobs"]["content"]
    assert token["token"] == "A" and math.exp(token["logprob"]) == pytest.approx(0.998)
    assert [each["token"] for each in token["top_logprobs"]] == ["A", "B"]


def test_options_are_read_from_the_text_only_if_that_is_clear(service: VideoService, data: str) -> None:
    listed = {"type": "text", "text": "Which?\nA. one\nB. two\nC. three\nAnswer with the letter."}
    found = send(service, said({"video_url": data}, listed, gridprobe={})).json()
    assert found["gridprobe"]["options"] == ["one", "two", "three"] and found["gridprobe"]["parsed_options"]
    assert found["gridprobe"]["answer"]["question"].endswith("Which?")
    bare = {"type": "text", "text": "Which?\nA. one\nB. two"}
    with_instruction = send(service, said({"video_url": data}, bare, gridprobe={})).json()
    assert with_instruction["gridprobe"]["options"] == ["one", "two"]
    for text in ("What is it?", "A. b\nA. c\nB. d\nWhat?", "Is it A. or B. then?"):
        found = send(service, said({"video_url": data}, {"type": "text", "text": text}, gridprobe={})).json()
        assert found["choices"][0]["message"]["content"].startswith("a red ball"), text
        assert found["gridprobe"]["options"] == []


def test_a_conversation_goes_on_about_its_video(service: VideoService, data: str) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"video_url": data}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": "a ball"},
        {"role": "user", "content": "Which colour?"},
    ]
    reply = send(service, {"messages": messages})
    assert reply.status_code == 200
    asked = reply.json()["gridprobe"]["answer"]["question"]
    assert asked == "Be brief.\nEarlier question: What is it?\nEarlier answer: a ball\n\nWhich colour?"


def test_a_stream_has_comments_the_text_in_pieces_and_an_end(service: VideoService, data: str) -> None:
    options, wanted = {"options": ["one  red ball", "two"], "map": False}, {"include_usage": True}
    reply = send(service, said({"video_url": data}, TEXT, stream=True, stream_options=wanted, gridprobe=options))
    blocks = reply.text.strip().split("\n\n")
    assert all(block.startswith((": ", "data: ")) for block in blocks), "no named events on this route"
    assert any(block.startswith(": {") for block in blocks) and blocks[-1] == "data: [DONE]"
    chunks = [json.loads(block[6:]) for block in blocks if block.startswith("data: {")]
    first, *pieces, last, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"]["content"] for chunk in pieces][:3] == ["one  ", "red ", "ball"]
    assert last["choices"][0]["finish_reason"] == "stop" and last["gridprobe"]["answer"]
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] > 0


def test_a_bad_video_is_an_error_before_the_stream_begins(service: VideoService) -> None:
    reply = send(service, said({"video_url": as_data(b"no video")}, TEXT, stream=True))
    assert reply.status_code == 422 and reply.json()["error"]["code"] == "unusable_video"


def test_parameters_without_influence_are_named_in_warnings(service: VideoService, data: str) -> None:
    found = send(service, said({"video_url": data}, TEXT, temperature=0.0, max_tokens=5)).json()
    assert [each.split()[0] for each in found["gridprobe"]["warnings"][-2:]] == ["temperature", "max_tokens"]


def test_sampling_parameters_are_mapped_and_clamped(service: VideoService, data: str) -> None:
    for kwargs, k in (({"num_frames": 4}, 2), ({"num_frames": 10**6}, 16), ({"fps": 3.0}, 2)):
        found = send(service, said({"video_url": data}, TEXT, mm_processor_kwargs=kwargs)).json()
        assert found["gridprobe"]["answer"]["settings"]["sampling"]["k"] == k
    found = send(service, said({"video_url": data}, TEXT, mm_processor_kwargs={"max_pixels": 4096})).json()
    assert found["gridprobe"]["answer"]["settings"]["view"]["pixels"]["max_pixels"] == 4096


def test_times_of_pictures() -> None:
    def times(*parts: Any, **video: Any) -> list[float]:
        found = meant(*parts, TEXT, media_io_kwargs={"video": video}).videos[0]
        assert isinstance(found, Frames)
        return list(found.times)

    def marker(text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    assert times(IMAGE, IMAGE, IMAGE) == [0, 1, 2]
    assert times(marker("<0.5 seconds>"), IMAGE, marker("12.5s"), IMAGE) == [0.5, 12.5]
    assert times({"type": "video", "video": [PICTURE] * 3, "fps": 2}) == [0, 0.5, 1]
    assert times({"video_url": SEQUENCE}, fps=10, frames_indices=[0, 50, 99], total_num_frames=100) == [0, 5, 9.9]
    assert times({"video_url": SEQUENCE}, duration=6.0) == [0, 2, 4]
    assert (
        meant(
            marker("<1 seconds>"), IMAGE, IMAGE and {"type": "text", "text": "<2 seconds>"}, IMAGE, TEXT
        ).question.text
        == "Which?"
    )


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([{"type": "hologram", "hologram": "x"}, TEXT], "unknown content part 'hologram'"),
        ([{"type": ["video"]}, TEXT], "unknown content part"),
        ([{"type": "input_audio", "input_audio": {"data": ""}}, TEXT], "unknown content part 'input_audio'"),
        ([{"video_url": "talk.mp4"}], "no text"),
        ([{"video_url": {"url": 3}}, TEXT], "a text that is not empty"),
        ([{"type": "image_url", "image_url": {"url": "http://x/y.jpg"}}, IMAGE, TEXT], "data: addresses"),
        ([{"type": "file", "file": {"file_data": "data:text/plain;base64,AAAA"}}, TEXT], "not video"),
        ([{"type": "video", "video": [PICTURE], "fps": -1}, TEXT], "fps"),
        ([{"type": "text", "text": "<3 seconds>"}, IMAGE, IMAGE, TEXT], "some pictures have a time"),
        ([{"type": "text", "text": "3s"}, IMAGE, {"type": "text", "text": "2s"}, IMAGE, TEXT], "must rise"),
        ([{"type": "video_url", "video_url": {"url": "talk.mp4"}, "fps": 1}, TEXT], "mm_processor_kwargs"),
    ],
)
def test_parts_that_cannot_be_used_are_errors(parts: list[Any], words: str) -> None:
    with pytest.raises(ApiError, match=words) as refusal:
        meant(*parts)
    assert refusal.value.status == 400


# A05, A21 of tests/reliability.md
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"model": "gpt-4o"}, 404),
        ({"model": "../../x"}, 404),
        ({"model": "http://127.0.0.1/v1#x"}, 404),
        ({"gridprobe": {"trust_remote_code": True}}, 400),
        ({"mm_processor_kwargs": {"num_frames": -1}}, 400),
        ({"mm_processor_kwargs": {"num_frames": 1.5}}, 400),
        ({"mm_processor_kwargs": {"num_frames": True}}, 400),
        ({"n": 2}, 400),
        ({"response_format": {"type": "grammar"}}, 400),
        ({"temperature": -1}, 400),
        ({"stop": ["x"] * 17}, 400),
        ({"top_logprobs": 3}, 400),
        ({"mm_processor_kwargs": {"fps": 1, "num_frames": 2}}, 400),
        ({"mm_processor_kwargs": {"crop": True}}, 400),
        ({"mm_processor_kwargs": {"fps": 1e9}}, 400),
        ({"media_io_kwargs": {"video": {"fps": 1}}}, 400),
        ({"gridprobe": {"probe_model": "/etc"}}, 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400),
    ],
)
def test_what_cannot_be_honoured_is_refused(service: VideoService, change: dict[str, Any], status: int) -> None:
    reply = send(service, said({"video_url": "talk.mp4"}, TEXT) | change)
    assert reply.status_code == status and reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (as_data(b"not a video"), 422),
        ("data:video/mp4;base64,@@@@", 400),
        ("data:text/html;base64,AAAA", 400),
        ("data:video/mp4,plain", 400),
        ("data:video/jpeg;base64,AAAA,BBBB", 422),
        ("ftp://host/x.mp4", 400),
        ("http://example.com/x.mp4", 403),
        ("upload://0", 404),
        ("session://0", 404),
        ("missing.mp4", 403),
        ("pipe:0", 400),
    ],
)
def test_media_that_cannot_be_used_has_a_status_of_its_own(service: VideoService, url: str, status: int) -> None:
    reply = send(service, said({"type": "video_url", "video_url": {"url": url}}, TEXT))
    assert reply.status_code == status, reply.text


# A05 of tests/reliability.md
def test_too_many_pictures_are_refused_before_they_are_decoded(service: VideoService) -> None:
    url = "data:video/jpeg;base64," + "AAAA," * 100_000
    reply = send(service, said({"type": "video_url", "video_url": {"url": url}}, TEXT))
    assert reply.status_code == 400 and "at most 10000 pictures" in reply.text
    url = "data:video/jpeg;base64," + "AAAA," * 5_000
    reply = send(service, said({"type": "video_url", "video_url": {"url": url}}, TEXT))
    assert reply.status_code == 400 and "1 to 2048" in reply.text


def test_texts_that_would_take_long_to_read_are_refused(service: VideoService) -> None:
    for text in (" " * 5_000_000 + "x", "\n" * 5_000_000 + "x", "A. x\n" * 4_000_000):
        reply = send(service, said({"video_url": "talk.mp4"}, {"type": "text", "text": text}, gridprobe={}))
        assert reply.status_code == 413, text[:9]
    reply = send(
        service, said({"video_url": "talk.mp4"}, {"type": "text", "text": "\n" * 19_000 + "What is it?"}, gridprobe={})
    )
    assert reply.status_code == 200
    commas = "data:video/jpeg;base64," + "," * 150_000
    assert send(service, said({"type": "video_url", "video_url": {"url": commas}}, TEXT)).status_code == 400
    assert send(service, said({"type": "video_url", "video_url": {"url": commas * 2}}, TEXT)).status_code == 413


def content_of(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


class Spotting(Gated):
    """Sure of its answer only where it sees the frame in the middle."""

    @staticmethod
    def _believe(request: Request) -> dict[str, float]:
        times = [time for group in request.groups for time in group.frames.times]
        seen = any(0.55 < time < 0.65 for time in times)
        return {label: 0.9 if label == "A" and seen else 0.1 for label in request.labels}


def test_a_person_gets_a_sentence_with_times_and_a_program_a_letter(folder: Path) -> None:
    part, full = {"video_url": "talk.mp4"}, {"options": ["Rome", "Oslo"], "effort": "full"}
    with running_service(folder, model=Spotting()) as service:
        found = content_of(send(service, said(part, TEXT, gridprobe=full)))
        assert re.fullmatch(r"Rome \(0:\d\d\.\d\)", found), found
        for more in ({"logprobs": True}, {"max_tokens": 1}, {"max_completion_tokens": 1, "max_tokens": 9}):
            assert content_of(send(service, said(part, TEXT, gridprobe=full, **more))) == "A"
        listed = {"type": "text", "text": "Which?\nA. Rome\nB. Oslo\nAnswer with the option's letter."}
        assert content_of(send(service, said(part, listed, gridprobe={}))) == "A"


def test_a_turn_without_a_video_is_written_by_the_model(service: VideoService) -> None:
    messages = [{"role": "assistant", "content": "a ball"}, {"role": "user", "content": "Write a title."}]
    reply = send(service, {"messages": messages, "max_tokens": 2, "temperature": 0})
    assert content_of(reply) == "a red ba"
    found = reply.json()
    assert found["choices"][0]["finish_reason"] == "length" and found["usage"]["completion_tokens"] == 2
    assert found["gridprobe"]["warnings"] == []
    assert content_of(send(service, {"messages": messages, "response_format": {"type": "json_object"}})).startswith("{")


def test_a_model_that_writes_no_text_says_what_it_can_do(folder: Path) -> None:
    mute = MockModel(lambda request: dict.fromkeys(request.labels, 1.0))
    service = make_service(folder, model=mute)
    try:
        assert content_of(send(service, {"messages": [{"role": "user", "content": "Hello"}]})) == HELP
    finally:
        service.close()


def test_what_is_not_known_is_ignored_and_named(service: VideoService, data: str) -> None:
    message = {"role": "user", "content": [{"video_url": data}, {**TEXT, "cache_control": 1}], "name": "anna"}
    body = {"messages": [message], "unheard_of": 1, "trust_remote_code": True, "tools": [{"type": "function"}]}
    reply = send(service, {**body, "metadata": None, **{f"x{number}\n": 1 for number in range(40)}})
    warnings = [each for each in reply.json()["gridprobe"]["warnings"] if "does not change" in each]
    assert [each.split(" does")[0] for each in warnings][:3] == ["unheard_of", "trust_remote_code", "tools"]
    assert len(reply.json()["gridprobe"]["warnings"]) < 30 and "\n" not in "".join(warnings)
    assert reply.json()["gridprobe"]["warnings"][-1].startswith("25 other fields")
    warnings = send(service, {"messages": [message]}).json()["gridprobe"]["warnings"]
    assert [each.split(" does")[0] for each in warnings[-2:]] == ["name of a message", "cache_control of a part text"]


def test_each_of_several_videos_is_asked_about(service: VideoService, data: str) -> None:
    named = [{"video_url": name} for name in ("talk.mp4", "missing.mp4", "talk.mp4")]
    parts = [*named, IMAGE, {"video_url": data}]
    reply = send(service, said(*parts, TEXT))
    first, second, third, fourth = content_of(reply).splitlines()
    assert first.startswith("1. talk.mp4: one") and second.startswith("2. missing.mp4: this file is not")
    assert third.startswith("3. video: one") and fourth.startswith("4. pictures: one")
    videos = reply.json()["gridprobe"]["videos"]
    assert [each["video"] for each in videos] == ["talk.mp4", "missing.mp4", "video", "pictures"]
    assert videos[0]["answer"]["choice"] == "A" and videos[1]["error"]["code"] == "not_allowed"
    single = [each["answer"]["cost"]["tokens"] for each in videos if "answer" in each]
    assert reply.json()["usage"]["total_tokens"] == sum(single)
    stream = send(service, said(*parts, TEXT, stream=True)).text
    assert "".join(re.findall(r'"content": "([^"]*)"', stream)).count("one") >= 3


def test_videos_of_a_chat_are_bounded_and_a_full_queue_refuses_all_of_them(folder: Path) -> None:
    many = [{"video_url": f"{number}.mp4"} for number in range(17)]
    with running_service(folder, model=(model := Gated())) as service:
        assert send(service, said(*many, TEXT)).status_code == 413
        assert send(service, said({"video_url": "a.mp4"}, {"video_url": "b.mp4"}, TEXT)).status_code == 403
    with running_service(folder, model=(model := Gated(opened=False)), queue=1, concurrency=1) as service:
        videos = [{"video_url": "talk.mp4"}, {"video_url": "sub/talk.mp4"}, IMAGE]
        reply = send(service, said(*videos, TEXT))
        assert reply.status_code == 429 and service.jobs.waiting == 0
        assert service.jobs.counts["cancelled"] >= 1
        model.gate.set()


SCHEMA = {"type": "object", "properties": {"answer": {}, "start": {}, "colour": {}}, "required": ["answer", "colour"]}


def test_replies_are_json_where_that_is_wanted(service: VideoService, data: str) -> None:
    found = send(service, said({"video_url": data}, TEXT, response_format={"type": "json_object"}))
    said_of = json.loads(content_of(found))
    assert set(said_of) == {"answer", "start", "end", "confidence"}
    assert said_of["answer"] == "one" and said_of["confidence"] == pytest.approx(0.998)
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    found = send(service, said({"video_url": data}, TEXT, response_format=wanted))
    assert set(json.loads(content_of(found))) == {"answer", "start"}
    assert "the field colour of response_format" in found.json()["gridprobe"]["warnings"][-1]
    found = send(service, said({"video_url": data}, {"video_url": "talk.mp4"}, TEXT, response_format=wanted))
    assert [set(each) for each in json.loads(content_of(found))["answers"]] == [{"video", "answer", "start"}] * 2
    for bad in (
        3,
        {"schema": 3},
        {"schema": {"properties": 3, "required": 3}},
        {"schema": {"required": [[], 3, None]}},
    ):
        wanted = {"type": "json_schema", "json_schema": bad}  # type: ignore[dict-item]
        assert "answer" in json.loads(
            content_of(send(service, said({"video_url": data}, TEXT, response_format=wanted)))
        )


def test_models_say_what_they_read(service: VideoService) -> None:
    async def run() -> Any:
        async with client_of(service) as client:
            return (await client.get("/v1/models")).json()["data"]

    for model in asyncio.run(run()):
        assert model["input_modalities"] == model["architecture"]["input_modalities"] == ["text", "image", "video"]


# S02 of tests/reliability.md
def test_a_client_that_leaves_a_stream_cancels_its_question(folder: Path) -> None:
    model = Gated(opened=False)
    body = json.dumps({"model": "gridprobe", "stream": True, **said({"video_url": "talk.mp4"}, TEXT)}).encode()
    sent: list[Any] = []

    async def run(service: VideoService) -> None:
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if given:
                return given.pop()
            while not model.waiting.is_set() or len(sent) < 2:  # the stream has begun
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions", "query_string": b"",
            "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8765),
        }  # fmt: skip
        await make_app(service, AccessRules())(scope, receive, send)

    with running_service(folder, model=model) as service:
        asyncio.run(run(service))
        assert service.jobs.counts["cancelled"] == 1
    assert sent[0]["status"] == 200 and b": " in sent[1]["body"]


def test_the_embedded_model_is_asked_the_last_message_alone(folder: Path) -> None:
    messages = [
        {"role": "user", "content": [{"video_url": "talk.mp4"}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": "a ball"},
        {"role": "user", "content": "Which colour?"},
    ]
    (model := Gated()).identity = "embedded:gated"
    with running_service(folder, model=model) as service:
        found = send(service, {"messages": messages}).json()["gridprobe"]
        assert found["answer"]["question"] == "Which colour?"
        assert found["warnings"][-1].startswith("what was said before does not change")
        assert content_of(send(service, {"messages": [{"role": "user", "content": "Hello"}]})) == HELP
