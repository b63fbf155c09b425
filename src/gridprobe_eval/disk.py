"""All disk access of an evaluation, in one place, so that a test can make any of it fail."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from gridprobe import _util
from gridprobe._util import Disk
from gridprobe.errors import RunError

STARTING = 2.0
"""Seconds that a process may take to start, on a busy machine."""
DISK = Disk()
"""Does every write; a test replaces it to make one fail."""


@contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a RunError that a user can act on."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(
            f"cannot write {path}: {reason}; what was recorded before is safe, and the same command goes on from there"
        ) from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an OSError of reading into a RunError that a user can act on."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot read {path}: {reason}; check the disk, then repeat the command") from error


def listed(folder: Path, pattern: str) -> list[Path]:
    """The files whose names fit the pattern, sorted. Unlike Path.glob, never an incomplete list."""
    with readable(folder):
        return sorted(folder / name for name in os.listdir(folder) if fnmatchcase(name, pattern))


def remove(path: Path) -> None:
    """Delete a file if it exists."""
    with one_sentence(path):
        path.unlink(missing_ok=True)


def append(descriptor: int, line: bytes, *, size: int) -> int:
    """Add a line to a file of the given size, and return its new size once the line is on the disk.

    After a failure the line is removed again: otherwise it could be read and counted without being on the disk.
    """
    try:
        if DISK.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        DISK.sync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    return size + len(line)


def new_file(path: Path) -> int | None:
    """Create a file and lock it for as long as it is open; None if it already exists."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    with one_sentence(path):
        try:
            descriptor = os.open(path, flags, 0o644)
        except FileExistsError:
            return None
        try:
            _flock(descriptor, shared=False, wait=True)
            _util.sync_folder(path.parent, disk=DISK)
        except OSError:
            with suppress(OSError):  # an empty file does no harm
                path.unlink()
            close(descriptor)
            raise
    return descriptor


def close(descriptor: int) -> None:
    """Close a file of which everything that counts was synced before, and give its lock back.

    A process that was just started has the descriptor, too, until it runs its program: closing ours is not enough.
    """
    with suppress(OSError, ModuleNotFoundError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
    with suppress(OSError):  # it is closed in any case
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file completely or not at all; one that is not `durable` may be lost in a power cut."""
    with one_sentence(path):
        _util.write_whole(path, content, durable=durable, disk=DISK)


def _flock(descriptor: int, *, shared: bool, wait: bool) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # the rest of gridprobe works without it
        raise RunError("evaluations need file locks as Unix has them, and this system has none") from None
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def lock(path: Path, *, wait: bool) -> int | None:
    """A descriptor that holds the file's lock until it is closed or the process ends; None if the lock is taken."""
    with one_sentence(path):
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            _flock(descriptor, shared=False, wait=wait)
        except BlockingIOError:
            close(descriptor)
            return None
        except OSError:
            close(descriptor)
            raise
    return descriptor


def stays_held(path: Path) -> bool:
    """Whether a file's lock is held for longer than a process takes to start.

    A process that was just being started when its parent died has the descriptor, too, until it runs its program.
    """
    end = time.monotonic() + STARTING
    while held(path):
        if time.monotonic() >= end:
            return True
        time.sleep(0.05)
    return False


def held(path: Path) -> bool:
    """Whether any process, on this machine or another, holds the file's lock; RunError where that cannot be found."""
    with readable(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not block
        except FileNotFoundError:
            return False
        try:
            _flock(descriptor, shared=True, wait=False)
        except BlockingIOError:
            return True
        finally:
            close(descriptor)
    return False
