"""Strict JSON, and files that are written completely or not at all."""

import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Disk", "parse_json", "sync_folder", "write_whole"]

SURROGATE = re.compile("\\\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""A surrogate or its escape, of which JSON may have one half without the other."""


def parse_json(text: str | bytes, *, floats: bool = True) -> Any:
    """As json.loads, but NaN, Infinity, half surrogate pairs and deep nesting raise ValueError, too.

    Without `floats`, numbers with a fraction or an exponent stay text, which is faster.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        found = (_DECODER if floats else _LIGHT_DECODER).decode(text)
        if SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        if "set_int_max_str_digits" in str(error):  # Python's advice is for programmers
            raise ValueError("a whole number has too many digits") from None
        raise
    return found


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_LIGHT_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=str)


class Disk:
    """The calls that fail when a disk is full or broken; a test replaces them to make them fail."""

    def write(self, descriptor: int, content: bytes) -> int:
        """Return how many bytes were written, which can be fewer than given."""
        return os.write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        """Return once everything is on the disk itself."""
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file atomically, replacing the target."""
        os.replace(source, target)


_DISK = Disk()


def write_whole(path: Path, content: bytes, *, durable: bool = False, disk: Disk = _DISK) -> None:
    """Write a temporary file beside `path`, then rename it: a reader sees the old file or the new one, never a part.

    A `durable` file is on the disk when this returns; any other may be lost in a power cut. Failures are OSErrors.
    """
    temporary = path.parent / f".gridprobe-{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
        try:
            while content:
                content = content[disk.write(descriptor, content) :]
            if durable:
                disk.sync(descriptor)
        finally:
            os.close(descriptor)
        disk.replace(temporary, path)
    finally:
        with suppress(OSError):  # after the rename, or if it was never created, there is nothing to remove
            temporary.unlink()
    if durable:
        sync_folder(path.parent, disk=disk)


def sync_folder(folder: Path, *, disk: Disk = _DISK) -> None:
    """Make new names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
