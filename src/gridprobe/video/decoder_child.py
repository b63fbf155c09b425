"""The process that decodes: reads requests from its parent, decodes, replies. `decoder_pool` starts it.

A request is one line of JSON on a socket, and so is a reply; progress is reported by lines in between. Pixels go into
shared memory that the parent made and sent along. Nothing is unpickled. The process sets its own limits, gives up
rights that decoding does not need, and ends when its parent ends, even inside a call of the decoder. From its first
request on it can open nothing but the video of that request, so each process serves one video.
"""

import ctypes
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
import stat
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridprobe._util import Listener, ProgressEvent, listening
from gridprobe.errors import GridProbeError, UsageError, VideoError
from gridprobe.video.decode import FileStream, open_file, read_sound, read_text, text_tracks
from gridprobe.video.files import VideoFile, VideoLimits, changed, check_file, shown_name
from gridprobe.video.sampling import FrameBuffer, FrameIndex, SampleSpec
from gridprobe.video.source import decoder_version

if TYPE_CHECKING:
    from gridprobe.video.pictures import FolderStream

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
    sandbox: dict[str, Any] = {}
    with socket.socket(fileno=connection) as parent:
        _send(parent, ready=True)
        while (received := _receive(parent)) is not None:
            _send(parent, **_reply(parent, *received, sandbox=sandbox, address_space=address_space))
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


# What a taken-over decoder must not do: read anything but its video, write, start programs, connect, or look into other
# processes.

RESTRICTIONS = {
    "no_new_privs": "nothing gives it rights back",
    "landlock": "it can read its video and no other file, and write none",
    "seccomp": "it cannot connect or start programs",
}
"""In the order in which a child gives its rights up."""
PR_SET_NO_NEW_PRIVS = 38
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_VERSION, BENEATH = 1, 1
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
"""Of Landlock's rights those that are kept for the video."""
FILE_RIGHTS, TRUNCATING, NET_RIGHTS, SCOPES = (1 << 13) - 1, 1 << 14, 3, 3
"""Of Landlock's version 1; since version 3; TCP, since version 4; signals and abstract sockets, since version 6."""
ALLOW, REFUSE, UNKNOWN, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
"""What seccomp does with a call; REFUSE is EPERM, UNKNOWN is ENOSYS."""
CLONE_THREAD, CLONE3 = 0x10000, 435
"""New threads are allowed and new processes are not; clone3 hides which it is, and glibc does without it."""
READ_ANY_FILE = 1 << 1 | 1 << 2
"""Root's capabilities to read what belongs to others, which are kept of all."""
SET_MODE_FILTER, SPEC_ALLOW = 1, 1 << 2
"""Without SPEC_ALLOW older kernels slow the whole process down."""
REFUSED = {
    "x86_64": (41, 42, 49, 50, 53, 57, 58, 59, *range(90, 95), 101, 260, 268, 272, 304, 308, 310, 311, 321, 322, 323),
    "aarch64": (*range(52, 56), 97, 117, *range(198, 202), 203, 221, 265, 268, 270, 271, 280, 281, 282),
}
"""Linux's numbers of socket, connect, bind, listen, socketpair, fork, vfork, execve, chmod and chown in all forms,
ptrace, unshare, open_by_handle_at, setns, process_vm_readv and _writev, bpf, execveat and userfaultfd."""
REFUSED_EVERYWHERE = (425, 438, 452)
"""io_uring_setup, pidfd_getfd and fchmodat2."""
MACHINES = {"x86_64": (0xC000003E, 317, 56), "aarch64": (0xC00000B7, 277, 220)}
"""Linux's number of the machine, of seccomp, and of clone."""


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def _confine(path: str) -> dict[str, Any]:
    """Restrict this process to the video at `path` for good, as far as the kernel can.

    Returns the names of the restrictions that hold now, and what the video is.
    """
    files = [path]
    if os.path.isdir(path):  # what is imported here can be read no more later
        from PIL import Image

        import gridprobe.video.pictures

        Image.init()
        with suppress(OSError), os.scandir(path) as entries:
            files += [entry.path for entry in entries if entry.is_symlink() and entry.is_file()]
    else:
        from av.subtitles import codeccontext, stream  # noqa: F401
        from PIL import ImageFile  # noqa: F401

        import gridprobe.video.reader  # noqa: F401
    identity, names = _identity(path), []
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        names = list(compress(RESTRICTIONS, (_drop_privileges(libc), _landlock(libc, files), _seccomp(libc))))
    return {"video": identity, "restrictions": names}


def _identity(path: str) -> tuple[int, ...] | None:
    """Which file this is, or which folder with these names in it; None if there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: no file can have this name
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns if stat.S_ISDIR(status.st_mode) else 0


def _drop_privileges(libc: ctypes.CDLL) -> bool:
    """Take root's capabilities but those to read files, and have no program give any back."""
    header, data = struct.pack("=Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, data) == 0:
        kept = [word & READ_ANY_FILE for word in struct.unpack("=6I", data.raw)[:2]]
        libc.capset(header, struct.pack("=6I", *kept, 0, 0, 0, 0))
    return bool(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)


def _landlock(libc: ctypes.CDLL, files: Sequence[str]) -> bool:
    """Refuse all but reading these files or folders; in any Landlock domain other processes cannot be looked into."""
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION)
    rights = FILE_RIGHTS | (TRUNCATING if version >= 3 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    handled = struct.pack("=QQQ", rights, NET_RIGHTS, SCOPES)
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, handled, ctypes.c_size_t(size), 0) if version > 0 else -1
    if ruleset < 0:
        return False
    for path in files:
        with suppress(OSError, ValueError):  # what is not there will not be read
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            kept = READ_FILE | (READ_FOLDER if os.path.isdir(path) else 0)
            libc.syscall(LANDLOCK_ADD_RULE, ruleset, BENEATH, struct.pack("=Qi", kept, file), 0)
            os.close(file)
    result = libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return bool(result == 0)


def _seccomp(libc: ctypes.CDLL) -> bool:
    """Refuse calls by their number; kill a process that calls by another machine's numbers."""
    name = os.uname().machine
    if name not in MACHINES:
        return False
    (machine, seccomp, clone), refused = MACHINES[name], (*REFUSED[name], *REFUSED_EVERYWHERE)
    load, equal, at_least, any_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06
    call, flags, of_machine = 0, 16, 4  # where these are in what a filter is shown
    steps = [(load, 0, 0, of_machine), (equal, 1, 0, machine), (end, 0, 0, KILL), (load, 0, 0, call)]
    steps += [(at_least, 0, 1, 1 << 30), (end, 0, 0, KILL), (equal, 0, 1, CLONE3), (end, 0, 0, UNKNOWN)]
    steps += [(equal, len(refused) - place + 1, 0, number) for place, number in enumerate(refused)]
    steps += [(equal, 2, 0, clone), (end, 0, 0, ALLOW), (end, 0, 0, REFUSE)]
    steps += [(load, 0, 0, flags), (any_bit, 0, 1, CLONE_THREAD), (end, 0, 0, ALLOW), (end, 0, 0, REFUSE)]
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    return bool(libc.syscall(seccomp, SET_MODE_FILTER, SPEC_ALLOW, ctypes.byref(_Filter(len(steps), program))) == 0)


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


def _reply(
    parent: socket.socket,
    request: dict[str, Any],
    shared_memory: int | None,
    *,
    sandbox: dict[str, Any],
    address_space: int,
) -> Reply:
    try:
        os.chdir(request["folder"])
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used + request["cpu"]), resource.RLIM_INFINITY))
        if not sandbox:
            sandbox.update(_confine(request["path"]))
        elif sandbox["video"] != _identity(request["path"]):
            return {"replaced": True}
        with listening(_progress_sender(parent) if request["progress"] else lambda _: None):
            return {"sandbox": sandbox["restrictions"], **ANSWERS[request["do"]](request, shared_memory)}
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


def _tracks(request: dict[str, Any], _: int | None) -> Reply:
    """Which subtitle tracks there are."""
    return {"tracks": text_tracks(_file(request), _spec(request["spec"]).limits)}


def _text(request: dict[str, Any], _: int | None) -> Reply:
    """The lines of one of them."""
    limits = _spec(request["spec"]).limits
    return {"lines": read_text(_file(request), limits, number=request["number"], start=request["start"])}


def _sound(request: dict[str, Any], shared_memory: int | None) -> Reply:
    """Decode the sound into the shared memory."""
    assert shared_memory is not None
    limits, buffer = _spec(request["spec"]).limits, memoryview(mmap.mmap(shared_memory, 0))
    count, start = read_sound(_file(request), limits, buffer, start=request["start"])
    return {"samples": count, "start": start}


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
    window = values["window"] and tuple(values["window"])
    return SampleSpec(**{**values, "limits": VideoLimits(**values["limits"]), "segments": segments, "window": window})


ANSWERS: dict[str, Callable[[dict[str, Any], int | None], Reply]] = {
    "check": _check,
    "open": _open,
    "expect": _expect,
    "read": _read,
    "tracks": _tracks,
    "text": _text,
    "sound": _sound,
}
