"""Which video a request means: an upload, a file of the allowed folder, the media itself, or an address."""

import base64
import binascii
import http.client
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from urllib.parse import unquote_to_bytes, urlsplit

from gridprobe._util import printable
from gridprobe.video.files import fingerprint_of
from gridprobe_serve.errors import ApiError
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.store import AllowedFolders, Blob, MediaStore

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
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    blocked = any(ip in network for network in BLOCKED if network.version == ip.version)
    return ip.is_global and not blocked and getattr(ip, "scope_id", None) is None


def resolve(host: str, port: int) -> list[str]:
    """All IP addresses of a host."""
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def dial(address: tuple[str, int], seconds: float) -> socket.socket:
    """A connection to an IP address."""
    return socket.create_connection(address, timeout=seconds)


@dataclass(frozen=True)
class Fetcher:
    """Fetches public http(s) addresses: the IP address that is checked is the one that is dialled; no redirects."""

    seconds: float = 120.0
    """For the whole fetch."""
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
            raise ApiError("this address is not on the public internet", status=403, code="not_allowed")
        timeout = min(30.0, self.seconds)
        try:
            with (
                self.dial((addresses[0], port), timeout) as plain,
                _ended_at(end, plain),
                closing(http.client.HTTPConnection(host, port, timeout=timeout)) as connection,
            ):
                connection.sock = plain
                if scheme == "https":  # the certificate must be for the host's name
                    connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
                _read(connection, target, write, end)
        except (OSError, http.client.HTTPException, ssl.SSLError):
            raise _failed("the connection failed or was too slow") from None


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
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, host, port or PORTS[parts.scheme], target


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


def _bad() -> ApiError:
    return ApiError("the address of the video must be http(s)://HOST/PATH, without a user name", code="bad_address")


def _failed(why: str) -> ApiError:
    return ApiError(f"the video cannot be fetched: {why}", status=422, code="unfetchable_video")


SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
MOST_PARTS = 10_000
"""Pictures in one data: address, whatever the server's own limit is."""
LONGEST_NAME = 120
"""Longest name of a video."""


@dataclass(frozen=True)
class MediaSource:
    """A video on disk."""

    key: str
    """The same for the same content."""
    path: Path
    name: str
    """What clients see."""
    fingerprint: str | None = None
    """Of the descriptor that was checked; what is opened later must have the same."""
    blob: Blob | None = None

    @property
    def private(self) -> bool:
        """Whether it came with a request, so that nothing of it may outlive the server."""
        return self.blob is not None


@dataclass(frozen=True)
class Frames:
    """Pictures, as `data:` addresses or base64, with their times in seconds."""

    pictures: Sequence[str]
    times: Sequence[float]


def display_name(name: str) -> str:
    """A name that is safe to show: no folders, no control characters, not long."""
    return (
        printable(name.replace("\\", "/").rpartition("/")[2].encode("utf-8", "replace").decode())[:LONGEST_NAME]
        or "video"
    )


class Sources:
    """Finds videos; a source that is found is held until `release`."""

    def __init__(
        self,
        store: MediaStore,
        limits: ServerLimits,
        *,
        folder: AllowedFolders | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.store = store
        self.folder = folder
        self._limits = limits
        self._fetcher = fetcher
        self.of_session: Callable[[str], MediaSource] | None = None

    @property
    def fetches(self) -> bool:
        """Whether addresses may be named."""
        return self._fetcher is not None

    def find(self, named: str | Frames) -> MediaSource | str:
        """The video that a request names, or the address that it is still to be fetched from."""
        if isinstance(named, Frames):
            return self._pictures(named)
        scheme = match[1].lower() if (match := SCHEME.match(named)) else ""
        if scheme in ("http", "https"):
            if self._fetcher is None:
                message = "this server does not fetch addresses (--allow-urls); upload the video"
                raise ApiError(message, status=403, code="not_allowed")
            return named
        if scheme == "data":
            return self._inline(named)
        if scheme == "upload":
            upload = self.store.find(named.removeprefix(match[0]).lstrip("/") if match else "")
            return self._of(self.store.hold(upload.blob), upload.name)
        if scheme == "session" and self.of_session is not None and match:
            return self.held(self.of_session(named.removeprefix(match[0]).lstrip("/")))
        if scheme not in ("", "file"):
            raise ApiError(f"a video cannot be named by {printable(scheme)[:20]!r} addresses", code="bad_address")
        return self._in_folder(named)

    @contextmanager
    def at_hand(self, source: MediaSource | str) -> Iterator[MediaSource]:
        """The source on disk, fetched if need be; released at the end."""
        stored = self._fetched(source) if isinstance(source, str) else source
        try:
            yield stored
        finally:
            self.release(stored)

    def release(self, source: MediaSource | str) -> None:
        """The caller does not need it any more."""
        if isinstance(source, MediaSource) and source.blob is not None:
            self.store.drop(source.blob)

    def held(self, source: MediaSource) -> MediaSource:
        """The same source, held once more."""
        return replace(source, blob=self.store.hold(source.blob)) if source.blob else source

    def _fetched(self, url: str) -> MediaSource:
        assert self._fetcher is not None
        with self.store.receiving(self._limits.max_upload) as incoming:
            self._fetcher.fetch(url, incoming.write)
            return self._of(self.store.keep(incoming), display_name(url.partition("?")[0]))

    def _inline(self, url: str) -> MediaSource:
        kind, parts = data_of(url, many=True)
        if kind in ("video/jpeg", "video/png", "video/webp"):
            return self._pictures(Frames([f"data:image;base64,{part}" for part in parts], range(len(parts))))
        if not kind.startswith("video/") and kind not in ("application/octet-stream", "image/gif", "application/mp4"):
            raise ApiError(f"data of the type {printable(kind)[:40]!r} is not video", code="not_video")
        if len(parts) > 1:
            raise ApiError("a data: address of a video has one comma", code="bad_address")
        with self.store.receiving(self._limits.max_upload) as incoming:
            incoming.write(_decoded(parts[0]))
            return self._of(self.store.keep(incoming), "video")

    def _pictures(self, frames: Frames) -> MediaSource:
        if not 1 <= len(frames.pictures) <= self._limits.max_pictures:
            most = self._limits.max_pictures
            raise ApiError(f"a video of pictures has 1 to {most} of them, got {len(frames.pictures)}", code="too_many")
        pictures = [_decoded(data_of(each)[1][0]) for each in frames.pictures]
        return self._of(self.store.keep_pictures(pictures, [float(time) for time in frames.times]), "pictures")

    def _in_folder(self, name: str) -> MediaSource:
        if self.folder is None:
            message = "this server has no folder of videos (--videos); upload the video"
            raise ApiError(message, status=403, code="not_allowed")
        with self.folder.opened(name) as (handle, path):
            fingerprint = fingerprint_of(handle)
        return MediaSource(f"file:{path}:{fingerprint}", path, display_name(path.name), fingerprint)

    def _of(self, blob: Blob, name: str) -> MediaSource:
        return MediaSource(f"sha256:{blob.sha256}", blob.path, name, None, blob)


def data_of(url: str, *, many: bool = False) -> tuple[str, list[str]]:
    """The media type of a base64 data: address, and its content; several, separated by commas, with `many`."""
    head, comma, content = url.partition(",")
    fields = [field.strip() for field in head[5:].split(";")]
    if not url[:5].lower() == "data:" or not comma or "base64" not in [field.lower() for field in fields[1:]]:
        raise ApiError("media in a request must be a data: address with base64", code="bad_address")
    if content.count(",") > MOST_PARTS:
        raise ApiError(f"a data: address may have at most {MOST_PARTS} pictures", code="too_many")
    return fields[0].lower() or "text/plain", content.split(",") if many else [content]


def _decoded(text: str) -> bytes:
    try:
        if "%" in text:
            text = unquote_to_bytes(text).decode("ascii")
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ApiError("the base64 of a data: address is damaged", code="bad_base64") from None
