"""Client: requests that are repeated where that helps, and a pause while the server is down or busy."""

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from threading import Condition, Event, RLock, Thread
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx

from gridprobe._util import printable
from gridprobe.errors import Cancelled, GridProbeError, ServerError, ServerUnavailable, UsageError

__all__ = [
    "KEY",
    "MAX_BYTES",
    "Address",
    "Client",
    "Garbled",
    "Gate",
    "RateClock",
    "Refused",
    "Reply",
    "Unreachable",
    "Wire",
    "find_key",
    "in_threads",
    "shortened",
]

# The address of a server, as in http://localhost:8000/v1#model, and the key for it, which is never part of a name.

KEY = "GRIDPROBE_API_KEY"
OPENAI_KEY, OPENAI_HOST = "OPENAI_API_KEY", "api.openai.com"
ENDPOINTS = re.compile(r"/(chat/completions|completions|models|responses)/*$")
"""What people paste behind the address that is meant."""


@dataclass(frozen=True)
class Address:
    """Where a model is served."""

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
    def root(self) -> str:
        """The address without "/v1", where vLLM has its own endpoints."""
        return self.base.removesuffix("/v1")

    @property
    def host(self) -> str:
        """The host, and its port if one is given, for messages."""
        return self._parts.netloc

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.base)

    def __str__(self) -> str:
        return f"{self.base}#{self.model}" if self.model else self.base


def find_key(address: Address) -> str | None:
    """The key from the environment. OpenAI's own variable is read for OpenAI's own server only."""
    names = [KEY]
    if address.base.startswith("https://") and urlsplit(address.base).hostname == OPENAI_HOST:
        names.append(OPENAI_KEY)
    for name in names:
        key = os.environ.get(name, "").strip()
        if key and not re.fullmatch(r"[!-~]+", key):
            raise UsageError(f"{name} holds spaces or characters that cannot be part of a key; set it again")
        if key:
            return key
    return None


# Gate: how many requests are under way, and when the next may start. Clock: time that tests can replace.

SLICE_SECONDS = 1.0
"""A wait is cut into pieces of this length, so that it can be cancelled."""


@dataclass(frozen=True)
class RateClock:
    """Seconds, and a way to wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait, unless `stop` is set meanwhile."""
        end = self.now() + seconds
        while (left := end - self.now()) > 0 and not stop.is_set():
            self.sleep(min(left, SLICE_SECONDS))
        if stop.is_set():
            raise Cancelled("cancelled while waiting for the server")


class Gate:
    """Limits requests: half as many after the server was busy, one more after as many successes as the limit."""

    def __init__(self, most: int, clock: RateClock) -> None:
        self.limit = most
        self._most, self._clock = most, clock
        self._running = self._successes = 0
        self._not_before = 0.0
        self._changed = Condition()

    def enter(self, stop: Event) -> None:
        """Wait for a place, and for the time that the server asked for."""
        with self._changed:
            while self._running >= self.limit and not stop.is_set():
                self._changed.wait(SLICE_SECONDS)
            self._running += 1
            pause = self._not_before - self._clock.now()
        try:
            self._clock.wait(pause, stop)
        except Cancelled:
            self._leave()
            raise

    def succeed(self) -> None:
        """A request is done."""
        with self._changed:
            self._successes += 1
            if self._successes >= self.limit and self.limit < self._most:
                self.limit, self._successes = self.limit + 1, 0
        self._leave()

    def fail(self) -> None:
        """A request is over, and its failure says nothing about the load."""
        self._leave()

    def slow_down(self, seconds: float) -> None:
        """The server was too busy for a request; none starts for so many seconds."""
        with self._changed:
            self.limit, self._successes = max(1, self.limit // 2), 0
            self._not_before = max(self._not_before, self._clock.now() + seconds)
        self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()


# Work in threads that never keep the caller waiting: after an error or Ctrl-C, what is under way is left to itself.

Job = TypeVar("Job")
Result = TypeVar("Result")
POLL_SECONDS = 1.0


def in_threads(
    work: Callable[[Job], Result], jobs: Sequence[Job], *, threads: int, stop: Event
) -> Iterator[tuple[int, Result] | None]:
    """The number and the result of each job as it is done, and None after every second without one.

    Args:
        work: what to do with a job.
        jobs: the jobs; they are begun in this order.
        threads: how many are done at the same time.
        stop: is set when the caller wants no more results; no job is begun after that.
    """
    todo: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, list[Result], GridProbeError | None]] = SimpleQueue()
    for number in range(len(jobs)):
        todo.put(number)

    def loop() -> None:
        while not stop.is_set():
            try:
                number = todo.get_nowait()
            except Empty:
                return
            result: list[Result] = []
            error: GridProbeError | None = ServerError("a request ended by a bug of gridprobe; see the traceback above")
            try:
                result, error = [work(jobs[number])], None
            except GridProbeError as caught:
                error = caught
            finally:
                done.put((number, result, error))

    for _ in range(min(threads, len(jobs))):
        Thread(target=loop, name="gridprobe-server", daemon=True).start()
    left = len(jobs)
    while left:
        try:
            number, result, error = done.get(timeout=POLL_SECONDS)
        except Empty:
            yield None
            continue
        if error is not None:
            raise error
        left -= 1
        yield number, result[0]


# One exchange with a server: no redirects, no proxies, replies of bounded size, and no key in any message.

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


START_SECONDS = 20.0
"""How long to wait for a server that has never replied."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 15.0
TRIES = {"unreachable": 3, "failing": 3, "garbled": 2}
"""How often a request is sent if it breaks the connection of a living server, gets a status of 500, or a reply that
cannot be read."""
BUSY, GATEWAY, DENIED = (429, 503), (502, 504), (401, 402, 403)
ADVICE = (
    (
        re.compile(r"[Aa]t most (\d+) image"),
        "the server allows {0} images in one request; start vLLM with --limit-mm-per-prompt '{{\"image\": 160}}', "
        "or use fewer frames with --k",
    ),
    (
        re.compile(r"maximum context length is (\d+) tokens.*?contains (?:at least )?(\d+)"),
        "the request needs {1} of the {0} tokens that the server allows; start vLLM with a larger --max-model-len, "
        "or use fewer or smaller frames",
    ),
    (
        re.compile(r"prompt \(length (\d+)\).*?maximum model length of (\d+)"),
        "the request needs {0} of the {1} tokens that the server allows; start vLLM with a larger --max-model-len, "
        "or use fewer or smaller frames",
    ),
)


class Refused(ServerError):
    """The server refuses this request, and would refuse it again."""

    def __init__(self, message: str, reply: Reply) -> None:
        super().__init__(message)
        self.reply = reply


class ServerProblem(NamedTuple):
    """Why a request must be repeated."""

    kind: Literal["unreachable", "failing", "garbled", "busy"]
    text: str
    retry_after: float | None = None


class Client:
    """Talks to one server; several threads may use it."""

    def __init__(
        self, wire: Wire, address: Address, *, concurrency: int, patience: float, clock: RateClock | None = None
    ) -> None:
        self.address = address
        self.waiting_since: float | None = None
        """When the server stopped to reply; None while it replies."""
        self.on_return: Callable[[], Callable[[], None] | None] = lambda: None
        """Gives what is called after the server was away; that raises if the server is not what it was."""
        self.clock = clock or RateClock()
        self.patience = patience
        self._wire = wire
        self._gate = Gate(concurrency, self.clock)
        self._returning = RLock()
        self._checking = False
        self._returns = 0
        self._known = False
        self._given_up = ""
        """Why the server is not used any more."""

    @property
    def concurrency(self) -> int:
        """How many requests may be under way now."""
        return self._gate.limit

    def close(self) -> None:
        """Close its connections."""
        self._wire.close()

    def post(self, path: str, body: Mapping[str, Any], *, stop: Event | None = None) -> Mapping[str, Any]:
        """The reply to a request under the base address, or under the root if the path begins with "//"."""
        return self._repeat(lambda: self._wire.post(self._url(path), body), stop or Event())

    def get(self, path: str) -> Mapping[str, Any]:
        """The reply to a GET request."""
        return self._repeat(lambda: self._wire.get(self._url(path)), Event())

    def _url(self, path: str) -> str:
        return self.address.root + path[1:] if path.startswith("//") else self.address.base + path

    def _repeat(self, send: Callable[[], Reply], stop: Event) -> Mapping[str, Any]:
        tries = dict.fromkeys(TRIES, 0)
        busy_since: float | None = None
        while True:
            if self._given_up:
                raise ServerUnavailable(self._given_up)
            seen = self._returns
            self._gate.enter(stop)
            try:
                reply = send()
                problem = self._judge(reply)
            except (Unreachable, Garbled) as error:
                problem = ServerProblem("garbled" if isinstance(error, Garbled) else "unreachable", str(error))
            except ServerError:
                self._gate.fail()
                raise
            if problem is None:
                self._gate.succeed()
                self._known = True
                return reply.value
            if problem.kind == "busy":
                busy_since = self.clock.now() if busy_since is None else busy_since
                self._slow_down(problem, busy_since)
                continue
            self._gate.fail()
            tries[problem.kind] += 1
            if problem.kind == "unreachable":
                self._await_return(problem, seen, stop)
            if tries[problem.kind] >= TRIES[problem.kind]:
                raise ServerError(f"{self.address.host}: {problem.text} ({TRIES[problem.kind]} times)")
            self.clock.wait(_delay(tries[problem.kind]), stop)

    def _judge(self, reply: Reply) -> "ServerProblem | None":
        """What is wrong with a reply; a refusal that will not change is raised."""
        status = reply.status
        if status < 300 and not reply.error:
            return None
        if status in BUSY and "insufficient_quota" not in reply.error:
            return ServerProblem("busy", reply.error, reply.retry_after)
        if status in GATEWAY:
            return ServerProblem("unreachable", f"status {status}: {reply.error}")
        if status in DENIED or status in BUSY:
            raise ServerUnavailable(
                f"{self.address.host} refuses access ({status}: {reply.error}); set {KEY} to a valid key"
            )
        if status < 300:
            return ServerProblem("garbled", f"the reply has status {status} but says: {reply.error}")
        if status >= 500:
            return ServerProblem("failing", f"the server fails with status {status}: {reply.error}")
        raise Refused(f"{self.address.host} refuses the request: {_advice(reply)}", reply)

    def _slow_down(self, problem: "ServerProblem", since: float) -> None:
        waited = self.clock.now() - since
        delay = _delay(waited / 4) if problem.retry_after is None else problem.retry_after
        if waited + delay > self._patience:
            self._gate.fail()
            raise ServerUnavailable(
                f"{self.address.host} is too busy for longer than {self._patience:g} s ({problem.text}); "
                "try again later, or raise the option patience"
            )
        self._gate.slow_down(delay)

    @property
    def _patience(self) -> float:
        return self.patience if self._known else min(self.patience, START_SECONDS)

    def _await_return(self, problem: "ServerProblem", seen: int, stop: Event) -> None:
        """Wait until the server replies again; one thread asks it for all of them."""
        with self._returning:
            if self._returns != seen:
                return
            start, tries = self.clock.now(), 0
            self.waiting_since = start
            try:
                while not self._alive():
                    if self.clock.now() - start > self._patience:
                        raise ServerUnavailable(
                            f"{self.address.host} has not replied for {self._patience:g} s ({problem.text}); "
                            "start it again, then repeat the command"
                        )
                    self.clock.wait(_delay(tries) * random.uniform(0.8, 1.2), stop)
                    tries += 1
            finally:
                self.waiting_since = None
            self._returns += 1
            if self._known and not self._checking:
                self._checking = True
                try:
                    if check := self.on_return():
                        check()
                except ServerUnavailable as error:
                    self._given_up = str(error)
                    raise
                finally:
                    self._checking = False

    def _alive(self) -> bool:
        """Whether anything but a gateway replies."""
        try:
            return self._wire.get(self._url("/models")).status not in (*GATEWAY, 503)
        except Unreachable:
            return False
        except ServerError:
            return True


def _delay(tries: float) -> float:
    return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(tries, 10)))


def _advice(reply: Reply) -> str:
    """The reason of a refusal, with numbers and a way out where it is known."""
    for pattern, text in ADVICE:
        found = pattern.search(reply.error)
        if found:
            return text.format(*found.groups())
    return f"{reply.error} (status {reply.status})"
