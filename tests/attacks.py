"""Attacks on a real `gridprobe serve` on loopback, one line each; exits with 1 if one of them succeeds.

    PYTHONPATH=src:tests python tests/attacks.py                # in full: 1,023 connections, 4,200 uploads; minutes
    PYTHONPATH=src:tests python tests/attacks.py --share 0.05   # a twentieth of that, as the tests run it

The server is a process of its own, with the smallest embedded model. Linux only: it looks into /proc.
"""

import argparse
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.middleware import WRONG_KEYS
from gridprobe_serve.running import UNREAD_SECONDS
from gridprobe_serve.store import MOST_UPLOADS
from videos import numbered_video
from waiting import wait_until

KEY = "secret-of-the-attacks"
LONGEST = 900
"""Seconds after which the program gives up."""
PATIENCE = 30.0
"""Seconds in which the server must answer /health, or give back what a client took."""
ANSWER_SECONDS = 300.0
"""In which a question must be answered, on a busy machine."""
MEMORY = 1 << 30
"""Bytes that an attack may make the server take."""
FEW = 128
"""Descriptors of a server that some clients try to use up."""
LARGE = 64 << 20
"""Bytes of the video; more than the buffers of a connection."""
RANGES = (
    *("bytes=5-2", "bytes=999999999999-", "bytes=-0", "bytes=a-b", "bytes=", "lines=0-1", "bytes=0-0,2-2,4-4"),
    *("bytes=-999999999999", "bytes=0-0," * 50 + "1-1", "bytes=1-0,0-1"),
)


@dataclass(frozen=True)
class Target:
    """The server under attack."""

    pid: int
    port: int
    uploads: Path
    """Where it stores them."""

    def connection(self, source: str = "127.0.0.1") -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS, source_address=(source, 0))

    def ask(
        self, method: str, path: str, body: Any = None, source: str = "127.0.0.1", **headers: str
    ) -> tuple[int, Any]:
        """The status and the content of a reply."""
        with closing(self.connection(source)) as connection:
            return reply_of(connection, method, path, body, **headers)

    def question(self, text: str = "What is the color of the ball?", effort: str = "full") -> dict[str, Any]:
        settings = {"k": 3, "effort": effort}
        return {"video": "talk.mp4", "question": text, "options": ["red", "blue"], "settings": settings}

    def open_session(self) -> str:
        status, found = self.ask("POST", "/v1/gridprobe/sessions", {"video": "talk.mp4", "settings": {"k": 3}})
        assert status == 200, found
        return f"/v1/gridprobe/sessions/{found['id']}"

    def raw(self, head: str, body: bytes = b"") -> socket.socket:
        """A connection on which these bytes were sent, and nothing was read."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=LONGEST)
        connection.sendall(head.replace("\n", "\r\n").encode() + body)
        return connection

    def health(self) -> float:
        """Seconds that /health takes on a new connection; infinite if it does not answer well."""
        began = time.monotonic()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            with closing(connection):
                return time.monotonic() - began if reply_of(connection, "GET", "/health")[0] == 200 else float("inf")
        except (OSError, HTTPException):
            return float("inf")

    def memory(self) -> int:
        """Bytes in memory."""
        return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())[0]) << 10

    def descriptors(self) -> set[int]:
        return {int(each) for each in os.listdir(f"/proc/{self.pid}/fd")}

    def children(self) -> int:
        return sum(len(path.read_text().split()) for path in Path(f"/proc/{self.pid}/task").glob("*/children"))


def reply_of(connection: HTTPConnection, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and the content of a reply, on a connection that stays open."""
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": kind, **headers}
    connection.request(method, path, sent, headers)
    reply = connection.getresponse()
    content = reply.read()
    return reply.status, json.loads(content) if reply.getheader("Content-Type") == "application/json" else content


def soon(true: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def descriptors_up_to(number: int, target: Target) -> Iterator[None]:
    """Let the server open no descriptor from that number on."""
    before = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (min(number, before[0]), before[1]))
    try:
        yield
    finally:
        resource.prlimit(target.pid, resource.RLIMIT_NOFILE, before)


Outcome = tuple[bool, str]
"""Whether the server withstood, and what was measured."""


def long_questions(target: Target, count: int) -> Outcome:
    """Questions as long as they may be, and longer, take all memory."""
    texts = ["red ball " * (20_000 // 9), "red ball " * 3000]
    before = target.memory()
    with ThreadPoolExecutor(count) as pool:
        bodies = [target.question(text, "quick") for text in texts * count]
        sent = [pool.submit(target.ask, "POST", "/v1/gridprobe/ask", each) for each in bodies]
        most = before
        while not all(each.done() for each in sent):
            most = max(most, target.memory())
            time.sleep(0.05)
    statuses = Counter(each.result()[0] for each in sent)
    grown = most - before
    return set(statuses) <= {200, 413, 429} and grown < MEMORY, f"{listed(statuses)}; {grown >> 20} MiB more"


def cancelled_neighbours(target: Target, count: int) -> Outcome:
    """Questions that are cancelled end others in the same call of the model."""
    path = "/v1/gridprobe/jobs"
    jobs = [target.ask("POST", path, target.question())[1]["id"] for _ in range(count)]
    for job in jobs[::2]:
        target.ask("DELETE", f"{path}/{job}")

    def state(job: str) -> str:
        return str(target.ask("GET", f"{path}/{job}")[1]["state"])

    over = soon(lambda: all(state(job) == "done" for job in jobs[1::2]))
    return over, f"of {count} jobs: {listed(Counter(map(state, jobs)))}"


def odd_ranges(target: Target, count: int) -> Outcome:
    """Ranges that are no ranges leave the file open."""
    path = f"{target.open_session()}/video"
    before = len(target.descriptors())
    statuses = Counter(target.ask("GET", path, Range=each)[0] for each in RANGES for _ in range(count))
    closed = soon(lambda: len(target.descriptors()) <= before)
    return closed and not statuses[500], f"{listed(statuses)}; {len(target.descriptors()) - before} descriptors more"


def slow_connections(target: Target, count: int) -> Outcome:
    """Connections that never finish their headers lock everybody out, here of a server with few descriptors."""
    count = max(count, 2 * FEW)
    with ExitStack() as stack:
        stack.enter_context(descriptors_up_to(FEW, target))
        for _ in range(count):
            stack.enter_context(closing(target.raw("GET /ready HTTP/1.1\nHost: localhost\nX-Slow: ")))
        seconds = target.health()
        try:
            status, _ = target.ask("GET", "/ready", source="127.0.0.2")
        except OSError:
            status = 0
    words = f"{count} connections, {FEW} descriptors: /health took {seconds:.2f} s, another address got {status}"
    return seconds < PATIENCE and status == 200, words


def announced_bodies(target: Target, count: int) -> Outcome:
    """Bodies that are announced and not sent take the room of others."""
    head = f"POST /v1/gridprobe/ask HTTP/1.1\nHost: localhost\nAuthorization: Bearer {KEY}\n"
    head += f"Content-Type: application/json\nContent-Length: {64 << 20}\nExpect: 100-continue\n\n"
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(closing(target.raw(head, b" ")))
            connection.recv(1)  # it says "100 Continue" when it begins to read, or that it refuses
        status, _ = target.ask("POST", "/v1/gridprobe/ask", target.question())
    return status == 200, f"a question meanwhile got {status}"


def many_pictures(target: Target, count: int) -> Outcome:
    """Pictures that are asked for at once start a decoder each."""
    path = target.open_session()
    before, most = target.children(), 0
    with ThreadPoolExecutor(count) as pool:
        sent: list[Future[tuple[int, Any]]] = [
            pool.submit(target.ask, "GET", f"{path}/frame.jpg?t={number / count}") for number in range(count)
        ]
        seconds = target.health()
        while not all(each.done() for each in sent):
            most = max(most, target.children() - before)
            time.sleep(0.01)
    statuses = Counter(each.result()[0] for each in sent)
    held = set(statuses) <= {200, 429} and most <= ServerLimits().decoders and seconds < PATIENCE
    return held, f"{listed(statuses)}; {most} decoders at most; /health took {seconds:.2f} s"


def readers_that_stop(target: Target, count: int) -> Outcome:
    """Clients that ask for a file and read nothing keep their connections."""
    path = f"{target.open_session()}/video"
    before = len(target.descriptors())
    head = f"GET {path} HTTP/1.1\nHost: localhost\nAuthorization: Bearer {KEY}\n\n"
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(closing(target.raw(head)))
        seconds = target.health()
        most = len(target.descriptors()) - before
        ended = soon(lambda: len(target.descriptors()) <= before, 2 * UNREAD_SECONDS + PATIENCE)
    left = len(target.descriptors()) - before
    return ended and seconds < PATIENCE, f"{most} descriptors more, then {left}; /health took {seconds:.2f} s"


def many_uploads(target: Target, count: int) -> Outcome:
    """Uploads of one byte fill the disk's table of files."""
    with closing(target.connection()) as connection:
        statuses = Counter(
            reply_of(connection, "POST", "/v1/gridprobe/uploads", number.to_bytes(3, "big"))[0]
            for number in range(count)
        )
    files = sum(each.is_file() for each in target.uploads.rglob("*"))
    return set(statuses) == {201} and files <= MOST_UPLOADS + 8, f"{listed(statuses)}; {files} files"


def no_descriptors(target: Target, _: int) -> Outcome:
    """A server without descriptors blames the video."""
    path = f"{target.open_session()}/video"
    with closing(target.connection()) as connection:
        reply_of(connection, "GET", "/ready")
        used = target.descriptors()
        free = next(number for number in range(len(used) + 1) if number not in used)
        with descriptors_up_to(free, target):
            during, found = reply_of(connection, "GET", path)
        after, _ = reply_of(connection, "GET", path)
    return (during, after) == (503, 200), f"{during} ({found['error']['code']}), and {after} when there were some again"


def guessed_keys(target: Target, count: int) -> Outcome:
    """Keys are guessed as fast as the network allows."""
    guesses = [f"Bearer guess-{number}" for number in range(count)]
    sent = [target.ask("GET", "/ready", source="127.0.0.3", Authorization=each)[0] for each in guesses]
    status, _ = target.ask("GET", "/ready")
    held = sent.count(401) <= WRONG_KEYS and set(sent) <= {401, 429} and status == 200
    return held, f"{listed(Counter(sent))}; another address got {status}"


ATTACKS: dict[str, tuple[Callable[[Target, int], Outcome], int]] = {
    "1": (long_questions, 8),
    "1b": (cancelled_neighbours, 60),
    "2": (odd_ranges, 40),
    "3": (slow_connections, 1023),
    "6": (announced_bodies, 4),
    "7": (many_pictures, 200),
    "12": (readers_that_stop, 100),
    "12b": (many_uploads, 4200),
    "12c": (no_descriptors, 1),
    "16": (guessed_keys, 1000),
}
"""By the points of the report that found them, with how many clients or requests each takes in full."""


def listed(counts: Counter[Any]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(counts.items()))


@contextmanager
def serving(folder: Path) -> Iterator[Target]:
    """A server whose folder has one large video."""
    videos, temporary = folder / "videos", folder / "temporary"
    for each in (videos, temporary):
        each.mkdir()
    numbered_video(videos / "talk.mp4", 30, size=(64, 32))
    with (videos / "talk.mp4").open("ab") as file:  # a box of MP4 that readers skip
        file.write(LARGE.to_bytes(4, "big") + b"free" + bytes(LARGE - 8))
    command = [sys.executable, "-m", "gridprobe", "serve", "--port", "0", "--model", "embedded:nano", "--device", "cpu"]
    environment = {**os.environ, "GRIDPROBE_KEY": KEY, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    command += ["--preset", "gridworld", "--videos", str(videos)]
    log = folder / "log"  # a pipe that nobody reads would stop a server that says much
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, stdout=output, env=environment) as process:
        try:
            wait_until(lambda: re.search(r"serving at .*:(\d+)", log.read_text()))
            yield Target(process.pid, int(re.findall(r"serving at \S*:(\d+)", log.read_text())[0]), temporary)
        finally:
            process.send_signal(signal.SIGTERM)


def give_up_after(seconds: int, target: Target) -> None:
    """End this program and the server after some time, or at SIGTERM."""

    def give_up(*_: object) -> None:
        os.kill(target.pid, signal.SIGKILL)
        os._exit(2)

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, give_up)
    signal.alarm(seconds)


def main() -> int:
    """Run all attacks; 1 if one succeeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of clients and requests")
    parser.add_argument("--only", choices=ATTACKS, help="one attack")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    held = True
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as target:
        give_up_after(LONGEST, target)
        for point, (attack, full) in ATTACKS.items():
            if given.only in (None, point):
                count = max(min(full, 4), round(full * given.share))
                withstood, measured = attack(target, count)
                held &= withstood
                words = "withstood" if withstood else "SUCCEEDED"
                print(f"{point:>3} {attack.__name__.replace('_', ' ')} ({count}): {words}: {measured}", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
