"""The process that decodes: reads requests from its parent, decodes, replies. `decoder_pool` starts it.

A request is one line of JSON on a socket, and so is a reply; progress is reported by lines in between. Pixels go into
shared memory that the parent made and sent along. Nothing is unpickled. The process sets its own limits
and ends when its parent ends, even inside a call of the decoder.
"""

import fcntl
import gc
import json
import math
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridprobe._util import Listener, ProgressEvent, listening
from gridprobe.errors import GridProbeError, UsageError, VideoError
from gridprobe.video.decode import FileStream, open_file
from gridprobe.video.files import VideoFile, VideoLimits, changed, check_file, shown_name
from gridprobe.video.sampling import FrameBuffer, FrameIndex, SampleSpec
from gridprobe.video.source import decoder_version

if TYPE_CHECKING:
    from gridprobe.video.pictures import FolderStream

__all__ = ["main"]

Reply = dict[str, Any]
STDERR_BYTES = 1 << 20
"""How much a decoder may write to its standard error, or to any other file."""
PROGRESS_SECONDS = 0.05
"""Least time between two messages about progress: each wakes the parent."""


def main(connection: int, lifeline: int, address_space: int) -> None:
    """Answer requests until the parent closes the connection.

    Args:
        connection: descriptor of the socket.
        lifeline: descriptor of a pipe whose other end only the parent holds.
        address_space: how many bytes of it this process may have.
    """
    _end_with_parent(lifeline)
    _set_limits(address_space)
    gc.freeze()  # what was imported is never garbage
    with socket.socket(fileno=connection) as parent:
        _send(parent, ready=True)
        while (received := _receive(parent)) is not None:
            _send(parent, **_reply(parent, *received, address_space=address_space))
            os.chdir("/")


def _end_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process when the pipe is closed, whatever runs here then; on Linux only.

    Elsewhere it ends with its request. PR_SET_PDEATHSIG would not do: it follows the thread that started this process.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(lifeline, 0)
    if watch.poll(0):  # the parent ended before the kernel was asked to watch it
        sys.exit()


def _set_limits(address_space: int) -> None:
    """Set hard limits, which nothing in this process can raise again, and disable core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (STDERR_BYTES, STDERR_BYTES))


def _receive(parent: socket.socket) -> tuple[dict[str, Any], int | None] | None:
    """The next request and the descriptor of its shared memory; None if the parent has closed the connection."""
    line, shared_memory = b"", None
    while not line.endswith(b"\n"):
        data, descriptors, _, _ = socket.recv_fds(parent, 1 << 16, 1)
        if not data:
            return None
        line += data
        shared_memory = descriptors[0] if descriptors else shared_memory
    return json.loads(line), shared_memory


def _send(parent: socket.socket, **message: Any) -> None:
    parent.sendall(json.dumps(message).encode() + b"\n")


def _progress_sender(parent: socket.socket) -> Listener:
    """Sends the first and the last event of a stage, and of those in between not more than the parent can show."""
    due = 0.0

    def send(event: ProgressEvent) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or event.done in (0, event.total):
            due = now + PROGRESS_SECONDS
            _send(parent, done=event.done, total=event.total)

    return send


def _reply(parent: socket.socket, request: dict[str, Any], shared_memory: int | None, *, address_space: int) -> Reply:
    try:
        os.chdir(request["folder"])
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used + request["cpu"]), resource.RLIM_INFINITY))
        with listening(_progress_sender(parent) if request["progress"] else lambda _: None):
            return ANSWERS[request["do"]](request, shared_memory)
    except MemoryError:
        name, amount = shown_name(request["path"]), f"{address_space / 2**30:.3g} GiB"
        return {
            "error": f"{name}: needs more memory than {amount}; raise the limit (VideoLimits.process)",
            "full": True,
        }
    except GridProbeError as error:
        return {"error": str(error), "usage": isinstance(error, UsageError)}
    except OSError as error:
        return {"error": f"{shown_name(request['path'])}: {error.strerror or 'cannot be read'}"}
    except ImportError as error:
        return {"error": f"PyAV cannot be imported ({shown_name(str(error))}); install it: pip install 'av>=17.1'"}
    finally:
        if shared_memory is not None:
            os.close(shared_memory)


def _check(request: dict[str, Any], _: int | None) -> Reply:
    """Identify a file, or say that it is a folder."""
    if os.path.isdir(request["path"]):
        return {"file": None, "decoder": ""}
    file = check_file(request["path"])
    return {"file": asdict(replace(file, head=b"")) | {"head": ""}, "decoder": decoder_version()}


def _open(request: dict[str, Any], _: int | None) -> Reply:
    """Inspect, measure and plan."""
    spec = _spec(request["spec"])
    if request["identity"] is None:
        from gridprobe.video.pictures import open_folder

        folder = open_folder(Path(request["path"]), spec)
        return {
            "info": asdict(folder.info),
            "times": list(folder.times),
            "sampled": folder.sampled,
            "used": folder.used,
        }
    stream = open_file(_file(request), spec)
    return {"stream": stream.to_json(FrameIndex(())).decode(), "used": stream.used}


def _expect(request: dict[str, Any], _: int | None) -> Reply:
    return {"pts": _stream(request).expected_pts()}


def _read(request: dict[str, Any], shared_memory: int | None) -> Reply:
    """Decode into the shared memory; the beginning of it holds the frames."""
    assert shared_memory is not None
    width, height = request["size"]
    buffer = FrameBuffer(memoryview(mmap.mmap(shared_memory, 0)), height, width)
    index = _stream(request).fill(buffer, request["pts"], whole=request["whole"])
    return {"index": index._asdict()}


def _stream(request: dict[str, Any]) -> "FileStream | FolderStream":
    """The stream that an earlier request opened, perhaps in another process."""
    spec = _spec(request["spec"])
    if request["identity"] is not None:
        stream, _ = FileStream.from_json(request["stream"].encode(), _file(request), spec)
        return replace(stream, used=request["used"])
    from gridprobe.video.pictures import open_folder  # imports Pillow

    folder = open_folder(Path(request["path"]), spec)
    if folder.source != request["source"]:
        raise VideoError(f"{folder.info.path}: the pictures changed while they were in use; try again")
    return folder


def _file(request: dict[str, Any]) -> VideoFile:
    file = check_file(request["path"])
    if list(file.identity) != request["identity"]:
        raise changed(file)
    return file


def _spec(values: dict[str, Any]) -> SampleSpec:
    segments = tuple((start, end) for start, end in values["segments"])
    return SampleSpec(**{**values, "limits": VideoLimits(**values["limits"]), "segments": segments})


ANSWERS: dict[str, Callable[[dict[str, Any], int | None], Reply]] = {
    "check": _check,
    "open": _open,
    "expect": _expect,
    "read": _read,
}
