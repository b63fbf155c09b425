"""Save a result to the file that the user named."""

import os
from pathlib import Path

from gridprobe import _util
from gridprobe.errors import UsageError


def check_writable(path: Path) -> None:
    """Raise UsageError if the file cannot be written; the command line calls this before any work starts."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise UsageError(
            f"cannot write {path}: the folder {target.parent} does not exist; name a file in a folder that exists"
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: you may not write to the folder {target.parent}; choose another folder")
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file; name a file instead")


def write_whole(path: Path, content: bytes) -> None:
    """Write the file completely or not at all. A symbolic link is followed; only a regular file is replaced."""
    check_writable(path)
    try:
        _util.write_whole(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that you may write to"
        ) from None
