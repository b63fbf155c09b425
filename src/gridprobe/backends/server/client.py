"""Client: requests that are repeated where that helps, and a pause while the server is down or busy."""

import random
import re
from collections.abc import Callable, Mapping
from threading import Event, RLock
from typing import Any, Literal, NamedTuple

from gridprobe.backends.server.address import KEY, Address
from gridprobe.backends.server.gate import Clock, Gate
from gridprobe.backends.server.wire import Garbled, Reply, Unreachable, Wire
from gridprobe.errors import ServerError, ServerUnavailable

__all__ = ["Client", "Refused"]

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


class Problem(NamedTuple):
    """Why a request must be repeated."""

    kind: Literal["unreachable", "failing", "garbled", "busy"]
    text: str
    retry_after: float | None = None


class Client:
    """Talks to one server; several threads may use it."""

    def __init__(
        self, wire: Wire, address: Address, *, concurrency: int, patience: float, clock: Clock | None = None
    ) -> None:
        self.address = address
        self.waiting_since: float | None = None
        """When the server stopped to reply; None while it replies."""
        self.on_return: Callable[[], Callable[[], None] | None] = lambda: None
        """Gives what is called after the server was away; that raises if the server is not what it was."""
        self.clock = clock or Clock()
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
                problem = Problem("garbled" if isinstance(error, Garbled) else "unreachable", str(error))
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

    def _judge(self, reply: Reply) -> "Problem | None":
        """What is wrong with a reply; a refusal that will not change is raised."""
        status = reply.status
        if status < 300 and not reply.error:
            return None
        if status in BUSY and "insufficient_quota" not in reply.error:
            return Problem("busy", reply.error, reply.retry_after)
        if status in GATEWAY:
            return Problem("unreachable", f"status {status}: {reply.error}")
        if status in DENIED or status in BUSY:
            raise ServerUnavailable(
                f"{self.address.host} refuses access ({status}: {reply.error}); set {KEY} to a valid key"
            )
        if status < 300:
            return Problem("garbled", f"the reply has status {status} but says: {reply.error}")
        if status >= 500:
            return Problem("failing", f"the server fails with status {status}: {reply.error}")
        raise Refused(f"{self.address.host} refuses the request: {_advice(reply)}", reply)

    def _slow_down(self, problem: "Problem", since: float) -> None:
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

    def _await_return(self, problem: "Problem", seen: int, stop: Event) -> None:
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
