"""Child processes that decode: starting them, asking them, and keeping idle ones for the next request.

A decoder is a million lines of C. If it crashes, allocates memory without end or never returns from a call, the child
is gone and the caller gets a VideoError of one line. A child that replied as it should serves the next request as
well, so only the first one pays for its start (0.1 CPU seconds). A child's replies are untrusted input.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from threading import Lock, Thread
from typing import IO, Any

from gridprobe.errors import UsageError, VideoError
from gridprobe.progress import has_listener, report
from gridprobe.video.files import shown_name
from gridprobe.video.limits import Deadline

__all__ = ["Child", "borrowed_child", "stop_idle"]

GRACE = 3.0
"""Seconds beyond a request's own limit before the child is killed: it should notice the limit itself."""
START_SECONDS = 120.0
"""Seconds a child may take to start: Python, numpy and this package from a slow disk."""
MAX_REPLY = 1 << 28
MAX_IDLE = 2
"""Idle children kept: one decodes the next video while another decodes the kept frames of the present one."""
PACKAGE = Path(__file__).parents[1]
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
    "for name, folder in ('gridprobe', sys.argv[2]), ('gridprobe.video', sys.argv[2] + '/video'):\n"
    "    package = sys.modules[name] = type(sys)(name); package.__path__ = [folder]\n"
    "from gridprobe.video.child import main; main(*map(int, sys.argv[3:]))"
)
"""Of gridprobe a child imports only what decoding needs, so the packages are empty there."""


class Child:
    """A process that decodes, and the connection to it."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        """Bytes of its address space."""
        self.usable = True
        """Whether it can take a request: it waits for one, as far as is known."""
        self._started = False
        self._rest = b""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by stop()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(START_SECONDS)
        self._waiting = DefaultSelector()
        self._waiting.register(self._socket, EVENT_READ)
        watched, self._lifeline = os.pipe()
        try:
            self._process = _start(self._errors, memory, descriptors=(theirs.fileno(), watched))
        except OSError as error:
            self._release()
            raise VideoError(f"no process can be started to decode in ({error.strerror})") from None
        finally:
            theirs.close()
            os.close(watched)

    def ask(self, request: dict[str, Any], *, seconds: float, memory: int | None = None) -> dict[str, Any]:
        """Send a request, forward the progress that is reported, and return the reply.

        Args:
            request: plain values; "path" names the video in errors.
            seconds: the time limit of the request; the start of the process does not count.
            memory: descriptor of the shared memory for pixels.
        """
        self.usable, name = False, shown_name(request["path"])
        try:
            if not self._started:
                self._reply(time.monotonic() + START_SECONDS)
                self._started = True
            end = time.monotonic() + seconds + GRACE
            line = json.dumps(request | {"progress": has_listener()}).encode() + b"\n"
            sent = socket.send_fds(self._socket, [line], [memory] if memory is not None else [])
            self._socket.sendall(line[sent:])
            reply = self._reply(end)
        except TimeoutError:
            raise Deadline(name, seconds).error() from None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise VideoError(f"{name}: {self._reason(request)}") from None
        self.usable = not reply.get("full")
        if "error" in reply:
            raise (UsageError if reply.get("usage") else VideoError)(str(reply["error"]))
        return reply

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill the process and release everything."""
        self.usable = False
        self._process.kill()
        self._release()
        _reap(self._process)

    def abandon(self) -> None:
        """Forget a child that belongs to another process, of which this one is a fork."""
        self._release()
        self._process.returncode = 0  # it is not ours to wait for

    def _release(self) -> None:
        self._waiting.close()
        self._socket.close()
        self._errors.close()
        os.close(self._lifeline)

    def _reply(self, end: float) -> dict[str, Any]:
        """The next message that is not progress; TimeoutError at `end`, EOFError if the process ended."""
        while True:
            message = _parsed(self._line(end))
            done, total = message.get("done"), message.get("total")
            if not isinstance(done, int) or not isinstance(total, int):
                return message
            report("decode", done, total)

    def _line(self, end: float) -> bytes:
        while b"\n" not in self._rest:
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError
            if self._waiting.select(left):
                data = self._socket.recv(1 << 16)
                if not data or len(self._rest) > MAX_REPLY:
                    raise EOFError
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _reason(self, request: dict[str, Any]) -> str:
        """Why the process ended without a reply."""
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "the decoding process closed its connection"
        if code == -signal.SIGXCPU:
            limit = "raise the limit (VideoLimits.seconds)"
            return f"decoding took more than {request['cpu']:.0f} s of processor time; {limit}"
        if code == -signal.SIGKILL:
            return "the decoding process was killed, perhaps because the machine ran out of memory"
        if code < 0:
            return f"the decoder crashed ({signal.Signals(-code).name}); the file is damaged or hostile"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2000))
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"the decoding process failed ({shown_name(last[0]) if last else f'exit code {code}'})"


def _start(errors: IO[bytes], memory: int, *, descriptors: tuple[int, int]) -> "subprocess.Popen[bytes]":
    # One OpenBLAS thread and one malloc arena: each more would reserve address space, which the limit counts, and
    # another arena keeps 6 MB that are free.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", START, json.dumps(sys.path), *map(str, (PACKAGE, *descriptors, memory))],
        stdin=subprocess.DEVNULL,
        stdout=errors,
        stderr=errors,
        pass_fds=descriptors,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the parent, which then kills the child
    )


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _reap(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a killed process, in a thread if it takes long: one that waits for a dead disk cannot be killed."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        Thread(target=process.wait, name="reap", daemon=True).start()


_idle: list[Child] = []
_lock = Lock()


@contextmanager
def borrowed_child(memory: int) -> Iterator[Child]:
    """A child with so many bytes of address space, an idle one if there is one; kept for others if it stays usable."""
    with _lock:
        child = next((each for each in _idle if each.memory == memory), None)
        if child is not None:
            _idle.remove(child)
    if child is not None and not child.alive:
        child.stop()
        child = None
    child = child or Child(memory)
    try:
        yield child
    finally:
        with _lock:
            kept = child.usable and len(_idle) < MAX_IDLE
            if kept:
                _idle.append(child)
        if not kept:
            child.stop()


def stop_idle() -> None:
    """End the children that wait for work; those at work end with their request."""
    with _lock:
        stopped, _idle[:] = _idle[:], []
    for child in stopped:
        child.stop()


def _forget() -> None:
    """In a fork: the children belong to the process that was forked, and so does the lock's state."""
    global _lock
    _lock = Lock()
    forgotten, _idle[:] = _idle[:], []
    for child in forgotten:
        child.abandon()


atexit.register(stop_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
