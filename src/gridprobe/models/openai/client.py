"""Client: sends requests to one server, repeats those that may succeed later, and limits how many are under way."""

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from multiprocessing import TimeoutError as PoolTimeoutError
from multiprocessing.pool import ThreadPool
from threading import Condition, Event, RLock
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, retry_if_result, wait_exponential, wait_random

from gridprobe._util import printable
from gridprobe.errors import Cancelled, ServerError, ServerUnavailable, UsageError
from gridprobe.registry import suggestion

# The address of a server, the key for it, which is never part of a name, and the options it is used with.

KEY = "GRIDPROBE_API_KEY"
OPENAI_KEY, OPENAI_HOST = "OPENAI_API_KEY", "api.openai.com"
ENDPOINTS = re.compile(r"/(chat/completions|completions|models|responses)/*$")
"""What people paste behind the address that is meant."""
LOCAL = {"device": None, "dtype": "auto", "attn_implementation": "sdpa", "device_map": None, "quantization": None}
"""Options of local models, with the values that a server may be loaded with; `device` is set for every worker."""


@dataclass(frozen=True)
class Address:
    """Where a model is served, as in http://localhost:8000/v1#model."""

    base: str
    """The address that "/chat/completions" is appended to, such as "http://localhost:8000/v1"."""
    model: str
    """The model's name on the server; empty for the only one it serves."""

    @classmethod
    def parse(cls, name: str) -> "Address":
        """From a model's name; a name with a key in it is refused without repeating it."""
        try:
            parts = urlsplit(name.strip())
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise UsageError("the server's address is not a URL; write it as http://host:8000/v1#model") from None
        if parts.username is not None or parts.password is not None or parts.query:
            raise UsageError(
                f"the address of {host} contains a user, a password or a query, which records would show; "
                f"remove it, and set {KEY} in the environment if the server needs a key"
            )
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"{name!r} is not the address of a server; write it as http://host:8000/v1#model")
        path = ENDPOINTS.sub("", parts.path.rstrip("/")) or "/v1"
        return cls(f"{parts.scheme}://{parts.netloc}{path}", parts.fragment)

    @property
    def host(self) -> str:
        """The host, and its port if there is one, for messages."""
        return urlsplit(self.base).netloc

    def url(self, path: str) -> str:
        """A path under the base; one that begins with "//" is under the root, where vLLM has its own endpoints."""
        return self.base.removesuffix("/v1") + path[1:] if path.startswith("//") else self.base + path

    def __str__(self) -> str:
        return f"{self.base}#{self.model}" if self.model else self.base


def find_key(address: Address) -> str | None:
    """The key from the environment. OpenAI's own variable is read for OpenAI's own server only."""
    openai = address.base.startswith("https://") and urlsplit(address.base).hostname == OPENAI_HOST
    for name in (KEY, OPENAI_KEY) if openai else (KEY,):
        key = os.environ.get(name, "").strip()
        if key and not re.fullmatch(r"[!-~]+", key):
            raise UsageError(f"{name} holds spaces or characters that cannot be part of a key; set it again")
        if key:
            return key
    return None


@dataclass(frozen=True)
class ServerOptions:
    """How a server is used. None of these changes what the model sees."""

    timeout: float = 600.0
    """Seconds to wait for one reply."""
    patience: float = 1800.0
    """Seconds to wait for a server that is down or busy, before a run ends."""
    concurrency: int = 16
    """Requests at a time, where the server has no endpoint for batches. Fewer are sent while it is busy."""
    samples: int = 16
    """Answers to draw for each request, if the server gives no probabilities."""
    trust_env: bool = False
    """Whether to use the proxies of the environment (HTTPS_PROXY and the like)."""
    price_in: float = 0.0
    """Price of a million prompt tokens, in any currency."""
    price_cached: float | None = None
    """The same for tokens from the server's cache; None is as for other tokens."""
    price_out: float = 0.0
    """Price of a million generated tokens."""
    priced_as: str = ""
    """Name of a model whose floating-point operations are counted, such as Qwen/Qwen3-VL-8B-Instruct or a checkpoint's
    folder. By default the name on the server decides, and an unknown model has no such count."""

    def __post_init__(self) -> None:
        for name in ("timeout", "patience"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} must be a finite number of seconds above 0, got {getattr(self, name)}")
        for name, least in (("concurrency", 1), ("samples", 2)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("price_in", "price_cached", "price_out"):
            if not 0 <= (getattr(self, name) or 0.0) < math.inf:
                raise UsageError(f"{name} must be a price of at least 0, got {getattr(self, name)}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "ServerOptions":
        """From the options of `load_model`, which may be text from a command line."""
        defaults = {each.name: each.default for each in fields(cls)}
        values = {}
        for name, value in options.items():
            if name in defaults:
                values[name] = _typed(name, value, defaults[name])
            elif name not in LOCAL:
                raise UsageError(f"a server has no option {name!r}; {suggestion(name, defaults)}")
            elif name != "device" and value not in (None, LOCAL[name]):
                raise UsageError(f"{name}={value} is for local models; start the server with it instead")
        return cls(**values)


def _typed(name: str, value: Any, default: Any) -> Any:
    """The value as the type of its default; a price may be None."""
    kind = float if default is None else type(default)
    if value is None and default is None:
        return None
    try:
        return {"true": True, "false": False}[str(value).lower()] if kind is bool else kind(value)
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{name} must be of the type {kind.__name__}, got {value!r}") from None


# How many requests are under way, and when the next may start.

Job = TypeVar("Job")
Result = TypeVar("Result")
POLL_SECONDS = 1.0
"""How long progress and cancelled work may go unnoticed."""


@dataclass(frozen=True)
class RateClock:
    """Seconds, and a way to wait, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float, Event], object] = lambda seconds, stop: stop.wait(seconds)

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait, unless `stop` is set meanwhile."""
        if seconds > 0:
            self.sleep(seconds, stop)
        if stop.is_set():
            raise Cancelled("cancelled while waiting for the server")


class ConcurrencyLimiter:
    """Limits requests: half as many after the server was busy, one more after as many successes as the limit."""

    def __init__(self, most: int, clock: RateClock) -> None:
        self.limit = most
        self._most, self._clock = most, clock
        self._running = self._successes = 0
        self._not_before = 0.0
        self._changed = Condition()

    @contextmanager
    def slot(self, stop: Event) -> Iterator[None]:
        """Wait for a slot, and for the time that the server asked for. An error says nothing about the load."""
        with self._changed:
            while self._running >= self.limit and not stop.is_set():
                self._changed.wait(POLL_SECONDS)
            self._running += 1
            pause = self._not_before - self._clock.now()
        try:
            self._clock.wait(pause, stop)
            yield
            with self._changed:
                self._successes += 1
                if self._successes >= self.limit and self.limit < self._most:
                    self.limit, self._successes = self.limit + 1, 0
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def slow_down(self, seconds: float) -> None:
        """The server was too busy for a request; none starts for that many seconds."""
        with self._changed:
            self.limit, self._successes = max(1, self.limit // 2), 0
            self._not_before = max(self._not_before, self._clock.now() + seconds)


def map_unordered(work: Callable[[Job], Result], jobs: Sequence[Job], *, threads: int) -> Iterator[Result | None]:
    """The result of each job as it is done, and None after every second without one.

    The threads are daemons, as those of an executor are not: after an error or Ctrl-C nobody waits for what is still
    under way.
    """
    pool = ThreadPool(min(threads, len(jobs)) or 1)
    results = pool.imap_unordered(work, jobs)
    try:
        while True:
            try:
                yield results.next(POLL_SECONDS)
            except PoolTimeoutError:
                yield None
            except StopIteration:
                return
    finally:
        pool.terminate()


# Requests: no redirects, no proxies unless allowed, replies of bounded size, and no key in any message.

MAX_BYTES = 16 * 2**20
"""A longer reply is refused. A batch of 24 replies takes 50 kB."""
CONNECT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 86_400.0
SHOWN = 300
"""An error shows at most this many characters of a reply."""
START_SECONDS = 20.0
"""How long to wait for a server that accepts connections but has not answered any request."""
ATTEMPTS = {"unreachable": 3, "failing": 3, "invalid": 2}
"""How often a request is sent if it breaks the connection of a living server, gets a status of 500, or a reply that
cannot be read. While the server is busy, a request is repeated until patience ends."""
BACKOFF = wait_exponential(multiplier=0.5, max=15.0) + wait_random(0.0, 0.5)
BUSY, GATEWAY, DENIED = (429, 503), (502, 504), (401, 402, 403)
TOO_LONG = (
    "the request needs {needs} of the {most} tokens that the server allows; start vLLM with a larger --max-model-len, "
    "or use fewer or smaller frames"
)
ADVICE = {
    r"[Aa]t most (?P<most>\d+) image": "the server allows {most} images in one request; start vLLM with "
    "--limit-mm-per-prompt '{{\"image\": 160}}', or use fewer frames with --k",
    r"maximum context length is (?P<most>\d+) tokens.*?contains (?:at least )?(?P<needs>\d+)": TOO_LONG,
    r"prompt \(length (?P<needs>\d+)\).*?maximum model length of (?P<most>\d+)": TOO_LONG,
}


class RetryableError(ServerError):
    """A failure that may be gone when the request is repeated."""

    def __init__(
        self,
        kind: Literal["unreachable", "failing", "invalid", "busy"],
        message: str,
        *,
        retry_after: float | None = None,
        connected: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind, self.retry_after, self.connected = kind, retry_after, connected


class InvalidReply(RetryableError):
    """The reply is not what the protocol says."""

    def __init__(self, message: str) -> None:
        super().__init__("invalid", message)


class RequestRejected(ServerError):
    """The server refuses this request, and would refuse it again."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """The server's own words."""


class Client:
    """Talks to one server; several threads may use it."""

    def __init__(self, address: Address, key: str | None, options: ServerOptions, clock: RateClock) -> None:
        self.address, self.clock, self.patience = address, clock, options.patience
        self.waiting_since: float | None = None
        """When the server stopped replying; None while it replies."""
        self.on_return: Callable[[], Callable[[], None] | None] = lambda: None
        """Gives what is called after the server was away; that raises if the server is not what it was."""
        self._key = key
        self._http = httpx.Client(
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=httpx.Timeout(options.timeout, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),
            follow_redirects=False,
            trust_env=options.trust_env,
        )
        self._limiter = ConcurrencyLimiter(options.concurrency, clock)
        self._returning = RLock()
        self._checking = False
        self._returns = 0
        """How often the server came back."""
        self._replied = False
        self._unusable = ""
        """Why the server is not used any more."""

    def __repr__(self) -> str:
        return f"Client({str(self.address)!r}, key={'set' if self._key else None})"

    @property
    def concurrency(self) -> int:
        """How many requests may be under way now."""
        return self._limiter.limit

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def get(self, path: str) -> Mapping[str, Any]:
        """The reply to a GET request."""
        return self._repeat("GET", path, None, Event())

    def post(self, path: str, body: Mapping[str, Any], *, stop: Event | None = None) -> Mapping[str, Any]:
        """The reply to an object that is sent as JSON."""
        return self._repeat("POST", path, json.dumps(body).encode(), stop or Event())

    def _repeat(self, method: str, path: str, content: bytes | None, stop: Event) -> Mapping[str, Any]:
        """Send a request until it succeeds, has failed too often in one way, or patience ends."""
        failures: Counter[str] = Counter()
        busy_since: float | None = None

        def exhausted(state: RetryCallState) -> bool:
            nonlocal busy_since
            kind = _error_of(state).kind
            failures[kind] += 1
            if kind != "busy":
                return failures[kind] >= ATTEMPTS[kind]
            busy_since = self.clock.now() if busy_since is None else busy_since
            return self.clock.now() - busy_since + state.upcoming_sleep > self._patience

        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            wait=_delay,
            stop=exhausted,
            before_sleep=self._slow_down,
            sleep=lambda seconds: self.clock.wait(seconds, stop),
            retry_error_callback=self._give_up,
        )
        return retrying(self._send, method, path, content, stop)

    def _slow_down(self, state: RetryCallState) -> None:
        if _error_of(state).kind == "busy":
            self._limiter.slow_down(state.upcoming_sleep)

    def _give_up(self, state: RetryCallState) -> NoReturn:
        error, host = _error_of(state), self.address.host
        if error.kind == "busy":
            raise ServerUnavailable(
                f"{host} is too busy for longer than {self._patience:g} s ({error}); "
                "try again later, or raise the option patience"
            )
        raise ServerError(f"{host}: {error} ({ATTEMPTS[error.kind]} times)")

    @property
    def _patience(self) -> float:
        return self.patience if self._replied else min(self.patience, START_SECONDS)

    def _send(self, method: str, path: str, content: bytes | None, stop: Event) -> Mapping[str, Any]:
        """Send a request once; if the server is gone, wait for its return before that is reported."""
        if self._unusable:
            raise ServerUnavailable(self._unusable)
        returns = self._returns
        try:
            with self._limiter.slot(stop):
                reply = self._exchange(method, path, content)
        except RetryableError as error:
            if error.kind == "unreachable":
                self._await_return(error, returns, stop)
            raise
        self._replied = True
        return reply

    def _await_return(self, error: RetryableError, returns: int, stop: Event) -> None:
        """Wait until the server replies again; one thread probes it for all of them."""
        with self._returning:
            if self._returns != returns:
                return
            if not (error.connected or self._replied):
                raise ServerUnavailable(
                    f"{self.address.host} cannot be reached ({error}); start the server, or correct its address"
                ) from None
            self._probe(str(error), stop)
            self._returns += 1
            if self._replied and not self._checking:
                self._check()

    def _probe(self, reason: str, stop: Event) -> None:
        start = self.waiting_since = self.clock.now()

        def give_up(_: RetryCallState) -> NoReturn:
            raise ServerUnavailable(
                f"{self.address.host} has not replied for {self._patience:g} s ({reason}); "
                "start it again, then repeat the command"
            )

        try:
            Retrying(
                retry=retry_if_result(lambda alive: not alive),
                wait=BACKOFF,
                stop=lambda _: self.clock.now() - start > self._patience,
                sleep=lambda seconds: self.clock.wait(seconds, stop),
                retry_error_callback=give_up,
            )(self._alive)
        finally:
            self.waiting_since = None

    def _alive(self) -> bool:
        """Whether anything but a gateway replies."""
        try:
            self._exchange("GET", "/models", None)
        except RetryableError as error:
            return error.kind not in ("unreachable", "busy")
        except ServerError:
            return True
        return True

    def _check(self) -> None:
        """A server that came back must be what it was."""
        self._checking = True
        try:
            if check := self.on_return():
                check()
        except ServerUnavailable as error:
            self._unusable = str(error)
            raise
        finally:
            self._checking = False

    def _exchange(self, method: str, path: str, content: bytes | None) -> Mapping[str, Any]:
        """The JSON object in the reply to one request."""
        url, headers = self.address.url(path), {"Content-Type": "application/json"} if content else {}
        try:
            with self._http.stream(method, url, content=content, headers=headers) as response:
                text = _read(response).decode("utf-8", errors="replace")
        except (httpx.TransportError, httpx.InvalidURL) as error:
            kind, connected = type(error).__name__, not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            reason = f"no reply in time ({kind})" if isinstance(error, httpx.TimeoutException) else str(error)
            raise RetryableError("unreachable", self._masked(reason) or kind, connected=connected) from None
        if response.is_redirect:
            raise ServerError(f"the server redirects {url} elsewhere, which is not followed; name its final address")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if response.status_code >= 300 or (isinstance(value, dict) and value.get("error")):
            raise self._failure(response, self._masked(_message(value) or text))
        if not isinstance(value, dict):
            raise InvalidReply(f"the reply is not a JSON object but begins with {self._masked(text)[:60]!r}")
        return value

    def _failure(self, response: httpx.Response, reason: str) -> ServerError:
        status, host = response.status_code, self.address.host
        reason = reason or f"status {status} without a message"
        if status in BUSY and "insufficient_quota" not in reason:
            return RetryableError("busy", reason, retry_after=_seconds(response.headers.get("Retry-After")))
        if status in GATEWAY:
            return RetryableError("unreachable", f"status {status}: {reason}")
        if status in DENIED or status in BUSY:
            return ServerUnavailable(f"{host} refuses access ({status}: {reason}); set {KEY} to a valid key")
        if status < 300:
            return InvalidReply(f"the reply has status {status} but says: {reason}")
        if status >= 500:
            return RetryableError("failing", f"the server fails with status {status}: {reason}")
        matches = ((re.search(pattern, reason), advice) for pattern, advice in ADVICE.items())
        advised = (advice.format(**match.groupdict()) for match, advice in matches if match)
        explanation = next(advised, f"{reason} (status {status})")
        return RequestRejected(f"{host} refuses the request: {explanation}", reason)

    def _masked(self, text: str) -> str:
        """One line without the key, which some servers repeat."""
        return _shortened(text.replace(self._key, "***") if self._key else text)


def _error_of(state: RetryCallState) -> RetryableError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, RetryableError)
    return error


def _delay(state: RetryCallState) -> float:
    """What the server asked for, or longer after every failure."""
    after = _error_of(state).retry_after
    return BACKOFF(state) if after is None else after


def _read(response: httpx.Response) -> bytes:
    """The body as it was sent; a compressed one, which was not asked for, could be a bomb."""
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise InvalidReply(f"the reply is compressed ({_shortened(coding, 20)}), which was not asked for")
    data = bytearray()
    for chunk in response.iter_raw():
        data += chunk
        if len(data) > MAX_BYTES:
            raise InvalidReply(f"the reply is longer than {MAX_BYTES // 2**20} MiB")
    return bytes(data)


def _message(value: Any) -> str:
    """The text of an error in any of the forms that servers use."""
    if not isinstance(value, dict):
        return ""
    error = value.get("error") or value.get("detail") or value.get("message") or ""
    message = (error.get("message") or error) if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(message)


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds, written as such or as a date; None if it is neither."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(timezone.utc)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER) if seconds == seconds else None


def _shortened(text: str, most: int = SHOWN) -> str:
    """The text in one printable line of bounded length."""
    line = printable(" ".join(text[: 4 * most].split()))
    return f"{line[:most]}…" if len(line) > most else line
