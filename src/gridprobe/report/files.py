"""Writing a file whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from gridprobe.errors import UsageError

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write to a temporary neighbour, then rename: a reader sees the old file or the new one, never half of one."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file; name a file instead")
    temporary = target.parent / f".gridprobe-{secrets.token_hex(8)}.tmp"
    try:
        temporary.write_bytes(content)
        os.replace(temporary, target)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that you may write to"
        ) from None
    finally:
        with suppress(OSError):  # after a rename, or where nothing could be written, there is nothing to remove
            temporary.unlink()
