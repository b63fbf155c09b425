"""Fetching addresses: what is dialled is what was checked; nothing private; no redirects; bounded."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from gridprobe_serve.errors import ApiError
from gridprobe_serve.sources import Fetcher, is_public, resolve

PRIVATE = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::127.0.0.1", "fd00::1", "fe80::1", "fe80::1%lo", "fec0::1", "64:ff9b::7f00:1",
    "2002:7f00:1::", "2001:db8::1", "ff02::1", "not an address", "",
]  # fmt: skip
LITERALS = [
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0",
    "localhost",
    "localhost.",
    "[::1]",
    "[::ffff:7f00:1]",
]


@contextmanager
def site(reply: bytes | Callable[[socket.socket], None]) -> Iterator[tuple[Callable[..., socket.socket], list[object]]]:
    """A site on loopback that replies once, and a dialler that leads to it and notes what was dialled."""
    listening = socket.create_server(("127.0.0.1", 0))
    dialled: list[object] = []

    def serve() -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            dialled.append(connection.recv(65536))
            with suppress(OSError):
                reply(connection) if callable(reply) else connection.sendall(reply)

    def dial(address: tuple[str, int], seconds: float) -> socket.socket:
        dialled.append(address)
        return socket.create_connection(listening.getsockname(), timeout=seconds)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield dial, dialled
    finally:
        listening.close()
        with socket.socket() as closing:
            closing.settimeout(0.1)
            closing.connect_ex(listening.getsockname() if listening.fileno() >= 0 else ("127.0.0.1", 1))
        thread.join()


def fetched(reply: bytes | Callable[[socket.socket], None], most: int = 1 << 20) -> tuple[bytes, list[object]]:
    got = bytearray()

    def write(data: bytes) -> None:
        got.extend(data)
        if len(got) > most:
            raise ApiError("too large", status=413)

    with site(reply) as (dial, dialled):
        Fetcher(resolver=lambda host, port: ["93.184.216.34"], dial=dial).fetch(
            "http://example.com:8080/x.mp4?a=1", write
        )
    return bytes(got), dialled


# A08 of tests/reliability.md
@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946"])
def test_public_addresses_are(address: str) -> None:
    assert is_public(address)


# A08 of tests/reliability.md
@pytest.mark.parametrize("host", LITERALS)
def test_spellings_of_this_machine_are_refused(host: str) -> None:
    def dial(*_: object) -> socket.socket:
        raise AssertionError("a connection was made")

    def local(name: str, port: int) -> list[str]:
        return resolve(name, port) if not name.startswith("localhost") else ["127.0.0.1"]

    with pytest.raises(ApiError) as refusal:
        Fetcher(resolver=local, dial=dial).fetch(f"http://{host}/x.mp4", lambda data: None)
    assert refusal.value.status in (403, 422)


# A08 of tests/reliability.md
@pytest.mark.parametrize("url", [
    "http://ok@127.0.0.1/", "http://user:pass@example.com/", "http://127.0.0.1\\@example.com/", "http://exa mple.com/",
    "http://example.com\n/x", "http:///x", "http://[::1", "http://example.com:99999/", "gopher://example.com/",
    "http://ex\u3002ample/", "http://fe80::1%25lo/",
])  # fmt: skip
def test_odd_addresses_are_400(url: str) -> None:
    with pytest.raises(ApiError) as refusal:
        Fetcher(resolver=lambda host, port: ["93.184.216.34"]).fetch(url, lambda data: None)
    assert refusal.value.status == 400


# A10 of tests/reliability.md
def test_one_look_up_and_the_checked_address_is_dialled() -> None:
    looked_up: list[str] = []

    def resolver(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return ["93.184.216.34"] if len(looked_up) == 1 else ["127.0.0.1"]

    got = bytearray()
    with site(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc") as (dial, dialled):
        Fetcher(resolver=resolver, dial=dial).fetch("http://example.com/x.mp4", got.extend)
    assert looked_up == ["example.com"] and dialled[0] == ("93.184.216.34", 80) and bytes(got) == b"abc"
    assert isinstance(dialled[1], bytes) and b"Host: example.com" in dialled[1]


# A10 of tests/reliability.md
def test_one_private_address_among_several_is_enough_to_refuse() -> None:
    with pytest.raises(ApiError, match="public internet"):
        Fetcher(resolver=lambda host, port: ["93.184.216.34", "10.0.0.1"]).fetch(
            "http://example.com/", lambda data: None
        )


# A09, A11 of tests/reliability.md
@pytest.mark.parametrize("reply", [
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 301 Moved\r\nLocation: /other\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 308 Permanent Redirect\r\nLocation: http://example.com:22/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    b"garbage",
    b"",
])  # fmt: skip
def test_redirects_errors_compression_and_garbage_are_422(reply: bytes) -> None:
    got: list[bytes] = []
    with site(reply) as (dial, dialled), pytest.raises(ApiError) as refusal:
        Fetcher(resolver=lambda host, port: ["93.184.216.34"], dial=dial).fetch("http://example.com/", got.append)
    assert refusal.value.status == 422 and not got
    assert dialled[:1] == [("93.184.216.34", 80)] and len(dialled) == 2, "one connection and one request"


# A11 of tests/reliability.md
def test_an_endless_body_is_cut() -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with pytest.raises(ApiError) as refusal:
        fetched(endless, most=1 << 18)
    assert refusal.value.status == 413


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a11_a_site_that_sends_a_byte_now_and_then_is_ended(head: bytes) -> None:
    """Each byte comes within the socket's timeout; the time for everything together ends it, in whichever part."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(0.01)

    with site(drip) as (dial, _), pytest.raises(ApiError, match=r"too slow|too long"):
        Fetcher(seconds=0.3, resolver=lambda host, port: ["93.184.216.34"], dial=dial).fetch(
            "http://example.com/", lambda data: None
        )


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_a11_a_body_that_ends_early_is_not_taken_for_the_video(reply: bytes) -> None:
    with pytest.raises(ApiError) as refusal:
        fetched(reply)
    assert refusal.value.status == 422


def test_a11_a_length_that_is_too_small_cuts_the_body() -> None:
    assert fetched(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc and more")[0] == b"abc"


def test_an_unknown_host_is_422() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(ApiError, match="host is not known"):
        Fetcher(resolver=unknown).fetch("http://example.invalid/", lambda data: None)
