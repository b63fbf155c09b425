"""S08: a server is killed with jobs queued; the next one says that they are interrupted."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from disk_faults import Crash, every_fault
from gridprobe_serve.errors import ApiError
from gridprobe_serve.jobs import JOURNAL, KEPT, KEPT_SECONDS, Job, Jobs, Journal, UnfinishedJob, unfinished_in
from gridprobe_serve.store import LOCK, PREFIX, MediaStore
from serving_kit import KEY, running_service, video_folder
from waiting import wait_until

SERVER = """
import sys
from pathlib import Path
from gridprobe_serve.app import make_app
from gridprobe_serve.middleware import AccessRules
from gridprobe_serve.running import bind, run
from serving_kit import KEY, Gated, make_service

service = make_service(Path(sys.argv[1]), model=Gated(opened=sys.argv[2] == "open"), concurrency=1)
listening = bind("127.0.0.1", 0)
started = lambda: print(listening.getsockname()[1], flush=True)
run(make_app(service, AccessRules(KEY)), listening, started=started, drain=service.drain)
"""
ASK = {"video": "talk.mp4", "question": "Which number?", "options": ["one", "two"]}
NOW = 1_000_000.0


@dataclass
class Running:
    process: "subprocess.Popen[str]"
    client: httpx.Client

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def server(videos: Path, temporary: Path, gate: str) -> Iterator[Running]:
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SERVER, str(videos), gate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            headers = {"Authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=address, headers=headers, timeout=600) as client:
                yield Running(process, client)
        finally:
            process.kill()


def test_s08_after_a_kill_jobs_are_interrupted_uploads_gone_and_ids_not_reused(tmp_path: Path) -> None:
    videos, temporary = video_folder(tmp_path / "videos"), tmp_path / "temporary"
    temporary.mkdir()
    with server(videos, temporary, "closed") as first:
        upload = first.client.post(
            "/v1/gridprobe/uploads",
            content=(videos / "talk.mp4").read_bytes(),
            headers={"Content-Type": "application/octet-stream"},
        ).json()["id"]
        ids = [first.client.post("/v1/gridprobe/jobs", json=ASK).json()["id"] for _ in range(3)]
        cancelled = first.client.post("/v1/gridprobe/jobs", json=ASK).json()["id"]
        first.client.delete(f"/v1/gridprobe/jobs/{cancelled}")
        wait_until(lambda: first.client.get(f"/v1/gridprobe/jobs/{ids[0]}").json()["state"] == "running")
        first.kill()
    (left,) = temporary.glob(f"{PREFIX}*")
    for gate in ("closed", "open"):  # killed twice
        with server(videos, temporary, gate) as later:
            assert not left.exists(), "what it stored is gone"
            for id in ids:
                check_interrupted(later.client, id)
            assert later.client.get(f"/v1/gridprobe/jobs/{cancelled}").status_code == 404, "it had ended"
            assert later.client.delete(f"/v1/gridprobe/uploads/{upload}").status_code == 404
            fresh = later.client.post("/v1/gridprobe/jobs", json=ASK).json()["id"]
            assert fresh not in ids
            if gate == "open":
                assert '"label": "A"' in later.client.get(f"/v1/gridprobe/jobs/{fresh}/events").text
            (left,) = temporary.glob(f"{PREFIX}*")
            ids.append(fresh)
            later.kill()
    assert {each.id for each in unfinished_in(left)} == set(ids[:-1]), "all but the last one, which was answered"


def check_interrupted(client: httpx.Client, id: str) -> None:
    path = f"/v1/gridprobe/jobs/{id}"
    job = client.get(path).json()
    assert (job["state"], job["error"]["code"], job["result"]) == ("interrupted", "interrupted", None)
    assert "ask again" in job["error"]["message"] and job["created"] <= job["ended"]
    for last in ("", "1", "999999999"):  # a browser that reconnects sends the number of the last event it has seen
        events = client.get(f"{path}/events", headers={"Last-Event-ID": last} if last else {}).text
        assert events.count("event: ") == 1 and "event: error" in events and '"interrupted"' in events
    assert client.delete(path).json() == job, "cancelling changes nothing"
    assert client.get(path, headers={"Authorization": ""}).status_code == 401


def test_s08_the_journal_has_neither_users_nor_questions(tmp_path: Path) -> None:
    jobs = Jobs(concurrency=1, queue=4, journal=Journal(tmp_path))
    jobs.submit(lambda job: {}, "anna")
    jobs.close(60)
    assert os.listdir(tmp_path) == [JOURNAL] and os.listdir(tmp_path / JOURNAL) == [], "it has ended"
    jobs = Jobs(concurrency=1, queue=4, clock=lambda: NOW, journal=Journal(tmp_path))
    gate = Event()
    job = jobs.submit(lambda job: {"value": gate.wait()}, "anna")
    (file,) = (tmp_path / JOURNAL).iterdir()
    assert (file.name, file.read_bytes()) == (f"{job.id}_{NOW:.6f}", b"")
    gate.set()
    jobs.close(60)


def test_s08_the_journal_has_the_end_of_a_job_before_anybody_sees_it(tmp_path: Path) -> None:
    seen: list[tuple[bool, str, str]] = []

    class Watched(Journal):
        def end(self, id: str) -> None:
            job = jobs.get(id)
            seen.append((job.over, job.state, [each.name for each in job.after(0)][-1]))
            super().end(id)

    jobs = Jobs(concurrency=1, queue=4, journal=Watched(tmp_path))
    job = jobs.submit(lambda job: {"value": 1}, "anna")
    jobs.close(60)
    assert seen == [(False, "running", "started")] and job.result == {"value": 1}


def killed(folder: Path, *names: str) -> None:
    """What a killed server leaves."""
    (folder / JOURNAL).mkdir(parents=True, exist_ok=True)
    (folder / LOCK).touch()
    for name in names:
        (folder / JOURNAL / name).touch()


def test_s08_files_with_other_names_are_skipped(tmp_path: Path) -> None:
    good = [UnfinishedJob("0" * 32, NOW), UnfinishedJob("1" * 32, NOW), UnfinishedJob("2" * 32, NOW, NOW + 1.5)]
    id = "a" * 32
    bad = ["x", id, f"{id}_", f"{id}_now", f"{id}_1e999", f"{id}_nan", f"{id}_1.0_", f"{id}_1.0_2.0_3.0", "Ä" * 32]
    killed(
        tmp_path, *bad, f"{'A' * 32}_1.0", f"{id}_{'9' * 200}.0", f"{'a' * 90}_1.0", *(each.file_name for each in good)
    )
    assert unfinished_in(tmp_path) == good


def test_s08_a_journal_that_is_not_ours_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(tmp_path / "a", UnfinishedJob("a" * 32, NOW).file_name)
    assert len(unfinished_in(tmp_path / "a")) == 1
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / JOURNAL).symlink_to(tmp_path / "a" / JOURNAL)
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / JOURNAL)
    assert unfinished_in(tmp_path / "b") == unfinished_in(tmp_path / "c") == unfinished_in(tmp_path / "none") == []
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert unfinished_in(tmp_path / "a") == []


def test_s08_old_and_too_many_interrupted_jobs_are_dropped(tmp_path: Path) -> None:
    old = UnfinishedJob("a" * 32, NOW, NOW)
    fresh = [UnfinishedJob(f"{number:032x}", NOW + number, NOW + number) for number in range(1, KEPT + 10)]
    unfinished = UnfinishedJob("b" * 32, NOW - 10 * KEPT_SECONDS)
    now = NOW + KEPT_SECONDS + 0.5
    folder = tmp_path / "new"
    folder.mkdir()
    jobs = Jobs(concurrency=1, queue=4, clock=lambda: now, journal=Journal(folder, [unfinished, old, *fresh]))
    kept = [each.id for each in [*fresh[-KEPT + 1 :], unfinished]]
    assert [jobs.get(id).state for id in kept] == ["interrupted"] * KEPT
    for each in (old, fresh[0]):
        with pytest.raises(ApiError):
            jobs.get(each.id)
    assert [each.id for each in unfinished_in(folder)] == kept
    assert jobs.get(unfinished.id).ended == now, "its age counts from the restart"
    jobs.close(60)


def test_s08_an_interrupted_job_is_forgotten_like_any_other(tmp_path: Path) -> None:
    times = [NOW]
    jobs = Jobs(
        concurrency=1, queue=4, clock=lambda: times[0], journal=Journal(tmp_path, [UnfinishedJob("a" * 32, NOW)])
    )
    times[0] += KEPT_SECONDS + 1
    job = jobs.submit(lambda job: {}, "anna")
    wait_until(lambda: job.over)
    with pytest.raises(ApiError):
        jobs.get("a" * 32)
    jobs.close(60)
    assert unfinished_in(tmp_path) == []


def test_s08_the_journal_stays_small(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start(now=NOW, since=0.0, most=KEPT)
    journal.begin("a" * 32, NOW)
    for number in range(100):
        journal.begin(f"{number:032x}", NOW)
        assert len(os.listdir(tmp_path / JOURNAL)) == 2
        journal.end(f"{number:032x}")
    assert unfinished_in(tmp_path) == [UnfinishedJob("a" * 32, NOW)]
    journal.close()


def test_s08_a_disk_that_fails_at_any_operation_fails_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for disk in every_fault(tmp_path):
        disk.place.mkdir()
        caplog.clear()
        begun, over = [f"{number:032x}" for number in range(8)], []
        with disk:
            try:
                journal = Journal(disk.place, [UnfinishedJob("a" * 32, NOW)])
                journal.start(now=NOW, since=0.0, most=KEPT)
                for id in begun:
                    journal.begin(id, NOW)
                    if int(id, 16) % 2:
                        journal.end(id)
                        over.append(id)
                journal.close()
            except Crash:
                assert disk.kind == "crash"
        failures = [each for each in caplog.records if "cannot be written" in each.getMessage()]
        assert len(failures) <= 1, "one line, however long it lasts"
        if disk.kind in ("ENOSPC", "EIO") and disk.operations[-1] != "close":
            assert {each.id for each in unfinished_in(disk.place)} == {"a" * 32, *begun} - set(over), disk.operations
        shutil.rmtree(disk.place)


def test_s08_a_full_disk_fails_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    jobs = Jobs(concurrency=1, queue=4, journal=Journal(tmp_path))
    monkeypatch.setattr(os, "open", full)
    job = jobs.submit(lambda job: {"value": 1}, "anna")
    wait_until(lambda: job.over)
    assert job.state == "done"
    jobs.close(60)


def test_s08_a_desk_takes_over_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed(tmp_path / f"{PREFIX}dead", UnfinishedJob("a" * 32, NOW).file_name, UnfinishedJob("b" * 32, NOW).file_name)
    with running_service() as service:
        assert not (tmp_path / f"{PREFIX}dead").exists()
        assert [service.jobs.get(letter * 32).state for letter in "ab"] == ["interrupted"] * 2
    assert not list(tmp_path.iterdir()), "a server that ends in order leaves nothing"


def test_s08_the_jobs_of_a_server_that_lives_stay_its_own(tmp_path: Path) -> None:
    live = MediaStore(quota=10, parent=tmp_path)
    journal = Journal(live.folder)
    journal.start(now=NOW, since=0.0, most=KEPT)
    journal.begin("a" * 32, NOW)
    other = MediaStore(quota=10, parent=tmp_path)
    assert other.unfinished == [] and unfinished_in(live.folder) == [UnfinishedJob("a" * 32, NOW)]
    journal.close()
    live.close()
    other.close()


def test_s08_what_the_shutdown_ends_before_its_turn_is_interrupted() -> None:
    job = Job(lambda job: {}, "anna")
    job.end(None, ApiError("the server is shutting down; ask again", status=503, code="interrupted"))
    assert job.state == "interrupted"
