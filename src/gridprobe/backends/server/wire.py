"""One exchange with a server: no redirects, no proxies, replies of bounded size, and no key in any message."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gridprobe.errors import ServerError
from gridprobe.text import printable

__all__ = ["MAX_BYTES", "Garbled", "Reply", "Unreachable", "Wire", "shortened"]

MAX_BYTES = 16 * 2**20
"""A longer reply is refused. A batch of 24 replies takes 50 kB."""
CONNECT_SECONDS = 10.0
LONGEST_WAIT = 86_400.0
SHOWN = 300
"""An error shows at most this many characters of a reply."""


class Unreachable(ServerError):
    """The server did not reply: it is down, was restarted, or the connection broke."""


class Garbled(ServerError):
    """The reply is not what the protocol says."""


@dataclass(frozen=True)
class Reply:
    """A JSON object, or an error."""

    status: int
    value: Mapping[str, Any]
    error: str = ""
    """What the server says about an error, in one line, also if the status says that there is none."""
    retry_after: float | None = None
    """Seconds after which the server wants to be asked again."""


class Wire:
    """A connection pool to one server."""

    def __init__(
        self, key: str | None, *, timeout: float, trust_env: bool = False, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._key = key
        headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),
            follow_redirects=False,
            trust_env=trust_env,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"Wire(key={'set' if self._key else None})"

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def get(self, url: str) -> Reply:
        """Send a GET request."""
        return self._exchange("GET", url, None)

    def post(self, url: str, body: Mapping[str, Any]) -> Reply:
        """Send an object as JSON."""
        return self._exchange("POST", url, json.dumps(body).encode())

    def _exchange(self, method: str, url: str, content: bytes | None) -> Reply:
        headers = {"Content-Type": "application/json"} if content is not None else {}
        try:
            with self._client.stream(method, url, content=content, headers=headers) as response:
                data = _read(response)
        except httpx.TimeoutException as error:
            raise Unreachable(f"no reply in time ({type(error).__name__})") from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(self._clean(str(error)) or type(error).__name__) from None
        if response.is_redirect:
            raise ServerError(f"the server redirects {url} elsewhere, which is not followed; name its final address")
        return self._parse(data, response)

    def _parse(self, data: bytes, response: httpx.Response) -> Reply:
        text = data.decode("utf-8", errors="replace")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        status, after = response.status_code, _seconds(response.headers.get("Retry-After"))
        if status >= 400 or (isinstance(value, dict) and value.get("error")):
            return Reply(
                status, {}, self._clean(_message(value) or text) or f"status {status} without a message", after
            )
        if not isinstance(value, dict):
            raise Garbled(f"the reply is not a JSON object but begins with {self._clean(text)[:60]!r}")
        return Reply(status, value)

    def _clean(self, text: str) -> str:
        """One line without the key, which some servers repeat."""
        return shortened(text.replace(self._key, "***") if self._key else text)


def _read(response: httpx.Response) -> bytes:
    """The body as it was sent; a compressed one, which was not asked for, could be a bomb."""
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise Garbled(f"the reply is compressed ({shortened(coding, 20)}), which was not asked for")
    data = bytearray()
    for chunk in response.iter_raw():
        data += chunk
        if len(data) > MAX_BYTES:
            raise Garbled(f"the reply is longer than {MAX_BYTES // 2**20} MiB")
    return bytes(data)


def _message(value: Any) -> str:
    """The text of an error in any of the forms that servers use."""
    if not isinstance(value, dict):
        return ""
    error = value.get("error") or value.get("detail") or value.get("message") or ""
    found = (error.get("message") or error) if isinstance(error, dict) else error
    return found if isinstance(found, str) else json.dumps(found)


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds, given as such or as a date; None if it is neither."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(timezone.utc)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), LONGEST_WAIT) if seconds == seconds else None


def shortened(text: str, most: int = SHOWN) -> str:
    """The text in one printable line of bounded length."""
    line = printable(" ".join(text[: 4 * most].split()))
    return f"{line[:most]}…" if len(line) > most else line
