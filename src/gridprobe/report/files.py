"""Writing a result to the file that the user named."""

import os
from pathlib import Path

from gridprobe import files
from gridprobe.errors import UsageError

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write the file completely or not at all; a link is followed, and only a regular file is replaced."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file; name a file instead")
    try:
        files.write_whole(target, content)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that you may write to"
        ) from None
