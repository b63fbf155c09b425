"""Running the application with uvicorn."""

import asyncio
import gc
import ipaddress
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

from gridprobe.errors import UsageError
from gridprobe_serve.middleware import (
    ADDRESS_SHARE,
    LOOPBACK,
    AccessRules,
    SecurityMiddleware,
    checked_key,
    key_in,
    network_of,
)

MOST_CONNECTIONS = 1024
DESCRIPTORS_EACH = 4
"""Descriptors for each connection: itself, a file that it receives or sends twice open, and a share of all else."""
MOST_FOR_HEALTH = 32
"""Connections past that number, or past their address's share of it; they can ask for /health only."""
CLIENT_SECONDS = 20.0
"""How long a client may take over the headers of a request, or over the rest of a body that nobody reads."""
UNREAD_SECONDS = 30.0
"""How long a client may read nothing of what it is sent."""
LAST_SECONDS = 5
"""How long connections may take after all jobs have ended."""


def rules_for(host: str, key: str | None, names: tuple[str, ...] = (), *, key_file: Path | None = None) -> AccessRules:
    """Who may ask a server that listens at this address; one that others can reach needs a key.

    Args:
        host: the address to listen at.
        key: what clients must send.
        names: further names that clients use for this server.
        key_file: has the key, in place of `key`; it may change while the server runs.
    """
    if key is not None and key_file is not None:
        raise UsageError("name the key once: --key (GRIDPROBE_KEY) or --key-file (GRIDPROBE_KEY_FILE)")
    if key is not None:
        checked_key(key)
    if key_file is not None:
        key_in(key_file)
    if _is_loopback(host):
        return AccessRules(key, (*LOOPBACK, host, *names), key_file)
    if key is None and key_file is None:
        raise UsageError(f"others can reach a server at {host}, so it needs a key: set GRIDPROBE_KEY or --key")
    return AccessRules(key, names or ("*",), key_file)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Its connections do not delay small packets, which would take 40 ms for each request on an open connection; asyncio
    sees to that only where a socket was made with the protocol's number, which this one is not.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=256)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen at {host}:{port} ({error}); choose another with --host and --port") from None


def run(
    app: SecurityMiddleware, listening: socket.socket, *, started: Callable[[], None], drain: Callable[[], None]
) -> None:
    """Serve until a signal ends it: requests are accepted until `drain` returns, or a second signal arrives."""
    raise_descriptors()
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=LAST_SECONDS,
        lifespan="on",
        ws="none",
    )
    _Server(config, started, drain).run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None], drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started
        self._drain = drain
        self._draining: threading.Thread | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is None:
            self._draining = threading.Thread(target=self._drain_and_exit, args=(sig,), daemon=True)
            self._draining.start()
        else:
            super().handle_exit(sig, frame)

    def _drain_and_exit(self, sig: int) -> None:
        self._drain()
        super().handle_exit(sig, None)

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        freeze_loaded_objects()
        self._started()


def freeze_loaded_objects() -> None:
    """Exempt the modules and models that are loaded from garbage collection.

    Looking through their 430,000 objects takes 190 ms, during which no request is answered, not even for /health.
    """
    gc.collect()
    gc.freeze()


class TimedProtocol(H11Protocol):
    """HTTP whose connections are bounded, for each address too, and end if a client takes too long."""

    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _for_health = False
    """Whether there are too many connections, so that this one can ask for /health only."""

    def connection_made(self, transport: Any) -> None:
        """Start waiting for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` is called as soon as the client does not keep up
        self._opened = self.loop.time()
        self._network = network_of(self.client)
        self._admit()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once all headers are here; parts of a body that nobody reads do not prolong the wait."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        self._stop_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start waiting until the client has read everything."""
        super().pause_writing()
        self._wait_for_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop waiting."""
        self._stop_unread()
        super().resume_writing()

    def _wait_for_reader(self, unread: int) -> None:
        self._unread_timer = self.loop.call_later(UNREAD_SECONDS, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        """End the connection unless the client has read something; closing it would wait for the client."""
        unread = self.transport.get_write_buffer_size()
        if unread < before:
            self._wait_for_reader(unread)
        else:
            self.transport.abort()

    def _admit(self) -> None:
        """Find room; where there is none, the oldest connection that is for /health only makes room for this one."""
        others = [each for each in self.connections if isinstance(each, TimedProtocol) and each is not self]
        ordinary = [each for each in others if not each._for_health]
        same = sum(each._network == self._network for each in ordinary)
        most = most_connections()
        if max(len(ordinary), len(self.tasks)) < most and same < most * ADDRESS_SHARE:
            return
        self._for_health, self.app = True, _only_health(self.app)
        spare = [each for each in others if each._for_health and not each.transport.is_closing()]
        if len(spare) >= MOST_FOR_HEALTH:
            min(spare, key=lambda each: each._opened).transport.abort()

    def _watch(self) -> None:
        unread = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not unread:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(CLIENT_SECONDS, self.timeout_keep_alive_handler)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


def most_connections() -> int:
    """Connections at a time: no more than there are descriptors for."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unbounded = descriptors == resource.RLIM_INFINITY
    return MOST_CONNECTIONS if unbounded else min(MOST_CONNECTIONS, descriptors // DESCRIPTORS_EACH)


def raise_descriptors() -> None:
    """Allow this process the descriptors for all connections, as far as it may; shells give 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = MOST_CONNECTIONS * DESCRIPTORS_EACH
    if hard != resource.RLIM_INFINITY:
        enough = min(enough, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def _only_health(app: Any) -> ASGIApp:
    """An application that answers once, and only /health."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        scope["headers"].append(CLOSE_HEADER)  # the connection is closed as if the client had asked for that
        await (app if scope["path"] == "/health" else service_unavailable)(scope, receive, send)

    return answer


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
