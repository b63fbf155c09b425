"""Running the application with uvicorn."""

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from gridprobe.errors import UsageError
from gridprobe.serving.guard import LOOPBACK, Guard, Rules

__all__ = ["bind", "rules_for", "run"]

MOST_CONNECTIONS = 1024
SHORTEST_KEY = 8


def rules_for(host: str, key: str | None, names: tuple[str, ...] = ()) -> Rules:
    """Who may ask a server that listens at this address; one that others can reach needs a key.

    Args:
        host: the address to listen at.
        key: what clients must send.
        names: further names that clients use for this server.
    """
    if key is not None and len(key) < SHORTEST_KEY:
        raise UsageError(f"a key needs at least {SHORTEST_KEY} characters; try: openssl rand -hex 16")
    if _is_loopback(host):
        return Rules(key, (*LOOPBACK, host, *names))
    if key is None:
        raise UsageError(f"others can reach a server at {host}, so it needs a key: set GRIDPROBE_KEY or --key")
    return Rules(key, names or ("*",))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen at {host}:{port} ({error}); choose another with --host and --port") from None


def run(app: Guard, listening: socket.socket, *, grace: float, started: Callable[[], None]) -> None:
    """Serve until a signal ends it; requests that are being answered get `grace` seconds."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=max(1, round(grace)),
        limit_concurrency=MOST_CONNECTIONS,
        lifespan="on",
        ws="none",
    )
    _Server(config, started).run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._started()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
