"""sample_in_child(): sample() in a process of its own, with limits, for untrusted videos.

A decoder is a million lines of C. If it crashes, allocates memory without end or never returns from a call, the child
ends and the caller gets a VideoError. Each video gets a new child, so one video cannot affect the next; starting a
child takes some 0.2 s.

The request is JSON on the child's standard input, the answer JSON lines on its standard output, the pixels an unnamed
temporary file. Nothing is unpickled, and the answer is treated as untrusted: an attacker who exploits the decoder
controls the child.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from selectors import EVENT_READ, DefaultSelector
from threading import Thread
from typing import IO, Any, get_type_hints

import numpy as np

from gridprobe.cores import usable_cores
from gridprobe.errors import GridProbeError, UsageError, VideoError
from gridprobe.progress import listening, report
from gridprobe.video.files import shown_name
from gridprobe.video.footage import sample
from gridprobe.video.frames import NATIVE, FramePool, FrameSize
from gridprobe.video.info import VideoInfo
from gridprobe.video.limits import Deadline, Limits
from gridprobe.video.sampling import Precision, Sampling

__all__ = ["MEMORY", "main", "sample_in_child"]

MEMORY = 4 << 30
"""Default limit on a child's address space, in bytes; decoders never touch most of what they reserve."""
GRACE = 3.0
"""Seconds beyond the video's own limit before the child is killed: it needs time to start and to end by itself."""
MAX_LINE = 1 << 20
Child = subprocess.Popen[bytes]
START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gridprobe.video.child import main; main()"


def sample_in_child(
    path: str | os.PathLike[str],
    *,
    cells: int,
    sampling: Sampling = "middle",
    precision: Precision = "exact",
    size: FrameSize = NATIVE,
    limits: Limits | None = None,
    memory: int = MEMORY,
    cpu: float | None = None,
) -> FramePool:
    """As `sample`, in a process with at most `memory` bytes of address space and `cpu` seconds of processor time.

    `cpu` defaults to `limits.seconds` on every core. `limits.seconds` holds even inside a single call of the decoder,
    or of a disk that does not respond, since the child is killed. Be generous with memory, as FFmpeg's H.264 decoder
    reports a lack of it as damage: 8K video takes 0.9 GB on two cores, ten hours of video 0.1 GB more for each core.
    """
    limits = limits or Limits()
    if not memory > 0 or not (cpu is None or 0 < cpu < math.inf):
        raise UsageError(f"memory and cpu must be above 0, got {memory!r} and {cpu!r}")
    request = {
        "path": os.fsdecode(path),
        "cells": cells,
        "sampling": sampling,
        "precision": precision,
        "size": asdict(size),
        "limits": asdict(limits),
        "memory": int(memory),
        "cpu": math.ceil(limits.seconds * usable_cores() if cpu is None else cpu),
    }
    with tempfile.TemporaryFile() as pixels:
        answer = _ask(request, pixels, limits.seconds)
        try:
            return _pool(answer, pixels, request)
        except (KeyError, TypeError, ValueError, OverflowError, UsageError):
            raise VideoError(f"{shown_name(path)}: the decoding process returned an invalid answer") from None


def _ask(request: dict[str, Any], pixels: IO[bytes], seconds: float) -> dict[str, Any]:
    """Start a child, forward the progress it reports, and return its answer."""
    name, answer = shown_name(request["path"]), None
    with _running_child(request, pixels) as (child, errors):
        try:
            for line in _lines(child, time.monotonic() + seconds + GRACE):
                message = _parsed(line)
                done, total = message.get("done"), message.get("total")
                if isinstance(done, int) and isinstance(total, int):
                    report("decode", done, total)
                else:
                    answer = message or answer
            code = child.wait(GRACE)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise Deadline(name, seconds).error() from None
        if code or answer is None:
            raise VideoError(f"{name}: {_reason(code, request, errors)}")
    if "error" in answer:
        raise (UsageError if answer.get("usage") else VideoError)(str(answer["error"]))
    return answer


@contextmanager
def _running_child(request: dict[str, Any], pixels: IO[bytes]) -> Iterator[tuple[Child, IO[bytes]]]:
    """A child that was sent its request, and the file with its standard error; killed at the end of the block."""
    # One OpenBLAS thread and two malloc arenas: each more would reserve address space, which the limit counts.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    request = {**request, "pixels": pixels.fileno()}
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[pixels.fileno()],
            env=environment,
        )
        assert child.stdin is not None and child.stdout is not None
        with child.stdout:
            try:
                with suppress(BrokenPipeError), child.stdin as sent:
                    sent.write(json.dumps(request).encode())
                yield child, errors
            finally:
                child.kill()
                _reap(child)


def _reap(child: Child) -> None:
    """Wait for a killed child, in a thread if it takes long: a process blocked on a dead disk cannot be killed."""
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        Thread(target=child.wait, name="reap", daemon=True).start()


def _lines(child: Child, end: float) -> Iterator[bytes]:
    """The child's output, line by line; TimeoutError if it has not ended by `end`."""
    assert child.stdout is not None
    rest = b""
    with DefaultSelector() as waiting:
        waiting.register(child.stdout, EVENT_READ)
        while (left := end - time.monotonic()) > 0:
            if not waiting.select(left):
                continue
            if not (data := os.read(child.stdout.fileno(), 65536)):
                return
            *lines, rest = (rest[-MAX_LINE:] + data).split(b"\n")
            yield from lines
    raise TimeoutError


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _reason(code: int, request: dict[str, Any], errors: IO[bytes]) -> str:
    """Why a child ended without an answer."""
    if code == -signal.SIGXCPU:
        return f"decoding took more than {request['cpu']} s of processor time; raise the limit (cpu=)"
    if code == -signal.SIGKILL:
        return "the decoding process was killed, perhaps because the machine ran out of memory"
    if code < 0:
        return f"the decoder crashed ({signal.Signals(-code).name}); the file is damaged or hostile"
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
    last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    return f"the decoding process failed ({shown_name(last[0]) if last else f'exit code {code}'})"


def _pool(answer: dict[str, Any], pixels: IO[bytes], request: dict[str, Any]) -> FramePool:
    """The frames a child returned. It may be hostile, so types and sizes are checked; the rest is only data."""
    count, height, width, _ = shape = tuple(map(int, answer["shape"]))
    if not 1 <= count <= request["cells"] or min(shape) < 1 or os.fstat(pixels.fileno()).st_size != math.prod(shape):
        raise ValueError
    info = VideoInfo(**answer["info"])
    for name, kind in get_type_hints(VideoInfo).items():
        if not isinstance(getattr(info, name), kind):
            raise TypeError
    pixels.seek(0)
    return FramePool(
        np.fromfile(pixels, np.uint8).reshape(count, height, width, 3),
        tuple(map(float, answer["times"])),
        source=info.fingerprint,
        info=replace(info, path=shown_name(request["path"])),
        warnings=tuple(map(str, answer["warnings"])),
        substituted=int(answer["substituted"]),
    )


def main() -> None:
    """Run the child: read a request, set the limits, answer."""
    request = json.load(sys.stdin)
    _set_limits(memory=request["memory"], cpu=request["cpu"])
    try:
        with listening(lambda event: _send(done=event.done, total=event.total)):
            pool = _sample(request)
    except MemoryError:
        amount = f"{request['memory'] / 2**30:.3g} GiB"
        _send(error=f"{shown_name(request['path'])}: needs more memory than {amount}; raise the limit (memory=)")
    except GridProbeError as error:
        _send(error=str(error), usage=isinstance(error, UsageError))
    else:
        with open(request["pixels"], "wb") as file:
            pool.pixels.tofile(file)
        assert pool.info is not None
        info = {each.name: getattr(pool.info, each.name) for each in fields(pool.info)}
        facts = {"times": pool.times, "warnings": pool.warnings, "substituted": pool.substituted}
        _send(shape=pool.pixels.shape, info=info, **facts)


def _sample(request: dict[str, Any]) -> FramePool:
    return sample(
        request["path"],
        cells=request["cells"],
        sampling=request["sampling"],
        precision=request["precision"],
        size=FrameSize(**request["size"]),
        limits=Limits(**request["limits"]),
    )


def _send(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def _set_limits(*, memory: int, cpu: int) -> None:
    """Set hard limits, which nothing in this process can raise again, and disable core dumps."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (memory, memory))
