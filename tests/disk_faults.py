"""Disk operations that fail in turn, as SQLite's tests make them fail.

    for disk in every_fault(folder):
        with disk:
            ...  # work in disk.place, until it ends or raises what a failing disk may raise
        ...  # open everything again, and check that nothing is lost

`every_fault` yields a fresh folder for each operation and kind of fault, until the work ends before the fault comes:

ENOSPC, EIO   the n-th operation fails once; of a write, half was done
full          from the n-th operation on, nothing can be created or written
crash         the process ends in place of the n-th operation: no later operation has any effect, and the kernel
              closes what is open; of a write, half was done
"""

import builtins
import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

KINDS = ("ENOSPC", "EIO", "full", "crash")
BY_PATH = (
    *("open", "replace", "rename", "link", "unlink", "mkdir", "rmdir"),
    *("scandir", "listdir", "stat", "lstat", "utime"),
)
BY_DESCRIPTOR = ("write", "fsync", "ftruncate", "close")
CREATE = ("replace", "rename", "link", "mkdir", "write", "fsync")


class Crash(BaseException):
    """The process ends here."""


class FaultyDisk:
    """A folder in which the n-th operation fails; a context manager that replaces the functions of `os`."""

    def __init__(self, place: Path, kind: str, at: int) -> None:
        self.place, self.kind, self.at = place, kind, at
        self.operations: list[str] = []
        self._open: set[int] = set()
        self._writable: set[int] = set()
        self._real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in (*BY_PATH, *BY_DESCRIPTOR)}
        self._open_file, self._flock, self._prefix = io.open, fcntl.flock, str(place)

    @property
    def struck(self) -> bool:
        """Whether the fault has come."""
        return len(self.operations) >= self.at

    def __enter__(self) -> "FaultyDisk":
        self._stack = ExitStack()
        for name in (*BY_PATH, *BY_DESCRIPTOR):
            self._stack.enter_context(mock.patch.object(os, name, self._wrapped(name)))
        self._stack.enter_context(mock.patch.object(fcntl, "flock", self._locked))
        for module in (io, builtins):
            self._stack.enter_context(mock.patch.object(module, "open", self._opened))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self.kind == "crash":
            for descriptor in self._open:
                os.close(descriptor)

    def _concerns(self, target: Any, dir_fd: int | None = None) -> bool:
        if isinstance(target, int):
            return target in self._open
        path = os.fspath(target) if isinstance(target, (str, os.PathLike)) else ""
        return dir_fd in self._open or path == self._prefix or path.startswith(self._prefix + os.sep)

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(*args: Any, **options: Any) -> Any:
            target: Any = args[0] if args else "."
            directory = options.get("dir_fd") or options.get("src_dir_fd")
            if not self._concerns(target, directory):
                return real(*args, **options)
            dead = self.kind == "crash" and self.struck
            if name == "close" and (dead or target not in self._writable):  # by the kernel; or it cannot fail
                return self._half_done(name, args)
            try:
                self._count(name, creates=name in CREATE or (name == "open" and bool(args[1] & os.O_CREAT)))
            except BaseException:
                self._half_done(name, args)
                raise
            found = real(*args, **options)
            if name == "open":
                self._open.add(found)
                if args[1] & (os.O_WRONLY | os.O_RDWR):
                    self._writable.add(found)
            if name == "close":
                self._forget(target)
            return found

        return call

    def _half_done(self, name: str, args: tuple[Any, ...]) -> None:
        """What a failing operation does nevertheless: half a write, and a close always closes."""
        if name == "write" and self.struck_now:
            self._real["write"](args[0], bytes(args[1])[: len(args[1]) // 2])
        if name == "close":
            self._real["close"](args[0])
            self._forget(args[0])

    def _forget(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        self._writable.discard(descriptor)

    @property
    def struck_now(self) -> bool:
        """Whether the last operation is the one that failed."""
        return len(self.operations) == self.at

    def _count(self, name: str, *, creates: bool) -> None:
        self.operations.append(name)
        if self.kind == "full" and self.struck_now and not creates:
            self.at += 1  # reading works on a full disk
        if self.kind == "crash" and self.struck:
            raise Crash(f"in place of {name}, operation {self.at}")
        if self.struck_now and self.kind in ("ENOSPC", "EIO"):
            code = errno.ENOSPC if self.kind == "ENOSPC" else errno.EIO
            raise OSError(code, os.strerror(code))
        if self.kind == "full" and self.struck and creates:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _locked(self, descriptor: int, operation: int) -> None:
        if self._concerns(descriptor):
            self._count("flock", creates=False)
        self._flock(descriptor, operation)

    def _opened(self, file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not self._concerns(file):
            return self._open_file(file, mode, *args, **options)
        if "r" in mode:
            self._count("open", creates=False)
            return self._open_file(file, mode, *args, **options)
        flags = os.O_CREAT | os.O_WRONLY | (os.O_TRUNC if "w" in mode else os.O_APPEND)
        return _Written(file if isinstance(file, int) else os.open(file, flags, 0o666))


class _Written:
    """A file that is written without a buffer, by the functions of `os`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, content: str | bytes) -> int:
        left = memoryview(content.encode() if isinstance(content, str) else content)
        while left:
            left = left[os.write(self._descriptor, left) :]
        return len(content)


def every_fault(folder: Path, kinds: Sequence[str] = KINDS) -> Iterator[FaultyDisk]:
    """A disk for each kind of fault and operation; the last one of each kind never fails."""
    for kind in kinds:
        at, struck = 0, True
        while struck:
            at += 1
            disk = FaultyDisk(folder / f"{kind}-{at}", kind, at)
            yield disk
            at, struck = disk.at, disk.struck
        assert at > 10, f"only {at - 1} operations: the functions of os are not replaced"
