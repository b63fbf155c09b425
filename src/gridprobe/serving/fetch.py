"""Fetching a video from the web: the address is looked up once, checked and dialled; no redirects, bounded."""

import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from threading import Timer
from urllib.parse import urlsplit

from gridprobe.serving.refusals import Refusal

__all__ = ["Fetcher", "is_public"]

BLOCKED = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
            "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32",
            "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
        ),
    )
)  # fmt: skip
"""Own machine, private and link-local networks, cloud metadata, and IPv6 addresses that hide IPv4 ones."""
PORTS = {"http": 80, "https": 443}
CHUNK = 1 << 16
Resolver = Callable[[str, int], Sequence[str]]
Dial = Callable[[tuple[str, int], float], socket.socket]


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    blocked = any(found in network for network in BLOCKED if network.version == found.version)
    return found.is_global and not blocked and getattr(found, "scope_id", None) is None


def resolve(host: str, port: int) -> list[str]:
    """All IP addresses of a host."""
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def dial(address: tuple[str, int], seconds: float) -> socket.socket:
    """A connection to an IP address."""
    return socket.create_connection(address, timeout=seconds)


@dataclass(frozen=True)
class Fetcher:
    """Fetches public http(s) addresses."""

    seconds: float = 120.0
    """For everything together."""
    resolver: Resolver = resolve
    dial: Dial = dial

    def fetch(self, url: str, write: Callable[[bytes], None]) -> None:
        """Send the body at an address to `write`, which may refuse what is too large."""
        scheme, host, port, target = _parts(url)
        end = time.monotonic() + self.seconds
        try:
            addresses = list(self.resolver(host, port))
        except (OSError, UnicodeError):
            raise _failed("its host is not known") from None
        if not addresses or not all(map(is_public, addresses)):
            raise Refusal("this address is not on the public internet", status=403, code="not_allowed")
        timeout = min(30.0, self.seconds)
        try:
            with (
                self.dial((addresses[0], port), timeout) as plain,
                _ended_at(end, plain),
                closing(http.client.HTTPConnection(host, port, timeout=timeout)) as connection,
            ):
                connection.sock = _encrypted(plain, host) if scheme == "https" else plain
                _read(connection, target, write, end)
        except (OSError, http.client.HTTPException, ssl.SSLError):
            raise _failed("the connection failed or was too slow") from None


def _encrypted(plain: socket.socket, host: str) -> ssl.SSLSocket:
    """TLS over a connection to the address that was checked, with a certificate for the host's name."""
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


@contextmanager
def _ended_at(end: float, connection: socket.socket) -> Iterator[None]:
    """Shut a connection down at a time. Its own timeout starts again with every byte of a site that sends slowly."""
    with connection.dup() as same:
        timer = Timer(max(0.0, end - time.monotonic()), _shut_down, [same])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)


def _parts(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port, and path with query."""
    if any(char.isspace() or ord(char) < 33 or char == "\\" for char in url) or not url.isascii():
        raise _bad()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad() from None
    host = parts.hostname or ""
    if parts.scheme not in PORTS or not host or parts.username is not None or parts.password is not None or "%" in host:
        raise _bad()
    return (
        parts.scheme,
        host,
        port or PORTS[parts.scheme],
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )


def _read(connection: http.client.HTTPConnection, target: str, write: Callable[[bytes], None], end: float) -> None:
    connection.request("GET", target, headers={"Accept-Encoding": "identity", "User-Agent": "gridprobe"})
    with connection.getresponse() as response:  # it keeps the socket open, whatever the connection does
        if response.status != 200:
            raise _failed(f"it replied with status {response.status}; redirects are not followed")
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise _failed("it is compressed in transfer")
        while data := response.read1(CHUNK):
            write(data)
        if time.monotonic() >= end:
            raise _failed("it took too long")
        if response.length:
            raise _failed(f"the last {response.length} bytes are missing")


def _bad() -> Refusal:
    return Refusal("the address of the video must be http(s)://HOST/PATH, without a user name", code="bad_address")


def _failed(why: str) -> Refusal:
    return Refusal(f"the video cannot be fetched: {why}", status=422, code="unfetchable_video")
