"""The engine room: sessions, merged questions, cancelling; without HTTP."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe_serve.errors import ApiError, scrubbed
from gridprobe_serve.jobs import Job
from gridprobe_serve.service import VideoQuestion, VideoService
from gridprobe_serve.sources import Frames, MediaSource
from gridprobe_serve.store import AllowedFolders
from serving_kit import Gated, as_data, jpeg, running_service, video_folder
from waiting import wait_until

QUESTION = Question("Which?", ["one", "two"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder) as found:
        yield found


def asked(
    service: VideoService, video: str = "talk.mp4", question: Question | None = QUESTION, **settings: object
) -> Job:
    return service.submit(VideoQuestion(service.sources.find(video), question, settings), "anna")


def ended(job: Job) -> Job:
    wait_until(lambda: job.over)
    if job.error is not None:
        raise job.error
    return job


def test_a_question_is_answered_and_its_stages_are_told(service: VideoService) -> None:
    job = ended(asked(service, effort="full"))
    assert job.result is not None
    assert job.result["answer"]["choice"] == "A"
    assert job.result["answer"]["video"]["path"] == "talk.mp4"
    assert job.result["sentence"].startswith("one: ")
    assert len(job.result["times"]) == 9
    names = [each.name for each in job.after(0) if each.name != "progress"]
    assert names == ["queued", "started", "opened", "overview", "map", "answer"]
    overview = next(each.data for each in job.after(0) if each.name == "overview")
    assert overview["sure"] and overview["belief"][0] == {"label": "A", "text": "one", "probability": 0.998}


def test_an_open_question_is_answered_in_words(service: VideoService) -> None:
    job = ended(asked(service, question=Question("What is it?")))
    assert job.result is not None and job.result["answer"]["answer"] == "a red ball"
    overview = next(each.data for each in job.after(0) if each.name == "overview")
    assert overview["belief"][0]["label"] is None


def test_a_video_is_opened_once_for_all_its_names(
    service: VideoService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = as_data((folder / "talk.mp4").read_bytes())
    first, second = ended(asked(service, content)), ended(asked(service, content))
    assert first.session == second.session
    (session,) = service.sessions.all()
    assert session.questions == 2
    by_id = ended(asked(service, f"session://{session.id}"))
    assert by_id.session == session.id
    assert service.store.size == len((folder / "talk.mp4").read_bytes()), "stored once"
    service.sessions.close(session.id)
    assert service.store.size == 0


def test_sessions_are_closed_by_age_number_and_bytes_but_not_while_in_use(service: VideoService, folder: Path) -> None:
    ended(asked(service))
    (session,) = service.sessions.all()
    assert session.bytes > 0
    service.sessions._limits = replace(service.limits, session_bytes=1)
    with service.sessions.using(session.source):
        service.sessions.trim()
        assert len(service.sessions) == 1
    assert len(service.sessions) == 0
    service.sessions._limits = replace(service.limits, sessions=1)
    ended(asked(service))
    ended(asked(service, "sub/talk.mp4"))
    (session,) = service.sessions.all()
    assert "sub" in str(session.source.path)
    service.sessions._clock = lambda: session.used + service.limits.session_age + 1
    assert service.sessions.all() == []


def test_questions_of_several_users_about_several_videos_are_one_call(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model, concurrency=6) as service:
        asked(service, question=Question("Is it 0?", ["one", "two"]), effort="quick")
        wait_until(model.waiting.is_set)
        jobs = [
            service.submit(
                VideoQuestion(
                    service.sources.find(video), Question(f"Is it {n}?", ["one", "two"]), {"effort": "quick"}
                ),
                f"u{n}",
            )
            for n, video in enumerate(["talk.mp4", "sub/talk.mp4"] * 2, start=1)
        ]
        wait_until(lambda: len(service.batcher._waiting) == 5)
        model.gate.set()
        for job in jobs:
            assert ended(job).state == "done"
    assert [len(call) for call in model.calls] == [1, 4]


def test_a_cancelled_job_frees_the_model_and_leaves_others_alone(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model, concurrency=4) as service:
        alone = asked(service)
        wait_until(model.waiting.is_set)
        service.jobs.cancel(alone)
        wait_until(lambda: service.jobs.running == 0)
        assert not model.gate.is_set() and len(model.calls) == 1

        model.waiting.clear()
        blocker = asked(service)
        wait_until(model.waiting.is_set)
        one, other = asked(service), asked(service)
        wait_until(lambda: len(service.batcher._waiting) == 3)
        service.jobs.cancel(one)
        model.gate.set()
        assert ended(other).state == ended(blocker).state == "done"
        assert one.state == "cancelled"
        assert [len(call) for call in model.calls][:3] == [1, 1, 1], "the cancelled job's request was not asked"


def test_a_job_that_is_cancelled_while_the_model_is_busy_frees_its_thread(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model, concurrency=2) as service:
        blocker = asked(service)
        wait_until(model.waiting.is_set)
        one = asked(service)
        wait_until(lambda: one.session is not None)
        service.jobs.cancel(one)
        wait_until(lambda: service.jobs.running == 1)
        assert not blocker.over and len(model.calls) == 1


def test_a_cancelled_job_in_a_merged_call_does_not_end_the_call_for_others(folder: Path) -> None:
    model = Gated(opened=False)
    with running_service(folder, model=model, concurrency=4) as service:
        first = asked(service)
        wait_until(model.waiting.is_set)
        one, other = asked(service), asked(service)
        wait_until(lambda: len(service.batcher._waiting) == 3)
        service.jobs.cancel(first)  # the model is free: the next call is about both others
        wait_until(lambda: len(model.calls) == 2)
        assert len(model.calls[1]) == 2
        service.jobs.cancel(one)
        model.gate.set()
        assert ended(other).state == "done"
        assert one.state == "cancelled"


def test_pictures_are_a_video_with_their_own_times(service: VideoService) -> None:
    pictures = Frames([as_data(jpeg(level), "image/jpeg") for level in (10, 90, 200)], [0.0, 2.5, 7.0])
    job = ended(service.submit(VideoQuestion(service.sources.find(pictures), QUESTION, {"k": 2}), "anna"))
    assert job.result is not None
    assert job.result["times"] == [0.0, 2.5, 7.0]
    assert job.result["answer"]["video"]["path"] == "pictures"


def test_frames_per_second_are_mapped_to_a_grid_within_the_limit(service: VideoService) -> None:
    source = service.sources.find("talk.mp4")  # 1.2 seconds
    job = ended(service.submit(VideoQuestion(source, QUESTION, {}, fps=3.0), "anna"))
    assert job.result is not None and len(job.result["times"]) == 4
    job = ended(service.submit(VideoQuestion(source, QUESTION, {}, fps=1e6), "anna"))
    assert job.result is not None and len(job.result["times"]) == 30, "16² cells, 30 distinct frames"


# A21 of tests/reliability.md
@pytest.mark.parametrize(
    ("settings", "selector", "words"),
    [
        ({"k": 17}, "gridprobe", "k may be at most 16"),
        ({"model": "/etc/passwd"}, "gridprobe", "unknown setting 'model'"),
        ({}, "clip:evil/weights", "unknown selector"),
        ({"limits": {"seconds": 1e9}}, "gridprobe", "unknown setting 'limits'"),
    ],
)
def test_what_a_request_may_not_set_is_refused(
    service: VideoService, settings: dict[str, object], selector: str, words: str
) -> None:
    with pytest.raises(ApiError, match=words):
        service.plan_for(settings, selector, private=True)


# A19 of tests/reliability.md
def test_errors_name_the_video_as_the_client_did(service: VideoService) -> None:
    source = service.sources.find(as_data(b"this is no video at all"))
    job = service.submit(VideoQuestion(source, QUESTION), "anna")
    wait_until(lambda: job.over)
    assert job.error is not None and job.error.status == 422
    assert str(service.store.folder) not in str(job.error) and "/" not in str(job.error)
    wait_until(lambda: service.jobs.running == 0)
    assert len(service.sessions) == 0 and service.store.size == 0, "nothing is left of it"


# A06 of tests/reliability.md
def test_a_file_that_was_swapped_after_the_check_is_refused(
    service: VideoService, tmp_path: Path, folder: Path
) -> None:
    source = service.sources.find("talk.mp4")
    assert isinstance(source, MediaSource)
    job = service.submit(VideoQuestion(replace(source, fingerprint="of another file", key="swapped"), QUESTION), "anna")
    wait_until(lambda: job.over)
    assert job.error is not None and (job.error.status, job.error.code) == (409, "changed")


# A19 of tests/reliability.md
def test_paths_and_addresses_are_taken_out_of_texts() -> None:
    assert scrubbed("/home/anna/models/qwen@abc: no such file") == "qwen@abc: no such file"
    assert scrubbed("http://10.0.0.7:8000/v1#qwen@1") == "server#qwen@1"
    assert scrubbed("seen at 1/2 of the time; 5 m/s") == "seen at 1/2 of the time; 5 m/s"


def test_frames_of_private_videos_are_not_stored_on_disk(service: VideoService) -> None:
    private, shared = (service.plan_for({}, private=private).sampling for private in (True, False))
    assert private is not None and shared is not None
    assert private.limits.cache == 0 and shared.limits.cache > 0


def test_nothing_is_left_after_closing(folder: Path) -> None:
    with running_service(folder) as service:
        ended(asked(service, as_data((folder / "talk.mp4").read_bytes())))
        place = service.store.folder
        assert os.listdir(place) and oct(place.stat().st_mode)[-3:] == "700"
    assert not place.exists()
    assert not [each for each in threading.enumerate() if each.name.startswith("gridprobe-job")]


def test_a_small_model_looks_and_another_answers(folder: Path) -> None:
    small, large = Gated(), Gated()
    large.identity = "scripted:large"
    service = VideoService(small, large, settings=Options(k=3), folder=AllowedFolders.at(folder))
    job = ended(asked(service, effort="full"))
    service.close()
    assert job.result is not None and job.result["answer"]["models"]["answerer"] == "scripted:large"
    assert len(large.calls) == 1 and len(small.calls) >= 1
    assert service.models == ("scripted:gated", "scripted:large")
