"""What every request passes before a route sees it, and what every response carries."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import math
import os
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gridprobe.errors import UsageError
from gridprobe_serve.errors import LOG, ApiError, error_response, new_id
from gridprobe_serve.limits import ServerLimits

LOOPBACK = ("localhost", "127.0.0.1", "::1")
UPLOADS = "/v1/gridprobe/uploads"
SMALL_BODY = 1 << 16
"""Bytes of a body that no route reads."""
MOST_VALUES = 200_000
"""Values in a JSON body, roughly: small ones would take twenty times its bytes in memory."""
SLOWEST = 4096.0
"""Bytes a second below which an upload is given up, after its first minute."""
ADDRESS_SHARE = 0.5
"""The part of the connections, and of the memory for bodies, that one address can take."""
SHORTEST_KEY = 8
WRONG_KEYS, WRONG_SECONDS = 20, 60.0
"""Wrong keys of one address within that time after which its keys are not looked at."""
OWN_NETWORKS = ("127.0.0.1", "::/64")
MOST_NETWORKS = 4096
"""Addresses whose wrong keys are counted; the one that was quiet for longest makes room for another."""
ASKING = frozenset(
    f"/v1/{name}"
    for name in ("gridprobe/ask", "gridprobe/jobs", "gridprobe/sessions", "chat/completions", "responses", "messages")
)
"""Routes that queue a job; while the queue is full they are refused before anything is read."""
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,80}")
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
"""On every response; a route may set its own."""


@dataclass
class AccessRules:
    """Who may ask."""

    key: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = LOOPBACK
    """Names that the Host header may have; "*" is any."""
    key_file: Path | None = None
    """Has the key, in place of `key`; it is read again when it changes."""
    clock: Callable[[], float] = time.monotonic
    _wrong: OrderedDict[str, list[float]] = field(default_factory=OrderedDict, repr=False)
    """When each address sent wrong keys, within WRONG_SECONDS."""
    _complaint: str = ""
    """What was logged about the key file, once."""

    def check(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request for another host, from another site's page, without the key, or of a wrong type."""
        self._check_host(headers)
        self._check_origin(scope, headers)
        if scope["path"] != "/health":
            self._check_key(scope, headers)
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            upload = scope["path"].rstrip("/") == UPLOADS
            video = kind.startswith("video/") or kind in ("application/octet-stream", "image/gif")
            if not (video if upload else kind == "application/json"):
                expected = "video/* or application/octet-stream" if upload else "application/json"
                raise ApiError(f"the Content-Type must be {expected}", status=415, code="wrong_type")

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request without the key; of an address that tries many keys, none is looked at for a while."""
        key = self.key if self.key_file is None else self._key_of_file()
        if key is None:
            return
        sent, network = _sent_key(headers), network_of(scope.get("client"))
        if sent:
            self._check_wrong_keys(network)
        digests = [hashlib.sha256(text.strip().encode("utf-8", "replace")).digest() for text in (sent, key)]
        if hmac.compare_digest(*digests):
            return
        if sent:
            self._note_wrong_key(network)
        challenge = 'Basic realm="gridprobe", Bearer realm="gridprobe"'
        message = "a key is needed: Authorization: Bearer KEY"
        raise ApiError(message, status=401, code="no_key", WWW_Authenticate=challenge)

    def _key_of_file(self) -> str:
        try:
            key, self._complaint = key_in(self.key_file or Path()), ""
            return key
        except UsageError as error:
            if str(error) != self._complaint:
                LOG.warning("nobody may ask: %s", error)
            self._complaint = str(error)
            message = "the server has no key at the moment; its log says why"
            raise ApiError(message, status=503, code="key_missing", Retry_After="5") from None

    def _check_wrong_keys(self, network: str) -> None:
        """Refuse an address that sent many wrong keys; not our own, which a proxy here gives to all its clients."""
        now = self.clock()
        recent = [each for each in self._wrong.get(network, ()) if each > now - WRONG_SECONDS]
        if len(recent) >= WRONG_KEYS and network not in OWN_NETWORKS:
            wait = str(math.ceil(recent[0] + WRONG_SECONDS - now))
            message = f"too many wrong keys from this address; try again in {wait} s"
            raise ApiError(message, status=429, code="wrong_keys", Retry_After=wait)
        if network in self._wrong:
            self._wrong[network] = recent

    def _note_wrong_key(self, network: str) -> None:
        """Count and log it; the lines about an address are as few as the keys that may be wrong."""
        times = self._wrong.setdefault(network, [])
        self._wrong.move_to_end(network)
        if len(times) < WRONG_KEYS:
            times.append(self.clock())
            LOG.warning("wrong key from %s (%d of %d in %.0f s)", network, len(times), WRONG_KEYS, WRONG_SECONDS)
        if len(self._wrong) > MOST_NETWORKS:
            self._wrong.popitem(last=False)

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise ApiError("a request needs one Host header", status=400, code="bad_host")
        name = str(urlsplit(f"//{hosts[0]}").hostname or "").rstrip(".").lower()
        if "*" not in self.hosts and name not in self.hosts:
            raise ApiError("this server is not known by that name (--allow-host)", status=403, code="bad_host")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """A page of another site may not ask in its visitor's name; following a link to us is fine."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        visit = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()
        if foreign or (site not in ("none", "same-origin") and not visit):
            raise ApiError("pages of other sites may not use this server", status=403, code="bad_origin")


def _sent_key(headers: Headers) -> str:
    """The key of a request: a token, the password of a browser, or as Anthropic's clients send it; "" for none."""
    kind, _, value = headers.get("authorization", f"Bearer {headers.get('x-api-key', '')}").partition(" ")
    if kind.lower() == "basic":
        try:
            value = base64.b64decode(value.strip(), validate=True).decode("utf-8", "replace").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return value.strip() if kind.lower() in ("basic", "bearer") else ""


def key_in(file: Path) -> str:
    """The key that a file has now."""
    try:
        about = os.stat(file)
        key = _key_at(file, about.st_mtime_ns, about.st_ino, about.st_size)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the key file {str(file)!r} cannot be read ({why}); write a key into it") from None
    return checked_key(key)


@lru_cache(maxsize=1)
def _key_at(file: Path, *version: int) -> str:
    """The text of a file, read once for each version of it."""
    return file.read_text(encoding="utf-8").strip()


def checked_key(key: str) -> str:
    """The key, if it is long enough."""
    if len(key) < SHORTEST_KEY:
        raise UsageError(f"a key needs at least {SHORTEST_KEY} characters; try: openssl rand -hex 16")
    return key


class SecurityMiddleware:
    """An ASGI application around another."""

    def __init__(
        self,
        app: ASGIApp,
        rules: AccessRules,
        limits: ServerLimits,
        *,
        count: Callable[[Scope, int], None] = lambda scope, status: None,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Around an application; `count` gets each response's status, `check_room` raises if no question fits."""
        self.app = app
        self.limits = limits
        self._check_room = check_room
        self._rules = rules
        self._count = count
        self._reading: Counter[str] = Counter()
        """Bytes of JSON bodies that have arrived, of requests that are not over, for each address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        client_id = headers.get("x-request-id", "")
        scope.setdefault("state", {})["id"] = client_id if REQUEST_ID.fullmatch(client_id) else new_id()
        send = self._with_headers(scope, send)
        try:
            self._rules.check(scope, headers)
            if scope["method"] == "POST" and scope["path"] in ASKING:
                self._check_room()
            body = Body(receive, scope, headers, self)
        except (ApiError, ValueError) as error:
            public = error if isinstance(error, ApiError) else ApiError("a header of the request is malformed")
            await error_response(public)(scope, receive, send)
            return
        try:
            await self.app(scope, body.receive, send)
        finally:
            body.release()

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        """A `send` that adds headers to the response and counts it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, "x-request-id": scope["state"]["id"]}.items():
                    headers.setdefault(name, value)
                self._count(scope, message["status"])
            await send(message)

        return send_with_headers

    def reserve(self, count: int, network: str) -> None:
        """Take part of the memory for bodies; one address gets its share, and always room for one body."""
        share = max(self.limits.max_body, self.limits.bodies * ADDRESS_SHARE)
        if self._reading.total() + count > self.limits.bodies or self._reading[network] + count > share:
            raise ApiError("too many large requests at once; upload videos", status=429, code="busy", Retry_After="5")
        self._reading[network] += count

    def release(self, count: int, network: str) -> None:
        """Give it back."""
        self._reading[network] -= count
        if not self._reading[network]:
            del self._reading[network]


class Body:
    """The body of a request, read as far as it is allowed."""

    def __init__(self, receive: Receive, scope: Scope, headers: Headers, owner: SecurityMiddleware) -> None:
        self._receive = receive
        self._owner = owner
        upload = scope["path"].rstrip("/") == UPLOADS
        self._most = owner.limits.max_upload if upload else owner.limits.max_body
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            self._most = SMALL_BODY
        self._in_memory = self._most <= owner.limits.max_body
        self._size = self._reserved = self._values = 0
        self._complete = False
        self._began = asyncio.get_running_loop().time()
        self._network = network_of(scope.get("client"))
        if int(headers.get("content-length", 0)) > self._most:
            raise ApiError(self._too_large, status=413, code="too_large", Connection="close")

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self._most} bytes"

    def release(self) -> None:
        """The request is over."""
        self._owner.release(self._reserved, self._network)
        self._reserved = 0

    async def receive(self) -> Message:
        """The next part; 413 if it is too much, 408 if it takes too long."""
        if self._complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._owner.limits.idle_seconds)
        except asyncio.TimeoutError:
            raise _error(408, "the body was sent too slowly") from None
        if message["type"] == "http.request":
            part = message.get("body", b"")
            self._size += len(part)
            self._values += sum(map(part.count, (b",", b"[", b"{"))) if self._in_memory else 0
            self._complete = not message.get("more_body", False)
            self._check()
        return message

    def _check(self) -> None:
        if self._size > self._most:
            raise _error(413, self._too_large)
        if self._values > MOST_VALUES:
            raise _error(413, f"the body has more than {MOST_VALUES} values")
        if self._in_memory and self._size > self._reserved:
            try:
                self._owner.reserve(self._size - self._reserved, self._network)
            except ApiError as error:
                raise _error(429, str(error), {"Retry-After": "5"}) from None
            self._reserved = self._size
        seconds = asyncio.get_running_loop().time() - self._began
        if not self._complete and seconds > 60 and self._size < SLOWEST * seconds:
            raise _error(408, "the body was sent too slowly")


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> HTTPException:
    """An error that FastAPI lets pass while it reads a body."""
    return HTTPException(status, text, headers={"Connection": "close", **(headers or {})})


def network_of(client: tuple[str, int] | None) -> str:
    """Whom an address belongs to: itself, or with IPv6 the first 64 bits, since one machine may have all the others."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
