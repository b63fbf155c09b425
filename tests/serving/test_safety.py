"""What a stranger may not do: each line of the threat list has a test."""

import asyncio
import base64
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from starlette.datastructures import Headers

from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.video import VideoLimits
from gridprobe_serve.app import make_app
from gridprobe_serve.errors import ApiError
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.middleware import HEADERS, MOST_NETWORKS, WRONG_KEYS, WRONG_SECONDS, AccessRules
from gridprobe_serve.running import rules_for
from gridprobe_serve.service import VideoService
from gridprobe_serve.store import PREFIX, AllowedFolders, MediaStore
from serving_kit import CHATS, KEY, client_of, running_service, video_folder

ASK = {"video": "talk.mp4", "question": "Which?", "options": ["one", "two"]}
ROUTES = [
    "/ready", "/metrics", "/docs", "/openapi.json", "/v1/models", "/v1/gridprobe/info", "/v1/gridprobe/videos",
    "/v1/gridprobe/sessions", "/v1/gridprobe/jobs/0", "/nothing", "/health/", "/HEALTH", "//health",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_folder(tmp_path_factory.mktemp("videos") / "all")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[VideoService]:
    with running_service(folder, max_body=100_000, max_upload=200_000, bodies=150_000, quota=500_000) as found:
        yield found


def ask(
    service: VideoService, method: str, path: str, *, key: str | None = None, send: str | None = None, **more: Any
) -> httpx.Response:
    async def run() -> httpx.Response:
        async with client_of(service, key=key, send=send) as client:
            return await client.request(method, path, **more)

    return asyncio.run(run())


# Who may ask.


# A15 of tests/reliability.md
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_an_address_that_others_reach_needs_a_key(host: str) -> None:
    with pytest.raises(UsageError, match="needs a key"):
        rules_for(host, None)
    assert rules_for(host, "a long enough key").key


def test_a15_the_server_does_not_start_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRIDPROBE_KEY", raising=False)
    monkeypatch.setattr("gridprobe_serve.running.bind", lambda *_: pytest.fail("it listens"))
    result = CliRunner().invoke(cli, ["serve", "--host", "0.0.0.0", "--model", "embedded"])
    assert result.exit_code == 2 and "needs a key" in result.output


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_none(host: str) -> None:
    assert rules_for(host, None).key is None


def test_a_short_key_is_refused_and_no_key_is_shown() -> None:
    with pytest.raises(UsageError, match="at least 8"):
        rules_for("127.0.0.1", "short")
    assert "a long enough key" not in repr(rules_for("127.0.0.1", "a long enough key"))


# A13 of tests/reliability.md
@pytest.mark.parametrize("path", ROUTES)
def test_every_route_but_bare_health_needs_the_key(service: VideoService, path: str) -> None:
    for sent in (None, "wrong", KEY[:-1], KEY + "x"):
        reply = ask(service, "GET", path, key=KEY, send=sent)
        assert reply.status_code == 401 and KEY not in reply.text and "www-authenticate" in reply.headers
        assert set(HEADERS) <= set(reply.headers)
    assert ask(service, "GET", path, key=KEY, send=KEY).status_code != 401


# A13, A22 of tests/reliability.md
def test_every_documented_route_needs_the_key_and_it_is_never_logged(
    service: VideoService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    paths = ask(service, "GET", "/openapi.json", key=KEY, send=KEY).json()["paths"]
    routes = [(method, path.replace("{id}", "0")) for path, methods in paths.items() for method in methods]
    routes += [("get", path) for path in ("/", "/page/app.js", "/docs", "/openapi.json")]
    assert len(routes) > 25
    for method, path in routes:
        for sent in (None, f"{KEY}x"):
            assert (ask(service, method.upper(), path, key=KEY, send=sent).status_code == 401) is (path != "/health"), (
                path
            )
    assert KEY not in caplog.text


def test_health_needs_no_key_and_says_nothing(service: VideoService) -> None:
    assert ask(service, "GET", "/health", key=KEY).json() == {"status": "ok"}


# A13 of tests/reliability.md
def test_the_key_is_compared_in_constant_time(service: VideoService, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr("gridprobe_serve.middleware.hmac.compare_digest", compare)
    assert ask(service, "GET", "/ready", key=KEY, send=KEY).status_code == 401
    ((one, other),) = compared
    assert len(one) == len(other) == 32, "digests, so that not even the length is told"


def test_a_browser_may_send_the_key_as_a_password(service: VideoService) -> None:
    for text, status in ((f"anna:{KEY}", 200), ("anna:wrong", 401), ("", 401)):
        header = {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}
        assert ask(service, "GET", "/ready", key=KEY, headers=header).status_code == status
    for header in ({"Authorization": "Basic ???"}, {"Authorization": KEY}, {"Authorization": "Digest " + KEY}):
        assert ask(service, "GET", "/ready", key=KEY, headers=header).status_code == 401


class Visitor:
    """Requests from an address to rules alone, at a time."""

    def __init__(self, rules: AccessRules) -> None:
        self.rules, self.now = rules, 0.0
        rules.clock = lambda: self.now

    def status(self, key: str | None, client: str = "10.0.0.1") -> int:
        """200, or that of the refusal."""
        sent = {"host": "localhost"} | ({"authorization": f"Bearer {key}"} if key is not None else {})
        scope = {"method": "GET", "path": "/ready", "client": (client, 1)}
        try:
            self.rules.check(scope, Headers(sent))
        except ApiError as refusal:
            assert KEY not in str(refusal)
            return refusal.status
        return 200


def test_an_address_that_tries_many_keys_is_not_listened_to_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    visitor = Visitor(AccessRules(KEY))
    tried = [f"guess-{number}" for number in range(30)]
    assert [visitor.status(each) for each in tried] == [401] * WRONG_KEYS + [429] * 10
    assert visitor.status(KEY) == 429, "or guessing would go on"
    assert visitor.status(None) == 401, "who sends no key guesses nothing"
    assert visitor.status(KEY, "10.0.0.2") == 200
    visitor.now = WRONG_SECONDS + 1
    assert visitor.status(KEY) == 200

    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == WRONG_KEYS and all("10.0.0.1" in line for line in lines), "one line each, and no flood"
    assert not any(each in line for line in lines for each in (KEY, *tried))


def test_a_refusal_for_wrong_keys_says_when_to_come_back() -> None:
    visitor = Visitor(AccessRules(KEY))
    for visitor.now in range(WRONG_KEYS):
        visitor.status("a guess")
    scope = {"method": "GET", "path": "/ready", "client": ("10.0.0.1", 1)}
    with pytest.raises(ApiError, match="try again in 41 s") as refusal:
        visitor.rules.check(scope, Headers({"host": "localhost", "authorization": "Bearer x"}))
    assert refusal.value.headers["Retry-After"] == "41"


def test_one_machine_cannot_try_more_keys_with_more_addresses_of_ipv6_nor_take_memory() -> None:
    visitor = Visitor(AccessRules(KEY))
    statuses = [visitor.status("a guess", f"2001:db8::{number + 1:x}") for number in range(30)]
    assert statuses == [401] * WRONG_KEYS + [429] * 10
    for number in range(MOST_NETWORKS + 10):
        visitor.status("a guess", f"2001:db8:{number:x}::1")
    assert len(visitor.rules._wrong) == MOST_NETWORKS


@pytest.mark.parametrize("own", ["127.0.0.1", "::1"])
def test_the_clients_of_a_proxy_on_this_machine_do_not_lock_each_other_out(own: str) -> None:
    visitor = Visitor(AccessRules(KEY))
    assert {visitor.status("a guess", own) for _ in range(100)} == {401}
    assert visitor.status(KEY, own) == 200


def test_the_key_is_changed_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    file.write_text("the first key\n")
    visitor = Visitor(rules_for("0.0.0.0", None, ("localhost",), key_file=file))
    assert (visitor.status("the first key"), visitor.status("another key")) == (200, 401)

    file.write_text("another key\n")
    assert (visitor.status("the first key"), visitor.status("another key")) == (401, 200)

    for content in ("", "short"):
        file.write_text(content)
        assert [visitor.status(each) for each in ("another key", content, "")] == [503] * 3, "nobody, not everybody"
    file.unlink()
    caplog.clear()
    assert {visitor.status("another key") for _ in range(5)} == {503}
    (line,) = [each.getMessage() for each in caplog.records]
    assert "cannot be read" in line and "another key" not in line

    (tmp_path / "new").write_text("a third key")
    os.replace(tmp_path / "new", file)
    assert visitor.status("a third key") == 200


def test_a_key_file_is_read_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    visitor = Visitor(rules_for("127.0.0.1", None, key_file=file))
    read: list[Path] = []
    real = Path.read_text

    def counted(self: Path, **more: Any) -> str:
        read.append(self)
        return real(self, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    os.utime(file, ns=(0, 12345))
    assert [visitor.status(KEY) for _ in range(5)] == [200] * 5
    assert read == [file]


def test_a_key_file_that_is_of_no_use_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    with pytest.raises(UsageError, match="cannot be read"):
        rules_for("127.0.0.1", None, key_file=file)
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(UsageError, match="it is not text"):
        rules_for("127.0.0.1", None, key_file=file)
    file.write_text("short")
    with pytest.raises(UsageError, match="at least 8"):
        rules_for("127.0.0.1", None, key_file=file)
    file.write_text(KEY)
    with pytest.raises(UsageError, match="name the key once"):
        rules_for("127.0.0.1", KEY, key_file=file)

    monkeypatch.setattr("gridprobe_serve.running.bind", lambda *_: pytest.fail("it listens"))
    environment = {"GRIDPROBE_KEY": "", "GRIDPROBE_KEY_FILE": str(tmp_path / "none")}
    for command in (["serve"], ["mcp", "--http"]):
        result = CliRunner(env=environment).invoke(cli, [*command, "--model", "embedded"])
        assert result.exit_code == 2 and "cannot be read" in result.output


# A14 of tests/reliability.md
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[", "10.0.0.1:8765"]
)
def test_another_host_name_is_refused(service: VideoService, host: str) -> None:
    assert ask(service, "GET", "/health", headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "LOCALHOST.", "127.0.0.1:8765", "[::1]:8765"])
def test_our_own_names_are_accepted(service: VideoService, host: str) -> None:
    assert ask(service, "GET", "/health", headers={"Host": host}).status_code == 200


# A14 of tests/reliability.md
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_refused(service: VideoService, headers: dict[str, str]) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        reply = ask(service, method, "/v1/gridprobe/ask", headers=headers)
        assert reply.status_code == 403 and "access-control-allow-origin" not in reply.headers


def test_our_own_page_and_a_link_to_us_are_accepted(service: VideoService) -> None:
    same = {"Origin": "http://localhost:8765", "Sec-Fetch-Site": "same-origin"}
    assert ask(service, "GET", "/ready", headers=same).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(service, "GET", "/ready", headers=link).status_code == 200


# A14 of tests/reliability.md
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_forms_of_other_sites_cannot_post(service: VideoService, kind: str) -> None:
    for path in ("/v1/gridprobe/ask", *CHATS, "/v1/gridprobe/uploads"):
        reply = ask(service, "POST", path, content=b'{"video": "talk.mp4"}', headers={"Content-Type": kind})
        assert reply.status_code == 415


def test_a_request_id_is_passed_on_only_if_it_is_harmless(service: VideoService) -> None:
    assert ask(service, "GET", "/health", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    for bad in ("a b", "x" * 100, "<script>"):
        assert ask(service, "GET", "/health", headers={"X-Request-ID": bad}).headers["x-request-id"] != bad


# Bodies.


async def endless(read: list[int]) -> AsyncIterator[bytes]:
    while True:
        read.append(10_000)
        yield b" " * 10_000


# S03 of tests/reliability.md
@pytest.mark.parametrize(("path", "kind", "cap"), [
    ("/v1/gridprobe/ask", "application/json", 100_000),
    ("/v1/gridprobe/uploads", "video/mp4", 200_000),
])  # fmt: skip
def test_a_body_is_refused_as_soon_as_it_is_too_large(service: VideoService, path: str, kind: str, cap: int) -> None:
    read: list[int] = []
    reply = ask(service, "POST", path, content=endless(read), headers={"Content-Type": kind})
    assert reply.status_code == 413 and sum(read) <= cap + 20_000
    honest = ask(service, "POST", path, content=b"x", headers={"Content-Type": kind, "Content-Length": str(cap + 1)})
    assert honest.status_code == 413
    read.clear()
    lying = ask(service, "POST", path, content=endless(read), headers={"Content-Type": kind, "Content-Length": "10"})
    assert lying.status_code == 413 and sum(read) <= cap + 20_000
    assert sorted(os.listdir(service.store.folder)) == ["in-use", "jobs"], "the partial file is gone"


def test_bodies_together_are_bounded(service: VideoService) -> None:
    async def run() -> list[int]:
        async with client_of(service, timeout=None) as client:
            go, taken = asyncio.Event(), asyncio.Event()

            async def slow() -> AsyncIterator[bytes]:
                yield b" " * 90_000
                taken.set()
                await go.wait()
                yield b"{}"

            kind = {"Content-Type": "application/json"}
            first = asyncio.create_task(client.post("/v1/gridprobe/ask", content=slow(), headers=kind))
            await taken.wait()
            second = await client.post("/v1/gridprobe/ask", content=b" " * 90_000, headers=kind)
            go.set()
            after = await first
            third = await client.post("/v1/gridprobe/ask", content=b" " * 90_000, headers=kind)
            return [second.status_code, after.status_code, third.status_code]

    assert asyncio.run(run()) == [429, 400, 400]


def test_bodies_that_are_announced_and_not_sent_take_no_room(service: VideoService) -> None:
    async def run() -> int:
        async with client_of(service, timeout=None) as client:
            begun, go = [asyncio.Event() for _ in range(2)], asyncio.Event()

            async def slow(arrived: asyncio.Event) -> AsyncIterator[bytes]:
                yield b" "
                arrived.set()
                await go.wait()

            kind = {"Content-Type": "application/json", "Content-Length": "75000"}
            tasks = [
                asyncio.create_task(client.post("/v1/gridprobe/ask", content=slow(arrived), headers=kind))
                for arrived in begun
            ]
            await asyncio.gather(*(each.wait() for each in begun))
            reply = await client.post("/v1/gridprobe/ask", json=ASK)
            go.set()
            await asyncio.gather(*tasks)
            return reply.status_code

    assert asyncio.run(run()) == 200


def test_bodies_of_one_address_leave_room_for_those_of_others() -> None:
    one, other = "10.0.0.1", "10.0.0.2"
    with running_service(max_body=100, bodies=400) as service:
        guard = make_app(service, AccessRules())
        for count in (100, 60, 40):
            guard.reserve(count, one)
        with pytest.raises(ApiError, match="too many large requests"):
            guard.reserve(1, one)
        guard.reserve(200, other)
        with pytest.raises(ApiError, match="too many large requests"):
            guard.reserve(1, "10.0.0.3")
        guard.release(100, one)
        guard.reserve(100, "10.0.0.3")


# S04 of tests/reliability.md
def test_a_client_that_pauses_too_long_loses_its_turn(folder: Path) -> None:
    with running_service(folder, idle_seconds=0.05) as service:

        async def stuck() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        reply = ask(service, "POST", "/v1/gridprobe/uploads", content=stuck(), headers={"Content-Type": "video/mp4"})
        assert reply.status_code == 408
        assert sorted(os.listdir(service.store.folder)) == ["in-use", "jobs"]


def test_s04_a_byte_now_and_then_is_too_slow_after_a_minute(folder: Path) -> None:
    with running_service(folder, idle_seconds=1000.0) as service:

        async def run() -> int:
            loop, minutes = asyncio.get_running_loop(), [0.0]
            real = loop.time
            loop.time = lambda: real() + 60 * minutes[0]  # type: ignore[method-assign]

            async def slow() -> AsyncIterator[bytes]:
                for _ in range(5):
                    yield b"x" * 100_000
                    minutes[0] += 1.1

            async with client_of(service, timeout=None) as client:
                kind = {"Content-Type": "video/mp4"}
                return (await client.post("/v1/gridprobe/uploads", content=slow(), headers=kind)).status_code

        assert asyncio.run(run()) == 408
        assert sorted(os.listdir(service.store.folder)) == ["in-use", "jobs"]


def test_s05_many_values_and_forms_are_refused_unparsed(service: VideoService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe_serve.middleware.MOST_VALUES", 10_000)
    monkeypatch.setattr("json.loads", lambda *_, **__: pytest.fail("it was parsed"))
    part = b'--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\nc\r\n'
    for body, kind, status in (
        (b"[" + b"1," * 10_000 + b"1]", "application/json", 413),
        (b'{"a":' + b"{}" * 10_001 + b"}", "application/json", 413),
        (b'{"a":1' + b',"a":1' * 10_001 + b"}", "application/json", 413),
        (part * 1000 + b"--x--\r\n", "multipart/form-data; boundary=x", 415),
        (b"a=1&" * 10_000, "application/x-www-form-urlencoded", 415),
    ):
        for path in ("/v1/gridprobe/ask", *CHATS):
            reply = ask(service, "POST", path, content=body, headers={"Content-Type": kind})
            assert reply.status_code == status, (kind, reply.text)


# S05 of tests/reliability.md
@pytest.mark.parametrize("body", [
    b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 50_000, b'{"a":' * 20_000, b'{"video": NaN}', b'"\\ud800"',
    b'{"\\ud800": 1}', b'{"video": "talk.mp4", "question": "\\ud800"}', b'{"video": "\\ud800.mp4", "question": "x"}',
    b'{"video": 1e999, "question": []}',
])  # fmt: skip
def test_bodies_that_are_no_requests_are_400(service: VideoService, body: bytes) -> None:
    for path in ("/v1/gridprobe/ask", *CHATS):
        reply = ask(service, "POST", path, content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code in (400, 403), reply.text
        assert reply.json()["error"]["message"]


# Media on disk.


def test_uploads_have_a_quota_and_make_room_for_new_ones(service: VideoService) -> None:
    kind = {"Content-Type": "video/mp4"}
    ids = []
    for number in range(4):
        reply = ask(service, "POST", "/v1/gridprobe/uploads", content=bytes([number]) * 150_000, headers=kind)
        assert reply.status_code == 201
        ids.append(reply.json()["id"])
    assert service.store.size <= 500_000
    assert ask(service, "DELETE", f"/v1/gridprobe/uploads/{ids[0]}").status_code == 404, "the oldest made room"
    for each in ids[1:]:
        assert ask(service, "DELETE", f"/v1/gridprobe/uploads/{each}").status_code == 204
    assert service.store.size == 0


def test_the_number_of_uploads_is_bounded_however_small_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridprobe_serve.store.MOST_UPLOADS", 3)
    store = MediaStore(quota=1000, parent=tmp_path)
    ids = []
    for content in (b"a", b"a", b"b", b"c", b"a"):
        with store.receiving(10) as incoming:
            incoming.write(content)
            ids.append(store.upload(incoming, "talk.mp4").id)
        store.find(ids[0])
    assert (store.uploads, store.size) == (3, 2), "a file goes with its last upload"
    assert [store.find(each).id for each in (ids[0], *ids[3:])] == [ids[0], *ids[3:]]
    for gone in ids[1:3]:
        with pytest.raises(ApiError, match="no such upload"):
            store.find(gone)
    store.close()


def test_no_room_is_507(tmp_path: Path) -> None:
    store = MediaStore(quota=100, parent=tmp_path)
    with store.receiving(1000) as incoming:
        incoming.write(b"x" * 60)
        held = store.keep(incoming)
    with store.receiving(1000) as incoming, pytest.raises(ApiError) as refusal:
        incoming.write(b"y" * 60)
    assert refusal.value.status == 507
    store.drop(held)
    assert store.size == 0 and os.listdir(store.folder) == ["in-use"]
    store.close()


def test_s06_a_disk_that_is_full_during_an_upload_is_507(
    service: VideoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    reply = ask(service, "POST", "/v1/gridprobe/uploads", content=b"video", headers={"Content-Type": "video/mp4"})
    monkeypatch.undo()
    assert reply.status_code == 507 and reply.json()["error"]["code"] == "no_room"
    assert sorted(os.listdir(service.store.folder)) == ["in-use", "jobs"] and service.store.size == 0


# S06 of tests/reliability.md
def test_a_full_disk_is_507_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MediaStore(quota=1000, parent=tmp_path)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with store.receiving(1000) as incoming:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(ApiError) as refusal:
            incoming.write(b"x")
        monkeypatch.undo()
    assert refusal.value.status == 507 and os.listdir(store.folder) == ["in-use"]
    store.close()


# S08 of tests/reliability.md
def test_what_a_crashed_server_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    live = MediaStore(quota=10, parent=tmp_path)
    dead = tmp_path / f"{PREFIX}dead"
    dead.mkdir()
    (dead / "in-use").touch()
    (dead / "video").write_bytes(b"x")
    other = MediaStore(quota=10, parent=tmp_path)
    assert not dead.exists() and live.folder.exists() and other.folder.exists()
    live.close()
    other.close()


def test_a24_what_is_uploaded_can_be_read_by_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = MediaStore(quota=100, parent=tmp_path)
        with store.receiving(10) as incoming:
            assert incoming.path.stat().st_mode & 0o777 == 0o600
            assert store.folder.stat().st_mode & 0o777 == 0o700
        assert not incoming.path.exists(), "what nobody took is deleted"
        store.close()
        assert not store.folder.exists()
    finally:
        os.umask(before)


def test_a24_a_file_or_link_under_the_name_of_an_upload_is_never_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MediaStore(quota=100, parent=tmp_path)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    monkeypatch.setattr("gridprobe_serve.store.new_id", lambda: "0")
    (store.folder / "incoming-0").symlink_to(victim)
    with pytest.raises(ApiError) as refusal, store.receiving(10):
        pass
    assert refusal.value.status == 503 and victim.read_bytes() == b"mine"
    store.close()


# Files of the allowed folder.


# A06 of tests/reliability.md
@pytest.mark.parametrize("name", [
    "/etc/passwd", "file:///etc/passwd", "../secret.mp4", "sub/../../secret.mp4", "%2e%2e%2fsecret.mp4",
    "file:///%2e%2e/secret.mp4", "link.mp4", "linked/secret.mp4", "fifo.mp4", "sub", ".", "", "talk.mp4\0", "talk.mp4/",
    "file://evil.example/talk.mp4", "file:talk.mp4?x=1", "~/secret.mp4", "\\\\?\\secret", "//etc/passwd", "missing.mp4",
    "/proc/self/environ", "a/" * 30 + "b", "x" * 5000,
])  # fmt: skip
def test_files_outside_of_the_folder_are_refused_with_one_text(tmp_path: Path, name: str) -> None:
    root = tmp_path / "videos"
    (root / "sub").mkdir(parents=True)
    (root / "talk.mp4").write_bytes(b"x")
    (tmp_path / "secret.mp4").write_bytes(b"x")
    (tmp_path / "videos-secret").mkdir()
    (root / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (root / "linked").symlink_to(tmp_path)
    os.mkfifo(root / "fifo.mp4")
    allowed = AllowedFolders.at(root)
    with pytest.raises(ApiError) as refusal, allowed.opened(name):
        pass
    assert refusal.value.status == 403 and str(refusal.value).startswith("this file is not one that requests may name")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_server_without_descriptors_says_so_and_blames_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    allowed = AllowedFolders.at(folder)
    with running_service(folder) as service:
        content, kind = (folder / "talk.mp4").read_bytes(), {"Content-Type": "video/mp4"}
        stored = ask(service, "POST", "/v1/gridprobe/uploads", content=content, headers=kind).json()
        for name, opening in (("talk.mp4", "open"), ("talk.mp4", "dup"), (stored["url"], "open")):
            session = ask(service, "POST", "/v1/gridprobe/sessions", json={"video": name}).json()
            with monkeypatch.context() as patch:
                patch.setattr(f"gridprobe_serve.routes.os.{opening}", full)
                reply = ask(service, "GET", f"/v1/gridprobe/sessions/{session['id']}/video")
            assert reply.status_code == 503 and reply.json()["error"]["code"] == "busy", (name, opening)
    monkeypatch.setattr(os, "open", full)
    for each in (allowed, AllowedFolders((*allowed.roots, *allowed.roots))):
        with pytest.raises(ApiError) as refusal, each.opened("talk.mp4"):
            pass
        assert refusal.value.status == 503


# A07 of tests/reliability.md
def test_sibling_folders_with_the_same_beginning_are_outside(tmp_path: Path) -> None:
    for name in ("videos", "videos-secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "talk.mp4").write_bytes(b"x")
    allowed = AllowedFolders.at(tmp_path / "videos" / ".")
    with allowed.opened(f"file://{tmp_path}/videos/talk.mp4") as (handle, path):
        assert os.read(handle, 1) == b"x" and path == tmp_path / "videos" / "talk.mp4"
    with pytest.raises(ApiError), allowed.opened(f"{tmp_path}/videos-secret/talk.mp4"):
        pass


# A07 of tests/reliability.md
def test_the_folder_itself_must_make_sense(tmp_path: Path) -> None:
    for bad in (Path("/"), tmp_path / "missing", Path("/proc/..")):
        with pytest.raises(UsageError, match="--videos"):
            AllowedFolders.at(bad)


def test_only_ordinary_videos_are_listed(tmp_path: Path) -> None:
    for name in ("b.mp4", "a.mkv", ".hidden.mp4", "notes.txt", "new\nline.mp4"):
        (tmp_path / name).write_bytes(b"12")
    (tmp_path / "link.mp4").symlink_to("b.mp4")
    assert [(each.name, each.bytes) for each in AllowedFolders.at(tmp_path).listed()] == [("a.mkv", 2), ("b.mp4", 2)]


# A06 of tests/reliability.md
def test_the_player_gets_the_file_that_was_checked_even_if_the_name_is_swapped(tmp_path: Path, folder: Path) -> None:
    root = tmp_path / "videos"
    root.mkdir()
    (root / "talk.mp4").write_bytes((folder / "talk.mp4").read_bytes())
    (tmp_path / "secret").write_bytes(b"secret")
    with running_service(root) as service:
        session = ask(service, "POST", "/v1/gridprobe/sessions", json={"video": "talk.mp4"}).json()
        (root / "talk.mp4").unlink()
        (root / "talk.mp4").symlink_to(tmp_path / "secret")
        reply = ask(service, "GET", f"/v1/gridprobe/sessions/{session['id']}/video")
        assert reply.status_code == 403 and b"secret" not in reply.content


# Addresses.


# A12 of tests/reliability.md
def test_no_address_is_fetched_unless_that_is_allowed(service: VideoService, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    for url in ("http://169.254.169.254/latest/meta-data", "https://example.com/x.mp4", "HTTP://localhost/"):
        reply = ask(service, "POST", "/v1/gridprobe/ask", json=ASK | {"video": url})
        assert reply.status_code == 403 and reply.json()["error"]["code"] == "not_allowed"


def test_bounds_and_rules_are_safe_by_default() -> None:
    assert AccessRules().hosts == ("localhost", "127.0.0.1", "::1")
    assert ServerLimits().max_k <= 16 and ServerLimits().queue <= 64


def test_the_security_page_names_every_limit() -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    names = [each.name for kind in (ServerLimits, VideoLimits) for each in fields(kind)]
    assert [name for name in names if f"`{name}`" not in page] == []
    assert {name for name in ServerLimits.options() if f"`--{name.replace('_', '-')}`" not in page} == set()
    assert f"{WRONG_KEYS} wrong keys" in page and f"within {WRONG_SECONDS:.0f} s" in page
