"""Decoding in child processes: a pool of them, what they are asked, and their replies as values.

A decoder is a million lines of C. If it crashes, allocates memory without end or never returns from a call, the child
is gone and the caller gets a VideoError of one line. A child that replied as it should serves the next request about
its video as well, so only the first one pays for its start (0.1 CPU seconds); for another video it has no rights. A
child's replies are untrusted input: they are checked, then used as values. `decoder_child` is what runs in the child.
"""

import atexit
import json
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from threading import Lock, Thread
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gridprobe._util import has_listener, report, usable_cores
from gridprobe.errors import DecoderKilled, UsageError, VideoError
from gridprobe.video.decode import FileStream, checked_info
from gridprobe.video.files import Deadline, VideoFile, VideoLimits, shown_name
from gridprobe.video.frames import Pixels
from gridprobe.video.pictures import FolderStream
from gridprobe.video.sampling import FrameIndex, SampleSpec
from gridprobe.video.source import VideoInfo
from gridprobe.video.subtitles import Segment, closed_lines, track_of

GRACE = 3.0
"""Seconds beyond a request's own limit before the child is killed: it should notice the limit itself."""
START_SECONDS = 120.0
"""Seconds a child may take to start: Python, numpy and this package from a slow disk."""
MAX_REPLY = 1 << 28
MAX_IDLE = 2
"""Idle children kept: one decodes the next video while another decodes the kept frames of the present one."""
SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals of the kernel's OOM killer, an operator or a service manager; the decoder's own faults are other ones."""
ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "TZ")
"""What a child is told of its parent's environment: file names' encoding and libraries' places, no keys."""
MAP_FROM = 16 << 20
"""Results of at least that many bytes stay in shared memory; others are copied out, as each needs a descriptor."""
PACKAGE = Path(__file__).parents[1]
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
    "for name, folder in ('gridprobe', sys.argv[2]), ('gridprobe.video', sys.argv[2] + '/video'):\n"
    "    package = sys.modules[name] = type(sys)(name); package.__path__ = [folder]\n"
    "from gridprobe.video.decoder_child import main; main(*map(int, sys.argv[3:]))"
)
"""Of gridprobe a child imports only what decoding needs, so the packages are empty there."""


class Child:
    """A process that decodes, and the connection to it."""

    def __init__(self, path: str, address_space: int) -> None:
        self.serves = path, address_space
        """The absolute path of its video, and how many bytes of address space the process may have."""
        self.usable = True
        """Whether it can take a request: it waits for one, as far as is known."""
        self.sandbox: list[str] = []
        """Which restrictions of the kernel hold for it, since its first reply."""
        self._started = False
        self._rest = b""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by stop()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(START_SECONDS)
        self._waiting = DefaultSelector()
        self._waiting.register(self._socket, EVENT_READ)
        watched, self._lifeline = os.pipe()
        try:
            self._process = _start(self._errors, address_space, descriptors=(theirs.fileno(), watched))
        except OSError as error:
            self._release()
            raise VideoError(f"no process can be started to decode in ({error.strerror})") from None
        finally:
            theirs.close()
            os.close(watched)

    def ask(self, request: dict[str, Any], *, seconds: float, shared_memory: int | None = None) -> dict[str, Any]:
        """Send a request, forward the progress that is reported, and return the reply.

        Args:
            request: plain values; "path" names the video in errors.
            seconds: the time limit of the request; the start of the process does not count.
            shared_memory: descriptor of the memory for pixels.
        """
        self.usable, name = False, shown_name(request["path"])
        try:
            if not self._started:
                self._reply(time.monotonic() + START_SECONDS)
                self._started = True
            end = time.monotonic() + seconds + GRACE
            line = json.dumps(request | {"progress": has_listener()}).encode() + b"\n"
            sent = socket.send_fds(self._socket, [line], [shared_memory] if shared_memory is not None else [])
            self._socket.sendall(line[sent:])
            reply = self._reply(end)
        except TimeoutError:
            raise Deadline(name, seconds).error() from None
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._death(name, request) from None
        self.usable = not (reply.get("full") or reply.get("replaced"))
        self.sandbox = reply.get("sandbox", [])
        if "error" in reply:
            raise (UsageError if reply.get("usage") else VideoError)(str(reply["error"]))
        return reply

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def ended_by_signal(self) -> bool:
        """Whether it crashed or was killed during its last request, rather than that it reached a limit."""
        code = self._process.returncode
        return code is not None and code < 0 and code != -signal.SIGXCPU

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

    def _death(self, name: str, request: dict[str, Any]) -> VideoError:
        """Why the process ended without a reply."""
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return VideoError(f"{name}: the decoding process closed its connection")
        if code == -signal.SIGXCPU:
            seconds = f"{request['cpu']:.0f} s of processor time"
            return VideoError(f"{name}: decoding took more than {seconds}; raise the limit (VideoLimits.seconds)")
        if -code in SENT_FROM_OUTSIDE:
            why = f"was killed ({signal.Signals(-code).name}), perhaps because the machine ran out of memory"
            return DecoderKilled(f"{name}: the decoding process {why}; try again")
        if code < 0:
            crash = f"the decoder crashed ({signal.Signals(-code).name})"
            return VideoError(f"{name}: {crash}; the file is damaged or hostile")
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2000))
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        failure = shown_name(last[0]) if last else f"exit code {code}"
        return VideoError(f"{name}: the decoding process failed ({failure})")


def _start(errors: IO[bytes], address_space: int, *, descriptors: tuple[int, int]) -> "subprocess.Popen[bytes]":
    # One OpenBLAS thread and one malloc arena: each more would reserve address space, which the limit counts, and
    # another arena keeps 6 MB that are free.
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            START,
            json.dumps(sys.path),
            *map(str, (PACKAGE, *descriptors, address_space)),
        ],
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


def _ask_child(
    request: dict[str, Any], *, address_space: int, seconds: float, shared_memory: int | None = None
) -> dict[str, Any]:
    """The reply of an idle or new child; if it crashes or is killed, of one more, which is new.

    A child that crashes may have been damaged by the video before, and one that was killed may not be killed again.
    One that waited cannot read a file that has replaced its video since.

    Args:
        request: as for `Child.ask`; "folder" is what its "path" is relative to.
        address_space: how many bytes of it the child may have.
        seconds: the time limit of both attempts together.
        shared_memory: descriptor of the memory for pixels.
    """
    start = time.monotonic()
    path = os.path.join(request["folder"], request["path"])
    with _borrowed_child(path, address_space) as child:
        try:
            reply = child.ask(request, seconds=seconds, shared_memory=shared_memory)
            if not reply.get("replaced"):
                return reply
        except VideoError:
            if not child.ended_by_signal:
                raise
    left = max(0.0, seconds - (time.monotonic() - start))
    with _borrowed_child(path, address_space, new=True) as child:
        return child.ask(request, seconds=left, shared_memory=shared_memory)


@contextmanager
def _borrowed_child(path: str, address_space: int, *, new: bool = False) -> Iterator[Child]:
    """A child for that video with that many bytes of address space, an idle one if it need not be new.

    It is kept if it stays usable, in place of the one that has been idle for longest.
    """
    with _lock:
        child = next((each for each in _idle if each.serves == (path, address_space) and not new), None)
        if child is not None:
            _idle.remove(child)
    if child is not None and not child.alive:
        child.stop()
        child = None
    child = child or Child(path, address_space)
    try:
        yield child
    finally:
        with _lock:
            if child.usable:
                _idle.append(child)
            stopped, _idle[:] = _idle[:-MAX_IDLE], _idle[-MAX_IDLE:]
        for each in stopped if child.usable else [*stopped, child]:
            each.stop()


def sandbox() -> list[str]:
    """Which restrictions of the kernel hold for children: of no_new_privs, landlock and seccomp."""
    with _borrowed_child("/", int(VideoLimits().process), new=True) as child:
        child.ask({"do": "check", "path": "/", "folder": "/", "cpu": START_SECONDS}, seconds=START_SECONDS)
        return child.sandbox


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


@dataclass(frozen=True)
class ChildDecoder:
    """Opens and decodes one video in a child process."""

    path: str | os.PathLike[str]
    spec: SampleSpec

    def check(self) -> tuple[VideoFile | None, str]:
        """The file and the version of what decodes it; None for a folder of pictures."""
        reply = self._ask("check")
        with self._checking():
            values = reply["file"]
            if values is None:
                return None, ""
            file = VideoFile(
                shown_name(self.path),
                _typed(values["path"], str),
                _typed(values["size"], int),
                b"",
                _typed(values["fingerprint"], str),
                tuple(_typed(each, int) for each in values["identity"]),
            )
            return file, _typed(reply["decoder"], str)

    def open(self, file: VideoFile | None) -> FileStream | FolderStream:
        """Inspect, measure and plan."""
        reply = self._ask("open", identity=file and file.identity)
        with self._checking():
            used = float(reply["used"])
            if file is not None:
                stream, _ = FileStream.from_json(_typed(reply["stream"], str).encode(), file, self.spec)
                return replace(stream, used=used)
            times, sampled = [float(each) for each in reply["times"]], [_typed(each, int) for each in reply["sampled"]]
            if not sampled or sampled != sorted(set(sampled)) or sampled[0] < 0 or sampled[-1] >= len(times):
                raise ValueError(sampled)
            info = checked_info(VideoInfo(**reply["info"]))
            return FolderStream(Path(self.path), info, (), times, sampled, self.spec, used)

    def expected_pts(self, stream: FileStream | FolderStream) -> list[int] | None:
        """When the sampled frames are shown, found without decoding; None if only decoding can tell."""
        if isinstance(stream, FolderStream):
            return stream.expected_pts()
        reply = self._ask("expect", stream)
        with self._checking():
            pts_list = reply["pts"]
            return None if pts_list is None else _rising(pts_list, most=stream.most_frames)

    def read(
        self,
        stream: FileStream | FolderStream,
        size: tuple[int, int],
        pts_list: Sequence[int] | None = None,
        *,
        whole: bool = False,
    ) -> tuple[FrameIndex, Pixels]:
        """Decode all sampled frames, or those at these rising pts, in shared memory."""
        rows = stream.most_frames if whole or pts_list is None else len(pts_list)
        shape = rows, size[1], size[0], 3
        with _shared_memory(math.prod(shape)) as shared_memory:
            request = {"size": size, "pts": pts_list if pts_list is None else list(pts_list), "whole": whole}
            reply = self._ask("read", stream, shared_memory=shared_memory, **request)
            with self._checking():
                index = FrameIndex(**reply["index"])
                index = index._replace(pts=tuple(_rising(index.pts, most=rows)))
                if not all(isinstance(each, int) for each in index[1:]):
                    raise TypeError(index)
                return index, _pixels(shared_memory, (len(index.pts), *shape[1:]))

    def tracks(self, file: VideoFile) -> bytes:
        """The subtitle tracks of the file, as JSON."""
        reply = self._ask("tracks", identity=file.identity)
        with self._checking():
            _ = [track_of(**each) for each in reply["tracks"]]
            return json.dumps(reply["tracks"]).encode()

    def text(self, file: VideoFile, number: int, start: float) -> list[Segment]:
        """The lines of a text track; `start` is when the video starts, by the file's clock."""
        reply = self._ask("text", identity=file.identity, number=number, start=start)
        with self._checking():
            return closed_lines((float(a), b and float(b), _typed(text, str)) for a, b, text in reply["lines"])

    def sound(self, file: VideoFile, start: float, most: int) -> tuple[npt.NDArray[np.int16], float]:
        """At most that many samples of the file's sound, and when the first is heard."""
        with _shared_memory(2 * most) as shared_memory:
            reply = self._ask("sound", identity=file.identity, start=start, shared_memory=shared_memory)
            with self._checking():
                samples, first = np.empty(_typed(reply["samples"], int), np.int16), float(reply["start"])
                if len(samples) > most or os.preadv(shared_memory, [samples.data], 0) != samples.nbytes:
                    raise ValueError(len(samples))
                return samples, first

    def _ask(
        self,
        do: str,
        stream: FileStream | FolderStream | None = None,
        *,
        shared_memory: int | None = None,
        **request: Any,
    ) -> dict[str, Any]:
        """The reply of a child, within what opening the stream has left of the time limit."""
        if isinstance(stream, FolderStream):
            request |= {"identity": None, "source": stream.source}
        elif stream is not None:
            request |= {"identity": stream.file.identity, "stream": stream.to_json(FrameIndex(())).decode()}
        limits, used = self.spec.limits, stream.used if stream else 0.0
        request |= {"do": do, "path": os.fspath(self.path), "spec": asdict(self.spec), "used": used}
        request |= {"folder": _current_folder(), "cpu": limits.seconds * usable_cores()}
        seconds = max(0.0, limits.seconds - used)
        return _ask_child(request, address_space=int(limits.process), seconds=seconds, shared_memory=shared_memory)

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Turn a malformed reply into an error; whoever exploits a decoder controls what the child says."""
        try:
            yield
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError, ZeroDivisionError):
            raise VideoError(f"{shown_name(self.path)}: the decoding process returned an invalid answer") from None


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _rising(pts_list: Sequence[Any], *, most: int) -> list[int]:
    checked = [int(_typed(each, int)) for each in pts_list]
    if len(checked) > most or checked != sorted(set(checked)):
        raise ValueError(checked)
    return checked


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed; a relative path leads nowhere then
        return "/"


@contextmanager
def _shared_memory(size: int) -> Iterator[int]:
    """A descriptor of that many bytes, which a child can write to but not resize; no name of it could stay behind."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gridprobe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, max(1, size))
        _seal(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _seal(descriptor: int) -> None:
    """Fix the size: reading a mapping whose file was truncated would crash this process."""
    import fcntl

    if hasattr(fcntl, "F_ADD_SEALS"):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def _pixels(descriptor: int, shape: tuple[int, int, int, int]) -> Pixels:
    """The shared memory as an array of this process."""
    size = math.prod(shape)
    if size >= MAP_FROM:
        # A private mapping: writable, as other arrays are, without a way back to the child.
        return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY), np.uint8).reshape(shape)
    pixels = np.empty(shape, np.uint8)
    if os.preadv(descriptor, [pixels.reshape(-1).data], 0) != size:
        raise ValueError(size)
    return pixels
